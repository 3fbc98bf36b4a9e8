//! Ids that applications hold: addresses, operations, contexts.
//!
//! Each id has a slot and a generation. A stale or invalid id is detected without accessing memory
//! that it names.

use std::fmt;

/// Methods that may be active at a time.
pub const METHODS: usize = 8;
/// Contexts that may be open at a time.
pub const CONTEXTS: usize = 16;

/// Index of an active method.
pub(crate) type MethodIndex = usize;

/// A peer (`BMI_addr_t`). 0 is no peer.
///
/// The upper 32 bits are the peer's slot and its method; no other peer has the same bits at the
/// same time. The lower 32 bits are the generation of the slot. (Mercury hashes only the upper
/// bits.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Addr(pub i64);

impl Addr {
    /// No peer, or all methods.
    pub const NONE: Self = Self(0);

    pub(crate) const fn new(method: MethodIndex, slot: u32, generation: u32) -> Self {
        // Small numbers are never addresses.
        let upper = (slot as i64 + 1) * METHODS as i64 + method as i64;
        Self(upper << 32 | generation as i64)
    }

    pub(crate) const fn method(self) -> MethodIndex {
        (self.0 >> 32) as usize % METHODS
    }

    pub(crate) const fn slot(self) -> u32 {
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

/// Bits of an operation's slot.
const SLOT_BITS: u32 = 29;
/// Maximum number of outstanding operations of one method.
pub(crate) const OPS: u32 = 1 << SLOT_BITS;
/// Number of generations: two bits of a key are left for a method's own use.
pub(crate) const GENERATIONS: u32 = 1 << 30;

impl OpId {
    pub(crate) const fn new(method: MethodIndex, key: OpKey) -> Self {
        Self((key.0 | (method as u64) << SLOT_BITS) as i64)
    }

    /// The method of the operation and its key there. `None` for an invalid id.
    #[inline]
    pub(crate) const fn split(self) -> Option<(MethodIndex, OpKey)> {
        if self.0 <= 0 || self.0 >> 62 != 0 {
            return None;
        }
        let method = (self.0 as u64 >> SLOT_BITS) as usize % METHODS;
        Some((method, OpKey(self.0 as u64 & !(7 << SLOT_BITS))))
    }
}

/// A method's key for an operation: never 0, with the two upper bits 0. A slot gives the same key
/// again only after a billion operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct OpKey(pub u64);

impl OpKey {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self((generation as u64) << 32 | slot as u64)
    }

    pub(crate) const fn slot(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Debug for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.slot(), self.generation())
    }
}

/// A completion context (`bmi_context_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ContextId(pub i64);

/// A method's own number for a peer. Numbers are small, because they index tables. The application
/// never sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MethodAddr(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_encode_method_slot_and_generation() {
        for (method, slot, generation) in [(0, 0, 1), (7, 12, u32::MAX), (3, (1 << 28) - 2, 9)] {
            let addr = Addr::new(method, slot, generation);
            assert!(addr.0 > 0);
            assert_eq!(
                (addr.method(), addr.slot(), addr.generation()),
                (method, slot, generation)
            );
        }
        for (method, slot, generation) in [(0, 0, 1), (7, OPS - 1, GENERATIONS - 1)] {
            let key = OpKey::new(slot, generation);
            let id = OpId::new(method, key);
            assert!(id.0 > 0);
            assert_eq!(id.split(), Some((method, key)));
            assert_eq!((key.slot(), key.generation()), (slot, generation));
        }
        for raw in [0, -1, i64::MIN, i64::MAX] {
            assert_eq!(OpId(raw).split(), None);
        }
    }
}
