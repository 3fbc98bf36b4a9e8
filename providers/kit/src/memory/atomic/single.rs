//! Operations that are one instruction on one integer of eight bytes. Most atomics are of this
//! kind, and they take less time than the lookup of a [`super::Kernel`].

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::MrAccess;
use selvedge::atomic::{Datatype, Family, Op};

/// One operation on one integer of eight bytes that is one instruction, on processors that have it.
/// A single has the effect of the [`super::Kernel`] of the same operation.
#[derive(Clone, Copy, Debug)]
pub struct Single {
    family: Family,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    Write,
    Add,
    Sub,
    Or,
    And,
    Xor,
    CompareExchange,
}

impl Single {
    /// The operation of these arguments; `None` if it is not a single instruction.
    #[inline(always)]
    pub const fn of(family: Family, datatype: Datatype, op: Op) -> Option<Self> {
        if !matches!(datatype, Datatype::Int64 | Datatype::Uint64) {
            return None;
        }
        let step = match (family, op) {
            (Family::Fetch, Op::AtomicRead) => Step::Read,
            (Family::Compare, Op::Cswap) => Step::CompareExchange,
            (Family::Compare, _) => return None,
            (_, Op::AtomicWrite) => Step::Write,
            (_, Op::Sum) => Step::Add,
            (_, Op::Diff) => Step::Sub,
            (_, Op::Bor) => Step::Or,
            (_, Op::Band) => Step::And,
            (_, Op::Bxor) => Step::Xor,
            _ => return None,
        };
        Some(Self { family, step })
    }

    /// The family of the operation.
    #[inline(always)]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Whether there is an operand.
    #[inline(always)]
    pub const fn has_operand(&self) -> bool {
        !matches!(self.step, Step::Read)
    }

    /// The rights over the target that the operation requires, as [`super::Kernel::access`].
    #[inline(always)]
    pub const fn access(&self) -> MrAccess {
        super::access(self.family, !self.writes())
    }

    /// Whether the target has to be mapped for writing.
    #[inline(always)]
    pub const fn writes(&self) -> bool {
        !matches!(self.step, Step::Read)
    }

    /// The target's value after the operation, if no other code changes the target.
    #[inline(always)]
    pub const fn value(self, target: u64, operand: u64) -> u64 {
        match self.step {
            Step::Read | Step::CompareExchange => target,
            Step::Write => operand,
            Step::Add => target.wrapping_add(operand),
            Step::Sub => target.wrapping_sub(operand),
            Step::Or => target | operand,
            Step::And => target & operand,
            Step::Xor => target ^ operand,
        }
    }

    /// Carries out the operation on `cell`; returns the target's earlier value. If [`Self::writes`]
    /// is `false`, a target that is valid for reads is enough: a load of this size and order does
    /// not write.
    #[inline(always)]
    pub fn apply(self, cell: &AtomicU64, operand: u64, compare: u64) -> u64 {
        // As for the words of kernels: the change releases earlier writes, and acquires those that
        // the last change has released.
        let order = Ordering::AcqRel;
        match self.step {
            Step::Read => cell.load(Ordering::Acquire),
            Step::Write => cell.swap(operand, order),
            Step::Add => cell.fetch_add(operand, order),
            Step::Sub => cell.fetch_sub(operand, order),
            Step::Or => cell.fetch_or(operand, order),
            Step::And => cell.fetch_and(operand, order),
            Step::Xor => cell.fetch_xor(operand, order),
            Step::CompareExchange => cell
                .compare_exchange(compare, operand, order, Ordering::Acquire)
                .unwrap_or_else(|old| old),
        }
    }
}
