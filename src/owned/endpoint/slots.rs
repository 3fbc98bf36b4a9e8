//! `Slots`: a table of fixed size whose keys are never reused for a later value. Threads add values
//! without waiting for each other, and change them under a lock.

#![expect(
    unsafe_code,
    reason = "the state word of a slot says whether it holds a value"
)]

use std::fmt;
use std::iter;
use std::mem::{ManuallyDrop, MaybeUninit};

use crate::Context;
use crate::owned::free_list::FreeRing;
use crate::owned::spin_lock::SpinLock;
use crate::owned::sync::{AtomicU64, Cell, Ordering};

/// The maximum number of values in a [`Slots`].
pub(super) const MAX_DEPTH: u32 = 1 << 16;

/// The key of one value in a [`Slots`]: the index of its slot in the lowest 16 bits, and above them
/// the generation of the value in 46 bits. The generation is odd, so no key is 0. A free slot is in
/// the free list with the even generation that precedes its next key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::owned) struct Key(u64);

/// The lowest bit of the generation.
const GENERATION: u64 = MAX_DEPTH as u64;

impl From<Key> for Context {
    #[inline]
    fn from(key: Key) -> Self {
        Self(key.0)
    }
}

impl From<Context> for Key {
    #[inline]
    fn from(context: Context) -> Self {
        Self(context.0)
    }
}

/// A table of up to `depth` values of type `T`. Its memory is allocated at once and touched at
/// first use; adding and removing values never allocates. A `K` may be kept under the key of a
/// value that was taken out.
///
/// The lock also protects a `W`.
pub(in crate::owned) struct Slots<T, K = (), W = ()> {
    table: Table<T, K>,
    lock: SpinLock<W>,
}

/// The content of an occupied slot.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::owned) enum Held<T, K = ()> {
    /// The value that was added.
    Added(T),
    /// The value that was kept in its place.
    Kept(K),
}

struct Table<T, K> {
    slots: Box<[Slot<T>]>,
    /// Kept values, by index. They are stored apart, so that adding and taking out a value touches
    /// its slot alone.
    kept: Box<[Cell<MaybeUninit<K>>]>,
    free: FreeRing,
}

/// Storage for one value. A free slot is accessed by the thread that holds its index, an occupied
/// one by the thread that holds the lock. The same holds for the kept value of that index.
struct Slot<T> {
    /// The key times 4, plus 1 while the added value is there, or 2 while a kept value is. Zero
    /// while the slot is free.
    word: AtomicU64,
    value: Cell<MaybeUninit<T>>,
}

// SAFETY: values move between threads, which `T: Send` and `K: Send` allow. The free list and the
// lock prevent two threads from accessing one value at the same time.
unsafe impl<T: Send, K: Send> Sync for Table<T, K> {}

impl Key {
    /// The state word of the slot while the added value is there.
    const fn added(self) -> u64 {
        self.0 << 2 | 1
    }

    /// The state word of the slot while a kept value is there.
    const fn kept(self) -> u64 {
        self.0 << 2 | 2
    }

    /// The entry of the slot in the free list after the value is gone.
    const fn free(self) -> u64 {
        self.0.wrapping_add(GENERATION)
    }

    /// The key of the next value in a slot with this entry in the free list.
    const fn next(entry: u64) -> Self {
        Self(entry | GENERATION)
    }

    /// The key of the value of a slot with this state word; `None` when the slot is free.
    fn occupant(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word >> 2))
    }

    /// The index of the slot.
    const fn index(self) -> u32 {
        self.0 as u32 % MAX_DEPTH
    }
}

impl<T, K, W> Slots<T, K, W> {
    /// An empty table for `depth` values, at least one and at most [`MAX_DEPTH`].
    pub(in crate::owned) fn new(depth: u32, state: W) -> Self {
        Self {
            table: Table::with(FreeRing::new(depth)),
            lock: SpinLock::new(state),
        }
    }

    /// As [`Self::new`], for callers that serialize their calls: no method executes an atomic
    /// read-modify-write.
    ///
    /// # Safety
    /// No two threads call methods at the same time, and each call happens before the next one. A
    /// [`VacantSlot`] counts as a call until it has a value.
    pub(super) unsafe fn serialized(depth: u32, state: W) -> Self {
        Self {
            table: Table::with(FreeRing::serialized(depth)),
            // SAFETY: passed on from the caller: only methods take the lock.
            lock: unsafe { SpinLock::serialized(state) },
        }
    }

