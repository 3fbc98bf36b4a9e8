//! Attention: whether the owner of a region looks at its peer's queue, has to be rung for, or sleeps
//! and has to be woken. Both halves: the owner says it in its region, the peer reads it there.
//!
//! A peer that has committed something reads the word. While the owner polls, that is all. Otherwise
//! it rings; and if the owner sleeps, it wakes it, by whatever means the two have, once in each
//! *night*. The owner numbers its nights, so that a wake-up that was spent is not waited for twice:
//! after one it begins a new night before it sleeps again.
//!
//! No wake-up is lost because of two fences: the peer's between its commit and its look at the word,
//! and the owner's between falling asleep and its last look at the queue ([`last_look`]). The peer's
//! costs nothing, because the owner's runs on the peer's processor too. Where that is not possible
//! ([`PeerRegion::is_fenced`]), the owner must not sleep for long.
//!
//! # Examples
//!
//! ```
//! use selvedge_shm::smr::attention::{Caller, last_look};
//! use selvedge_shm::smr::{Attr, PeerRegion, Region, Sizes};
//!
//! let sizes = Sizes { cmd_count: 16, resp_count: 16, inject_size: 4096 };
//! let region = Region::create(&Attr { sizes, peer: "b" })?;
//! let (fd, sizes) = region.share()?;
//! let (seen, mut caller) = (PeerRegion::attach(fd, sizes)?, Caller::default());
//!
//! region.fall_asleep(1);
//! last_look();
//! let night = caller.night(&seen).expect("the owner sleeps");
//! // .. the peer wakes it, and remembers that it has.
//! caller.has_called(night);
//! assert_eq!(caller.night(&seen), None);
//!
//! region.fall_asleep(2);
//! assert_eq!(caller.night(&seen), Some(2));
//! # Ok::<(), selvedge::Error>(())
//! ```

use super::doorbell::Bell;
use crate::smr::layout::word;
use crate::smr::region::{PeerRegion, Region};
use crate::smr::sync::{Ordering, Words, order};

/// The word of an owner that does not poll the queue.
const QUIET: u64 = 0;
/// The word of an owner that polls the queue at every turn. Larger ones are nights.
const POLLS: u64 = 1;

impl Region {
    /// Says whether the owner polls the peer's queue anyway, so that nobody needs to ring.
    pub fn set_attentive(&self, attentive: bool) {
        let value = if attentive { POLLS } else { QUIET };
        self.set_attention(value);
    }

    /// Says that the owner sleeps, or may do so, and wants to be woken. Numbers of nights begin
    /// with 1 and do not come again. [`last_look`] must follow.
    pub fn fall_asleep(&self, night: u64) {
        self.set_attention(POLLS + night);
    }

    fn set_attention(&self, value: u64) {
        self.header()
            .at(word::ATTENTION)
            .store(value, Ordering::Relaxed);
    }
}

/// An owner's record of the wake-up that one peer owes it. The record and the word in the owner's
/// region change together: a peer that was told anything else does not wake the owner any more.
#[derive(Debug, Default)]
pub struct WakeUp {
    is_armed: bool,
}

impl WakeUp {
    /// Asks the peer to wake the owner in a new epoch, unless it was asked already. Returns whether
    /// it had to be told: [`last_look`] and a poll of its queue must follow.
    pub fn arm(&mut self, region: &Region, epoch: impl FnOnce() -> u64) -> bool {
        let is_news = !std::mem::replace(&mut self.is_armed, true);
        if is_news {
            region.fall_asleep(epoch());
        }
        is_news
    }

    /// Tells the peer whether the owner polls its queue anyway. It does not wake the owner any more.
    pub fn disarm(&mut self, region: &Region, is_polled: bool) {
        self.is_armed = false;
        region.set_attentive(is_polled);
    }

    /// The peer has woken the owner, or is gone.
    pub fn spend(&mut self) {
        self.is_armed = false;
    }
}

/// Between falling asleep and the last look at the peers' queues. `false` where peers have to be
/// taken to have missed that the owner sleeps.
pub fn last_look() -> bool {
    order::asleep()
}

impl PeerRegion {
    /// Whether the peer polls our queue anyway. To be asked after a commit, before [`Caller::night`].
    #[inline(always)]
    pub fn is_attentive(&self) -> bool {
        self.attention() == POLLS
    }

    /// Tells a peer that never sleeps of what was just committed for it: rings, unless it polls
    /// anyway. The peer may stop to do so at this very moment and miss it; its sweep then finds the
    /// news.
    #[inline]
    pub fn announce(&self, bell: &Bell) {
        if self.header().at(word::ATTENTION).load(Ordering::Relaxed) != POLLS {
            bell.ring();
        }
    }

    /// The word that says whether the peer sleeps, apart from the region.
    pub fn sleeper(&self) -> Sleeper {
        Sleeper {
            header: self.header().clone(),
        }
    }

    /// Whether the peer's process takes part in [`last_look`].
    pub fn is_fenced(&self) -> bool {
        self.header().at(word::FENCED).load(Ordering::Relaxed) != 0
    }

    /// Read after a commit.
    #[inline(always)]
    fn attention(&self) -> u64 {
        order::announced();
        self.header().at(word::ATTENTION).load(Ordering::Relaxed)
    }
}

/// Whether the owner of a region sleeps, for whoever has something for it and not the region.
#[derive(Debug)]
pub struct Sleeper {
    header: Words,
}

impl Sleeper {
    /// Whether the owner may have to be woken, which [`Caller::night`] knows. To be asked after a
    /// commit.
    #[inline(always)]
    pub fn may_sleep(&self) -> bool {
        order::announced();
        self.header.at(word::ATTENTION).load(Ordering::Relaxed) > POLLS
    }
}

/// A peer's memory of whom it has woken when.
#[derive(Debug, Default)]
pub struct Caller {
    /// The night in which it called last.
    last: u64,
}

impl Caller {
    /// The night in which the owner sleeps, if it has to be woken. To be asked after a commit.
    #[inline]
    pub fn night(&self, owner: &PeerRegion) -> Option<u64> {
        match owner.attention() {
            QUIET | POLLS => None,
            value => Some(value - POLLS).filter(|&night| night != self.last),
        }
    }

    /// The owner was woken in this night.
    pub fn has_called(&mut self, night: u64) {
        self.last = night;
    }
}
