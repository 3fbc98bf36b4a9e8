//! A fixed table whose keys never name a later occupant of their place. Threads add values without
//! waiting for each other, and change them one after the other.

#![expect(
    unsafe_code,
    reason = "the word of a place says whether there is a value in it"
)]

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};

use crate::Context;
use crate::owned::free_list::FreeRing;
use crate::owned::sync::{AtomicU64, Cell, Ordering};
use crate::owned::turn::Turn;

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

/// Up to `depth` values of type `T`. Memory for them is set aside at once and touched at first use;
/// adding and removing never allocates.
///
/// The thread that changes values has the `W` meanwhile, too.
pub(in crate::owned) struct Slots<T, W = ()> {
    table: Table<T>,
    work: Turn<W>,
}

struct Table<T> {
    places: Box<[Place<T>]>,
    free: FreeRing,
}

/// A place for a value. A free place is accessed by the thread that holds its index, a taken one by
/// the thread that has the turn.
struct Place<T> {
    /// The generation of the last occupant, doubled, and 1 more while that is there. The last one's,
    /// so that zeros are a free place.
    word: AtomicU64,
    value: Cell<MaybeUninit<T>>,
}

// SAFETY: a value goes from thread to thread, which `T: Send` allows; the free list and the turn keep
// any two of them from accessing it at once.
unsafe impl<T: Send> Sync for Table<T> {}

impl Key {
    /// The word of the place while the value is there.
    const fn taken(self) -> u64 {
        self.free() | 1
    }

    /// The word of the place when the value is gone.
    const fn free(self) -> u64 {
        (self.generation as u64) << 1
    }

    /// The key of the last occupant of a place with this word.
    const fn last(index: u32, word: u64) -> Self {
        let generation = (word >> 1) as u32;
        Self { index, generation }
    }

    /// The key of the next occupant. Its generation is not 0, so that a zero context is no key.
    fn next(self) -> Self {
        Self {
            generation: self.generation.wrapping_add(1).max(1),
            ..self
        }
    }
}

impl<T, W> Slots<T, W> {
    /// An empty table for `depth` values, at least one.
    pub(in crate::owned) fn new(depth: u32, work: W) -> Self {
        let table = Table {
            places: empty(depth as usize),
            free: FreeRing::new(depth),
        };
        Self {
            table,
            work: Turn::new(work),
        }
    }

    /// A free place for a value; `None` when the table is full.
    #[inline]
    pub(in crate::owned) fn reserve(&self) -> Option<Vacancy<'_, T>> {
        let index = self.table.free.take()?;
        let place = &self.table.places[index as usize];
        // The ring hands on what the last holder of the index wrote.
        let key = Key::last(index, place.word.load(Ordering::Relaxed)).next();
        Some(Vacancy { place, key })
    }

    /// Calls `change` when no other thread changes values. It must not come back here.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Changes<'_, T>, &mut W) -> R) -> R {
        let table = &self.table;
        self.work.take(|work| change(&mut Changes { table }, work))
    }

    /// Takes a value out; `None` for a key whose value is gone.
    pub(in crate::owned) fn remove(&self, key: Key) -> Option<T> {
        self.update(key, |value| (None, value))
    }

    /// As [`Changes::update`].
    pub(in crate::owned) fn update<R>(
        &self,
        key: Key,
        change: impl FnOnce(T) -> (Option<T>, R),
    ) -> Option<R> {
        self.change(|changes, _| changes.update(key, change))
    }
}

/// A free place whose index a thread holds. If it is dropped, the place is never used again.
pub(in crate::owned) struct Vacancy<'a, T> {
    place: &'a Place<T>,
    key: Key,
}

impl<T> Vacancy<'_, T> {
    /// Adds a value.
    #[inline]
    pub(in crate::owned) fn put(self, value: T) -> Key {
        let Self { place, key } = self;
        place.value.with_mut(|to| {
            // SAFETY: the place is free, and this thread holds its index.
            unsafe { to.write(MaybeUninit::new(value)) }
        });
        // Pairs with the acquire of `Changes::find`.
        place.word.store(key.taken(), Ordering::Release);
        key
    }
}

/// The place of a value that was taken out. Dropping it frees the place.
pub(super) struct Taken<'a, T> {
    place: Vacancy<'a, T>,
    free: &'a FreeRing,
}

impl<T> Taken<'_, T> {
    /// Has the place hold a value under the same key.
    #[inline]
    pub(super) fn put_back(self, value: T) {
        let this = ManuallyDrop::new(self);
        let Vacancy { place, key } = this.place;
        Vacancy { place, key }.put(value);
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.free.release(self.place.key.index);
    }
}

/// The values of a [`Slots`], for the thread that has the turn.
pub(super) struct Changes<'a, T> {
    table: &'a Table<T>,
}

