//! Runs of messages: those with `FI_MORE` and the first one without. A peer that has to be told of
//! commands is told once, at the end of the run, or by progress if the end does not come.
//!
//! Commands are committed one by one all the same. To hold the first of a run back until the others
//! are there, so that the peer finds all of them together, was measured: it costs a tenth to a half
//! more for each message, because the peer has nothing to do meanwhile.

use selvedge::OpFlags;
use selvedge_kit::Ep;

use crate::connect::packet::encode_wake;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;

/// Tells a peer of what was just committed for it, unless it polls anyway: now, or at the end of the
/// run that a message with these flags is in.
#[inline(always)]
pub(crate) fn announce(peer: &mut Peer, flags: OpFlags, schedule: &mut Schedule, ep: &Ep) {
    if !peer.is_looking() {
        ring(peer, flags, schedule, ep);
    }
}

#[cold]
fn ring(peer: &mut Peer, flags: OpFlags, schedule: &mut Schedule, ep: &Ep) {
    if flags.contains(OpFlags::MORE) {
        peer.is_untold = true;
        schedule.activate(peer, ep);
    } else {
        peer.ring();
    }
}

impl Peer {
    /// Whether the peer looks at our commands anyway, as far as is known.
    #[inline(always)]
    pub(crate) fn is_looking(&self) -> bool {
        let inbox = self.inbox.as_ref();
        inbox.is_some_and(|inbox| inbox.region.is_attentive())
    }

    /// Tells the peer of what was just committed for it, unless it looks anyway.
    #[inline(always)]
    pub(crate) fn announce(&mut self) {
        if !self.is_looking() {
            self.ring();
        }
    }

    /// Tells the peer of what was committed for it.
    pub(crate) fn ring(&mut self) {
        self.is_untold = false;
        self.call();
    }

    /// The peer does not poll: rings, and wakes it if it is parked.
    #[cold]
    #[inline(never)]
    fn call(&mut self) {
        if let Some(inbox) = &self.inbox {
            inbox.bell.ring();
            self.wake();
        } else if let Some(link) = self.links.first() {
            // It has our outbox and may be parked already, but its own hello was not heard here yet.
            let _ = link.send(&encode_wake(), &[]);
        }
    }

    /// Wakes the peer if it is parked. To be called after something was put where it polls.
    #[inline]
    pub(crate) fn wake(&mut self) {
        let inbox = self.inbox.as_ref();
        if let Some(night) = inbox.and_then(|inbox| inbox.caller.night(&inbox.region)) {
            self.wake_in(night);
        }
    }

    #[cold]
    fn wake_in(&mut self, night: u64) {
        let (Some(inbox), Some(link)) = (&mut self.inbox, self.links.first()) else {
            return;
        };
        // A peer whose socket is full is woken by what is in there; one that is gone by nothing.
        if link.send(&encode_wake(), &[]).is_ok() {
            inbox.caller.has_called(night);
        }
    }

    /// Ends a run whose last message has not come. Says whether there was one.
    pub(crate) fn end_run(&mut self) -> bool {
        let is_untold = self.is_untold;
        if is_untold {
            self.ring();
        }
        is_untold
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

        fn state<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
            look(&mut self.ep.shell.lock().unwrap())
        }

        /// How often peers have rung since the last time: once or not at all.
        fn rung(&self) -> usize {
            let mut rung = 0;
            self.state(|state| state.control.doorbell.drain(64, |_| rung += 1));
            rung
        }

        /// Does not look at what its peers commit from now on.
        fn look_away(&self) {
            self.state(|state| {
                for peer in state.peers.iter() {
                    let out = peer.out.as_ref().unwrap();
                    out.region.set_attentive(false);
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
        let greeted = || a.state(|state| state.peers[0].inbox.is_some());
        while !greeted() {
            a.cq.read(&mut []).unwrap();
            b.cq.read(&mut []).unwrap();
        }
        b.look_away();
        b.rung();
        for len in [8, 48, 100] {
            for _ in 0..5 {
                send(&a, to, len, OpFlags::MORE);
            }
            assert_eq!(b.rung(), 0, "told before the end of the run");
            send(&a, to, len, plain);
            assert_eq!(b.rung(), 1, "not told at the end of the run");
            // The end of a run may not come.
            send(&a, to, len, OpFlags::MORE);
            assert_eq!(b.rung(), 0);
            a.cq.read(&mut []).unwrap();
            assert_eq!(b.rung(), 1, "not told by progress");
            a.cq.read(&mut []).unwrap();
            assert_eq!(b.rung(), 0, "told twice");
        }
    }
}
