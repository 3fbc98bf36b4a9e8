//! The fast path of received messages: messages with an inline or pooled payload, without
//! acknowledgement, for a receive that needs no search. Most messages are of this kind,
//! and the fast path takes them without parsing their commands.

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, FiAddr};
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::{Kind, Matcher, Posted, Source};
use selvedge_kit::telemetry;

use crate::matching::{Matching, Unexpected};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::provider::av::Av;
use crate::transfers::cmd::{self, PooledMessage};
use crate::transfers::{inject, inline};

/// The longest payload, in bytes, whose first cache line the receiver prefetches while it waits for
/// the next message. The prefetch saves a round trip of the line. With a larger payload the sender
/// is still writing when the prefetch takes the line away, which costs more than it saves.
pub(crate) const PREFETCH_PAYLOAD_MAX: usize = 512;

/// A lookup of a receive without a search.
pub(crate) trait ReceiveLookup {
    /// Finds the receive, if it matches a message of this source with this tag.
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted>;
    /// Drops the receive that [`Self::find`] has found.
    fn drop(matcher: &mut Matcher<Unexpected>);
}

/// The receive that was posted first.
pub(crate) struct Oldest;

impl ReceiveLookup for Oldest {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.oldest(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_oldest();
    }
}

/// The first receive that the matcher has not indexed.
pub(crate) struct FirstUnindexed;

impl ReceiveLookup for FirstUnindexed {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.first_unindexed(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_first_unindexed();
    }
}

/// The fast path for the commands of one peer.
#[derive(Debug)]
pub(crate) struct FastPath<'a> {
    matching: &'a mut Matching,
    ep: &'a Ep,
    source: Source,
    addr: FiAddr,
}

impl<'a> FastPath<'a> {
    #[inline(always)]
    pub(crate) fn new(matching: &'a mut Matching, ep: &'a Ep, peer: &mut Peer, av: &Av) -> Self {
        Self {
            matching,
            ep,
            source: peer.source(),
            addr: peer.fi_addr(av),
        }
    }
}

impl FastPath<'_> {
    /// Takes commands whose messages match the receives that `R` finds. Stops at the first command
    /// that needs the slow path. Returns the number of commands taken.
    #[inline(always)]
    pub(crate) fn take<R: ReceiveLookup>(
        &mut self,
        peer: &mut Peer,
        budget: usize,
        sink: &mut Sink<'_>,
    ) -> usize {
        if self.ep.is_unknown(self.addr) {
            return 0;
        }
        let Some(inbox) = &mut peer.inbox else {
            return 0;
        };
        let mut taken = 0;
        while taken < budget
            && let Some(slot) = inbox.rx.peek()
        {
            let Some((kind, len)) = cmd::parse_inline_message(&slot) else {
                if !self.reborrow().take_other::<R>(inbox, sink) {
                    break;
                }
                taken += 1;
                continue;
            };
            let tag = slot.word(1);
            let matcher = self.matching.matcher(kind);
            let Some(posted) = R::find(matcher, self.source, tag) else {
                break;
            };
            if !posted.buf.is_one_for(len) {
                break;
            }
            inline::receive(&slot, cmd::INLINE_PAYLOAD_WORD, len, &mut posted.buf);
            inbox.expects_payload = false;
            let flags = posted.flags;
            let entry = completion_entry(posted, kind, len, tag);
            R::drop(matcher);
            inbox.rx.release();
            self.ep.rx_report(entry, flags, self.addr, sink);
            taken += 1;
        }
        taken
    }

    /// The same parts for a call that is not inlined. The caller's struct itself is then never in
    /// memory.
    #[inline(always)]
    fn reborrow(&mut self) -> FastPath<'_> {
        FastPath {
            matching: &mut *self.matching,
            ep: self.ep,
            source: self.source,
            addr: self.addr,
        }
    }

    /// Takes a command whose message has remote data or is in the inject pool. Returns `false`
    /// without effect if the command needs the slow path.
    #[inline(never)]
    fn take_other<R: ReceiveLookup>(&mut self, inbox: &mut Inbox, sink: &mut Sink<'_>) -> bool {
        let Some(slot) = inbox.rx.peek() else {
            return false;
        };
        let Some((kind, len, data)) = cmd::parse_inline_message_with_data(&slot) else {
            return self.take_pooled::<R>(inbox, sink);
        };
        let tag = slot.word(1);
        let matcher = self.matching.matcher(kind);
        let posted = R::find(matcher, self.source, tag);
        let Some(posted) = posted.filter(|posted| posted.buf.is_one_for(len)) else {
            return false;
        };
        let word = cmd::INLINE_PAYLOAD_WORD_WITH_DATA;
        inline::receive(&slot, word, len, &mut posted.buf);
        inbox.expects_payload = false;
        let flags = posted.flags;
        let entry = with_data(completion_entry(posted, kind, len, tag), data);
        R::drop(matcher);
        inbox.rx.release();
        self.ep.rx_report(entry, flags, self.addr, sink);
        true
    }

    /// Takes a command whose message is in the inject pool. Returns `false` without effect if the
    /// command needs the slow path.
    #[inline(always)]
    fn take_pooled<R: ReceiveLookup>(&mut self, inbox: &mut Inbox, sink: &mut Sink<'_>) -> bool {
        let Some(slot) = inbox.rx.peek() else {
            return false;
        };
        let Some(message) = cmd::parse_inject_message(&slot) else {
            return false;
        };
        let PooledMessage {
            kind, len, offset, ..
        } = message;
        let tag = slot.word(1);
        let matcher = self.matching.matcher(kind);
        let posted = R::find(matcher, self.source, tag);
        let Some(posted) = posted.filter(|posted| posted.buf.len() >= len) else {
            return false;
        };
        let saved_position = inbox.pool_position;
        let Ok(start) = inject::locate(inbox, offset, len) else {
            inbox.pool_position = saved_position;
            return false;
        };
        inbox.expects_payload = len <= PREFETCH_PAYLOAD_MAX;
        inject::receive(inbox, start, len, &mut posted.buf);
        let flags = posted.flags;
        let mut entry = completion_entry(posted, kind, len, tag);
        if let Some(data) = message.data {
            entry = with_data(entry, data);
        }
        R::drop(matcher);
        inbox.rx.release();
        self.ep
            .stats
            .count_protocol(telemetry::ProtocolCounter::ReceivedInject, len);
        self.ep.rx_report(entry, flags, self.addr, sink);
        true
    }
}

/// The completion entry of a receive that a message has filled, without remote data.
#[inline(always)]
fn completion_entry(posted: &Posted, kind: Kind, len: usize, tag: u64) -> Entry {
    Entry {
        context: posted.context,
        flags: kind.received(),
        len,
        tag,
        ..Entry::default()
    }
}

/// The entry of a receive whose message has remote data.
#[inline(always)]
fn with_data(mut entry: Entry, data: u64) -> Entry {
    entry.flags |= CompletionFlags::REMOTE_CQ_DATA;
    entry.data = data;
    entry
}
