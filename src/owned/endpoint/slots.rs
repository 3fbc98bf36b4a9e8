//! A fixed table whose keys never name a later occupant of their place. Threads add values without
//! waiting for each other, and change them one after the other.

#![expect(
    unsafe_code,
    reason = "the word of a place says whether there is a value in it"
)]

use std::fmt;
use std::iter;
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
/// adding and removing never allocates. A `K` may be kept under the key of a value that was taken out.
///
/// The thread that changes values has the `W` meanwhile, too.
pub(in crate::owned) struct Slots<T, K = (), W = ()> {
    table: Table<T, K>,
    work: Turn<W>,
}

/// What there is under a key.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::owned) enum Held<T, K = ()> {
    /// A value, as it was added.
    Added(T),
    /// What was kept in its stead.
    Kept(K),
}

struct Table<T, K> {
    places: Box<[Place<T>]>,
    /// By index. Apart, so that a value that is added and taken out is all that is touched.
    kept: Box<[Cell<MaybeUninit<K>>]>,
    free: FreeRing,
}

/// A place for a value. A free place is accessed by the thread that holds its index, a taken one by
/// the thread that has the turn; the same holds for what is kept under that index.
struct Place<T> {
    /// The generation of the last occupant, times four, and 1 more while its value is there, 2 while
    /// something is kept. The last one's, so that zeros are a free place.
    word: AtomicU64,
    value: Cell<MaybeUninit<T>>,
}

// SAFETY: values go from thread to thread, which `T: Send` and `K: Send` allow; the free list and the
// turn keep any two of them from accessing one at once.
unsafe impl<T: Send, K: Send> Sync for Table<T, K> {}

impl Key {
    /// The word of the place while the value is there.
    const fn added(self) -> u64 {
        self.free() | 1
    }

    /// The word of the place while something is kept.
    const fn kept(self) -> u64 {
        self.free() | 2
    }

    /// The word of the place when neither is there.
    const fn free(self) -> u64 {
        (self.generation as u64) << 2
    }

    /// The key of the last occupant of a place with this word.
    const fn last(index: u32, word: u64) -> Self {
        let generation = (word >> 2) as u32;
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

impl<T, K, W> Slots<T, K, W> {
    /// An empty table for `depth` values, at least one.
    pub(in crate::owned) fn new(depth: u32, work: W) -> Self {
        Self {
            table: Table::with(FreeRing::new(depth)),
            work: Turn::new(work),
        }
    }

    /// The same for threads that keep each other apart: no method costs an atomic read-modify-write.
    ///
    /// # Safety
    /// No two threads call methods at once, and each call happens before the next one. A [`Vacancy`]
    /// counts as a call until it has a value.
    pub(super) unsafe fn promised(depth: u32, work: W) -> Self {
        Self {
            table: Table::with(FreeRing::promised(depth)),
            // SAFETY: passed on from the caller: every turn is taken by a method.
            work: unsafe { Turn::promised(work) },
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
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Changes<'_, T, K>, &mut W) -> R) -> R {
        let table = &self.table;
        self.work.take(|work| change(&mut Changes { table }, work))
    }

    /// Takes out what there is under a key; `None` when it is gone.
    pub(in crate::owned) fn remove(&self, key: Key) -> Option<Held<T, K>> {
        self.update(key, |held| (None, held))
    }

    /// As [`Changes::update`].
    pub(in crate::owned) fn update<R>(
        &self,
        key: Key,
        change: impl FnOnce(Held<T, K>) -> (Option<Held<T, K>>, R),
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
        place.word.store(key.added(), Ordering::Release);
        key
    }
}

/// The place of what was taken out. Dropping it frees the place.
pub(super) struct Taken<'a, T, K> {
    table: &'a Table<T, K>,
    place: &'a Place<T>,
    key: Key,
}

impl<T, K> Taken<'_, T, K> {
    /// Has the place hold something under the same key.
    #[inline]
    pub(super) fn put_back(self, held: Held<T, K>) {
        match held {
            Held::Added(value) => {
                let Self { place, key, .. } = *ManuallyDrop::new(self);
                Vacancy { place, key }.put(value);
            }
            Held::Kept(value) => self.keep(value),
        }
    }

    /// Keeps something under the same key.
    #[inline]
    pub(super) fn keep(self, value: K) {
        let this = ManuallyDrop::new(self);
        this.table.kept(this.key).with_mut(|to| {
            // SAFETY: nothing is there, and this thread has the turn.
            unsafe { to.write(MaybeUninit::new(value)) }
        });
        // Pairs with the acquire of `Changes::find`.
        this.place.word.store(this.key.kept(), Ordering::Release);
    }
}

impl<T, K> Drop for Taken<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        self.table.free.release(self.key.index);
    }
}