    /// Reserves a free slot; `None` when the table is full.
    #[inline]
    pub(in crate::owned) fn reserve(&self) -> Option<VacantSlot<'_, T>> {
        let key = Key::next(self.table.free.take()?);
        let slot = &self.table.slots[key.index() as usize];
        Some(VacantSlot { slot, key })
    }

    /// Calls `access` under the lock. `access` must not call methods of this table.
    #[inline]
    pub(super) fn with_lock<R>(
        &self,
        access: impl FnOnce(LockedSlots<'_, T, K>, &mut W) -> R,
    ) -> R {
        let table = &self.table;
        self.lock.with(|state| access(LockedSlots { table }, state))
    }

    /// Takes out the content under a key; `None` when the key is stale.
    pub(in crate::owned) fn remove(&self, key: Key) -> Option<Held<T, K>> {
        self.update(key, |held| (None, held))
    }

    /// As [`LockedSlots::update`].
    pub(in crate::owned) fn update<R>(
        &self,
        key: Key,
        change: impl FnOnce(Held<T, K>) -> (Option<Held<T, K>>, R),
    ) -> Option<R> {
        self.with_lock(|mut locked, _| locked.update(key, change))
    }
}

/// A free slot whose index a thread holds. If it is dropped, the slot is never used again.
pub(in crate::owned) struct VacantSlot<'a, T> {
    slot: &'a Slot<T>,
    key: Key,
}

impl<T> VacantSlot<'_, T> {
    /// Adds a value.
    #[inline]
    pub(in crate::owned) fn put(self, value: T) -> Key {
        let Self { slot, key } = self;
        slot.value.with_mut(|to| {
            // SAFETY: the slot is free, and this thread holds its index.
            unsafe { to.write(MaybeUninit::new(value)) }
        });
        // Pairs with the acquire of `LockedSlots::find`.
        slot.word.store(key.added(), Ordering::Release);
        key
    }
}

/// The slot of a content that was taken out. Dropping it frees the slot.
pub(super) struct TakenSlot<'a, T, K> {
    table: &'a Table<T, K>,
    slot: &'a Slot<T>,
    key: Key,
}

impl<T, K> TakenSlot<'_, T, K> {
    /// Stores a content in the slot under the same key.
    #[inline]
    pub(super) fn put_back(self, held: Held<T, K>) {
        match held {
            Held::Added(value) => {
                let Self { slot, key, .. } = *ManuallyDrop::new(self);
                VacantSlot { slot, key }.put(value);
            }
            Held::Kept(value) => self.keep(value),
        }
    }

    /// Keeps a value under the same key.
    #[inline]
    pub(super) fn keep(self, value: K) {
        let this = ManuallyDrop::new(self);
        this.table.kept(this.key).with_mut(|to| {
            // SAFETY: no kept value is there, and this thread holds the lock.
            unsafe { to.write(MaybeUninit::new(value)) }
        });
        // Pairs with the acquire of `LockedSlots::find`.
        this.slot.word.store(this.key.kept(), Ordering::Release);
    }
}

impl<T, K> Drop for TakenSlot<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        self.table.free.release(self.key.free());
    }
}

/// A slot with an added value, for the thread that holds the lock.
pub(super) struct OccupiedSlot<'c, 'a, T, K> {
    locked: &'c mut LockedSlots<'a, T, K>,
    slot: &'a Slot<T>,
    key: Key,
}

impl<'a, T, K> OccupiedSlot<'_, 'a, T, K> {
    /// Calls `visit` with the value.
    #[inline]
    pub(super) fn with<R>(&self, visit: impl FnOnce(&T) -> R) -> R {
        self.slot.value.with_mut(|value| {
            // SAFETY: the value is there, and this thread holds the lock.
            visit(unsafe { &*value.cast::<T>() })
        })
    }

    /// Takes the value out.
    // The result is not an `Option`: with its niche in the value, the value would be moved in
    // parts.
    #[inline]
    pub(super) fn take(self) -> (T, TakenSlot<'a, T, K>) {
        let Self { locked, slot, key } = self;
        let value = slot.value.with_mut(|from| {
            // SAFETY: as above; from here on the state word says that the value is not there.
            unsafe { from.cast::<T>().read() }
        });
        (value, locked.taken(slot, key))
    }
}

/// The content of a [`Slots`], for the thread that holds the lock.
pub(super) struct LockedSlots<'a, T, K> {
    table: &'a Table<T, K>,
}

