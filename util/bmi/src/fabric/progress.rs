//! Progress: translates completions of the fabric into reports to the queues.

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Errno, FiAddr};

use super::endpoint::Fabric;
use super::peers::Peers;
use super::wire::{context_flags, decode_data};
use crate::Code;
use crate::control::queues::MethodQueues;
use crate::ids::OpKey;
use crate::support::gossip;

impl Fabric {
    /// Progresses the endpoint and reports its completions.
    #[inline]
    pub(super) fn progress_endpoint(&mut self, queues: &mut MethodQueues) {
        let read = self.cq.read_from(&mut *self.entries, &mut *self.sources);
        self.report(read, queues);
        if self.peers.has_backlog() {
            self.retry(queues);
        }
        if self.slabs.should_post(queues) {
            self.slabs.refill(&*self.ep);
        }
    }

    /// Reports completions that are available without progress.
    #[inline]
    pub(super) fn report_ready(&mut self, queues: &mut MethodQueues) {
        let read = self.cq.read_ready(&mut *self.entries, &mut *self.sources);
        self.report(read, queues);
    }

    #[inline]
    fn report(&mut self, read: selvedge::Result<usize>, queues: &mut MethodQueues) {
        match read {
            Ok(count) => (0..count).for_each(|index| self.report_entry(index, queues)),
            Err(Errno::Avail) => self.report_errors(queues),
            Err(errno) => gossip::err(format_args!("the completion queue cannot be read: {errno}")),
        }
    }

    /// Reports the completion at an index of the entries read.
    #[inline]
    fn report_entry(&mut self, index: usize, queues: &mut MethodQueues) {
        let (entry, src) = (&self.entries[index], self.sources[index]);
        let key = OpKey(entry.context.0);
        let is_method_operation = key.0 & (context_flags::SLAB | context_flags::WATCH) != 0;
        if is_method_operation || !entry.flags.contains(CompletionFlags::RECV) {
            return self.report_slow_path(*entry, src, queues);
        }
        if let Some(peer) = self.peers.get_mut(src) {
            peer.is_connected = true;
        }
        queues.complete(key, Ok(entry.len as u64));
    }

    /// Slow path for completions other than received expected messages.
    #[inline(never)]
    fn report_slow_path(&mut self, entry: Entry, src: FiAddr, queues: &mut MethodQueues) {
        let context = entry.context.0;
        if context & (context_flags::SLAB | context_flags::WATCH) != 0 {
            return self.report_unexpected(&entry, src, queues);
        }
        let key = OpKey(context);
        if let Some(op) = queues.ops.get(key) {
            let (size, addr) = (op.size, op.addr);
            if let Ok(dest) = queues.references.resolve(addr)
                && let Some(peer) = self.peers.get_mut(Peers::addr(dest))
            {
                peer.is_connected = true;
            }
            queues.complete(key, Ok(size));
        }
    }

    /// Reports an unexpected message.
    fn report_unexpected(&mut self, entry: &Entry, src: FiAddr, queues: &mut MethodQueues) {
        let context = entry.context.0;
        if context & context_flags::SLAB == 0 {
            return;
        }
        match self.slabs.bytes(context, entry.buf, entry.len) {
            Some(bytes) if src != FiAddr::UNSPEC => {
                let (tag, class) = decode_data(entry.data);
                let from = self.peers.insert(src);
                if let Some(peer) = self.peers.get_mut(src) {
                    peer.is_connected = true;
                    if std::mem::take(&mut peer.has_disconnected) {
                        queues.set_connected(from);
                    }
                }
                queues.receive_unexpected(from, tag, class, bytes);
                if self.peers.needs_watch(src) {
                    self.watch(src);
                }
            }
            Some(_) | None => gossip::err(format_args!(
                "an unexpected message of {} bytes from {src:?} is not a BMI message",
                entry.len
            )),
        }
        if entry.flags.contains(CompletionFlags::MULTI_RECV) {
            self.slabs.release(context);
        }
    }

    #[cold]
    fn report_errors(&mut self, queues: &mut MethodQueues) {
        while let Ok(error) = self.cq.read_err() {
            self.report_error(&error, queues);
        }
    }

    fn report_error(&mut self, error: &ErrEntry, queues: &mut MethodQueues) {
        let context = error.entry.context.0;
        if context & context_flags::SLAB != 0 {
            return self.report_unexpected_error(error, queues);
        }
        if context & context_flags::WATCH != 0 {
            return self.handle_failed_watch(
                FiAddr(context & !context_flags::WATCH),
                error,
                queues,
            );
        }
        let code = match error.errno {
            Errno::AddrNotAvail => Code::EPROTO,
            Errno::Canceled => Self::cancel_code(OpKey(context), queues),
            errno => Code::from(errno),
        };
        gossip::debug(
            gossip::Mask::METHOD,
            format_args!("operation {context:#x}: {}: {}", error.errno, error.detail),
        );
        if !matches!(error.errno, Errno::Canceled | Errno::Trunc) {
            self.peer_failure(error.src, error.errno);
        }
        queues.complete(OpKey(context), Err(code));
    }

    /// The code of a cancelled operation: EPIPE if its peer has disconnected, otherwise ECANCEL.
    pub(super) fn cancel_code(key: OpKey, queues: &MethodQueues) -> Code {
        let resolved = queues
            .ops
            .get(key)
            .map(|op| queues.references.resolve(op.addr));
        resolved.and_then(Result::err).unwrap_or(Code::ECANCEL)
    }

    /// Handles a failed multi-receive. Inserts an unknown sender into the address vector and
    /// reports its message; logs every other error.
    fn report_unexpected_error(&mut self, error: &ErrEntry, queues: &mut MethodQueues) {
        let sender = error
            .sender()
            .filter(|_| error.errno == Errno::AddrNotAvail);
        let src = sender.and_then(|address| self.av.insert_one(&address).ok());
        match src {
            Some(src) => self.report_unexpected(&error.entry, src, queues),
            None => {
                if error.errno != Errno::Canceled {
                    let (errno, detail) = (error.errno, &error.detail);
                    gossip::err(format_args!(
                        "an unexpected message is lost: {errno}: {detail}"
                    ));
                }
                if error.entry.flags.contains(CompletionFlags::MULTI_RECV) {
                    self.slabs.release(error.entry.context.0);
                }
            }
        }
    }

    /// Handles the failed watch receive of a peer, which means that the peer has disconnected.
    fn handle_failed_watch(&mut self, addr: FiAddr, error: &ErrEntry, queues: &mut MethodQueues) {
        if error.errno == Errno::Canceled {
            return;
        }
        let Some(peer) = self.peers.get_mut(addr) else {
            return;
        };
        peer.has_watch = false;
        peer.is_connected = false;
        peer.has_disconnected = !peer.is_named;
        let peer = self.peers.insert(addr);
        if let Some(forgotten) = queues.set_disconnected(peer) {
            self.forget(forgotten);
        }
    }
}