/// A value that is there, for the thread that has the turn.
pub(super) struct Added<'c, 'a, T, K> {
    changes: &'c mut Changes<'a, T, K>,
    place: &'a Place<T>,
    key: Key,
}

impl<'a, T, K> Added<'_, 'a, T, K> {
    /// Calls `look` with the value.
    #[inline]
    pub(super) fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        self.place.value.with_mut(|value| {
            // SAFETY: the value is there, and this thread has the turn.
            look(unsafe { &*value.cast::<T>() })
        })
    }

    /// Takes it out for now, and its place.
    // No option: one that had its niche in the value would have it moved in parts.
    #[inline]
    pub(super) fn take(self) -> (T, Taken<'a, T, K>) {
        let Self {
            changes,
            place,
            key,
        } = self;
        let value = place.value.with_mut(|from| {
            // SAFETY: as above; from here on the word says that it is not there.
            unsafe { from.cast::<T>().read() }
        });
        (value, changes.taken(place, key))
    }
}

/// What a [`Slots`] holds, for the thread that has the turn.
pub(super) struct Changes<'a, T, K> {
    table: &'a Table<T, K>,
}

impl<'a, T, K> Changes<'a, T, K> {
    /// A value that is there.
    #[inline]
    pub(super) fn added(&mut self, key: Key) -> Option<Added<'_, 'a, T, K>> {
        let place = self.find(key, key.added())?;
        let changes = self;
        Some(Added {
            changes,
            place,
            key,
        })
    }

    /// Takes out for now what there is under a key, and its place; `None` when it is gone.
    pub(super) fn take(&mut self, key: Key) -> Option<(Held<T, K>, Taken<'a, T, K>)> {
        let Some(place) = self.find(key, key.kept()) else {
            let (value, place) = self.added(key)?.take();
            return Some((Held::Added(value), place));
        };
        let value = self.table.kept(key).with_mut(|from| {
            // SAFETY: it is there, and this thread has the turn; from here on the word says that it is
            // not.
            unsafe { from.cast::<K>().read() }
        });
        Some((Held::Kept(value), self.taken(place, key)))
    }

    /// Passes what there is under a key through `change`, which gives back what the place holds from
    /// then on, if anything. `None` when it is gone.
    pub(super) fn update<R>(
        &mut self,
        key: Key,
        change: impl FnOnce(Held<T, K>) -> (Option<Held<T, K>>, R),
    ) -> Option<R> {
        let (held, place) = self.take(key)?;
        let (rest, answer) = change(held);
        if let Some(held) = rest {
            place.put_back(held);
        }
        Some(answer)
    }

    /// Calls `look` with all there is, in the order of places.
    pub(super) fn for_each(&mut self, mut look: impl FnMut(Held<&T, &K>)) {
        for index in 0..self.table.free.touched() {
            let word = self.table.places[index as usize]
                .word
                .load(Ordering::Relaxed);
            let key = Key::last(index, word);
            if let Some(place) = self.find(key, key.added()) {
                place.value.with_mut(|value| {
                    // SAFETY: the value is there, and this thread has the turn.
                    look(Held::Added(unsafe { &*value.cast::<T>() }));
                });
            } else if self.find(key, key.kept()).is_some() {
                self.table.kept(key).with_mut(|value| {
                    // SAFETY: as above.
                    look(Held::Kept(unsafe { &*value.cast::<K>() }));
                });
            }
        }
    }

    /// The place of a key, if it has this word. Only this thread can change that.
    #[inline]
    fn find(&self, key: Key, word: u64) -> Option<&'a Place<T>> {
        let place = self.table.places.get(key.index as usize)?;
        // Pairs with the releases of `Vacancy::put` and `Taken::keep`. A thread that was told of the
        // key in an order, as by a completion queue, sees the value there.
        (place.word.load(Ordering::Acquire) == word).then_some(place)
    }

    /// Marks a place as free, and hands it on as one whose value the caller has.
    #[inline]
    fn taken(&mut self, place: &'a Place<T>, key: Key) -> Taken<'a, T, K> {
        place.word.store(key.free(), Ordering::Relaxed);
        let table = self.table;
        Taken { table, place, key }
    }
}

impl<T, K> Table<T, K> {
    fn with(free: FreeRing) -> Self {
        Self {
            places: empty(free.count()),
            kept: iter::repeat_with(|| Cell::new(MaybeUninit::uninit()))
                .take(free.count())
                .collect(),
            free,
        }
    }

