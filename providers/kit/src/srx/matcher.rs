//! The matcher: posted receives on one side, unexpected messages on the other.
//!
//! Most programs post and send in the same order, so the oldest member is looked at first, and a
//! short queue is searched from the front. A long queue is looked up in indices, which are filled
//! only when such a look-up happens, each member once per index.

use std::sync::Arc;

use selvedge::{Context, OpFlags, TagMatch};

use super::by_mask::ByMask;
use super::multi::Multis;
use super::queue::{Queue, Slot};
use super::views::{NoView, Views};
use super::{Envelope, Kind, Posted, SHORT, Shared, Source, examine};

/// Posted receives and unexpected messages of one endpoint and interface.
///
/// `U` is what the provider keeps of an unexpected message: its bytes, or where they are.
///
/// The cost of a verb does not grow with the number of receives or messages, as long as there are
/// no more than eight different ignore masks at a time among the receives, or different pairs
/// of mask and directedness among those that look for a message; the rest is searched from the
/// front, and so are multi-receive buffers and claimed messages. [`Self::cancel`] and the verbs that
/// work on many members look at all of them.
#[derive(Debug)]
pub struct Matcher<U> {
    posted: Queue<Posted>,
    by_mask: ByMask,
    multis: Multis,
    /// Receives with a lower number are not for the short way: they are indexed, or there are
    /// multi-receive buffers, which may come before them.
    short_from: u64,
    /// Receives with a lower number were kept from the short way by [`Self::post_deferred`].
    apart_upto: u64,
    unexpected: Queue<Unexpected<U>>,
    views: Views,
    claimed: Vec<Claimed<U>>,
    /// Receives that others take from, too, and which of them.
    shared: Option<(Arc<Shared>, Kind)>,
}

/// A message that only the receive with this context takes.
#[derive(Debug)]
struct Claimed<U> {
    context: Context,
    message: Unexpected<U>,
}

#[derive(Debug)]
pub(super) struct Unexpected<U> {
    pub(super) env: Envelope,
    payload: U,
}

impl<U> Unexpected<U> {
    /// Whether such a receive takes this message.
    pub(super) const fn is_taken_by(&self, src: Source, tag: TagMatch) -> bool {
        tag.accepts(self.env.tag) && src.accepts(self.env.src)
    }
}

impl<U> Matcher<U> {
    /// Makes an empty matcher.
    pub fn new() -> Self {
        Self {
            posted: Queue::new(),
            by_mask: ByMask::new(),
            multis: Multis::default(),
            short_from: 0,
            apart_upto: 0,
            unexpected: Queue::new(),
            views: Views::default(),
            claimed: Vec::new(),
            shared: None,
        }
    }

    /// Posts a receive. If a message has been waiting for it, both come back; otherwise the
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

    /// As [`Self::post`], for a receive with [`OpFlags::DEFERRED`], which neither [`Self::oldest`] nor
    /// [`Self::first_unindexed`] finds: it ends differently.
    #[cold]
    pub fn post_deferred(&mut self, rx: Posted) -> Option<(Posted, Envelope, U)> {
        let met = self.post(rx);
        self.apart_upto = self.posted.pushes();
        self.note_short_way();
        met
    }

    /// Has messages that no receive of its own takes meet shared ones.
    pub fn share(&mut self, shared: &Arc<Shared>, kind: Kind) {
        self.shared = Some((Arc::clone(shared), kind));
    }

    /// A shared receive, and a message that waits for it.
    #[cold]
    pub fn take_shared(&mut self) -> Option<(Posted, Envelope, U)> {
        let (shared, kind) = self.shared.clone()?;
        let has_message = |rx: &Posted| self.find_unexpected(rx.src, rx.tag).is_some();
        let rx = shared.take_if(kind, has_message)?;
        let (env, payload) = self.take(rx.src, rx.tag)?;
        Some((rx, env, payload))
    }

    /// Finds the receive for a message that arrives, and takes it out.
    ///
    /// `None` leaves nothing behind: [`Self::store`] keeps the message.
    #[inline]
    pub fn match_message(&mut self, env: &Envelope) -> Option<Posted> {
        let Some((oldest, number)) = self.posted.first() else {
            return self.arrive_in_multi(env);
        };
        examine();
        if oldest.accepts(env) && number >= self.short_from {
            return self.posted.pop();
        }
        self.arrive_behind_head(env)
    }

    /// The oldest receive, if it takes a message with this source and tag: [`Self::match_message`] for the
    /// usual case and without moving the receive. [`Self::drop_oldest`] takes it out.
    #[inline(always)]
    pub fn oldest(&mut self, src: Source, tag: u64) -> Option<&mut Posted> {
        let (oldest, number) = self.posted.first_mut()?;
        examine();
        let takes = oldest.tag.accepts(tag) && oldest.src.accepts(src);
        (takes && number >= self.short_from).then_some(oldest)
    }

