//! The matcher: posted receives on one side, unexpected messages on the other.
//!
//! Most programs post and send in the same order, so the oldest member is examined first, and a
//! short queue is searched linearly from the front. A long queue is searched by indices, which are
//! filled only when such a search happens, each member once per index.

use std::sync::Arc;

use selvedge::{Context, OpFlags, TagMatch};

use super::by_mask::ByMask;
use super::multi::MultiBuffers;
use super::queue::{Queue, Slot};
use super::views::{NoView, Views};
use super::{Envelope, Kind, LINEAR_LIMIT, Posted, Shared, Source, Unexpected, examine};

/// Posted receives and unexpected messages of one endpoint and interface.
///
/// `U` is the provider's data of an unexpected message: its bytes, or their location.
///
/// The cost of a method does not grow with the number of receives or messages, as long as there are
/// no more than eight different ignore masks at a time among the receives, or different pairs of
/// mask and directedness among the searches for a message; the others are searched linearly, and so
/// are multi-receive buffers and claimed messages. [`Self::cancel`] and the methods that work on
/// many members examine all of them.
#[derive(Debug)]
pub struct Matcher<U> {
    posted: Queue<Posted>,
    by_mask: ByMask,
    multis: MultiBuffers,
    /// Receives with a lower number are not for the fast path: they are indexed, or there are
    /// multi-receive buffers, which may have precedence.
    fast_from: u64,
    /// Receives with a lower number were excluded from the fast path by [`Self::post_deferred`].
    deferred_upto: u64,
    unexpected: Queue<Unexpected<U>>,
    views: Views,
    claimed: Vec<Claimed<U>>,
    /// The shared receive context, and the interface whose receives this matcher takes from it.
    shared: Option<(Arc<Shared>, Kind)>,
}

/// A message that only a receive with this context takes.
#[derive(Debug)]
struct Claimed<U> {
    context: Context,
    message: Unexpected<U>,
}

impl<U> Matcher<U> {
    /// Makes an empty matcher.
    pub fn new() -> Self {
        Self {
            posted: Queue::new(),
            by_mask: ByMask::new(),
            multis: MultiBuffers::default(),
            fast_from: 0,
            deferred_upto: 0,
            unexpected: Queue::new(),
            views: Views::default(),
            claimed: Vec::new(),
            shared: None,
        }
    }

    /// Posts a receive. If an unexpected message matches it, both are returned; otherwise the
    /// receive is kept.
    #[inline(always)]
    pub fn post(&mut self, rx: Posted) -> Option<(Posted, Envelope, U)> {
        if !self.unexpected.is_empty()
            && let Some((env, payload)) = self.take_for(rx.src, rx.tag)
        {
            return Some((rx, env, payload));
        }
        self.posted.push(rx);
        None
    }

    /// As [`Self::post`], for a receive with [`OpFlags::DEFERRED`], which neither [`Self::oldest`]
    /// nor [`Self::first_unindexed`] returns, because it completes differently.
    #[cold]
    pub fn post_deferred(&mut self, rx: Posted) -> Option<(Posted, Envelope, U)> {
        let matched = self.post(rx);
        self.deferred_upto = self.posted.pushes();
        self.update_fast_from();
        matched
    }

    /// Adds a shared context. Its receives are matched with messages that no receive of this
    /// matcher takes.
    pub fn share(&mut self, shared: &Arc<Shared>, kind: Kind) {
        self.shared = Some((Arc::clone(shared), kind));
    }

    /// Takes a shared receive and an unexpected message that match.
    #[cold]
    pub fn take_shared(&mut self) -> Option<(Posted, Envelope, U)> {
        let (shared, kind) = self.shared.clone()?;
        let has_message = |rx: &Posted| self.find_unexpected(rx.src, rx.tag).is_some();
        let rx = shared.take_if(kind, has_message)?;
        let (env, payload) = self.take(rx.src, rx.tag)?;
        Some((rx, env, payload))
    }

