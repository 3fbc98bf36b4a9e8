//! Bells: integers that the library counts up when an operation is done.
//!
//! Ringing is an addition, and happens inside calls of the library only; what the number means is
//! the application's business. A bell of this crate lies in a table that lives as long as any bell,
//! so a late ring is never a stray write; C programs use any `int`, and the engine then makes sure
//! that it is memory.

use std::fmt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Error, Result};

/// Where a bell is, in the words of the context that it belongs to.
///
/// It is plain data: send it to whoever is to ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BellName(u64);

/// The lowest bits of a name, which no aligned address has.
const KIND: u64 = 0b11;
/// A place in the table.
const TABLE: u64 = 0b01;
/// Any integer.
const ANYWHERE: u64 = 0b10;

impl BellName {
    /// No bell: nothing is rung.
    pub const NONE: Self = Self(0);

    /// The integer at this address, which need not be in the table; [`Self::NONE`] for 0. Addresses
    /// that are not aligned name no integer: ringing one is an error where it is rung.
    pub const fn at(address: usize) -> Self {
        match address as u64 {
            0 => Self::NONE,
            address if address & KIND == 0 => Self(address | ANYWHERE),
            address => Self(address | KIND),
        }
    }

    /// As 64 bits, which are 0 for none.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// What [`Self::word`] gave.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The address of a bell that need not be in the table; `None` for others.
    pub(crate) fn anywhere(self) -> Option<u64> {
        (self.0 & KIND == ANYWHERE).then_some(self.0 & !KIND)
    }

    /// The address, whatever kind of bell it is.
    pub(crate) const fn address(self) -> u64 {
        self.0 & !KIND
    }
}

impl fmt::Debug for BellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_none() {
            true => f.write_str("no bell"),
            false => write!(f, "bell at {:#x}", self.address()),
        }
    }
}

/// A bell of this context.
///
/// Clones are the same bell. Its place is given to another one when the last clone is dropped: who
/// rings it later rings that one.
#[derive(Clone)]
pub struct Bell(Arc<Place>);

struct Place {
    bells: Arc<Bells>,
    index: usize,
}

impl Bell {
    /// How often it has been rung, from 0 or the value that was set on, modulo 2^32.
    pub fn value(&self) -> i32 {
        self.count().load(Ordering::Acquire)
    }

    /// Starts anew from this value.
    pub fn set(&self, value: i32) {
        self.count().store(value, Ordering::Release);
    }

    /// What other contexts know it by.
    pub fn name(&self) -> BellName {
        let address = std::ptr::from_ref(self.count()).addr() as u64;
        BellName(address | TABLE)
    }

    /// Whether it belongs to this table.
    pub(crate) fn is_of(&self, bells: &Arc<Bells>) -> bool {
        Arc::ptr_eq(&self.0.bells, bells)
    }

    fn count(&self) -> &AtomicI32 {
        &self.0.bells.table[self.0.index]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bells.free().released.push(self.index);
    }
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bell").field(&self.value()).finish()
    }
}

/// The table of a controller's bells. It never moves, so that names stay.
pub(crate) struct Bells {
    // Zeros of the system: pages come into being when bells do.
    table: Box<[AtomicI32]>,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    released: Vec<usize>,
    /// Places from here on have never been used.
    fresh: usize,
}

/// Bells that a controller can have at a time: 4 MiB of addresses.
const MOST: usize = 1 << 20;

impl Bells {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            table: bytemuck::zeroed_slice_box(MOST),
            free: Mutex::default(),
        })
    }

    /// A new bell, at 0.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn bell(self: &Arc<Self>, context: usize) -> Result<Bell> {
        let index = self.free().take().ok_or_else(|| Error::NoMemory {
            context,
            what: format!("more than {MOST} bells"),
        })?;
        let place = Place {
            bells: Arc::clone(self),
            index,
        };
        let bell = Bell(Arc::new(place));
        bell.set(0);
        Ok(bell)
    }

    /// The bell of the table with this name; `None` for a name that is none of its.
    #[inline]
    pub(crate) fn named(&self, name: BellName) -> Option<&AtomicI32> {
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

    fn free(&self) -> std::sync::MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn take(&mut self) -> Option<usize> {
        if let Some(index) = self.released.pop() {
            return Some(index);
        }
        let index = self.fresh;
        (index < MOST).then(|| {
            self.fresh += 1;
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
    fn a_bell_is_found_by_its_name_and_nothing_else_is() -> Result {
        let bells = Bells::new();
        let (one, two) = (bells.bell(0)?, bells.bell(0)?);
        bells
            .named(one.name())
            .expect("named")
            .fetch_add(1, Ordering::Relaxed);
        assert_eq!((one.value(), two.value()), (1, 0));
        let end = BellName(bells.table.as_ptr_range().end.addr() as u64 | TABLE);
        for name in [
            BellName::NONE,
            end,
            BellName(TABLE),
            BellName::at(one.count() as *const _ as usize),
        ] {
            assert!(bells.named(name).is_none(), "{name:?}");
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
                .named(bell.name())
                .expect("named")
                .fetch_add(1, Ordering::Relaxed);
            assert_eq!(bell.value(), rung);
        }
        Ok(())
    }

    #[test]
    fn places_are_given_out_again() -> Result {
        let bells = Bells::new();
        let name = bells.bell(0)?.name();
        assert_eq!(bells.bell(0)?.name(), name);
        Ok(())
    }
}
