//! The matcher: posted receives on one side, unexpected messages on the other.
//!
//! Most programs post and send in the same order, so the oldest member is looked at first, and a
//! short queue is searched from the front. A long queue is looked up in indices, which are filled
//! only when such a look-up happens, each member once per index.

use selvedge::{Context, TagMatch};

use super::index::{Index, Key};
use super::queue::{NONE, Queue, Slot};
use super::{Envelope, Posted, Source};

/// Posted receives and unexpected messages of one endpoint and interface.
///
/// `U` is what the provider keeps of an unexpected message: its bytes, or where they are.
///
/// The cost of a verb does not grow with the number of receives or messages, as long as there are
/// no more than eight different ignore masks at a time among the receives, or different pairs
/// of mask and directedness among those that look for a message; the rest is searched from the
/// front. [`Self::cancel`] and the verbs that work on many members look at all of them.
#[derive(Debug)]
pub struct Matcher<U> {
    posted: Queue<Posted>,
    by_mask: ByMask,
    unexpected: Queue<Unexpected<U>>,
    views: Vec<View>,
    #[cfg(test)]
    examined: std::cell::Cell<usize>,
}

#[derive(Debug)]
struct Unexpected<U> {
    env: Envelope,
    payload: U,
}

impl<U> Matcher<U> {
    /// Makes an empty matcher.
    pub fn new() -> Self {
        Self {
            posted: Queue::new(),
            by_mask: ByMask::new(),
            unexpected: Queue::new(),
            views: Vec::new(),
            #[cfg(test)]
            examined: std::cell::Cell::new(0),
        }
    }

    /// Posts a receive. If a message has been waiting for it, both come back; otherwise the
    /// receive is kept.
    #[inline]
    pub fn post(&mut self, rx: Posted) -> Option<(Posted, Envelope, U)> {
        if !self.unexpected.is_empty()
            && let Some((env, payload)) = self.take(rx.src, rx.tag)
        {
            return Some((rx, env, payload));
        }
        self.posted.push(rx);
        None
    }

    /// Finds the receive for a message that arrives, and takes it out.
    ///
    /// `None` leaves nothing behind: [`Self::store`] keeps the message.
    #[inline]
    pub fn arrive(&mut self, env: &Envelope) -> Option<Posted> {
        let head = self.posted.head();
        if head == NONE {
            return None;
        }
        self.examine();
        if self.posted.get(head).accepts(env) {
            return Some(self.take_posted(head));
        }
        self.arrive_behind_head(env)
    }

    /// Keeps a message for which [`Self::arrive`] found no receive.
    pub fn store(&mut self, env: Envelope, payload: U) {
        self.unexpected.push(Unexpected { env, payload });
    }

    /// The first unexpected message that such a receive would take.
    pub fn peek(&mut self, src: Source, tag: TagMatch) -> Option<(&Envelope, &mut U)> {
        let slot = self.find_unexpected(src, tag)?;
        let found = self.unexpected.get_mut(slot);
        Some((&found.env, &mut found.payload))
    }

    /// Takes out the first unexpected message that such a receive would take.
    pub fn take(&mut self, src: Source, tag: TagMatch) -> Option<(Envelope, U)> {
        let slot = self.find_unexpected(src, tag)?;
        Some(self.take_unexpected(slot))
    }

    /// Takes back the first receive posted with this context.
    pub fn cancel(&mut self, context: Context) -> Option<Posted> {
        let slot = self
            .posted
            .slots()
            .find(|&slot| self.posted.get(slot).context == context)?;
        Some(self.take_posted(slot))
    }

    /// Takes back the receives that wait for this peer alone, in the order of their posts: it will
    /// send no more.
    pub fn fail_source(&mut self, src: Source) -> Vec<Posted> {
        self.take_posted_if(|rx| rx.src == src)
    }

    /// Takes out the unexpected messages that `which` names, in the order of their arrival.
    pub fn drop_unexpected(
        &mut self,
        mut which: impl FnMut(&Envelope, &U) -> bool,
    ) -> Vec<(Envelope, U)> {
        let slots: Vec<_> = self
            .unexpected
            .slots()
            .filter(|&slot| {
                let message = self.unexpected.get(slot);
                which(&message.env, &message.payload)
            })
            .collect();
        let taken = slots.into_iter().map(|slot| self.take_unexpected(slot));
        taken.collect()
    }

