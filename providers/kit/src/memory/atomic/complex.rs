//! Complex numbers: two floating-point numbers that are changed as one word.

use selvedge::atomic::Op;

use super::number::{Exchange, Number, Plan, calculation, swap_by_equality};

/// `_Complex` of C: the real part comes first.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Complex<F> {
    re: F,
    im: F,
}

macro_rules! complex {
    ($($float:ident $word:ident,)+) => {$(
        impl Number for Complex<$float> {
            type Word = $word;

            const IS_EXACT: bool = false;

            fn from_word(word: $word) -> Self {
                let bytes = word.to_ne_bytes();
                let halves = bytes.as_chunks().0;
                Self {
                    re: $float::from_ne_bytes(halves[0]),
                    im: $float::from_ne_bytes(halves[1]),
                }
            }

            fn word(self) -> $word {
                let mut bytes = $word::default().to_ne_bytes();
                let halves = bytes.as_chunks_mut().0;
                halves[0] = self.re.to_ne_bytes();
                halves[1] = self.im.to_ne_bytes();
                $word::from_ne_bytes(bytes)
            }

            fn sum(self, operand: Self) -> Self {
                let (re, im) = (self.re + operand.re, self.im + operand.im);
                Self { re, im }
            }

            fn diff(self, operand: Self) -> Self {
                let (re, im) = (self.re - operand.re, self.im - operand.im);
                Self { re, im }
            }

            fn prod(self, operand: Self) -> Self {
                Self {
                    re: self.re * operand.re - self.im * operand.im,
                    im: self.re * operand.im + self.im * operand.re,
                }
            }

            fn from_truth(truth: bool) -> Self {
                Self {
                    re: $float::from_truth(truth),
                    im: 0.0,
                }
            }

            fn update(op: Op) -> Option<Plan<Self>> {
                calculation(op)
            }

            fn exchange(op: Op) -> Option<Exchange<Self>> {
                swap_by_equality(op)
            }
        }
    )+};
}

complex! {
    f32 u64,
    f64 u128,
}