    fn kept(&self, key: Key) -> &Cell<MaybeUninit<K>> {
        &self.kept[key.index as usize]
    }
}

impl<T, K> Drop for Table<T, K> {
    fn drop(&mut self) {
        let mut changes = Changes { table: self };
        for index in 0..self.free.touched() {
            let word = self.places[index as usize].word.load(Ordering::Relaxed);
            let held = changes.update(Key::last(index, word), |held| (None, held));
            drop(held);
        }
    }
}

impl<T, K, W> fmt::Debug for Slots<T, K, W> {
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
    iter::repeat_with(place).take(depth).collect()
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

        fn removed(&self, key: Key) -> Option<T> {
            self.remove(key).map(|held| match held {
                Held::Added(value) => value,
                Held::Kept(()) => unreachable!("nothing is kept here"),
            })
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
        assert_eq!(slots.removed(first), Some('a'));
        let second = slots.insert('b').unwrap();
        assert_eq!(slots.removed(first), None);
        assert_eq!(slots.removed(second), Some('b'));
    }

    #[test]
    fn a_free_place_answers_to_no_key() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        slots.removed(key);
        let next_occupant = Key {
            generation: key.generation + 1,
            ..key
        };
        assert_eq!(slots.removed(next_occupant), None);
        assert_eq!(slots.insert('b'), Ok(next_occupant));
    }

    #[test]
    fn a_zero_context_is_no_key() {
        let slots = Slots::new(1, ());
        slots.insert('a').unwrap();
        assert_eq!(slots.removed(Key::from(Context(0))), None);
    }

    #[test]
    fn an_updated_value_keeps_its_key() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        assert_eq!(
            slots.update(key, |old| (Some(Held::Added('b')), old)),
            Some(Held::Added('a'))
        );
        assert_eq!(slots.removed(key), Some('b'));
    }

    #[test]
    fn what_is_kept_has_the_key_of_the_value() {
        let slots: Slots<_, _> = Slots::new(1, ());
        let key = slots.reserve().unwrap().put('a');
        let kept = slots.update(key, |held| (Some(Held::Kept(5)), held));
        assert_eq!(kept, Some(Held::Added('a')));
        assert!(slots.reserve().is_none());
        slots.change(|changes, ()| {
            assert!(changes.added(key).is_none());
            let mut seen = Vec::new();
            changes.for_each(|held| match held {
                Held::Added(_) => unreachable!(),
                Held::Kept(&kept) => seen.push(kept),
            });
            assert_eq!(seen, [5]);
        });
        assert_eq!(slots.remove(key), Some(Held::Kept(5)));
        assert_eq!(slots.remove(key), None);
        assert!(slots.reserve().is_some());
    }

    #[test]
    fn a_value_that_was_looked_at_stays_until_it_is_taken() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        slots.change(|changes, ()| {
            let added = changes.added(key).unwrap();
            assert_eq!(added.with(|&value| value), 'a');
            let (value, _) = changes.added(key).unwrap().take();
            assert_eq!(value, 'a');
            assert!(changes.added(key).is_none());
        });
        assert_eq!(slots.removed(key), None);
    }

    #[test]
    fn one_thread_needs_no_atomic_operations() {
        // SAFETY: one thread.
        let slots: Slots<_> = unsafe { Slots::promised(2, ()) };
        let keys = ['a', 'b'].map(|value| slots.insert(value).unwrap());
        assert_eq!(slots.insert('c'), Err('c'));
        assert_eq!(slots.removed(keys[1]), Some('b'));
        let next = slots.insert('c').unwrap();
        assert_eq!(slots.removed(keys[1]), None);
        assert_eq!(slots.removed(next), Some('c'));
        assert_eq!(slots.removed(keys[0]), Some('a'));
    }

    #[test]
    fn every_place_is_used_again() {
        let slots = Slots::new(3, ());
        for _ in 0..4 {
            let keys: Vec<_> = (0..3).map(|i| slots.insert(i).unwrap()).collect();
            assert!(slots.insert(3).is_err());
            assert!(keys.into_iter().all(|key| slots.removed(key).is_some()));
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
        assert_eq!(slots.removed(key), None);
        let next = slots.insert(Arc::clone(&value)).unwrap();
        assert_eq!(slots.removed(next), Some(value));
    }

    #[test]
    fn values_are_dropped_with_their_table_once() {
        let value = Arc::new(());
        let slots = Slots::new(3, ());
        let keys = [(); 3].map(|()| slots.insert(Arc::clone(&value)).unwrap());
        slots.removed(keys[1]);
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
                assert_eq!(slots.removed(key), Some(Box::new(value)));
                assert_eq!(slots.removed(key), None);
            }
        });
    }
}
