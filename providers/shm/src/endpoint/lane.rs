//! Lanes: messages of collectives that fit into a slot of their own queue beside the commands.
//!
//! They are written and read without the endpoint's lock, and move nothing else: neither credit nor
//! attention of the commands. Whoever waits for one looks at the lane; whoever puts one looks whether
//! the peer sleeps. What a peer that is gone has put is read all the same, because a lane keeps the
//! memory of both ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::{Errno, FiAddr, Result};
use selvedge_kit::coll::{self, SMALL_MESSAGE_MAX, SmallMessage};
use selvedge_kit::shell::Core;

use crate::endpoint::state::State;
use crate::peers::Peers;
use crate::peers::peer::Peer;
use crate::smr::attention::Sleeper;
use crate::smr::cmd_queue::{Credit, Receiver, Sender};
use crate::smr::{PeerRegion, Region};

/// The word of a letter behind its tag.
const PAYLOAD: usize = 2;

/// What the layer of collectives asks the endpoint for.
#[derive(Debug)]
pub(crate) struct Lanes {
    core: Arc<Core<State>>,
    ends: Arc<AtomicU64>,
}

impl Lanes {
    pub(crate) fn of(core: &Arc<Core<State>>) -> Option<Arc<dyn coll::CollectiveChannels>> {
        let ends = Arc::clone(&core.state.lock().ok()?.setup.ends);
        let core = Arc::clone(core);
        Some(Arc::new(Self { core, ends }))
    }
}

impl coll::CollectiveChannels for Lanes {
    fn incarnation(&self, peer: FiAddr) -> Result<u64> {
        let mut state = self.core.state.lock()?;
        let index = state.peers.at(peer)?;
        let peer = &state.peers[index];
        match peer.out.is_some() && peer.inbox.is_some() {
            true => Ok(u64::from(peer.life) << 32 | index as u64),
            false => Err(Errno::NotConn),
        }
    }

    fn open(&self, life: u64) -> Result<Box<dyn coll::CollectiveChannel>> {
        let mut state = self.core.state.lock()?;
        let lane = living(&mut state.peers, life).and_then(|peer| Lane::to(peer));
        Ok(Box::new(lane.ok_or(Errno::NotConn)?))
    }

    fn wake(&self, life: u64) {
        if let Ok(mut state) = self.core.state.lock()
            && let Some(peer) = living(&mut state.peers, life)
        {
            peer.wake();
        }
    }

    fn disconnect(&self, life: u64) {
        if let Ok(mut state) = self.core.state.lock()
            && living(&mut state.peers, life).is_some()
        {
            let what = "nonsense in the lane of collectives";
            state.connector().quarantine(index_of(life), what);
        }
    }

    #[inline]
    fn ended_count(&self) -> u64 {
        self.ends.load(Ordering::Relaxed)
    }

    fn has_ended(&self, life: u64) -> bool {
        let state = self.core.state.lock();
        state.is_ok_and(|mut state| living(&mut state.peers, life).is_none())
    }
}

fn index_of(life: u64) -> usize {
    life as u32 as usize
}

/// The peer in this incarnation, unless that is over.
fn living(peers: &mut Peers, life: u64) -> Option<&mut Peer> {
    let peer = peers.get_mut(index_of(life));
    peer.filter(|peer| u64::from(peer.life) == life >> 32)
}

#[derive(Debug)]
struct Lane {
    tx: Sender,
    rx: Receiver,
    /// Where we give the peer's slots back, and the peer ours.
    given: Credit,
    taken: Credit,
    published: u64,
    peer: Sleeper,
}

impl Lane {
    fn to(peer: &Peer) -> Option<Self> {
        let (out, inbox) = (peer.out.as_ref()?, peer.inbox.as_ref()?);
        Some(Self::between(&out.region, &inbox.region))
    }

    fn between(ours: &Region, theirs: &PeerRegion) -> Self {
        Self {
            tx: ours.lane_sender(),
            rx: theirs.lane_receiver(),
            given: ours.lane_credit(),
            taken: theirs.lane_credit(),
            published: 0,
            peer: theirs.sleeper(),
        }
    }

