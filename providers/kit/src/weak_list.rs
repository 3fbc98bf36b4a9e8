//! Lists of objects that others own, and drop without a word.

use std::sync::{Arc, Weak};

/// Weak handles. Those of objects that are gone are dropped whenever the list has become twice as
/// long as it was after the last time: adding one costs the same however many there are.
#[derive(Debug)]
pub struct WeakList<T: ?Sized> {
    all: Vec<Weak<T>>,
    prune_at: usize,
    #[cfg(test)]
    looked_at: usize,
}

/// A list shorter than this is not worth looking through.
const SHORT: usize = 16;

impl<T: ?Sized> WeakList<T> {
    /// Adds an object.
    pub fn push(&mut self, object: Weak<T>) {
        if self.all.len() >= self.prune_at {
            #[cfg(test)]
            {
                self.looked_at += self.all.len();
            }
            self.all.retain(|other| other.strong_count() > 0);
            self.prune_at = (2 * self.all.len()).max(SHORT);
        }
        self.all.push(object);
    }

    /// The objects that are still there, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Arc<T>> {
        self.all.iter().filter_map(Weak::upgrade)
    }
}

impl<T: ?Sized> Default for WeakList<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            prune_at: SHORT,
            #[cfg(test)]
            looked_at: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_one_to_many_costs_no_more_than_adding_one_to_few() {
        let mut list = WeakList::default();
        let objects: Vec<_> = (0..32768).map(Arc::new).collect();
        for object in &objects {
            list.push(Arc::downgrade(object));
        }
        assert!(list.looked_at < 2 * objects.len(), "{}", list.looked_at);
        assert!(list.iter().eq(objects.iter().cloned()));
    }

    #[test]
    fn what_is_gone_takes_no_room_for_long() {
        let mut list = WeakList::default();
        let kept = Arc::new(1);
        list.push(Arc::downgrade(&kept));
        for gone in 0..1000 {
            list.push(Arc::downgrade(&Arc::new(gone)));
            assert!(list.all.len() <= SHORT);
        }
        assert!(list.iter().eq([kept]));
    }
}