    /// Finds the receive for a message that has arrived, and takes it out.
    ///
    /// `None` changes nothing: the caller keeps the message with [`Self::store`].
    #[inline]
    pub fn match_message(&mut self, env: &Envelope) -> Option<Posted> {
        let Some((oldest, number)) = self.posted.first() else {
            return self.match_multi(env);
        };
        examine();
        if oldest.accepts(env) && number >= self.fast_from {
            return self.posted.pop();
        }
        self.match_slow(env)
    }

    /// As [`Self::match_message`], if the first receive takes the message and `is_selected` accepts
    /// that receive.
    #[inline]
    pub fn match_oldest_if(
        &mut self,
        env: &Envelope,
        is_selected: impl FnOnce(&Posted) -> bool,
    ) -> Option<Posted> {
        let oldest = self.oldest(env.src, env.tag)?;
        if is_selected(oldest) {
            self.posted.pop()
        } else {
            None
        }
    }

    /// The oldest receive, if it takes a message with this source and tag: the fast path of
    /// [`Self::match_message`], which does not move the receive. [`Self::drop_oldest`] takes it
    /// out.
    #[inline(always)]
    pub fn oldest(&mut self, src: Source, tag: u64) -> Option<&mut Posted> {
        let (oldest, number) = self.posted.first_mut()?;
        examine();
        let is_match = oldest.tag.accepts(tag) && oldest.src.accepts(src);
        (is_match && number >= self.fast_from).then_some(oldest)
    }

    /// Takes out the receive that [`Self::oldest`] has returned; its buffer is not accessed any
    /// more.
    #[inline(always)]
    pub fn drop_oldest(&mut self) {
        drop(self.posted.pop());
    }

    /// As [`Self::oldest`], after a search has found no indexed receive for this source and tag:
    /// the first receive that is not indexed, if it takes the message.
    /// [`Self::drop_first_unindexed`] takes it out.
    ///
    /// In a program with many long-posted receives, the receives of the present exchange are behind
    /// them, one after the other.
    #[inline]
    pub fn first_unindexed(&mut self, src: Source, tag: u64) -> Option<&mut Posted> {
        examine();
        let slot = self.by_mask.first_new_after_miss(&self.posted, src, tag)?;
        let first = self.posted.get_mut(slot)?;
        let is_match = first.tag.accepts(tag) && first.src.accepts(src);
        let is_deferred = first.flags.contains(OpFlags::DEFERRED);
        (is_match && !is_deferred && self.multis.is_empty()).then_some(first)
    }

    /// Takes out the receive that [`Self::first_unindexed`] has returned; its buffer is not
    /// accessed any more.
    #[inline]
    pub fn drop_first_unindexed(&mut self) {
        if let Some(slot) = self.by_mask.first_new_slot(&self.posted) {
            self.by_mask.prepare_removal(&self.posted, slot);
            drop(self.posted.remove(slot));
        }
    }

    /// Stores a message for which [`Self::match_message`] has found no receive.
    pub fn store(&mut self, env: Envelope, payload: U) {
        self.unexpected.push(Unexpected { env, payload });
    }

    /// The first unexpected message that a receive with this source and tag would take.
    pub fn peek(&mut self, src: Source, tag: TagMatch) -> Option<(&Envelope, &mut U)> {
        let slot = self.find_unexpected(src, tag)?;
        let found = self.unexpected.get_mut(slot)?;
        Some((&found.env, &mut found.payload))
    }

    /// Takes out the first unexpected message that a receive with this source and tag would take.
    pub fn take(&mut self, src: Source, tag: TagMatch) -> Option<(Envelope, U)> {
        let slot = self.find_unexpected(src, tag)?;
        self.take_unexpected(slot)
    }

    /// Posts a multi-receive buffer, which is given back when fewer than `min_left` bytes of it are
    /// left. The caller has to call [`Self::feed_multi`] afterwards until it returns `None`.
    ///
    /// # Errors
    /// The receive, if its buffer has more than one segment.
    #[cold]
    pub fn post_multi(&mut self, rx: Posted, min_left: usize) -> Result<(), Posted> {
        self.multis.add(rx, self.posted.pushes(), min_left)?;
        self.update_fast_from();
        Ok(())
    }

