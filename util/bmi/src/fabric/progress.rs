//! Progress: completions of the fabric become what the desk is told.

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Errno, FiAddr};

use super::peers::Peers;
use super::{Fabric, mark, unexpected};
use crate::Code;
use crate::control::desk::Desk;
use crate::ids::OpKey;
use crate::support::gossip;

impl Fabric {
    /// Moves what can move, and tells of it.
    #[inline]
    pub(super) fn drive(&mut self, desk: &mut Desk) {
        let read = self.cq.read_from(&mut *self.entries, &mut *self.sources);
        self.take(read, desk);
        if !self.peers.is_calm() {
            self.retry(desk);
        }
        if self.slabs.are_wanted(desk) {
            self.slabs.refill(&*self.ep);
        }
    }

    /// Tells of what is over already, without moving anything.
    #[inline]
    pub(super) fn settle(&mut self, desk: &mut Desk) {
        let read = self.cq.read_ready(&mut *self.entries, &mut *self.sources);
        self.take(read, desk);
    }

    #[inline]
    fn take(&mut self, read: selvedge::Result<usize>, desk: &mut Desk) {
        match read {
            Ok(count) => (0..count).for_each(|place| self.done(place, desk)),
            Err(Errno::Avail) => self.take_errors(desk),
            Err(errno) => gossip::err(format_args!("the completion queue cannot be read: {errno}")),
        }
    }

    /// Tells of the completion at a place of those that were read.
    #[inline]
    fn done(&mut self, place: usize, desk: &mut Desk) {
        let (entry, src) = (&self.entries[place], self.sources[place]);
        let key = OpKey(entry.context.0);
        let is_own = key.0 & (mark::SLAB | mark::SENTRY) != 0;
        if is_own || !entry.flags.contains(CompletionFlags::RECV) {
            return self.done_otherwise(*entry, src, desk);
        }
        if let Some(peer) = self.peers.get_mut(src) {
            peer.is_met = true;
        }
        desk.complete(key, Ok(entry.len as u64));
    }

    /// What is not an expected message.
    #[inline(never)]
    fn done_otherwise(&mut self, entry: Entry, src: FiAddr, desk: &mut Desk) {
        let context = entry.context.0;
        if context & (mark::SLAB | mark::SENTRY) != 0 {
            return self.arrived(&entry, src, desk);
        }
        let key = OpKey(context);
        if let Some(op) = desk.ops.get(key) {
            let (size, addr) = (op.size, op.addr);
            if let Ok(dest) = desk.references.resolve(addr)
                && let Some(peer) = self.peers.get_mut(Peers::addr(dest))
            {
                peer.is_met = true;
            }
            desk.complete(key, Ok(size));
        }
    }

    /// An unexpected message has arrived.
    fn arrived(&mut self, entry: &Entry, src: FiAddr, desk: &mut Desk) {
        let context = entry.context.0;
        if context & mark::SLAB == 0 {
            return;
        }
        match self.slabs.bytes(context, entry.buf, entry.len) {
            Some(bytes) if src != FiAddr::UNSPEC => {
                let (tag, class) = unexpected::parse(entry.data);
                let from = self.peers.meet(src);
                if let Some(peer) = self.peers.get_mut(src) {
                    peer.is_met = true;
                    if std::mem::take(&mut peer.has_gone) {
                        desk.set_back(from);
                    }
                }
                desk.arrive(from, tag, class, bytes);
                if self.peers.lacks_sentry(src) {
                    self.watch(src);
                }
            }
            Some(_) | None => gossip::err(format_args!(
                "an unexpected message of {} bytes from {src:?} is no message of BMI",
                entry.len
            )),
        }
        if entry.flags.contains(CompletionFlags::MULTI_RECV) {
            self.slabs.give_back(context);
        }
    }

    #[cold]
    fn take_errors(&mut self, desk: &mut Desk) {
        while let Ok(error) = self.cq.read_err() {
            self.failed(&error, desk);
        }
    }

    fn failed(&mut self, error: &ErrEntry, desk: &mut Desk) {
        let context = error.entry.context.0;
        if context & mark::SLAB != 0 {
            return self.arrived_oddly(error, desk);
        }
        if context & mark::SENTRY != 0 {
            return self.sentry_fell(FiAddr(context & !mark::SENTRY), error, desk);
        }
        let code = match error.errno {
            Errno::AddrNotAvail => Code::EPROTO,
            Errno::Canceled => Self::cancelled(OpKey(context), desk),
            errno => Code::from(errno),
        };
        gossip::debug(
            gossip::Mask::METHOD,
            format_args!("operation {context:#x}: {}: {}", error.errno, error.detail),
        );
        if !matches!(error.errno, Errno::Canceled | Errno::Trunc) {
            self.lost(error.src, error.errno);
        }
        desk.complete(OpKey(context), Err(code));
    }

    /// Why an operation was cancelled: nobody has to ask for it when its peer is gone.
    pub(super) fn cancelled(key: OpKey, desk: &Desk) -> Code {
        let gone = desk.ops.get(key).map(|op| desk.references.resolve(op.addr));
        gone.and_then(Result::err).unwrap_or(Code::ECANCEL)
    }

    /// A message of a stranger, whom we know from now on, or one that was too long.
    fn arrived_oddly(&mut self, error: &ErrEntry, desk: &mut Desk) {
        let sender = error
            .sender()
            .filter(|_| error.errno == Errno::AddrNotAvail);
        let src = sender.and_then(|address| self.av.insert_one(&address).ok());
        match src {
            Some(src) => self.arrived(&error.entry, src, desk),
            None => {
                if error.errno != Errno::Canceled {
                    let (errno, detail) = (error.errno, &error.detail);
                    gossip::err(format_args!(
                        "an unexpected message is lost: {errno}: {detail}"
                    ));
                }
                if error.entry.flags.contains(CompletionFlags::MULTI_RECV) {
                    self.slabs.give_back(error.entry.context.0);
                }
            }
        }
    }

    /// The receive that watches a peer has failed: the peer is gone.
    fn sentry_fell(&mut self, addr: FiAddr, error: &ErrEntry, desk: &mut Desk) {
        if error.errno == Errno::Canceled {
            return;
        }
        let Some(peer) = self.peers.get_mut(addr) else {
            return;
        };
        peer.has_sentry = false;
        peer.is_met = false;
        peer.has_gone = !peer.is_named;
        let gone = self.peers.meet(addr);
        if let Some(forgotten) = desk.set_gone(gone) {
            self.forget(forgotten);
        }
    }
}