impl<'a, T, K> LockedSlots<'a, T, K> {
    /// Lends the content by value. A reference that is passed to a function that is not inlined
    /// would keep this value in memory.
    #[inline]
    pub(super) fn reborrow(&mut self) -> LockedSlots<'_, T, K> {
        LockedSlots { table: self.table }
    }

    /// The slot of an added value.
    #[inline]
    pub(super) fn added(&mut self, key: Key) -> Option<OccupiedSlot<'_, 'a, T, K>> {
        let slot = self.find(key, key.added())?;
        let locked = self;
        Some(OccupiedSlot { locked, slot, key })
    }

    /// Takes out the content under a key; `None` when the key is stale.
    pub(super) fn take(&mut self, key: Key) -> Option<(Held<T, K>, TakenSlot<'a, T, K>)> {
        let Some(slot) = self.find(key, key.kept()) else {
            let (value, slot) = self.added(key)?.take();
            return Some((Held::Added(value), slot));
        };
        let value = self.table.kept(key).with_mut(|from| {
            // SAFETY: the kept value is there, and this thread holds the lock; from here on the
            // state word says that it is not.
            unsafe { from.cast::<K>().read() }
        });
        Some((Held::Kept(value), self.taken(slot, key)))
    }

    /// Passes the content under a key to `change`, which returns the new content of the slot, if
    /// any.
    /// `None` when the key is stale.
    pub(super) fn update<R>(
        &mut self,
        key: Key,
        change: impl FnOnce(Held<T, K>) -> (Option<Held<T, K>>, R),
    ) -> Option<R> {
        let (held, slot) = self.take(key)?;
        let (rest, result) = change(held);
        if let Some(held) = rest {
            slot.put_back(held);
        }
        Some(result)
    }

    /// Calls `visit` with the content of each occupied slot, in the order of slots.
    pub(super) fn for_each(&mut self, mut visit: impl FnMut(Held<&T, &K>)) {
        for index in 0..self.table.free.touched() {
            let Some(key) = self.table.occupant(index) else {
                continue;
            };
            if let Some(slot) = self.find(key, key.added()) {
                slot.value.with_mut(|value| {
                    // SAFETY: the value is there, and this thread holds the lock.
                    visit(Held::Added(unsafe { &*value.cast::<T>() }));
                });
            } else if self.find(key, key.kept()).is_some() {
                self.table.kept(key).with_mut(|value| {
                    // SAFETY: as above.
                    visit(Held::Kept(unsafe { &*value.cast::<K>() }));
                });
            }
        }
    }

    /// The slot of a key, if it has this state word. Only this thread can change the state.
    #[inline]
    fn find(&self, key: Key, word: u64) -> Option<&'a Slot<T>> {
        let slot = self.table.slots.get(key.index() as usize)?;
        // Pairs with the releases of `VacantSlot::put` and `TakenSlot::keep`. A thread that
        // received the key through a synchronizing object, such as a completion queue, sees the
        // value there.
        (slot.word.load(Ordering::Acquire) == word).then_some(slot)
    }

    /// Marks a slot as free and returns it. The caller has taken its value.
    #[inline]
    fn taken(&mut self, slot: &'a Slot<T>, key: Key) -> TakenSlot<'a, T, K> {
        slot.word.store(0, Ordering::Relaxed);
        let table = self.table;
        TakenSlot { table, slot, key }
    }
}

impl<T, K> Table<T, K> {
    fn with(free: FreeRing) -> Self {
        assert!(
            free.count() <= MAX_DEPTH as usize,
            "a key has no room for the index"
        );
        Self {
            slots: empty(free.count()),
            kept: iter::repeat_with(|| Cell::new(MaybeUninit::uninit()))
                .take(free.count())
                .collect(),
            free,
        }
    }

    fn kept(&self, key: Key) -> &Cell<MaybeUninit<K>> {
        &self.kept[key.index() as usize]
    }

    /// The key of the value in a slot; `None` when the slot is free. The key may be stale, unless
    /// the caller holds the lock or owns the table.
    fn occupant(&self, index: u32) -> Option<Key> {
        let word = self.slots[index as usize].word.load(Ordering::Relaxed);
        Key::occupant(word)
    }
}

impl<T, K> Drop for Table<T, K> {
    fn drop(&mut self) {
        let mut locked = LockedSlots { table: self };
        for key in (0..self.free.touched()).filter_map(|index| self.occupant(index)) {
            drop(locked.take(key));
        }
    }
}

impl<T, K, W> fmt::Debug for Slots<T, K, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("depth", &self.table.slots.len())
            .finish_non_exhaustive()
    }
}

