//! The table of operations: which ones a type has, and what each does to one element.

use selvedge::atomic::{Family, Op};

use super::word::{Vector, Word};

/// The type of an element.
pub(super) trait Number: Copy + PartialEq + 'static {
    type Word: Word;

    /// Whether values are equal if and only if their bits are.
    const IS_EXACT: bool;

    fn from_word(word: Self::Word) -> Self;
    fn word(self) -> Self::Word;
    fn sum(self, operand: Self) -> Self;
    fn diff(self, operand: Self) -> Self;
    fn prod(self, operand: Self) -> Self;
    fn from_truth(truth: bool) -> Self;

    fn is_true(self) -> bool {
        self != Self::from_truth(false)
    }

    /// The operations that replace the target by a function of it and an operand, except
    /// [`Op::AtomicWrite`].
    fn update(op: Op) -> Option<Plan<Self>>;

    /// The operations that replace the target by an operand if a condition holds.
    fn exchange(op: Op) -> Option<Exchange<Self>>;
}

/// The implementation of an operation on one element.
pub(super) enum Plan<N: Number> {
    Read,
    Write,
    /// A read-modify-write of the word: one instruction where the processor has it for this size.
    Native(fn(&<N::Word as Word>::Cell<'_>, N::Word) -> N::Word),
    /// A compare-exchange loop around a calculation with target and operand.
    Compute(fn(N, N) -> N),
    /// One compare-exchange.
    CompareExchange,
    /// A compare-exchange loop around a decision.
    Exchange(Exchange<N>),
}

/// The new value of the target, if it is replaced: a function of target, comparison and operand.
pub(super) type Exchange<N> = fn(N, N, N) -> Option<N>;

/// The implementation of `op` on numbers of this type, if it is supported. Queries and execution
/// share this table.
#[inline]
pub(super) fn plan<N: Number>(family: Family, op: Op) -> Option<Plan<N>> {
    match (family, op) {
        (Family::Fetch, Op::AtomicRead) => Some(Plan::Read),
        (Family::Base | Family::Fetch, Op::AtomicWrite) => Some(Plan::Write),
        (Family::Base | Family::Fetch, _) => N::update(op),
        (Family::Compare, Op::Cswap) if N::IS_EXACT => Some(Plan::CompareExchange),
        (Family::Compare, _) => N::exchange(op).map(Plan::Exchange),
    }
}

/// Carries out an operation that [`plan`] supports.
pub(super) fn run<N: Number>(family: Family, op: Op, vector: Vector<'_>) {
    let zero = N::from_truth(false).word();
    match plan::<N>(family, op).expect("the caller runs only operations that have a plan") {
        Plan::Read => vector.each(zero, |cell, _, _| N::Word::load(cell)),
        Plan::Write => vector.each(zero, |cell, operand, _| N::Word::swap(cell, operand)),
        Plan::Native(step) => vector.each(zero, |cell, operand, _| step(cell, operand)),
        Plan::Compute(step) => vector.each(zero, |cell, operand, _| {
            let operand = N::from_word(operand);
            exchange::<N>(cell, |target| Some(step(target, operand)))
        }),
        Plan::CompareExchange => vector.each(zero, |cell, operand, compare| {
            N::Word::compare_exchange(cell, compare, operand).unwrap_or_else(|old| old)
        }),
        Plan::Exchange(step) => vector.each(zero, |cell, operand, compare| {
            let (compare, operand) = (N::from_word(compare), N::from_word(operand));
            exchange::<N>(cell, |target| step(target, compare, operand))
        }),
    }
}

/// Replaces the target by the result of `next`, if there is one; returns the word before.
fn exchange<N: Number>(
    cell: &<N::Word as Word>::Cell<'_>,
    next: impl Fn(N) -> Option<N>,
) -> N::Word {
    let mut old = N::Word::load(cell);
    while let Some(new) = next(N::from_word(old)) {
        match N::Word::compare_exchange(cell, old, new.word()) {
            Ok(_) => break,
            Err(other) => old = other,
        }
    }
    old
}

/// The operations of every number.
pub(super) fn calculation<N: Number>(op: Op) -> Option<Plan<N>> {
    Some(Plan::Compute(match op {
        Op::Sum => N::sum,
        Op::Diff => N::diff,
        Op::Prod => N::prod,
        Op::Lor => |target, operand| N::from_truth(target.is_true() || operand.is_true()),
        Op::Land => |target, operand| N::from_truth(target.is_true() && operand.is_true()),
        Op::Lxor => |target, operand| N::from_truth(target.is_true() != operand.is_true()),
        _ => return None,
    }))
}

/// The additional operations of ordered numbers. Comparisons with a NaN are false.
pub(super) fn extreme<N: Number + PartialOrd>(op: Op) -> Option<Plan<N>> {
    Some(Plan::Compute(match op {
        Op::Min => |target, operand| if operand < target { operand } else { target },
        Op::Max => |target, operand| if operand > target { operand } else { target },
        _ => return calculation(op),
    }))
}

/// The additional operations of integers, and the operations that are one instruction of the
/// processor.
fn integer<N: Number + PartialOrd>(op: Op) -> Option<Plan<N>> {
    Some(Plan::Native(match op {
        Op::Sum => N::Word::fetch_add,
        Op::Diff => N::Word::fetch_sub,
        Op::Bor => N::Word::fetch_or,
        Op::Band => N::Word::fetch_and,
        Op::Bxor => N::Word::fetch_xor,
        _ => return extreme(op),
    }))
}

/// The exchanges that do not compare by order.
pub(super) fn swap_by_equality<N: Number>(op: Op) -> Option<Exchange<N>> {
    Some(match op {
        Op::Cswap => |target, compare, operand| (compare == target).then_some(operand),
        Op::CswapNe => |target, compare, operand| (compare != target).then_some(operand),
        _ => return None,
    })
}

/// All exchanges of ordered numbers. The value to compare with is the left operand, as in the man
/// page.
pub(super) fn swap_by_order<N: Number + PartialOrd>(op: Op) -> Option<Exchange<N>> {
    Some(match op {
        Op::CswapLe => |target, compare, operand| (compare <= target).then_some(operand),
        Op::CswapLt => |target, compare, operand| (compare < target).then_some(operand),
        Op::CswapGe => |target, compare, operand| (compare >= target).then_some(operand),
        Op::CswapGt => |target, compare, operand| (compare > target).then_some(operand),
        _ => return swap_by_equality(op),
    })
}

macro_rules! integers {
    ($($number:ident $word:ident,)+) => {$(
        impl Number for $number {
            type Word = $word;

            const IS_EXACT: bool = true;

            fn from_word(word: $word) -> Self {
                Self::from_ne_bytes(word.to_ne_bytes())
            }

            fn word(self) -> $word {
                $word::from_ne_bytes(self.to_ne_bytes())
            }

            fn sum(self, operand: Self) -> Self {
                self.wrapping_add(operand)
            }

            fn diff(self, operand: Self) -> Self {
                self.wrapping_sub(operand)
            }

            fn prod(self, operand: Self) -> Self {
                self.wrapping_mul(operand)
            }

            fn from_truth(truth: bool) -> Self {
                truth.into()
            }

            fn update(op: Op) -> Option<Plan<Self>> {
                integer(op)
            }

            fn exchange(op: Op) -> Option<Exchange<Self>> {
                match op {
                    Op::Mswap => Some(|target, mask, operand| {
                        Some((operand & mask) | (target & !mask))
                    }),
                    _ => swap_by_order(op),
                }
            }
        }
    )+};
}

integers! {
    i8 u8,
    u8 u8,
    i16 u16,
    u16 u16,
    i32 u32,
    u32 u32,
    i64 u64,
    u64 u64,
    i128 u128,
    u128 u128,
}

macro_rules! floats {
    ($($number:ident $word:ident,)+) => {$(
        impl Number for $number {
            type Word = $word;

            const IS_EXACT: bool = false;

            fn from_word(word: $word) -> Self {
                Self::from_bits(word)
            }

            fn word(self) -> $word {
                self.to_bits()
            }

            fn sum(self, operand: Self) -> Self {
                self + operand
            }

            fn diff(self, operand: Self) -> Self {
                self - operand
            }

            fn prod(self, operand: Self) -> Self {
                self * operand
            }

            fn from_truth(truth: bool) -> Self {
                f32::from(u8::from(truth)).into()
            }

            fn update(op: Op) -> Option<Plan<Self>> {
                extreme(op)
            }

            fn exchange(op: Op) -> Option<Exchange<Self>> {
                swap_by_order(op)
            }
        }
    )+};
}

floats! {
    f32 u32,
    f64 u64,
}
