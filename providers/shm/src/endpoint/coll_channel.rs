//! `CollectiveChannel`: a queue beside the command queue, for messages of collectives that fit into
//! a slot.
//!
//! Messages are written and read without the endpoint's lock, and change neither the credit nor the
//! poll state of the command queue. The receiver's collective layer polls the channel; the sender
//! checks whether the peer is parked. A channel keeps the memory of both sides mapped, so the
//! messages of a disconnected peer can still be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::coll::{self, SMALL_MESSAGE_MAX, SmallMessage};
use selvedge_kit::shell::Core;

use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::smr::cmd_queue::{Credit, Receiver, Sender};
use crate::smr::poll_state::ParkedFlag;
use crate::smr::{PeerRegion, Region};

/// The first payload word of a slot, behind the tag.
const PAYLOAD_WORD: usize = 2;

/// The channels of an endpoint, for the collective layer.
#[derive(Debug)]
pub(crate) struct CollectiveChannels {
    core: Arc<Core<State>>,
    ended_incarnations: Arc<AtomicU64>,
}

impl CollectiveChannels {
    pub(crate) fn for_endpoint(
        core: &Arc<Core<State>>,
    ) -> Option<Arc<dyn coll::CollectiveChannels>> {
        let ended_incarnations = Arc::clone(&core.state.lock().ok()?.setup.ended_incarnations);
        let core = Arc::clone(core);
        Some(Arc::new(Self {
            core,
            ended_incarnations,
        }))
    }
}

impl coll::CollectiveChannels for CollectiveChannels {
    fn incarnation(&self, peer: FiAddr) -> Result<u64> {
        let mut state = self.core.state.lock()?;
        let index = state.peers.resolve(peer)?;
        let peer = &state.peers[index];
        if peer.out.is_some() && peer.inbox.is_some() {
            Ok(u64::from(peer.incarnation) << 32 | index as u64)
        } else {
            Err(Errno::NotConn)
        }
    }

    fn open(&self, incarnation: u64) -> Result<Box<dyn coll::CollectiveChannel>> {
        let mut state = self.core.state.lock()?;
        let channel = peer_in_incarnation(&mut state.peers, incarnation)
            .and_then(|peer| CollectiveChannel::open(peer));
        Ok(Box::new(channel.ok_or(Errno::NotConn)?))
    }

    fn wake(&self, incarnation: u64) {
        if let Ok(mut state) = self.core.state.lock()
            && let Some(peer) = peer_in_incarnation(&mut state.peers, incarnation)
        {
            peer.wake();
        }
    }

    fn disconnect(&self, incarnation: u64) {
        if let Ok(mut state) = self.core.state.lock()
            && peer_in_incarnation(&mut state.peers, incarnation).is_some()
        {
            let reason = "a malformed message of a collective";
            state
                .connector()
                .disconnect_for_violation(index_of(incarnation), reason);
        }
    }

    #[inline]
    fn ended_count(&self) -> u64 {
        self.ended_incarnations.load(Ordering::Relaxed)
    }

    fn has_ended(&self, incarnation: u64) -> bool {
        let state = self.core.state.lock();
        state.is_ok_and(|mut state| peer_in_incarnation(&mut state.peers, incarnation).is_none())
    }
}

/// The index of the peer in an incarnation number: its lower half. The upper half counts the peer's
/// incarnations.
fn index_of(incarnation: u64) -> usize {
    incarnation as u32 as usize
}

/// Returns the peer that is in this incarnation, unless the incarnation has ended.
fn peer_in_incarnation(peers: &mut Peers, incarnation: u64) -> Option<&mut Peer> {
    let peer = peers.get_mut(index_of(incarnation));
    peer.filter(|peer| u64::from(peer.incarnation) == incarnation >> 32)
}

/// The channel to and from one peer.
#[derive(Debug)]
struct CollectiveChannel {
    tx: Sender,
    rx: Receiver,
    /// The word by which this endpoint returns slots to the peer.
    local_credit: Credit,
    /// The word by which the peer returns slots to this endpoint.
    remote_credit: Credit,
    /// The position of `rx` that was published last.
    published: u64,
    peer: ParkedFlag,
}

impl CollectiveChannel {
    fn open(peer: &Peer) -> Option<Self> {
        let (out, inbox) = (peer.out.as_ref()?, peer.inbox.as_ref()?);
        Some(Self::between(&out.region, &inbox.region))
    }

    fn between(local: &Region, remote: &PeerRegion) -> Self {
        Self {
            tx: local.coll_sender(),
            rx: remote.coll_receiver(),
            local_credit: local.coll_credit(),
            remote_credit: remote.coll_credit(),
            published: 0,
            peer: remote.parked_flag(),
        }
    }

