//! Dispatch of received messages.

use selvedge::cq::Entry;

use super::Engine;
use crate::recv::{Part, Payload, Short};
use crate::wire::{self, Said};

impl Engine {
    /// Handles a message in a receive buffer.
    #[inline]
    pub(super) fn arrived(&mut self, net: usize, index: usize, from: Option<usize>, entry: &Entry) {
        let message = self.receives.message(net, index, entry.len);
        match (
            from,
            message.and_then(Short::copy_of),
            wire::invoked(entry.tag),
        ) {
            (Some(from), Some(short), Some(port)) => {
                self.hear_invoke(from, port, Payload::Short(short));
            }
            _ => self.arrived_otherwise(net, index, from, entry),
        }
        self.receives.returned(index);
    }

    #[inline(never)]
    fn arrived_otherwise(&mut self, net: usize, index: usize, from: Option<usize>, entry: &Entry) {
        match (from, self.receives.part(net, index, entry.len)) {
            (Some(from), Some(part)) => self.message(from, entry.tag, part),
            _ => log::warn!("context {}: a message of nobody's was dropped", self.me),
        }
    }

    /// Takes one message.
    fn message(&mut self, from: usize, tag: u64, part: Part) {
        if let Some(port) = wire::invoked(tag) {
            return self.hear_invoke(from, port, Payload::Part(part));
        }
        let message = part.bytes();
        let Some((said, bytes)) = wire::parse(tag, message) else {
            log::warn!(
                "context {}: {} bytes from context {from} make no sense",
                self.me,
                message.len()
            );
            return;
        };
        match said {
            Said::Put { to, bell, local } => self.hear_put(from, to, bytes, [bell, local]),
            Said::Ring { bell } => self.ring_for(from, bell),
            Said::Barrier {
                round,
                epoch,
                registered,
            } => self.hear_barrier(from, round, epoch, registered),
            said => self.hear_other(from, said, bytes),
        }
    }

    #[inline(never)]
    fn hear_other(&mut self, from: usize, said: Said, bytes: &[u8]) {
        match said {
            Said::InvokeFetch {
                port,
                source,
                token,
            } => self.hear_invoke_fetch(from, port, source, token),
            Said::AskPut {
                to,
                len,
                token,
                bell,
            } => self.hear_ask_put(from, (to, len), token, bell),
            Said::Writable { token } => self.hear_writable(from, token),
            Said::Get {
                from: address,
                len,
                token,
                bell,
            } => self.hear_get(from, address, len, token, bell),
            Said::Bytes { token } => self.hear_bytes(from, token, bytes),
            Said::Readable { token } => self.hear_readable(from, token),
            Said::Done { token } => self.hear_done(from, token),
            Said::Failed { token, at_source } => self.hear_failed(from, token, at_source),
            Said::PutFailed { to, len, local } => self.hear_put_failed(from, to, len, local),
            Said::NoFunction { id, known } => self.hear_no_function(from, id, known),
            Said::Special {
                start,
                len,
                key,
                base,
            } => self.hear_special(from, start, len, key, base),
            Said::Withdrawn { start } => self.hear_withdrawn(from, start),
            Said::Ask { token } => self.hear_ask(from, token),
            Said::Answer { token, entered } => self.peers[from].entered = Some((token, entered)),
            Said::Names => self.hear_names(from, bytes),
            Said::Lost { context } => self.hear_lost(context, bytes),
            Said::Broken => self.hear_broken(bytes),
            Said::Flush { token } => self.send(from, &Said::Done { token }, &[]),
            Said::Bye => self.hear_bye(from),
            Said::Hello => self.watch(from),
            Said::Invoke { .. } | Said::Put { .. } | Said::Ring { .. } | Said::Barrier { .. } => {}
        }
    }
}
