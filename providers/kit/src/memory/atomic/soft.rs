//! Numbers in floating-point formats that Rust has no type for. `rustc_apfloat`, the compiler's own
//! arithmetic, calculates with them; each operation takes some tens of nanoseconds.

use std::cmp::Ordering;
use std::marker::PhantomData;

use rustc_apfloat::{Float, ieee};
use selvedge::atomic::Op;

use super::number::{Exchange, Number, Plan, extreme, swap_by_order};
use super::word::Word;

pub(super) type Float16 = Soft<ieee::Half, u16>;
pub(super) type Bfloat16 = Soft<ieee::BFloat, u16>;
pub(super) type E4m3 = Soft<ieee::Float8E4M3FN, u8>;
pub(super) type E5m2 = Soft<ieee::Float8E5M2, u8>;
/// `long double` of C on x86-64: 80 bits, and 6 unused bytes.
#[cfg(target_arch = "x86_64")]
pub(super) type X87 = Soft<ieee::X87DoubleExtended, u128>;
/// `long double` of C on other processors.
#[cfg(any(target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) type Binary128 = Soft<ieee::Quad, u128>;

/// `Soft` is a number in the format `F`, whose bits are the low bits of a word.
pub(super) struct Soft<F, W> {
    word: W,
    _format: PhantomData<F>,
}

impl<F: Float + 'static, W: Word + Into<u128> + TryFrom<u128>> Soft<F, W> {
    fn value(self) -> F {
        let word: u128 = self.word.into();
        F::from_bits(word & (u128::MAX >> (128 - F::BITS)))
    }

    fn calculated(value: F) -> Self {
        let word = W::try_from(value.to_bits()).ok();
        Self::from_word(word.expect("the word holds every bit of the format"))
    }
}

impl<F: Float + 'static, W: Word + Into<u128> + TryFrom<u128>> Number for Soft<F, W> {
    type Word = W;

    const IS_EXACT: bool = false;

    fn from_word(word: W) -> Self {
        let _format = PhantomData;
        Self { word, _format }
    }

    fn word(self) -> W {
        self.word
    }

    fn sum(self, operand: Self) -> Self {
        Self::calculated((self.value() + operand.value()).value)
    }

    fn diff(self, operand: Self) -> Self {
        Self::calculated((self.value() - operand.value()).value)
    }

    fn prod(self, operand: Self) -> Self {
        Self::calculated((self.value() * operand.value()).value)
    }

    fn from_truth(truth: bool) -> Self {
        Self::calculated(F::from_u128(truth.into()).value)
    }

    fn update(op: Op) -> Option<Plan<Self>> {
        extreme(op)
    }

    fn exchange(op: Op) -> Option<Exchange<Self>> {
        swap_by_order(op)
    }
}

impl<F, W: Copy> Clone for Soft<F, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, W: Copy> Copy for Soft<F, W> {}

impl<F: Float + 'static, W: Word + Into<u128> + TryFrom<u128>> PartialEq for Soft<F, W> {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl<F: Float + 'static, W: Word + Into<u128> + TryFrom<u128>> PartialOrd for Soft<F, W> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.value().partial_cmp(&other.value())
    }
}
