//! Members of a queue by source and tag.

use rustc_hash::FxHashMap;

use super::Source;
use super::queue::{NONE, Slot};

/// What members are found by: a source, or [`Source::ANY`] where sources are not told apart, and
/// the part of the tag that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    src: u32,
    tag: u64,
}

impl Key {
    #[inline]
    pub(super) const fn new(src: Source, tag: u64, ignore: u64) -> Self {
        Self {
            src: src.0,
            tag: tag & !ignore,
        }
    }
}

/// For each key the members with it, in the order in which they were added.
///
/// The lists are threaded through one vector of links, one per place of the queue, so that an index
/// that has reached its size allocates no more.
#[derive(Debug, Default)]
pub(super) struct Index {
    lists: FxHashMap<Key, Ends>,
    links: Vec<Link>,
}

#[derive(Debug)]
struct Ends {
    first: Slot,
    last: Slot,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: Slot,
    next: Slot,
}

impl Index {
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The member with this key that was added first, or [`NONE`].
    pub(super) fn first(&self, key: Key) -> Slot {
        self.lists.get(&key).map_or(NONE, |ends| ends.first)
    }

    /// The member with the same key that was added after `slot`, or [`NONE`].
    pub(super) fn next(&self, slot: Slot) -> Slot {
        self.links[slot as usize].next
    }

    /// Adds a member behind those with the same key.
    pub(super) fn add(&mut self, key: Key, slot: Slot) {
        let ends = self.lists.entry(key).or_insert(Ends {
            first: slot,
            last: NONE,
        });
        let prev = std::mem::replace(&mut ends.last, slot);
        self.set(slot, Link { prev, next: NONE });
        if prev != NONE {
            self.links[prev as usize].next = slot;
        }
    }

    /// Removes a member that was added with this key.
    pub(super) fn remove(&mut self, key: Key, slot: Slot) {
        let Link { prev, next } = self.links[slot as usize];
        if prev == NONE && next == NONE {
            self.lists.remove(&key);
            return;
        }
        match prev {
            NONE => self.ends(key).first = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.ends(key).last = prev,
            next => self.links[next as usize].prev = prev,
        }
    }

    fn ends(&mut self, key: Key) -> &mut Ends {
        self.lists.get_mut(&key).expect("the key has members")
    }

    fn set(&mut self, slot: Slot, link: Link) {
        let place = slot as usize;
        if place >= self.links.len() {
            let none = Link {
                prev: NONE,
                next: NONE,
            };
            self.links.resize(place + 1, none);
        }
        self.links[place] = link;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(index: &Index, key: Key) -> Vec<Slot> {
        let member = |slot: Slot| (slot != NONE).then_some(slot);
        std::iter::successors(member(index.first(key)), |&slot| member(index.next(slot))).collect()
    }

    #[test]
    fn members_leave_from_the_front_the_middle_and_the_back() {
        let key = Key::new(Source(1), 0xab, 0xf);
        for gone in [9, 2, 5] {
            let mut index = Index::default();
            [9, 2, 5].iter().for_each(|&slot| index.add(key, slot));
            index.remove(key, gone);
            index.add(key, 0);
            let expected: Vec<_> = [9, 2, 5, 0].into_iter().filter(|&s| s != gone).collect();
            assert_eq!(members(&index, key), expected);
        }
    }

    #[test]
    fn keys_do_not_mix() {
        let mut index = Index::default();
        index.add(Key::new(Source(1), 0x10, 0), 0);
        index.add(Key::new(Source(2), 0x10, 0), 1);
        index.add(Key::new(Source(1), 0x20, 0), 2);
        assert_eq!(members(&index, Key::new(Source(1), 0x10, 0)), [0]);
        assert_eq!(members(&index, Key::new(Source(1), 0x2f, 0xf)), [2]);
    }

    #[test]
    fn an_index_without_members_is_empty() {
        let key = Key::new(Source::ANY, 7, 0);
        let mut index = Index::default();
        index.add(key, 3);
        assert!(!index.is_empty());
        index.remove(key, 3);
        assert!(index.is_empty());
        assert_eq!(index.first(key), NONE);
    }
}
