//! Dispatch of received messages.

use selvedge::cq::Entry;

use super::state::Engine;
use crate::net::recv::{BufferedMessage, Payload, Short};
use crate::net::wire::{self, WireMessage};

impl Engine {
    /// Handles a message in a receive buffer.
    #[inline]
    pub(super) fn handle_buffer(
        &mut self,
        net: usize,
        index: usize,
        from: Option<usize>,
        entry: &Entry,
    ) {
        let message = self.receives.message(net, index, entry.len);
        match (
            from,
            message.and_then(Short::copy_of),
            wire::port_of_invocation(entry.tag),
        ) {
            (Some(from), Some(short), Some(port)) => {
                self.on_invoke(from, port, Payload::Short(short));
            }
            _ => self.handle_buffer_slow_path(net, index, from, entry),
        }
        self.receives.mark_idle(index);
    }

    #[inline(never)]
    fn handle_buffer_slow_path(
        &mut self,
        net: usize,
        index: usize,
        from: Option<usize>,
        entry: &Entry,
    ) {
        match (from, self.receives.shared_message(net, index, entry.len)) {
            (Some(from), Some(buffered)) => self.dispatch(from, entry.tag, buffered),
            _ => log::warn!(
                "context {}: a message from an unknown sender was dropped",
                self.rank
            ),
        }
    }

    /// Dispatches a message by its kind.
    fn dispatch(&mut self, from: usize, tag: u64, buffered: BufferedMessage) {
        if let Some(port) = wire::port_of_invocation(tag) {
            return self.on_invoke(from, port, Payload::Buffered(buffered));
        }
        let message = buffered.bytes();
        let Some((message, bytes)) = wire::parse(tag, message) else {
            log::warn!(
                "context {}: {} bytes from context {from} cannot be parsed",
                self.rank,
                message.len()
            );
            return;
        };
        match message {
            WireMessage::Put { to, bell, local } => self.on_put(from, to, bytes, [bell, local]),
            WireMessage::Ring { bell } => self.ring_for(from, bell),
            WireMessage::Barrier {
                round,
                epoch,
                registered,
            } => self.on_barrier(from, round, epoch, registered),
            message => self.dispatch_slow_path(from, message, bytes),
        }
    }

    #[inline(never)]
    fn dispatch_slow_path(&mut self, from: usize, message: WireMessage, bytes: &[u8]) {
        match message {
            WireMessage::InvokeFetch {
                port,
                source,
                token,
            } => self.on_invoke_fetch(from, port, source, token),
            WireMessage::PutRequest {
                to,
                len,
                token,
                bell,
            } => self.on_put_request(from, (to, len), token, bell),
            WireMessage::Writable { token } => self.on_writable(from, token),
            WireMessage::Get {
                from: address,
                len,
                token,
                bell,
            } => self.on_get(from, address, len, token, bell),
            WireMessage::Bytes { token } => self.on_bytes(from, token, bytes),
            WireMessage::Readable { token } => self.on_readable(from, token),
            WireMessage::Done { token } => self.on_done(from, token),
            WireMessage::Failed { token, at_source } => self.on_failed(from, token, at_source),
            WireMessage::PutFailed { to, len, local } => self.on_put_failed(from, to, len, local),
            WireMessage::NoFunction { id, registered } => self.on_no_function(from, id, registered),
            WireMessage::Special {
                start,
                len,
                key,
                base,
            } => self.on_special(from, start, len, key, base),
            WireMessage::Withdrawn { start } => self.on_withdrawn(from, start),
            WireMessage::StatusRequest { token } => self.on_status_request(from, token),
            WireMessage::StatusResponse { token, entered } => {
                self.peers[from].entered = Some((token, entered))
            }
            WireMessage::Names => self.on_names(from, bytes),
            WireMessage::PeerFailed { context } => self.on_peer_failed(context, bytes),
            WireMessage::Broken => self.on_broken(bytes),
            WireMessage::Flush { token } => self.send(from, &WireMessage::Done { token }, &[]),
            WireMessage::Close => self.on_close(from),
            WireMessage::Hello => self.watch(from),
            WireMessage::Invoke { .. }
            | WireMessage::Put { .. }
            | WireMessage::Ring { .. }
            | WireMessage::Barrier { .. } => {}
        }
    }
}