    /// Takes out what [`Self::oldest`] has found; its buffer is not reached any more.
    #[inline(always)]
    pub fn drop_oldest(&mut self) {
        drop(self.posted.pop());
    }

    /// As [`Self::oldest`], for a message like the last one that no receive took which was posted
    /// early: the first of the others, if it takes this one. [`Self::drop_first_unindexed`] takes it out.
    ///
    /// A program that has many receives posted which wait long finds those of its present exchange
    /// behind them, one after the other.
    #[inline]
    pub fn first_unindexed(&mut self, src: Source, tag: u64) -> Option<&mut Posted> {
        examine();
        let slot = self.by_mask.newer_of_missed(&self.posted, src, tag)?;
        let newer = self.posted.get_mut(slot)?;
        let takes = newer.tag.accepts(tag) && newer.src.accepts(src);
        let is_apart = newer.flags.contains(OpFlags::DEFERRED);
        (takes && !is_apart && self.multis.is_empty()).then_some(newer)
    }

    /// Takes out what [`Self::first_unindexed`] has found; its buffer is not reached any more.
    #[inline]
    pub fn drop_first_unindexed(&mut self) {
        if let Some(slot) = self.by_mask.newer_slot(&self.posted) {
            self.by_mask.pass(&self.posted, slot);
            drop(self.posted.remove(slot));
        }
    }

    /// Keeps a message for which [`Self::match_message`] found no receive.
    pub fn store(&mut self, env: Envelope, payload: U) {
        self.unexpected.push(Unexpected { env, payload });
    }

    /// The first unexpected message that such a receive would take.
    pub fn peek(&mut self, src: Source, tag: TagMatch) -> Option<(&Envelope, &mut U)> {
        let slot = self.find_unexpected(src, tag)?;
        let found = self.unexpected.get_mut(slot)?;
        Some((&found.env, &mut found.payload))
    }

    /// Takes out the first unexpected message that such a receive would take.
    pub fn take(&mut self, src: Source, tag: TagMatch) -> Option<(Envelope, U)> {
        let slot = self.find_unexpected(src, tag)?;
        self.take_unexpected(slot)
    }

    /// Posts a multi-receive buffer, which is given back when less than `least` bytes of it are
    /// left. [`Self::feed_multi`] has to follow until it gives nothing.
    ///
    /// # Errors
    /// The receive, if its buffer has more than one piece.
    #[cold]
    pub fn post_multi(&mut self, rx: Posted, least: usize) -> Result<(), Posted> {
        self.multis.add(rx, self.posted.pushes(), least)?;
        self.note_short_way();
        Ok(())
    }

    /// The next message that has been waiting for the multi-receive buffer that was just posted,
    /// with a receive for it.
    #[cold]
    pub fn feed_multi(&mut self) -> Option<(Posted, Envelope, U)> {
        let (place, rx) = self.multis.newest()?;
        let (src, tag) = (rx.src, rx.tag);
        let (env, payload) = self.take(src, tag)?;
        let rx = self.multis.cut(place, env.len);
        self.note_short_way();
        Some((rx, env, payload))
    }

