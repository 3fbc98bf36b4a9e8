//! Announces commands to peers that do not poll. A *run* consists of messages with `FI_MORE` and
//! the first message without. The endpoint announces a run once, at its end, or by progress if the
//! end does not come.
//!
//! The commands of a run are committed one by one. If the first one is held back until the others
//! are committed, each message takes a tenth to a half longer (measured), because the peer is idle
//! meanwhile.

use selvedge::OpFlags;
use selvedge_kit::Ep;

use crate::connect::packet::encode_wake;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;

/// Announces the last commit to a peer that does not poll: at once, or at the end of the run if
/// `flags` contain `FI_MORE`.
#[inline(always)]
pub(crate) fn announce(peer: &mut Peer, flags: OpFlags, schedule: &mut Schedule, ep: &Ep) {
    if !peer.is_polling() {
        announce_unpolled(peer, flags, schedule, ep);
    }
}

/// [`announce`] for a peer that does not poll.
#[cold]
fn announce_unpolled(peer: &mut Peer, flags: OpFlags, schedule: &mut Schedule, ep: &Ep) {
    if flags.contains(OpFlags::MORE) {
        peer.has_unannounced_commands = true;
        schedule.activate(peer, ep);
    } else {
        peer.ring();
    }
}

impl Peer {
    /// Whether the peer polls this endpoint's commands, as the peer has published last.
    #[inline(always)]
    pub(crate) fn is_polling(&self) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| inbox.region.is_polling())
    }

    /// Announces the last commit to the peer unless it polls.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        if !self.is_polling() {
            self.ring();
        }
    }

    /// Rings the doorbell for all commits so far, and wakes the peer if it is parked.
    pub(crate) fn ring(&mut self) {
        self.has_unannounced_commands = false;
        self.ring_and_wake();
    }

    /// Sets the doorbell bit of a peer that does not poll, and wakes the peer if it is parked.
    #[cold]
    #[inline(never)]
    fn ring_and_wake(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.bell.ring();
            self.wake();
        } else if let Some(connection) = self.connections.first() {
            // The peer has this endpoint's outbox and may be parked, but this endpoint has not
            // received the peer's hello yet.
            let _ = connection.send(&encode_wake(), &[]);
        }
    }

    /// Wakes the peer if it is parked. Call it after a commit to a queue of the peer.
    #[inline]
    pub(crate) fn wake(&mut self) {
        let inbox = self.inbox.as_ref();
        if let Some(epoch) = inbox.and_then(|inbox| inbox.wake_record.epoch_to_wake(&inbox.region))
        {
            self.wake_in_epoch(epoch);
        }
    }

    #[cold]
    fn wake_in_epoch(&mut self, epoch: u64) {
        let (Some(inbox), Some(connection)) = (&mut self.inbox, self.connections.first()) else {
            return;
        };
        // A full socket needs no wake packet: the waiting packets wake the peer. Nor does a closed
        // socket.
        if connection.send(&encode_wake(), &[]).is_ok() {
            inbox.wake_record.record_wake(epoch);
        }
    }

    /// Announces the commands of an unfinished run. Returns whether there was one.
    pub(crate) fn announce_pending(&mut self) -> bool {
        let has_unannounced_commands = self.has_unannounced_commands;
        if has_unannounced_commands {
            self.ring();
        }
        has_unannounced_commands
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::Arc;

    use selvedge::{
        AddressVector, Bindings, CompletionQueue, Context, Endpoint as _, FiAddr, Hints, Iov, Msg,
        Registry, av, cq, msg,
    };

    use super::*;
    use crate::Endpoint;
    use crate::endpoint::state::State;

    /// An endpoint with its queue and address vector.
    struct Side {
        ep: Arc<Endpoint>,
        cq: Arc<dyn CompletionQueue>,
        av: Arc<dyn AddressVector>,
    }

    impl Side {
        fn open() -> Self {
            let registry = Registry::new().with(&crate::PROVIDER);
            let info = registry.infos(&Hints::new()).unwrap().remove(0);
            let domain = info.open().unwrap();
            let cq = domain.cq(&cq::Attr::default()).unwrap();
            let av = domain.av(&av::Attr::default()).unwrap();
            let bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
            let ep: Arc<dyn Any + Send + Sync> = domain.endpoint(&info, bind).unwrap();
            let ep = ep.downcast().unwrap();
            Self { ep, cq, av }
        }

        fn state<T>(&self, read: impl FnOnce(&mut State) -> T) -> T {
            read(&mut self.ep.shell.lock().unwrap())
        }

        /// Clears the doorbell. Returns the number of bits set since the last call: 0 or 1.
        fn drain_rings(&self) -> usize {
            let mut rung = 0;
            self.state(|state| state.control.doorbell.drain(64, |_| rung += 1));
            rung
        }

        /// Stops polling all peers.
        fn stop_polling(&self) {
            self.state(|state| {
                for peer in state.peers.iter() {
                    let out = peer.out.as_ref().unwrap();
                    out.region.set_polled(false);
                }
            });
        }
    }

    #[expect(unsafe_code, reason = "a send of constant bytes")]
    fn send(from: &Side, to: FiAddr, len: usize, flags: OpFlags) {
        static BYTES: [u8; 100] = [7; 100];
        let msg = msg::SendMsg {
            iov: &[Iov::new(&BYTES[..len])],
            desc: &[],
            dest: to,
            context: Context(0),
            data: 0,
        };
        // SAFETY: the bytes are never freed nor written.
        unsafe { from.ep.sendmsg(&msg, flags) }.unwrap();
    }

    #[test]
    fn a_run_is_announced_once_at_its_end_or_by_progress() {
        let (a, b) = (Side::open(), Side::open());
        let to = a.av.insert_one(&b.ep.address().unwrap()).unwrap();
        let plain = OpFlags::empty();
        send(&a, to, 8, plain);
        let is_connected = || a.state(|state| state.peers[0].inbox.is_some());
        while !is_connected() {
            a.cq.read(&mut []).unwrap();
            b.cq.read(&mut []).unwrap();
        }
        b.stop_polling();
        b.drain_rings();
        for len in [8, 48, 100] {
            for _ in 0..5 {
                send(&a, to, len, OpFlags::MORE);
            }
            assert_eq!(b.drain_rings(), 0, "announced before the end of the run");
            send(&a, to, len, plain);
            assert_eq!(b.drain_rings(), 1, "not announced at the end of the run");
            // A run without an end.
            send(&a, to, len, OpFlags::MORE);
            assert_eq!(b.drain_rings(), 0);
            a.cq.read(&mut []).unwrap();
            assert_eq!(b.drain_rings(), 1, "not announced by progress");
            a.cq.read(&mut []).unwrap();
            assert_eq!(b.drain_rings(), 0, "announced twice");
        }
    }
}
