//! `IdMap`: values by numbers that are inserted in ascending order. The oldest one is found at once,
//! and most requests are the oldest.

use std::collections::VecDeque;

/// The number of vacant entries that a map may keep in any case.
const VACANT_MIN: usize = 32;

/// Values by numbers that are inserted in ascending order.
#[derive(Debug)]
pub(crate) struct IdMap<T> {
    /// In ascending order. The first one is not vacant.
    entries: VecDeque<(u64, Option<T>)>,
    /// The number of vacant entries.
    vacant: usize,
}

impl<T> IdMap<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            vacant: 0,
        }
    }

    /// Inserts a value. The number is greater than all before.
    pub(crate) fn insert(&mut self, id: u64, value: T) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < id));
        self.entries.push_back((id, Some(value)));
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        let entry = self.position(id).and_then(|index| self.entries.get(index));
        entry.is_some_and(|(_, value)| value.is_some())
    }

    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let index = self.position(id)?;
        self.entries.get_mut(index)?.1.as_mut()
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let index = self.position(id)?;
        let value = self.entries.get_mut(index)?.1.take()?;
        self.vacant += 1;
        while self
            .entries
            .front()
            .is_some_and(|(_, value)| value.is_none())
        {
            self.entries.pop_front();
            self.vacant -= 1;
        }
        if self.vacant > VACANT_MIN.max(self.entries.len() / 2) {
            self.entries.retain(|(_, value)| value.is_some());
            self.vacant = 0;
        }
        Some(value)
    }

    /// All numbers and values, in ascending order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let entries = self.entries.iter_mut();
        entries.filter_map(|(id, value)| Some((*id, value.as_mut()?)))
    }

    fn position(&self, id: u64) -> Option<usize> {
        match self.entries.front() {
            Some((first, _)) if *first == id => Some(0),
            _ => self.entries.binary_search_by_key(&id, |(id, _)| *id).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_map_has_the_values_that_were_inserted_and_not_removed() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let (mut map, mut model) = (IdMap::new(), BTreeMap::new());
            let mut last = 0;
            for _ in 0..1000 {
                if random.bool() {
                    last += random.u64(1..3);
                    map.insert(last, last * 3);
                    model.insert(last, last * 3);
                }
                // Removed from both ends and from the middle, also by unknown numbers.
                let id = random.u64(..=last + 1);
                if random.u8(..3) > 0 {
                    assert_eq!(map.remove(id), model.remove(&id));
                }
                assert_eq!(map.contains(id), model.contains_key(&id));
                assert_eq!(map.get_mut(id), model.get_mut(&id));
                assert!(map.entries.len() <= 2 * model.len() + 2 * VACANT_MIN);
            }
            assert!(
                map.iter_mut()
                    .eq(model.iter_mut().map(|(&id, value)| (id, value)))
            );
        }
    }
}