#[cfg(not(all(test, loom)))]
fn empty<T>(depth: usize) -> Box<[Slot<T>]> {
    let slots = Box::new_zeroed_slice(depth);
    // SAFETY: zeros are a valid free slot: a state word of 0, and an uninitialized value.
    unsafe { slots.assume_init() }
}

#[cfg(all(test, loom))]
fn empty<T>(depth: usize) -> Box<[Slot<T>]> {
    let slot = || Slot {
        word: AtomicU64::new(0),
        value: Cell::new(MaybeUninit::uninit()),
    };
    iter::repeat_with(slot).take(depth).collect()
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
                Some(vacant) => Ok(vacant.put(value)),
                None => Err(value),
            }
        }

        fn removed(&self, key: Key) -> Option<T> {
            self.remove(key).map(|held| match held {
                Held::Added(value) => value,
                Held::Kept(()) => unreachable!("no value is kept"),
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
    fn a_free_slot_matches_no_key() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        slots.removed(key);
        let next_occupant = Key(key.0 + 2 * GENERATION);
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
    fn a_kept_value_has_the_key_of_the_added_value() {
        let slots: Slots<_, _> = Slots::new(1, ());
        let key = slots.reserve().unwrap().put('a');
        let kept = slots.update(key, |held| (Some(Held::Kept(5)), held));
        assert_eq!(kept, Some(Held::Added('a')));
        assert!(slots.reserve().is_none());
        slots.with_lock(|mut locked, ()| {
            assert!(locked.added(key).is_none());
            let mut seen = Vec::new();
            locked.for_each(|held| match held {
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
    fn a_visited_value_stays_until_it_is_taken() {
        let slots = Slots::new(1, ());
        let key = slots.insert('a').unwrap();
        slots.with_lock(|mut locked, ()| {
            let added = locked.added(key).unwrap();
            assert_eq!(added.with(|&value| value), 'a');
            let (value, _) = locked.added(key).unwrap().take();
            assert_eq!(value, 'a');
            assert!(locked.added(key).is_none());
        });
        assert_eq!(slots.removed(key), None);
    }

    #[test]
    fn one_thread_needs_no_atomic_operations() {
        // SAFETY: one thread.
        let slots: Slots<_> = unsafe { Slots::serialized(2, ()) };
        let keys = ['a', 'b'].map(|value| slots.insert(value).unwrap());
        assert_eq!(slots.insert('c'), Err('c'));
        assert_eq!(slots.removed(keys[1]), Some('b'));
        let next = slots.insert('c').unwrap();
        assert_eq!(slots.removed(keys[1]), None);
        assert_eq!(slots.removed(next), Some('c'));
        assert_eq!(slots.removed(keys[0]), Some('a'));
    }

    #[test]
    fn every_slot_is_reused() {
        let slots = Slots::new(3, ());
        for _ in 0..4 {
            let keys: Vec<_> = (0..3).map(|i| slots.insert(i).unwrap()).collect();
            assert!(slots.insert(3).is_err());
            assert!(keys.into_iter().all(|key| slots.removed(key).is_some()));
        }
    }

    #[test]
    fn a_key_survives_a_round_trip_through_a_context() {
        let key = Key(0x1234_5678_9abc_def0);
        assert_eq!(Key::from(Context::from(key)), key);
    }

    #[test]
    fn an_update_that_panics_drops_the_value() {
        let slots = Slots::new(2, ());
        let value = Arc::new(());
        let key = slots.insert(Arc::clone(&value)).unwrap();
        let update = || slots.update(key, |_| -> (_, ()) { panic!("planted") });
        assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
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
    fn one_thread_removes_a_value_that_another_added() {
        let slots = Slots::new(2, ());
        let (tx, rx) = mpsc::channel();
        thread::scope(|scope| {
            for thread in 0..2_u64 {
                let (slots, tx) = (&slots, tx.clone());
                scope.spawn(move || {
                    for value in 0..50 {
                        let value = Box::new(2 * value + thread);
                        let vacant = loop {
                            match slots.reserve() {
                                Some(vacant) => break vacant,
                                None => thread::yield_now(),
                            }
                        };
                        tx.send((*value, vacant.put(value))).unwrap();
                    }
                });
            }
            for _ in 0..100 {
                let (value, key) = rx.recv().unwrap();
                assert_eq!(slots.removed(key), Some(Box::new(value)));
                assert_eq!(slots.removed(key), None);
            }
        });
    }
}
