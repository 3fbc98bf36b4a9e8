//! Bells: integers that the library increments when an operation completes.
//!
//! The library rings a bell by adding 1, and only inside calls of the library. The application
//! defines the meaning of the number. A [`Bell`] is a slot of a table that lives as long as any
//! bell of the table, so a late ring never writes to freed memory. A C program may use any `int` as
//! a bell; the engine checks that the address is mapped before it rings such a bell.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// The name of a bell, valid in the context that owns the bell.
///
/// Plain data: the owner sends it to the contexts that shall ring the bell.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BellName(u64);

/// The lowest bits of a name, which no aligned address has.
const KIND: u64 = 0b11;
/// A slot of the table.
const TABLE: u64 = 0b01;
/// Any integer of the context.
const OUTSIDE_TABLE: u64 = 0b10;

impl BellName {
    /// No bell: nothing is rung.
    pub const NONE: Self = Self(0);

    /// Names the integer at this address, which may be outside the table; [`Self::NONE`] for 0.
    /// Ringing a bell at an unaligned address is an error.
    pub const fn at(address: usize) -> Self {
        match address as u64 {
            0 => Self::NONE,
            address if address & KIND == 0 => Self(address | OUTSIDE_TABLE),
            address => Self(address | KIND),
        }
    }

    /// The name as 64 bits; 0 for [`Self::NONE`].
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Makes a name from the result of [`Self::word`].
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The address of a bell outside the table; `None` for other names.
    pub(crate) fn address_outside_table(self) -> Option<u64> {
        (self.0 & KIND == OUTSIDE_TABLE).then_some(self.0 & !KIND)
    }

    /// The address of any kind of bell.
    pub(crate) const fn address(self) -> u64 {
        self.0 & !KIND
    }
}

impl fmt::Debug for BellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("no bell")
        } else {
            write!(f, "bell at {:#x}", self.address())
        }
    }
}

/// A bell of this context.
///
/// Clones are the same bell. After the last clone is dropped, a new bell may reuse the slot, and a
/// ring with the old name rings the new bell.
#[derive(Clone)]
pub struct Bell(Arc<Slot>);

struct Slot {
    bells: Arc<Bells>,
    index: usize,
}

impl Bell {
    /// The last value that was set (0 at first) plus the number of rings since, modulo 2^32.
    pub fn value(&self) -> i32 {
        self.count().load(Ordering::Acquire)
    }

    /// Sets the value.
    pub fn set(&self, value: i32) {
        self.count().store(value, Ordering::Release);
    }

    /// The name that other contexts ring this bell by.
    pub fn name(&self) -> BellName {
        let address = std::ptr::from_ref(self.count()).addr() as u64;
        BellName(address | TABLE)
    }

    /// Returns whether the bell belongs to this table.
    pub(crate) fn belongs_to(&self, bells: &Arc<Bells>) -> bool {
        Arc::ptr_eq(&self.0.bells, bells)
    }

    fn count(&self) -> &AtomicI32 {
        &self.0.bells.table[self.0.index]
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.bells.free().released.push(self.index);
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.value()).finish()
    }
}

/// The table of a controller's bells. It never moves, so names stay valid.
pub(crate) struct Bells {
    // Allocated as zero pages, which the kernel materializes on first use.
    table: Box<[AtomicI32]>,
    free: Mutex<FreeSlots>,
}

#[derive(Debug, Default)]
struct FreeSlots {
    released: Vec<usize>,
    /// The first slot that was never used.
    next_unused: usize,
}

/// Maximum number of bells of a controller. Their table takes 4 MiB of address space.
const MAX_BELLS: usize = 1 << 20;

impl Bells {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            table: bytemuck::zeroed_slice_box(MAX_BELLS),
            free: Mutex::default(),
        })
    }

    /// Allocates a bell with the value 0.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when [`MAX_BELLS`] bells exist.
    pub(crate) fn bell(self: &Arc<Self>, context: usize) -> Result<Bell> {
        let index = self.free().take().ok_or_else(|| Error::NoMemory {
            context,
            purpose: format!("more than {MAX_BELLS} bells"),
        })?;
        let slot = Slot {
            bells: Arc::clone(self),
            index,
        };
        let bell = Bell(Arc::new(slot));
        bell.set(0);
        Ok(bell)
    }

    /// The bell of the table with this name; `None` for other names.
    #[inline]
    pub(crate) fn lookup(&self, name: BellName) -> Option<&AtomicI32> {
        if name.0 & KIND != TABLE {
            return None;
        }
        let start = self.table.as_ptr().addr() as u64;
        let offset = name.address().checked_sub(start)?;
        if !offset.is_multiple_of(4) {
            return None;
        }
        self.table.get(usize::try_from(offset / 4).ok()?)
    }

    fn free(&self) -> std::sync::MutexGuard<'_, FreeSlots> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeSlots {
    fn take(&mut self) -> Option<usize> {
        if let Some(index) = self.released.pop() {
            return Some(index);
        }
        let index = self.next_unused;
        (index < MAX_BELLS).then(|| {
            self.next_unused += 1;
            index
        })
    }
}

impl fmt::Debug for Bells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bells").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_finds_a_bell_by_its_name_only() -> Result {
        let bells = Bells::new();
        let (first, second) = (bells.bell(0)?, bells.bell(0)?);
        bells
            .lookup(first.name())
            .expect("named")
            .fetch_add(1, Ordering::Relaxed);
        assert_eq!((first.value(), second.value()), (1, 0));
        let end = BellName(bells.table.as_ptr_range().end.addr() as u64 | TABLE);
        for name in [
            BellName::NONE,
            end,
            BellName(TABLE),
            BellName::at(first.count() as *const _ as usize),
        ] {
            assert!(bells.lookup(name).is_none(), "{name:?}");
        }
        Ok(())
    }

    #[test]
    fn a_bell_wraps_and_may_start_below_zero() -> Result {
        let bells = Bells::new();
        let bell = bells.bell(0)?;
        for (start, rung) in [(-5, -4), (i32::MAX, i32::MIN)] {
            bell.set(start);
            bells
                .lookup(bell.name())
                .expect("named")
                .fetch_add(1, Ordering::Relaxed);
            assert_eq!(bell.value(), rung);
        }
        Ok(())
    }

    #[test]
    fn bell_slots_are_reused() -> Result {
        let bells = Bells::new();
        let name = bells.bell(0)?.name();
        assert_eq!(bells.bell(0)?.name(), name);
        Ok(())
    }
}