    /// Takes back every receive, in the order of their posts.
    pub fn drain_posted(&mut self) -> Vec<Posted> {
        self.take_posted_if(|_| true)
    }

    /// Takes out every unexpected message, in the order of their arrival.
    pub fn drain_unexpected(&mut self) -> Vec<(Envelope, U)> {
        self.drop_unexpected(|_, _| true)
    }

    /// Receives that wait.
    #[inline]
    pub const fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Messages that wait.
    #[inline]
    pub const fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Whether nothing waits on either side.
    pub const fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.unexpected.is_empty()
    }

    #[cold]
    fn arrive_behind_head(&mut self, env: &Envelope) -> Option<Posted> {
        let slot = if self.posted.len() <= SHORT {
            self.scan_posted(env)?
        } else {
            self.look_up_posted(env)?
        };
        Some(self.take_posted(slot))
    }

    fn scan_posted(&self, env: &Envelope) -> Option<Slot> {
        self.posted.slots().skip(1).find(|&slot| {
            self.examine();
            self.posted.get(slot).accepts(env)
        })
    }

    fn look_up_posted(&mut self, env: &Envelope) -> Option<Slot> {
        self.by_mask.catch_up(&self.posted);
        self.by_mask.first(&self.posted, env, || self.examine())
    }

    #[inline(always)]
    fn take_posted(&mut self, slot: Slot) -> Posted {
        if self.posted.number(slot) < self.by_mask.upto {
            self.by_mask.forget(&self.posted, slot);
        }
        self.posted.remove(slot)
    }

    fn take_posted_if(&mut self, which: impl Fn(&Posted) -> bool) -> Vec<Posted> {
        let slots: Vec<_> = self
            .posted
            .slots()
            .filter(|&slot| which(self.posted.get(slot)))
            .collect();
        let taken = slots.into_iter().map(|slot| self.take_posted(slot));
        taken.collect()
    }

    fn find_unexpected(&mut self, src: Source, tag: TagMatch) -> Option<Slot> {
        let accepts = |env: &Envelope| tag.accepts(env.tag) && src.accepts(env.src);
        let short = self.unexpected.slots().take(SHORT).find(|&slot| {
            self.examine();
            accepts(&self.unexpected.get(slot).env)
        });
        if short.is_some() || self.unexpected.len() <= SHORT {
            return short;
        }
        let Some(view) = View::choose(&mut self.views, src, tag.ignore) else {
            return self.unexpected.slots().find(|&slot| {
                self.examine();
                accepts(&self.unexpected.get(slot).env)
            });
        };
        let view = &mut self.views[view];
        view.catch_up(&self.unexpected);
        let slot = view.index.first(Key::new(src, tag.tag, tag.ignore));
        self.examine();
        (slot != NONE).then_some(slot)
    }

    fn take_unexpected(&mut self, slot: Slot) -> (Envelope, U) {
        let number = self.unexpected.number(slot);
        for view in self.views.iter_mut().filter(|view| number < view.upto) {
            let key = view.key(&self.unexpected.get(slot).env);
            view.index.remove(key, slot);
        }
        let Unexpected { env, payload } = self.unexpected.remove(slot);
        (env, payload)
    }

    /// Counts the members that are compared, for the tests of the cost.
    #[inline]
    fn examine(&self) {
        #[cfg(test)]
        self.examined.set(self.examined.get() + 1);
    }
}

impl<U> Default for Matcher<U> {
    fn default() -> Self {
        Self::new()
    }
}

/// The indices of the posted receives: one per ignore mask, and one list for the receives whose
/// mask found all of them taken.
#[derive(Debug)]
struct ByMask {
    masks: Vec<Mask>,
    /// Which of `masks` a receive is in, by place; [`REST`] for the list.
    homes: Vec<u8>,
    rest: Index,
    /// Receives with a lower number are indexed.
    upto: u64,
}

#[derive(Debug)]
struct Mask {
    ignore: u64,
    index: Index,
}

impl ByMask {
    fn new() -> Self {
        Self {
            masks: Vec::new(),
            homes: Vec::new(),
            rest: Index::default(),
            upto: 0,
        }
    }

    /// Adds the receives that were posted since the last look-up.
    fn catch_up(&mut self, posted: &Queue<Posted>) {
        for slot in posted.slots_from(posted.first_since(self.upto)) {
            let rx = posted.get(slot);
            let home = self.home_for(rx.tag.ignore);
            self.set_home(slot, home);
            let (index, key) = self.place(home, rx);
            index.add(key, slot);
        }
        self.upto = posted.pushes();
    }

