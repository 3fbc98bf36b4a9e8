//! The usual messages: few bytes or a payload in the pool, no data, nobody to tell, and a receive that
//! needs no search. They are most of all messages, and are taken without being parsed.

use selvedge::FiAddr;
use selvedge::cq::Entry;
use selvedge_kit::Ep;
use selvedge_kit::cq::Sink;
use selvedge_kit::sight;
use selvedge_kit::srx::{Kind, Matcher, Posted, Source};

use crate::cmd;
use crate::peer::{Inbox, Peer};
use crate::proto::{inject, inline};
use crate::state::{Inbound, State, Unexpected};

/// Payloads whose first cache line is fetched while the next one is awaited, in bytes. It saves a
/// round trip of the line; a larger payload is still being written when its line would be taken
/// away, which costs more.
pub(crate) const EXPECTED_MAX: usize = 512;

/// A receive that can be looked at without a search.
pub(crate) trait Next {
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted>;
    fn drop(matcher: &mut Matcher<Unexpected>);
}

/// The one that was posted first.
pub(crate) struct Oldest;

impl Next for Oldest {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.oldest(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_oldest();
    }
}

/// The first of those behind many that wait long.
pub(crate) struct Newer;

impl Next for Newer {
    #[inline(always)]
    fn find(matcher: &mut Matcher<Unexpected>, src: Source, tag: u64) -> Option<&mut Posted> {
        matcher.newer(src, tag)
    }

    #[inline(always)]
    fn drop(matcher: &mut Matcher<Unexpected>) {
        matcher.drop_newer();
    }
}

impl State {
    /// What takes the usual commands of a peer, and the peer.
    #[inline(always)]
    pub(crate) fn receiving(&mut self, index: usize) -> (Receiving<'_>, &mut Peer) {
        let peer = &mut self.peers[index];
        let receiving = Receiving {
            inbound: &mut self.inbound,
            ep: &self.ep,
            source: Source(index as u32),
            addr: peer.fi_addr(&self.av),
        };
        (receiving, peer)
    }
}

/// What takes the usual commands of one peer.
pub(crate) struct Receiving<'a> {
    inbound: &'a mut Inbound,
    ep: &'a Ep,
    source: Source,
    addr: FiAddr,
}

impl Receiving<'_> {
    /// Takes commands that are as usual: a message without data, inside or in the pool, of which
    /// nobody wants to hear, and the receive is for it that `R` looks at. Stops at the first that
    /// is not.
    #[inline(always)]
    pub(crate) fn take_plain<R: Next>(
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
            let Some((kind, len)) = cmd::plain(&slot) else {
                if !self.take_pooled::<R>(inbox, sink) {
                    break;
                }
                taken += 1;
                continue;
            };
            let tag = slot.word(1);
            let matcher = self.inbound.matcher(kind);
            let Some(posted) = R::find(matcher, self.source, tag) else {
                break;
            };
            if !posted.buf.is_one_for(len) {
                break;
            }
            inline::receive(&slot, cmd::PLAIN_PAYLOAD, len, &mut posted.buf);
            inbox.payload_expected = false;
            let flags = posted.flags;
            let entry = plain_entry(posted, kind, len, tag);
            R::drop(matcher);
            inbox.rx.release();
            self.ep.rx_report(entry, flags, self.addr, sink);
            taken += 1;
        }
        taken
    }

    /// Takes a command whose message is in the pool. `false`, and nothing has happened, if it is not
    /// as usual.
    #[inline(never)]
    fn take_pooled<R: Next>(&mut self, inbox: &mut Inbox, sink: &mut Sink<'_>) -> bool {
        let Some(slot) = inbox.rx.peek() else {
            return false;
        };
        let Some((kind, len, offset)) = cmd::pooled(&slot) else {
            return false;
        };
        let tag = slot.word(1);
        let matcher = self.inbound.matcher(kind);
        let posted = R::find(matcher, self.source, tag);
        let Some(posted) = posted.filter(|posted| posted.buf.len() >= len) else {
            return false;
        };
        let walked = inbox.walk;
        let Ok(at) = inject::locate(inbox, offset, len) else {
            inbox.walk = walked;
            return false;
        };
        inbox.payload_expected = len <= EXPECTED_MAX;
        inject::receive(inbox, at, len, &mut posted.buf);
        let flags = posted.flags;
        let entry = plain_entry(posted, kind, len, tag);
        R::drop(matcher);
        inbox.rx.release();
        self.ep.sight.count_way(sight::Way::ReceivedInject, len);
        self.ep.rx_report(entry, flags, self.addr, sink);
        true
    }
}

/// The completion of a receive that a message without data has filled.
#[inline(always)]
fn plain_entry(posted: &Posted, kind: Kind, len: usize, tag: u64) -> Entry {
    Entry {
        context: posted.context,
        flags: kind.received(),
        len,
        tag,
        ..Entry::default()
    }
}