    /// Reads the peer's credit and frees the slots that it returns.
    ///
    /// # Errors
    /// [`Errno::Proto`] when the credit is invalid.
    #[cold]
    fn refresh(&mut self) -> Result {
        let consumed = self.remote_credit.read();
        self.tx.refresh(consumed).map_err(|_| Errno::Proto)
    }
}

impl coll::CollectiveChannel for CollectiveChannel {
    #[inline]
    fn try_send(&mut self, message: &SmallMessage) -> Result<bool> {
        if self.tx.room() == 0 {
            self.refresh()?;
        }
        let mut slot = self.tx.claim().ok_or(Errno::Again)?;
        slot.put(1, message.tag);
        let words = message.words[..message.len.div_ceil(8)].iter();
        for (index, &word) in words.enumerate() {
            slot.put(PAYLOAD_WORD + index, word);
        }
        slot.commit(message.len as u32);
        self.tx.prefetch_ahead();
        Ok(self.peer.may_be_parked())
    }

    #[inline]
    fn try_receive(&mut self) -> Result<Option<SmallMessage>> {
        let Some(slot) = self.rx.peek() else {
            return Ok(None);
        };
        let len = slot.head() as usize;
        if len > SMALL_MESSAGE_MAX {
            return Err(Errno::Proto);
        }
        let mut message = SmallMessage::new(slot.word(1), len);
        let words = message.words[..len.div_ceil(8)].iter_mut();
        for (index, word) in words.enumerate() {
            *word = slot.word(PAYLOAD_WORD + index);
        }
        self.rx.release();
        if (self.rx.position() - self.published) * 4 >= self.rx.capacity() {
            self.published = self.rx.position();
            self.local_credit.publish(self.published);
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use selvedge_kit::coll::CollectiveChannel as _;

    use super::*;
    use crate::smr::{Attr, Sizes};

    const SIZES: Sizes = Sizes {
        cmd_count: 16,
        resp_count: 16,
        inject_size: 4096,
    };

    /// Creates the channel of one side, and the regions of both sides.
    fn channel() -> (CollectiveChannel, Region, Region) {
        let region = || {
            let (sizes, peer) = (SIZES, "peer");
            Region::create(&Attr { sizes, peer }).unwrap()
        };
        let (local, remote) = (region(), region());
        let (fd, sizes) = remote.share().unwrap();
        let attached = PeerRegion::attach(fd, sizes).unwrap();
        (CollectiveChannel::between(&local, &attached), local, remote)
    }

    fn attached(region: &Region) -> PeerRegion {
        let (fd, sizes) = region.share().unwrap();
        PeerRegion::attach(fd, sizes).unwrap()
    }

    #[test]
    fn messages_of_every_length_pass_while_there_is_room() {
        let (mut first, local, remote) = channel();
        let mut second = CollectiveChannel::between(&remote, &attached(&local));
        for turn in 0..10_u64 {
            for len in 0..=SMALL_MESSAGE_MAX {
                let mut message = SmallMessage::new(turn << 32 | len as u64, len);
                message.words = std::array::from_fn(|index| turn ^ (index as u64) << 8);
                assert_eq!(first.try_send(&message), Ok(false));
                let received = second.try_receive().unwrap().unwrap();
                assert_eq!((received.tag, received.len), (message.tag, len));
                let words = len.div_ceil(8);
                assert_eq!(received.words[..words], message.words[..words]);
            }
        }
        let message = SmallMessage::new(7, 8);
        let sent = (0..100)
            .take_while(|_| first.try_send(&message).is_ok())
            .count();
        assert!((24..=32).contains(&sent), "{sent}");
        assert_eq!(first.try_send(&message), Err(Errno::Again));
        let received = (0..100).take_while(|_| second.try_receive().unwrap().is_some());
        assert_eq!(received.count(), sent);
        assert_eq!(first.try_send(&message), Ok(false));
    }

    #[test]
    fn a_malformed_slot_or_credit_of_a_channel_is_an_error() {
        let (mut channel, _local, remote) = channel();
        remote
            .coll_sender()
            .claim()
            .unwrap()
            .commit(SMALL_MESSAGE_MAX as u32 + 1);
        assert_eq!(channel.try_receive().unwrap_err(), Errno::Proto);
        let message = SmallMessage::new(7, 8);
        while channel.try_send(&message).is_ok() {}
        assert_eq!(channel.try_send(&message), Err(Errno::Again));
        for invalid in [33, u64::MAX] {
            remote.coll_credit().publish(invalid);
            assert_eq!(channel.try_send(&message), Err(Errno::Proto));
        }
    }

    #[test]
    fn try_send_reports_that_the_peer_may_be_parked() {
        let (mut channel, _local, remote) = channel();
        let message = SmallMessage::new(7, 8);
        remote.set_polled(false);
        assert_eq!(channel.try_send(&message), Ok(false));
        remote.set_parked(1);
        assert_eq!(channel.try_send(&message), Ok(true));
    }
}