    /// Takes the next unexpected message that matches the newest multi-receive buffer, and makes a
    /// receive for it in that buffer.
    #[cold]
    pub fn feed_multi(&mut self) -> Option<(Posted, Envelope, U)> {
        let (index, rx) = self.multis.newest()?;
        let (src, tag) = (rx.src, rx.tag);
        let (env, payload) = self.take(src, tag)?;
        let rx = self.multis.cut(index, env.len);
        self.update_fast_from();
        Some((rx, env, payload))
    }

    /// Claims the first unexpected message that a receive with this source and tag would take: from
    /// now on only [`Self::take_claimed`] with this context returns it.
    #[cold]
    pub fn claim(&mut self, src: Source, tag: TagMatch, context: Context) -> Option<Envelope> {
        let (env, payload) = self.take(src, tag)?;
        let message = Unexpected { env, payload };
        self.claimed.push(Claimed { context, message });
        Some(env)
    }

    /// Takes the message that was claimed first with this context.
    #[cold]
    pub fn take_claimed(&mut self, context: Context) -> Option<(Envelope, U)> {
        let is_match = |claimed: &Claimed<U>| claimed.context == context;
        let index = self.claimed.iter().position(is_match)?;
        let Unexpected { env, payload } = self.claimed.remove(index).message;
        Some((env, payload))
    }

    /// Whether there is an unexpected message of this source, claimed or not.
    pub fn has_from(&mut self, src: Source) -> bool {
        let claimed = |claimed: &Claimed<U>| claimed.message.env.src == src;
        self.claimed.iter().any(claimed) || self.find_unexpected(src, TagMatch::ANY).is_some()
    }

    /// Whether a posted receive names this source.
    pub fn awaits(&self, src: Source) -> bool {
        self.posted.iter().any(|(_, rx)| rx.src == src) || self.multis.awaits(src)
    }

    /// Removes the first receive posted with this context, or a multi-receive buffer.
    pub fn cancel(&mut self, context: Context) -> Option<Posted> {
        let posted = self.posted.iter().find(|(_, rx)| rx.context == context);
        if let Some(slot) = posted.map(|(slot, _)| slot) {
            return self.take_posted(slot);
        }
        let rx = self.multis.cancel(context);
        self.update_fast_from();
        rx
    }

    /// Removes the receives that name a failed peer as source, in the order of their posts,
    /// multi-receive buffers last.
    pub fn fail_source(&mut self, src: Source) -> Vec<Posted> {
        self.take_posted_if(|rx| rx.src == src)
    }

    /// Removes the unexpected messages that `is_selected` accepts, in the order of their arrival.
    pub fn drop_unexpected(
        &mut self,
        mut is_selected: impl FnMut(&Envelope, &U) -> bool,
    ) -> Vec<(Envelope, U)> {
        let members = self.unexpected.iter();
        let selected = members.filter(|(_, message)| is_selected(&message.env, &message.payload));
        let slots: Vec<_> = selected.map(|(slot, _)| slot).collect();
        let taken = slots.into_iter().map(|slot| self.take_unexpected(slot));
        taken.flatten().collect()
    }

    /// Removes every receive, in the order of their posts, multi-receive buffers last.
    pub fn drain_posted(&mut self) -> Vec<Posted> {
        self.take_posted_if(|_| true)
    }

    /// Removes every unexpected message that is not claimed, in the order of their arrival.
    pub fn drain_unexpected(&mut self) -> Vec<(Envelope, U)> {
        self.drop_unexpected(|_, _| true)
    }