    /// The receive that takes the message: over all masks the one posted first.
    fn first(&self, posted: &Queue<Posted>, env: &Envelope, examine: impl Fn()) -> Option<Slot> {
        let in_masks = self.masks.iter().flat_map(|Mask { ignore, index }| {
            [env.src, Source::ANY].map(|src| index.first(Key::new(src, env.tag, *ignore)))
        });
        in_masks
            .chain([self.first_of_rest(posted, env, &examine)])
            .filter(|&slot| slot != NONE)
            .inspect(|_| examine())
            .min_by_key(|&slot| posted.number(slot))
    }

    fn first_of_rest(&self, posted: &Queue<Posted>, env: &Envelope, examine: impl Fn()) -> Slot {
        let mut slot = self.rest.first(REST_KEY);
        while slot != NONE && !posted.get(slot).accepts(env) {
            examine();
            slot = self.rest.next(slot);
        }
        slot
    }

    /// Removes an indexed receive.
    #[cold]
    fn forget(&mut self, posted: &Queue<Posted>, slot: Slot) {
        let home = self.homes[slot as usize];
        let (index, key) = self.place(home, posted.get(slot));
        index.remove(key, slot);
    }

    /// The index for a mask: its own, a new one, one that has become empty, or the rest.
    fn home_for(&mut self, ignore: u64) -> u8 {
        let masks = &mut self.masks;
        let own = masks.iter().position(|mask| mask.ignore == ignore);
        if own.is_none() && masks.len() < MASKS {
            masks.push(Mask {
                ignore,
                index: Index::default(),
            });
            return (masks.len() - 1) as u8;
        }
        let home = own.or_else(|| masks.iter().position(|mask| mask.index.is_empty()));
        let Some(home) = home else { return REST };
        masks[home].ignore = ignore;
        home as u8
    }

    fn place(&mut self, home: u8, rx: &Posted) -> (&mut Index, Key) {
        match self.masks.get_mut(home as usize) {
            Some(mask) => (&mut mask.index, Key::new(rx.src, rx.tag.tag, rx.tag.ignore)),
            None => (&mut self.rest, REST_KEY),
        }
    }

    fn set_home(&mut self, slot: Slot, home: u8) {
        let place = slot as usize;
        if place >= self.homes.len() {
            self.homes.resize(place + 1, REST);
        }
        self.homes[place] = home;
    }
}

/// An index of the unexpected messages for receives of one mask, directed or not.
#[derive(Debug)]
struct View {
    ignore: u64,
    directed: bool,
    index: Index,
    /// Messages with a lower number are indexed.
    upto: u64,
}

impl View {
    /// The view for such a receive: its own, a new one, or one that has become empty.
    fn choose(views: &mut Vec<Self>, src: Source, ignore: u64) -> Option<usize> {
        let directed = src != Source::ANY;
        let own = |view: &Self| (view.ignore, view.directed) == (ignore, directed);
        if let Some(own) = views.iter().position(own) {
            return Some(own);
        }
        if views.len() < MASKS {
            views.push(Self {
                ignore,
                directed,
                index: Index::default(),
                upto: 0,
            });
            return Some(views.len() - 1);
        }
        let empty = views.iter().position(|view| view.index.is_empty())?;
        views[empty].ignore = ignore;
        views[empty].directed = directed;
        views[empty].upto = 0;
        Some(empty)
    }

    /// Adds the messages that arrived since the last look-up.
    fn catch_up<U>(&mut self, unexpected: &Queue<Unexpected<U>>) {
        for slot in unexpected.slots_from(unexpected.first_since(self.upto)) {
            self.index.add(self.key(&unexpected.get(slot).env), slot);
        }
        self.upto = unexpected.pushes();
    }

    const fn key(&self, env: &Envelope) -> Key {
        let src = if self.directed { env.src } else { Source::ANY };
        Key::new(src, env.tag, self.ignore)
    }
}

/// Different ignore masks, or pairs of mask and directedness, that are indexed at a time. Programs
/// use one to three; each costs two look-ups per message that is not met at the head.
const MASKS: usize = 8;

/// A queue of this length is searched from the front faster than an index is kept.
const SHORT: usize = 16;

/// The home of a receive that found no index.
const REST: u8 = u8::MAX;

/// The one key of the rest.
const REST_KEY: Key = Key::new(Source::ANY, 0, 0);
