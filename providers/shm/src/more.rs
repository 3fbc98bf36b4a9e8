//! Runs of messages: those with `FI_MORE` and the first one without. A peer that has to be told of
//! commands is told once, at the end of the run, or by progress if the end does not come.
//!
//! Commands are committed one by one all the same. To hold the first of a run back until the others
//! are there, so that the peer finds all of them together, was measured: it costs a tenth to a half
//! more for each message, because the peer has nothing to do meanwhile.

use selvedge::{FiAddr, OpFlags};

use crate::peer::Peer;
use crate::state::State;

impl State {
    /// Tells a peer of what was just committed for it, unless it looks anyway.
    #[inline(always)]
    pub(crate) fn announce(&mut self, index: usize, flags: OpFlags) {
        if !self.peers[index].is_looking() {
            self.ring(index, flags);
        }
    }

    /// [`Self::ring`], for the peer at an index of the address vector that is known.
    #[cold]
    pub(crate) fn ring_at(&mut self, addr: FiAddr, flags: OpFlags) {
        if let Ok(index) = self.peer_at(addr) {
            self.ring(index, flags);
        }
    }

    /// Tells the peer, now or at the end of the run that a message with these flags is in.
    #[cold]
    pub(crate) fn ring(&mut self, index: usize, flags: OpFlags) {
        if flags.contains(OpFlags::MORE) {
            self.peers[index].is_untold = true;
            self.activate(index);
        } else {
            self.peers[index].ring();
        }
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
        AddressVector, Bindings, CompletionQueue, Context, Endpoint as _, Hints, Iov, Msg,
        Registry, av, cq, msg,
    };

    use super::*;
    use crate::Endpoint;

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
            look(&mut self.ep.inner.state.lock().unwrap())
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
                for peer in &state.peers {
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