impl<T> Changes<'_, T> {
    /// Takes a value out for now, and its place; `None` for a key whose value is gone.
    #[inline]
    pub(super) fn take(&mut self, key: Key) -> Option<(T, Taken<'_, T>)> {
        let place = self.find(key)?;
        place.word.store(key.free(), Ordering::Relaxed);
        let value = place.value.with_mut(|from| {
            // SAFETY: the value was there until now, and this thread has the turn.
            unsafe { from.cast::<T>().read() }
        });
        let free = &self.table.free;
        let place = Vacancy { place, key };
        Some((value, Taken { place, free }))
    }

    /// Passes a value through `change`, which gives back what the place holds from then on, if
    /// anything. `None` for a key whose value is gone.
    pub(super) fn update<R>(
        &mut self,
        key: Key,
        change: impl FnOnce(T) -> (Option<T>, R),
    ) -> Option<R> {
        let (value, place) = self.take(key)?;
        let (rest, answer) = change(value);
        if let Some(value) = rest {
            place.put_back(value);
        }
        Some(answer)
    }

    /// Calls `look` with every value, in the order of their places.
    pub(super) fn for_each(&mut self, mut look: impl FnMut(&T)) {
        for index in 0..self.table.free.touched() {
            let word = self.table.places[index as usize]
                .word
                .load(Ordering::Relaxed);
            if let Some(place) = self.find(Key::last(index, word)) {
                place.value.with_mut(|value| {
                    // SAFETY: the value is there, and this thread has the turn.
                    look(unsafe { &*value.cast::<T>() });
                });
            }
        }
    }

    /// The place of a value that is there. Only this thread can take it away.
    #[inline]
    fn find(&self, key: Key) -> Option<&Place<T>> {
        let place = self.table.places.get(key.index as usize)?;
        // Pairs with the release of `Vacancy::put`. A thread that was told of the key in an order, as by
        // a completion queue, sees the value there.
        (place.word.load(Ordering::Acquire) == key.taken()).then_some(place)
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        let mut changes = Changes { table: self };
        for index in 0..self.free.touched() {
            let word = self.places[index as usize].word.load(Ordering::Relaxed);
            let value = changes.update(Key::last(index, word), |value| (None, value));
            drop(value);
        }
    }
}

impl<T, W> fmt::Debug for Slots<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("depth", &self.table.places.len())
            .finish_non_exhaustive()
    }
}

#[cfg(not(all(test, loom)))]
fn empty<T>(depth: usize) -> Box<[Place<T>]> {
    let places = Box::new_zeroed_slice(depth);
    // SAFETY: zeros are a free place: a word of 0, and a value that is not initialised.
    unsafe { places.assume_init() }
}

#[cfg(all(test, loom))]
fn empty<T>(depth: usize) -> Box<[Place<T>]> {
    let place = || Place {
        word: AtomicU64::new(0),
        value: Cell::new(MaybeUninit::uninit()),
    };
    std::iter::repeat_with(place).take(depth).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, mpsc};
    use std::thread;

    use super::*;

    impl<T> Slots<T> {
        /// Adds a value; gives it back when the table is full.
        fn insert(&self, value: T) -> Result<Key, T> {
            match self.reserve() {
                Some(vacancy) => Ok(vacancy.put(value)),
                None => Err(value),
            }
        }
    }

    #[test]
    fn a_full_table_gives_the_value_back() {
        let slots = Slots::new(1, ());
        slots.insert('a').unwrap();
        assert_eq!(slots.insert('b'), Err('b'));
    }

    #[test]
    fn a_key_does_not_name_the_next_occupant() {
        let slots = Slots::new(1, ());
        let first = slots.insert('a').unwrap();
        assert_eq!(slots.remove(first), Some('a'));
        let second = slots.insert('b').unwrap();
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.remove(second), Some('b'));
    }

    #[test]
    fn a_free_place_answers_to_no_key() {
        let slots = Slots::new(1, ());
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
        let slots = Slots::new(1, ());
        slots.insert('a').unwrap();
        assert_eq!(slots.remove(Key::from(Context(0))), None);
    }

    #[test]
    fn an_updated_value_keeps_its_key() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        assert_eq!(slots.update(key, |old| (Some('b'), old)), Some('a'));
        assert_eq!(slots.remove(key), Some('b'));
    }

    #[test]
    fn every_place_is_used_again() {
        let slots = Slots::new(3, ());
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

    #[test]
    fn a_change_that_panics_takes_the_value_along() {
        let slots = Slots::new(2, ());
        let value = Arc::new(());
        let key = slots.insert(Arc::clone(&value)).unwrap();
        let change = || slots.update(key, |_| -> (_, ()) { panic!("planted") });
        assert!(catch_unwind(AssertUnwindSafe(change)).is_err());
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(slots.remove(key), None);
        let next = slots.insert(Arc::clone(&value)).unwrap();
        assert_eq!(slots.remove(next), Some(value));
    }

    #[test]
    fn values_are_dropped_with_their_table_once() {
        let value = Arc::new(());
        let slots = Slots::new(3, ());
        let keys = [(); 3].map(|()| slots.insert(Arc::clone(&value)).unwrap());
        slots.remove(keys[1]);
        assert_eq!(Arc::strong_count(&value), 3);
        drop(slots);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_value_that_one_thread_adds_another_one_removes() {
        let slots = Slots::new(2, ());
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (slots, tell) = (&slots, tell.clone());
                scope.spawn(move || {
                    for value in 0..50 {
                        let value = Box::new(2 * value + thread);
                        let vacancy = loop {
                            match slots.reserve() {
                                Some(vacancy) => break vacancy,
                                None => thread::yield_now(),
                            }
                        };
                        tell.send((*value, vacancy.put(value))).unwrap();
                    }
                });
            }
            for _ in 0..100 {
                let (value, key) = told.recv().unwrap();
                assert_eq!(slots.remove(key), Some(Box::new(value)));
                assert_eq!(slots.remove(key), None);
            }
        });
    }
}