    /// Sets the first unexpected message that such a receive would take aside, for
    /// [`Self::take_claimed`] with this context.
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
        let is_its = |claimed: &Claimed<U>| claimed.context == context;
        let place = self.claimed.iter().position(is_its)?;
        let Unexpected { env, payload } = self.claimed.remove(place).message;
        Some((env, payload))
    }

    /// Whether a message of this source waits, claimed or not.
    pub fn has_from(&mut self, src: Source) -> bool {
        let claimed = |claimed: &Claimed<U>| claimed.message.env.src == src;
        self.claimed.iter().any(claimed) || self.find_unexpected(src, TagMatch::ANY).is_some()
    }

    /// Whether a receive waits for this source alone.
    pub fn awaits(&self, src: Source) -> bool {
        self.posted.iter().any(|(_, rx)| rx.src == src) || self.multis.awaits(src)
    }

    /// Takes back the first receive posted with this context, or a multi-receive buffer.
    pub fn cancel(&mut self, context: Context) -> Option<Posted> {
        let posted = self.posted.iter().find(|(_, rx)| rx.context == context);
        if let Some(slot) = posted.map(|(slot, _)| slot) {
            return self.take_posted(slot);
        }
        let rx = self.multis.cancel(context);
        self.note_short_way();
        rx
    }

    /// Takes back the receives that wait for this peer alone, in the order of their posts and
    /// multi-receive buffers last: it will send no more.
    pub fn fail_source(&mut self, src: Source) -> Vec<Posted> {
        self.take_posted_if(|rx| rx.src == src)
    }

    /// Takes out the unexpected messages that `which` names, in the order of their arrival.
    pub fn drop_unexpected(
        &mut self,
        mut which: impl FnMut(&Envelope, &U) -> bool,
    ) -> Vec<(Envelope, U)> {
        let members = self.unexpected.iter();
        let named = members.filter(|(_, message)| which(&message.env, &message.payload));
        let slots: Vec<_> = named.map(|(slot, _)| slot).collect();
        let taken = slots.into_iter().map(|slot| self.take_unexpected(slot));
        taken.flatten().collect()
    }

    /// Takes back every receive, in the order of their posts and multi-receive buffers last.
    pub fn drain_posted(&mut self) -> Vec<Posted> {
        self.take_posted_if(|_| true)
    }

    /// Takes out every unexpected message that is not claimed, in the order of their arrival.
    pub fn drain_unexpected(&mut self) -> Vec<(Envelope, U)> {
        self.drop_unexpected(|_, _| true)
    }

    /// Receives that wait.
    #[inline]
    pub fn posted_len(&self) -> usize {
        self.posted.len() + self.multis.len()
    }

    /// Messages that wait, claimed ones included.
    #[inline]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len() + self.claimed.len()
    }

    /// The receives that wait, in the order of their posts, multi-receive buffers left out.
    pub fn posted(&self) -> impl Iterator<Item = &Posted> {
        self.posted.iter().map(|(_, posted)| posted)
    }

    /// The messages that wait, in the order of their arrival, claimed ones left out.
    pub fn unexpected(&self) -> impl Iterator<Item = &Envelope> {
        self.unexpected.iter().map(|(_, message)| &message.env)
    }

    /// Whether nothing waits on either side.
    pub fn is_empty(&self) -> bool {
        self.posted_len() == 0 && self.unexpected_len() == 0
    }

    /// As [`Self::take`], apart from the short way of [`Self::post`], whose receive stays in
    /// registers because it is not passed here.
    #[cold]
    fn take_for(&mut self, src: Source, tag: TagMatch) -> Option<(Envelope, U)> {
        self.take(src, tag)
    }

    /// Finds the receive when it is not the oldest, the oldest is indexed, or there are
    /// multi-receive buffers.
    #[cold]
    fn arrive_behind_head(&mut self, env: &Envelope) -> Option<Posted> {
        let head = self.posted.head();
        let slot = if self.posted.get(head)?.accepts(env) {
            Some(head)
        } else {
            self.by_mask.first(&self.posted, env)
        };
        self.note_short_way();
        let Some(slot) = slot else {
            return self.arrive_in_multi(env);
        };
        if !self.multis.is_empty()
            && let Some(place) = self.multis.find(env)
            && self.multis.is_before(place, self.posted.number(slot))
        {
            return self.arrive_in_multi(env);
        }
        self.take_posted(slot)
    }

    /// Finds the multi-receive buffer for a message that no other receive takes first.
    #[cold]
    fn arrive_in_multi(&mut self, env: &Envelope) -> Option<Posted> {
        let Some(place) = self.multis.find(env) else {
            let (shared, kind) = self.shared.as_ref()?;
            return shared.take(*kind, env);
        };
        let rx = self.multis.cut(place, env.len);
        self.note_short_way();
        Some(rx)
    }

    fn note_short_way(&mut self) {
        self.short_from = match self.multis.is_empty() {
            true => self.by_mask.upto().max(self.apart_upto),
            false => u64::MAX,
        };
    }

    fn take_posted(&mut self, slot: Slot) -> Option<Posted> {
        let indexed = self.by_mask.has(self.posted.number(slot));
        self.by_mask.pass(&self.posted, slot);
        let rx = self.posted.remove(slot)?;
        if indexed {
            self.by_mask.forget(&rx, slot);
        }
        Some(rx)
    }

    fn take_posted_if(&mut self, which: impl Fn(&Posted) -> bool) -> Vec<Posted> {
        let named = self.posted.iter().filter(|(_, rx)| which(rx));
        let slots: Vec<_> = named.map(|(slot, _)| slot).collect();
        let taken = slots.into_iter().map(|slot| self.take_posted(slot));
        let mut taken: Vec<_> = taken.flatten().collect();
        taken.extend(self.multis.take(which));
        self.note_short_way();
        taken
    }

    fn find_unexpected(&mut self, src: Source, tag: TagMatch) -> Option<Slot> {
        let head = self.unexpected.head();
        examine();
        if self.unexpected.get(head)?.is_taken_by(src, tag) {
            return Some(head);
        }
        if self.unexpected.len() <= SHORT {
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
        self.views.forget(&env, number, slot);
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
