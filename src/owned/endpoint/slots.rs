//! A fixed table whose keys never name a later occupant of their place.

use std::mem;

use crate::Context;

/// Names one value in a [`Slots`]: its place, and which of the place's occupants it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::owned) struct Key {
    index: u32,
    generation: u32,
}

impl From<Key> for Context {
    fn from(key: Key) -> Self {
        Self(u64::from(key.generation) << 32 | u64::from(key.index))
    }
}

impl From<Context> for Key {
    fn from(context: Context) -> Self {
        let [index, generation] = [context.0 as u32, (context.0 >> 32) as u32];
        Self { index, generation }
    }
}

/// Up to `depth` values. Memory for them is set aside at once and touched at first use; adding and
/// removing never allocates.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Option<u32>,
    depth: usize,
}

#[derive(Debug)]
struct Slot<T> {
    /// Which occupant is in, or comes next; never 0, so that a zero context is no key.
    generation: u32,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    Taken(T),
    /// With the next free one.
    Free(Option<u32>),
}

impl<T> Slots<T> {
    /// An empty table for `depth` values.
    pub(super) fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self {
            slots: Vec::with_capacity(depth),
            free: None,
            depth,
        }
    }

    /// Adds a value; gives it back when the table is full.
    pub(super) fn insert(&mut self, value: T) -> Result<Key, T> {
        match self.free {
            Some(index) => Ok(self.occupy(index, value)),
            None if self.slots.len() < self.depth => Ok(self.extend(value)),
            None => Err(value),
        }
    }

    /// Takes a value out; `None` for a key whose value is gone.
    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        self.update(key, |value| (None, value))
    }

    /// Passes a value through `change`, which gives back what the place holds from then on, if
    /// anything. `None` for a key whose value is gone.
    pub(super) fn update<R>(
        &mut self,
        key: Key,
        change: impl FnOnce(T) -> (Option<T>, R),
    ) -> Option<R> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = match mem::replace(&mut slot.state, State::Free(self.free)) {
            State::Taken(value) => value,
            free => {
                slot.state = free;
                return None;
            }
        };
        let (rest, answer) = change(value);
        if let Some(value) = rest {
            slot.state = State::Taken(value);
        } else {
            slot.generation = slot.generation.wrapping_add(1).max(1);
            self.free = Some(key.index);
        }
        Some(answer)
    }

    /// All values, in the order of their places.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match &slot.state {
            State::Taken(value) => Some(value),
            State::Free(_) => None,
        })
    }

    fn occupy(&mut self, index: u32, value: T) -> Key {
        let slot = &mut self.slots[index as usize];
        if let State::Free(next) = mem::replace(&mut slot.state, State::Taken(value)) {
            self.free = next;
        }
        Key {
            index,
            generation: slot.generation,
        }
    }

    fn extend(&mut self, value: T) -> Key {
        let key = Key {
            index: u32::try_from(self.slots.len()).expect("the depth is a u32"),
            generation: 1,
        };
        self.slots.push(Slot {
            generation: key.generation,
            state: State::Taken(value),
        });
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_gives_the_value_back() {
        let mut slots = Slots::new(1);
        slots.insert('a').unwrap();
        assert_eq!(slots.insert('b'), Err('b'));
    }

    #[test]
    fn a_key_does_not_name_the_next_occupant() {
        let mut slots = Slots::new(1);
        let first = slots.insert('a').unwrap();
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b').unwrap();
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.remove(second), Some('b'));
    }

    #[test]
    fn a_free_place_answers_to_no_key() {
        let mut slots = Slots::new(1);
        let key = slots.insert('a').unwrap();
        slots.remove(key);
        let next_occupant = Key {
            generation: key.generation + 1,
            ..key
        };
        assert_eq!(slots.remove(next_occupant), None);
        assert_eq!(slots.insert('b'), Ok(next_occupant));
    }

    #[test]
    fn a_zero_context_is_no_key() {
        let mut slots = Slots::new(1);
        slots.insert('a').unwrap();
        assert_eq!(slots.remove(Key::from(Context(0))), None);
    }

    #[test]
    fn an_updated_value_keeps_its_key() {
        let mut slots = Slots::new(1);
        let key = slots.insert('a').unwrap();
        assert_eq!(slots.update(key, |old| (Some('b'), old)), Some('a'));
        assert_eq!(slots.remove(key), Some('b'));
    }

    #[test]
    fn every_place_is_used_again() {
        let mut slots = Slots::new(3);
        for _ in 0..4 {
            let keys: Vec<_> = (0..3).map(|i| slots.insert(i).unwrap()).collect();
            assert!(slots.insert(3).is_err());
            assert!(keys.into_iter().all(|key| slots.remove(key).is_some()));
        }
    }

    #[test]
    fn a_key_survives_the_trip_through_a_context() {
        let key = Key {
            index: 0x1234_5678,
            generation: 0x9abc_def0,
        };
        assert_eq!(Key::from(Context::from(key)), key);
    }
}
