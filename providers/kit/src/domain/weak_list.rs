//! A list of weak handles to objects with other owners, which drop the objects without notice.

use std::sync::{Arc, Weak};

/// Weak handles. Handles of dropped objects are removed each time the list has doubled in length
/// since the last removal, so the amortized cost of an addition is constant.
#[derive(Debug)]
pub struct WeakList<T: ?Sized> {
    all: Vec<Weak<T>>,
    prune_len: usize,
    #[cfg(test)]
    examined: usize,
}

/// The list is not pruned below this length.
const SHORT: usize = 16;

impl<T: ?Sized> WeakList<T> {
    /// Adds an object.
    pub fn push(&mut self, object: Weak<T>) {
        if self.all.len() >= self.prune_len {
            #[cfg(test)]
            {
                self.examined += self.all.len();
            }
            self.all.retain(|other| other.strong_count() > 0);
            self.prune_len = (2 * self.all.len()).max(SHORT);
        }
        self.all.push(object);
    }

    /// The objects that still exist, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Arc<T>> {
        self.all.iter().filter_map(Weak::upgrade)
    }
}

impl<T: ?Sized> Default for WeakList<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            prune_len: SHORT,
            #[cfg(test)]
            examined: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_to_a_long_list_costs_no_more_than_to_a_short_one() {
        let mut list = WeakList::default();
        let objects: Vec<_> = (0..32768).map(Arc::new).collect();
        for object in &objects {
            list.push(Arc::downgrade(object));
        }
        assert!(list.examined < 2 * objects.len(), "{}", list.examined);
        assert!(list.iter().eq(objects.iter().cloned()));
    }

    #[test]
    fn handles_of_dropped_objects_are_pruned() {
        let mut list = WeakList::default();
        let kept = Arc::new(1);
        list.push(Arc::downgrade(&kept));
        for number in 0..1000 {
            list.push(Arc::downgrade(&Arc::new(number)));
            assert!(list.all.len() <= SHORT);
        }
        assert!(list.iter().eq([kept]));
    }
}
