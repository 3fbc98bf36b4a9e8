//! `ByMask`: the indices of the posted receives, by ignore mask, source and tag.

use super::index::{Index, Key};
use super::queue::{LimitReached, NONE, Queue, Slot};
use super::{Envelope, LINEAR_LIMIT, MASKS, Posted, Source, examine};

/// The indices of the posted receives: one for each ignore mask, up to [`MASKS`], and one list for
/// the receives whose mask has no index because all are in use.
#[derive(Debug)]
pub(super) struct ByMask {
    masks: Vec<Mask>,
    /// For each slot, the position in `masks` of the receive's index; [`NO_MASK`] for the list.
    mask_of: Vec<u8>,
    /// The list of the receives whose mask has no index.
    unmasked: Index,
    /// Receives with a lower number are indexed.
    indexed_upto: u64,
    /// The first receive that is not indexed, with its number. The value is out of date if the
    /// receive in the slot has another number.
    first_new: (Slot, u64),
    /// Source and tag of the last message for which no indexed receive was found.
    last_miss: Option<(Source, u64)>,
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
            mask_of: Vec::new(),
            unmasked: Index::default(),
            indexed_upto: 0,
            first_new: (NONE, 0),
            last_miss: None,
        }
    }

    /// Returns the receive that takes the message: the first posted one that accepts it.
    pub(super) fn first(&mut self, posted: &Queue<Posted>, env: &Envelope) -> Option<Slot> {
        // Without this check, each message for a receive that is not indexed would repeat the
        // search.
        let source_and_tag = Some((env.src, env.tag));
        if self.last_miss != source_and_tag {
            let indexed = self.first_indexed(posted, env);
            if indexed.is_some() {
                return indexed;
            }
            self.last_miss = source_and_tag;
        }
        let first_new = self.find_first_new(posted);
        match posted.find_near(first_new, LINEAR_LIMIT, |rx| rx.accepts(env)) {
            Ok(slot) => slot,
            Err(LimitReached) => {
                self.index_new(posted, first_new);
                self.first_indexed(posted, env)
            }
        }
    }

    /// Finds the first receive that is not indexed; [`NONE`] if there is none.
    fn find_first_new(&mut self, posted: &Queue<Posted>) -> Slot {
        if self.first_new_slot(posted).is_none() {
            self.set_first_new(posted, posted.first_since(self.indexed_upto));
        }
        self.first_new.0
    }

    /// Returns the first receive that is not indexed, if it is known.
    #[inline]
    pub(super) fn first_new_slot(&self, posted: &Queue<Posted>) -> Option<Slot> {
        let (slot, number) = self.first_new;
        (posted.get(slot).is_some() && posted.number(slot) == number).then_some(slot)
    }

    /// Returns the first receive that is not indexed, if it is known and the last search found no
    /// indexed receive for this source and tag.
    #[inline]
    pub(super) fn first_new_after_miss(
        &self,
        posted: &Queue<Posted>,
        src: Source,
        tag: u64,
    ) -> Option<Slot> {
        let is_missed = self.last_miss == Some((src, tag));
        is_missed.then(|| self.first_new_slot(posted)).flatten()
    }

    fn set_first_new(&mut self, posted: &Queue<Posted>, slot: Slot) {
        let number = if slot == NONE { 0 } else { posted.number(slot) };
        self.first_new = (slot, number);
    }

    /// Prepares for the removal of a receive: if it is the first that is not indexed, the next one
    /// takes its place.
    #[inline]
    pub(super) fn prepare_removal(&mut self, posted: &Queue<Posted>, slot: Slot) {
        if (slot, posted.number(slot)) == self.first_new {
            self.set_first_new(posted, posted.next(slot));
        }
    }

    /// Indexes the receives from `first_new` on: those posted since the last call.
    fn index_new(&mut self, posted: &Queue<Posted>, first_new: Slot) {
        for (slot, rx) in posted.iter_from(first_new) {
            examine();
            let mask = self.mask_for(rx.tag.ignore);
            self.set_mask_of(slot, mask);
            let (index, key) = self.index_of(mask, rx);
            index.add(key, slot);
        }
        self.indexed_upto = posted.pushes();
        self.first_new = (NONE, 0);
        self.last_miss = None;
    }

    /// Returns the first posted receive that accepts the message, among the indexed ones.
    fn first_indexed(&self, posted: &Queue<Posted>, env: &Envelope) -> Option<Slot> {
        let in_masks = self.masks.iter().flat_map(|Mask { ignore, index }| {
            [env.src, Source::ANY].map(|src| index.first(Key::new(src, env.tag, *ignore)))
        });
        in_masks
            .chain([self.first_unmasked(posted, env)])
            .filter(|&slot| slot != NONE)
            .inspect(|_| examine())
            .min_by_key(|&slot| posted.number(slot))
    }

    fn first_unmasked(&self, posted: &Queue<Posted>, env: &Envelope) -> Slot {
        let mut slot = self.unmasked.first(UNMASKED_KEY);
        while posted.get(slot).is_some_and(|rx| !rx.accepts(env)) {
            examine();
            slot = self.unmasked.next(slot);
        }
        slot
    }

    /// Returns the number below which all receives are indexed.
    pub(super) const fn indexed_upto(&self) -> u64 {
        self.indexed_upto
    }

    /// Whether the receive with this number is indexed.
    #[inline]
    pub(super) const fn is_indexed(&self, number: u64) -> bool {
        number < self.indexed_upto
    }

    /// Removes an indexed receive from its index.
    pub(super) fn remove(&mut self, rx: &Posted, slot: Slot) {
        examine();
        let (index, key) = self.index_of(self.mask_of[slot as usize], rx);
        index.remove(key, slot);
    }

    /// Returns the position in `masks` of the index for a mask: its own, a new one or one that has
    /// become empty; else [`NO_MASK`].
    fn mask_for(&mut self, ignore: u64) -> u8 {
        let masks = &mut self.masks;
        let own = masks.iter().position(|mask| mask.ignore == ignore);
        if own.is_none() && masks.len() < MASKS {
            masks.push(Mask {
                ignore,
                index: Index::default(),
            });
            return (masks.len() - 1) as u8;
        }
        let mask = own.or_else(|| masks.iter().position(|mask| mask.index.is_empty()));
        let Some(mask) = mask else { return NO_MASK };
        masks[mask].ignore = ignore;
        mask as u8
    }

    fn index_of(&mut self, mask: u8, rx: &Posted) -> (&mut Index, Key) {
        match self.masks.get_mut(mask as usize) {
            Some(mask) => (&mut mask.index, Key::new(rx.src, rx.tag.tag, rx.tag.ignore)),
            None => (&mut self.unmasked, UNMASKED_KEY),
        }
    }

    fn set_mask_of(&mut self, slot: Slot, mask: u8) {
        let index_of = slot as usize;
        if index_of >= self.mask_of.len() {
            self.mask_of.resize(index_of + 1, NO_MASK);
        }
        self.mask_of[index_of] = mask;
    }
}

/// The value of [`ByMask::mask_of`] for a receive in the list.
const NO_MASK: u8 = u8::MAX;

/// The only key of the list.
const UNMASKED_KEY: Key = Key::new(Source::ANY, 0, 0);
