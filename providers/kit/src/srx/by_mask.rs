//! The posted receives by ignore mask, source and tag.

use super::index::{Index, Key};
use super::queue::{NONE, Queue, Slot, TooMany};
use super::{Envelope, MASKS, Posted, SHORT, Source, examine};

/// The indices of the posted receives: one per ignore mask, and one list for the receives whose
/// mask found all of them taken.
#[derive(Debug)]
pub(super) struct ByMask {
    masks: Vec<Mask>,
    /// Which of `masks` a receive is in, by place; [`REST`] for the list.
    homes: Vec<u8>,
    rest: Index,
    /// Receives with a lower number are indexed.
    upto: u64,
    /// The first receive that is not, with its number; out of date when the number is another's.
    newer: (Slot, u64),
    /// Source and tag of a message that none of the indexed receives takes.
    missed: Option<(Source, u64)>,
}

#[derive(Debug)]
struct Mask {
    ignore: u64,
    index: Index,
}

impl ByMask {
    pub(super) fn new() -> Self {
        Self {
            masks: Vec::new(),
            homes: Vec::new(),
            rest: Index::default(),
            upto: 0,
            newer: (NONE, 0),
            missed: None,
        }
    }

    /// The receive that takes the message: the one posted first.
    pub(super) fn first(&mut self, posted: &Queue<Posted>, env: &Envelope) -> Option<Slot> {
        // A stream of messages for newer receives would ask the same for each of them.
        let wanted = Some((env.src, env.tag));
        if self.missed != wanted {
            let indexed = self.first_indexed(posted, env);
            if indexed.is_some() {
                return indexed;
            }
            self.missed = wanted;
        }
        let newer = self.first_newer(posted);
        match posted.find_near(newer, SHORT, |rx| rx.accepts(env)) {
            Ok(slot) => slot,
            Err(TooMany) => {
                self.catch_up(posted, newer);
                self.first_indexed(posted, env)
            }
        }
    }

    /// The first receive that has not been added.
    fn first_newer(&mut self, posted: &Queue<Posted>) -> Slot {
        if self.newer_slot(posted).is_none() {
            self.set_newer(posted, posted.first_since(self.upto));
        }
        self.newer.0
    }

    /// The same, if it is known.
    #[inline]
    pub(super) fn newer_slot(&self, posted: &Queue<Posted>) -> Option<Slot> {
        let (slot, number) = self.newer;
        (posted.get(slot).is_some() && posted.number(slot) == number).then_some(slot)
    }

    /// The same for a message that none of those takes that have been added, if that is known.
    #[inline]
    pub(super) fn newer_of_missed(
        &self,
        posted: &Queue<Posted>,
        src: Source,
        tag: u64,
    ) -> Option<Slot> {
        let is_missed = self.missed == Some((src, tag));
        is_missed.then(|| self.newer_slot(posted)).flatten()
    }

    fn set_newer(&mut self, posted: &Queue<Posted>, slot: Slot) {
        let number = if slot == NONE { 0 } else { posted.number(slot) };
        self.newer = (slot, number);
    }

    /// A receive is about to be removed.
    #[inline]
    pub(super) fn pass(&mut self, posted: &Queue<Posted>, slot: Slot) {
        if (slot, posted.number(slot)) == self.newer {
            self.set_newer(posted, posted.next(slot));
        }
    }

    /// Adds the receives from `newer` on, which were posted since the last time.
    fn catch_up(&mut self, posted: &Queue<Posted>, newer: Slot) {
        for (slot, rx) in posted.iter_from(newer) {
            examine();
            let home = self.home_for(rx.tag.ignore);
            self.set_home(slot, home);
            let (index, key) = self.place(home, rx);
            index.add(key, slot);
        }
        self.upto = posted.pushes();
        self.newer = (NONE, 0);
        self.missed = None;
    }

    /// Of all masks the receive that was posted first, among those added.
    fn first_indexed(&self, posted: &Queue<Posted>, env: &Envelope) -> Option<Slot> {
        let in_masks = self.masks.iter().flat_map(|Mask { ignore, index }| {
            [env.src, Source::ANY].map(|src| index.first(Key::new(src, env.tag, *ignore)))
        });
        in_masks
            .chain([self.first_of_rest(posted, env)])
            .filter(|&slot| slot != NONE)
            .inspect(|_| examine())
            .min_by_key(|&slot| posted.number(slot))
    }

    fn first_of_rest(&self, posted: &Queue<Posted>, env: &Envelope) -> Slot {
        let mut slot = self.rest.first(REST_KEY);
        while posted.get(slot).is_some_and(|rx| !rx.accepts(env)) {
            examine();
            slot = self.rest.next(slot);
        }
        slot
    }

    /// Receives with a lower number have been added.
    pub(super) const fn upto(&self) -> u64 {
        self.upto
    }

    /// Whether the receive with this number has been added.
    #[inline]
    pub(super) const fn has(&self, number: u64) -> bool {
        number < self.upto
    }

    /// Removes a receive that has been added.
    pub(super) fn forget(&mut self, rx: &Posted, slot: Slot) {
        examine();
        let (index, key) = self.place(self.homes[slot as usize], rx);
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

/// The home of a receive that found no index.
const REST: u8 = u8::MAX;

/// The one key of the rest.
const REST_KEY: Key = Key::new(Source::ANY, 0, 0);
