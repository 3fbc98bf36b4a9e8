//! Singles: what one instruction does to one integer of eight bytes. That is what most atomics are,
//! and they are done in less time than the tables take to say how.

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::MrAccess;
use selvedge::atomic::{Datatype, Family, Op};

/// One operation on one integer of eight bytes that is one instruction, on processors that have it.
/// It does what the [`super::Kernel`] of the same operation does.
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
    /// The operation, if it is a single one.
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

    /// Which of the three families it is of.
    #[inline(always)]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// Whether there is an operand.
    #[inline(always)]
    pub const fn has_operand(&self) -> bool {
        !matches!(self.step, Step::Read)
    }

    /// The rights over the target that it takes, as [`super::Kernel::access`] has them.
    #[inline(always)]
    pub const fn access(&self) -> MrAccess {
        super::access(self.family, !self.writes())
    }

    /// Whether the target has to be mapped for writing.
    #[inline(always)]
    pub const fn writes(&self) -> bool {
        !matches!(self.step, Step::Read)
    }

    /// What it leaves in a target that nobody else has.
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

    /// Carries it out; the target before. A target that is only valid for reads is enough where
    /// [`Self::writes`] says so: a load of this size and order does not write.
    #[inline(always)]
    pub fn apply(self, cell: &AtomicU64, operand: u64, compare: u64) -> u64 {
        // As the words of kernels: what was written before is released, what the last change
        // released is acquired.
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
