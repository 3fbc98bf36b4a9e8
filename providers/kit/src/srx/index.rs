//! An index of the members of a queue by source and tag.

use rustc_hash::FxHashMap;

use super::Source;
use super::queue::{NONE, Slot};

/// The key of a member: a source, or [`Source::ANY`] where sources are not distinguished, and the
/// compared part of the tag.
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

/// The members of a queue by key. Members with the same key are listed in the order in which they
/// were added.
///
/// The lists are linked through one vector with an entry for each slot of the queue, so that an
/// index that has reached its size does not allocate.
#[derive(Debug, Default)]
pub(super) struct Index {
    lists: FxHashMap<Key, List>,
    links: Vec<Link>,
}

#[derive(Debug)]
struct List {
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
        self.lists.get(&key).map_or(NONE, |list| list.first)
    }

    /// The member with the same key that was added after `slot`, or [`NONE`].
    pub(super) fn next(&self, slot: Slot) -> Slot {
        self.links[slot as usize].next
    }

    /// Adds a member behind those with the same key.
    pub(super) fn add(&mut self, key: Key, slot: Slot) {
        let list = self.lists.entry(key).or_insert(List {
            first: slot,
            last: NONE,
        });
        let prev = std::mem::replace(&mut list.last, slot);
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
            NONE => self.list(key).first = next,
            prev => self.links[prev as usize].next = next,
        }
        match next {
            NONE => self.list(key).last = prev,
            next => self.links[next as usize].prev = prev,
        }
    }

    fn list(&mut self, key: Key) -> &mut List {
        self.lists.get_mut(&key).expect("the key has members")
    }

    fn set(&mut self, slot: Slot, link: Link) {
        let index = slot as usize;
        if index >= self.links.len() {
            let none = Link {
                prev: NONE,
                next: NONE,
            };
            self.links.resize(index + 1, none);
        }
        self.links[index] = link;
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
        for removed in [9, 2, 5] {
            let mut index = Index::default();
            [9, 2, 5].iter().for_each(|&slot| index.add(key, slot));
            index.remove(key, removed);
            index.add(key, 0);
            let expected: Vec<_> = [9, 2, 5, 0].into_iter().filter(|&s| s != removed).collect();
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