    /// The number of posted receives.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len() + self.multis.len()
    }

    /// The number of unexpected messages, claimed ones included.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len() + self.claimed.len()
    }

    /// The posted receives in the order of their posts, without multi-receive buffers.
    pub fn posted(&self) -> impl Iterator<Item = &Posted> {
        self.posted.iter().map(|(_, posted)| posted)
    }

    /// The unexpected messages in the order of their arrival, without claimed ones.
    pub fn unexpected(&self) -> impl Iterator<Item = &Envelope> {
        self.unexpected.iter().map(|(_, message)| &message.env)
    }

    /// Whether there is neither a posted receive nor an unexpected message.
    pub fn is_empty(&self) -> bool {
        self.posted_len() == 0 && self.unexpected_len() == 0
    }

    /// Calls [`Self::take`] out of line, for the fast path of [`Self::post`]. The receive is not an
    /// argument, so that it stays in registers.
    #[cold]
    fn take_for(&mut self, src: Source, tag: TagMatch) -> Option<(Envelope, U)> {
        self.take(src, tag)
    }

    /// Slow path of [`Self::match_message`]: the oldest receive does not match or is indexed, or
    /// there are multi-receive buffers.
    #[cold]
    fn match_slow(&mut self, env: &Envelope) -> Option<Posted> {
        let head = self.posted.head();
        let slot = if self.posted.get(head)?.accepts(env) {
            Some(head)
        } else {
            self.by_mask.first(&self.posted, env)
        };
        self.update_fast_from();
        let Some(slot) = slot else {
            return self.match_multi(env);
        };
        if !self.multis.is_empty()
            && let Some(index) = self.multis.find(env)
            && self.multis.is_before(index, self.posted.number(slot))
        {
            return self.match_multi(env);
        }
        self.take_posted(slot)
    }

    /// Finds the multi-receive buffer, or the shared receive, for a message that no other receive
    /// takes first.
    #[cold]
    fn match_multi(&mut self, env: &Envelope) -> Option<Posted> {
        let Some(index) = self.multis.find(env) else {
            let (shared, kind) = self.shared.as_ref()?;
            return shared.take(*kind, env);
        };
        let rx = self.multis.cut(index, env.len);
        self.update_fast_from();
        Some(rx)
    }

    fn update_fast_from(&mut self) {
        self.fast_from = if self.multis.is_empty() {
            self.by_mask.indexed_upto().max(self.deferred_upto)
        } else {
            u64::MAX
        };
    }

    fn take_posted(&mut self, slot: Slot) -> Option<Posted> {
        let indexed = self.by_mask.is_indexed(self.posted.number(slot));
        self.by_mask.prepare_removal(&self.posted, slot);
        let rx = self.posted.remove(slot)?;
        if indexed {
            self.by_mask.remove(&rx, slot);
        }
        Some(rx)
    }

    fn take_posted_if(&mut self, is_selected: impl Fn(&Posted) -> bool) -> Vec<Posted> {
        let selected = self.posted.iter().filter(|(_, rx)| is_selected(rx));
        let slots: Vec<_> = selected.map(|(slot, _)| slot).collect();
        let taken = slots.into_iter().map(|slot| self.take_posted(slot));
        let mut taken: Vec<_> = taken.flatten().collect();
        taken.extend(self.multis.take(is_selected));
        self.update_fast_from();
        taken
    }

    fn find_unexpected(&mut self, src: Source, tag: TagMatch) -> Option<Slot> {
        let head = self.unexpected.head();
        examine();
        if self.unexpected.get(head)?.is_taken_by(src, tag) {
            return Some(head);
        }
        if self.unexpected.len() <= LINEAR_LIMIT {
            return self.scan_unexpected(src, tag);
        }
        match self.views.first(&self.unexpected, src, tag) {
            Ok(slot) => slot,
            Err(NoView) => self.scan_unexpected(src, tag),
        }
    }

    fn scan_unexpected(&self, src: Source, tag: TagMatch) -> Option<Slot> {
        let mut behind_head = self.unexpected.iter().skip(1).inspect(|_| examine());
        let found = behind_head.find(|(_, message)| message.is_taken_by(src, tag));
        found.map(|(slot, _)| slot)
    }

    fn take_unexpected(&mut self, slot: Slot) -> Option<(Envelope, U)> {
        let number = self.unexpected.number(slot);
        let Unexpected { env, payload } = self.unexpected.remove(slot)?;
        self.views.remove(&env, number, slot);
        Some((env, payload))
    }
}

impl<U> Default for Matcher<U> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