    #[cold]
    fn refresh(&mut self) -> Result {
        let consumed = self.taken.read();
        self.tx.refresh(consumed).map_err(|_| Errno::Proto)
    }
}

impl coll::CollectiveChannel for Lane {
    #[inline]
    fn try_send(&mut self, message: &SmallMessage) -> Result<bool> {
        if self.tx.room() == 0 {
            self.refresh()?;
        }
        let mut slot = self.tx.claim().ok_or(Errno::Again)?;
        slot.put(1, message.tag);
        let words = message.words[..message.len.div_ceil(8)].iter();
        for (at, &word) in words.enumerate() {
            slot.put(PAYLOAD + at, word);
        }
        slot.commit(message.len as u32);
        self.tx.look_ahead();
        Ok(self.peer.may_sleep())
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
        for (at, word) in words.enumerate() {
            *word = slot.word(PAYLOAD + at);
        }
        self.rx.release();
        if (self.rx.position() - self.published) * 4 >= self.rx.capacity() {
            self.published = self.rx.position();
            self.given.publish(self.published);
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

    /// One end of two lanes, and the regions of both ends.
    fn lane() -> (Lane, Region, Region) {
        let region = || {
            let (sizes, peer) = (SIZES, "peer");
            Region::create(&Attr { sizes, peer }).unwrap()
        };
        let (ours, theirs) = (region(), region());
        let (fd, sizes) = theirs.share().unwrap();
        let seen = PeerRegion::attach(fd, sizes).unwrap();
        (Lane::between(&ours, &seen), ours, theirs)
    }

    fn seen(region: &Region) -> PeerRegion {
        let (fd, sizes) = region.share().unwrap();
        PeerRegion::attach(fd, sizes).unwrap()
    }

    #[test]
    fn letters_of_every_length_pass_as_long_as_there_is_room() {
        let (mut a, ours, theirs) = lane();
        let mut b = Lane::between(&theirs, &seen(&ours));
        for turn in 0..10_u64 {
            for len in 0..=SMALL_MESSAGE_MAX {
                let mut message = SmallMessage::new(turn << 32 | len as u64, len);
                message.words = std::array::from_fn(|at| turn ^ (at as u64) << 8);
                assert_eq!(a.try_send(&message), Ok(false));
                let got = b.try_receive().unwrap().unwrap();
                assert_eq!((got.tag, got.len), (message.tag, len));
                let words = len.div_ceil(8);
                assert_eq!(got.words[..words], message.words[..words]);
            }
        }
        let message = SmallMessage::new(7, 8);
        let put = (0..100)
            .take_while(|_| a.try_send(&message).is_ok())
            .count();
        assert!((24..=32).contains(&put), "{put}");
        assert_eq!(a.try_send(&message), Err(Errno::Again));
        let taken = (0..100).take_while(|_| b.try_receive().unwrap().is_some());
        assert_eq!(taken.count(), put);
        assert_eq!(a.try_send(&message), Ok(false));
    }

    #[test]
    fn nonsense_in_a_lane_is_refused() {
        let (mut lane, _ours, theirs) = lane();
        theirs
            .lane_sender()
            .claim()
            .unwrap()
            .commit(SMALL_MESSAGE_MAX as u32 + 1);
        assert_eq!(lane.try_receive().unwrap_err(), Errno::Proto);
        let message = SmallMessage::new(7, 8);
        while lane.try_send(&message).is_ok() {}
        assert_eq!(lane.try_send(&message), Err(Errno::Again));
        for lie in [33, u64::MAX] {
            theirs.lane_credit().publish(lie);
            assert_eq!(lane.try_send(&message), Err(Errno::Proto));
        }
    }

    #[test]
    fn whoever_puts_a_letter_hears_that_the_peer_sleeps() {
        let (mut lane, _ours, theirs) = lane();
        let message = SmallMessage::new(7, 8);
        theirs.set_attentive(false);
        assert_eq!(lane.try_send(&message), Ok(false));
        theirs.fall_asleep(1);
        assert_eq!(lane.try_send(&message), Ok(true));
    }
}
