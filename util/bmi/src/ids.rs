//! The numbers that applications hold: addresses, operations, contexts.
//!
//! Each names its place and a generation, so that one that is stale, or was never given out, is
//! told from one that is good without touching memory that it names.

use std::fmt;

/// Methods that may be active at a time.
pub const METHODS: usize = 8;
/// Contexts that may be open at a time.
pub const CONTEXTS: usize = 16;

/// Which of the active methods.
pub(crate) type MethodIndex = usize;

/// A peer (`BMI_addr_t`). 0 is no peer.
///
/// The upper 32 bits are the peer's place, which no other peer has at the same time, and the method
/// that it is reached by; the lower ones are the generation of the place. (Mercury hashes the upper
/// ones alone.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Addr(pub i64);

impl Addr {
    /// No peer, or all methods.
    pub const NONE: Self = Self(0);

    pub(crate) const fn new(method: MethodIndex, place: u32, generation: u32) -> Self {
        // Small numbers are no peers.
        let upper = (place as i64 + 1) * METHODS as i64 + method as i64;
        Self(upper << 32 | generation as i64)
    }

    pub(crate) const fn method(self) -> MethodIndex {
        (self.0 >> 32) as usize % METHODS
    }

    pub(crate) const fn place(self) -> u32 {
        (((self.0 >> 32) as u32) / METHODS as u32).wrapping_sub(1)
    }

    pub(crate) const fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// An operation (`bmi_op_id_t`); never 0, and positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct OpId(pub i64);

/// Bits of an operation's place.
const PLACE_BITS: u32 = 29;
/// Operations that may be outstanding with one method.
pub(crate) const OPS: u32 = 1 << PLACE_BITS;
/// Bits of its generation: two bits of a key are left for a method's own use.
pub(crate) const GENERATIONS: u32 = 1 << 30;

impl OpId {
    pub(crate) const fn new(method: MethodIndex, key: OpKey) -> Self {
        Self((key.0 | (method as u64) << PLACE_BITS) as i64)
    }

    /// The method that carries it, and its key there. `None` for what was never an id.
    #[inline]
    pub(crate) const fn split(self) -> Option<(MethodIndex, OpKey)> {
        if self.0 <= 0 || self.0 >> 62 != 0 {
            return None;
        }
        let method = (self.0 as u64 >> PLACE_BITS) as usize % METHODS;
        Some((method, OpKey(self.0 as u64 & !(7 << PLACE_BITS))))
    }
}

/// What a method knows an operation by: a number that is never 0, whose two upper bits are 0, and
/// which no other operation of the method has for a billion operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct OpKey(pub u64);

impl OpKey {
    pub(crate) const fn new(place: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | place as u64)
    }

    pub(crate) const fn place(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.place(), self.generation())
    }
}

/// Where completions are collected (`bmi_context_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ContextId(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_what_they_were_made_of() {
        for (method, place, generation) in [(0, 0, 1), (7, 12, u32::MAX), (3, (1 << 28) - 2, 9)] {
            let addr = Addr::new(method, place, generation);
            assert!(addr.0 > 0);
            assert_eq!(
                (addr.method(), addr.place(), addr.generation()),
                (method, place, generation)
            );
        }
        for (method, place, generation) in [(0, 0, 1), (7, OPS - 1, GENERATIONS - 1)] {
            let key = OpKey::new(place, generation);
            let id = OpId::new(method, key);
            assert!(id.0 > 0);
            assert_eq!(id.split(), Some((method, key)));
            assert_eq!((key.place(), key.generation()), (place, generation));
        }
        for raw in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(OpId(raw).split(), None);
        }
    }
}
