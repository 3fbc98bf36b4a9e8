//! The results of every operation of fi_atomic(3), calculate in another way than the kernels':
//! integers by their bits, small floats by searching for the nearest number, `long double` by the
//! processor.

use selvedge::atomic::{Datatype, Op};

/// The format of an element.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Integer { bits: u32, signed: bool },
    Float(Float),
    Complex(Float),
}

/// A binary format of floating-point numbers.
#[derive(Clone, Copy)]
pub(crate) struct Float {
    bits: u32,
    exponent: u32,
    /// Stored bits before the fraction: 1 where the leading `1.` is explicit.
    explicit: u32,
    /// Whether the largest exponent means infinities and NaNs, or only NaN with all bits set.
    has_infinity: bool,
}

const fn float(bits: u32, exponent: u32) -> Float {
    Float {
        bits,
        exponent,
        explicit: 0,
        has_infinity: true,
    }
}

const X87: Float = Float {
    bits: 80,
    exponent: 15,
    explicit: 1,
    has_infinity: true,
};

pub(crate) fn format(datatype: Datatype) -> Format {
    let integer = |bits, signed| Format::Integer { bits, signed };
    match datatype {
        Datatype::Int8 => integer(8, true),
        Datatype::Uint8 => integer(8, false),
        Datatype::Int16 => integer(16, true),
        Datatype::Uint16 => integer(16, false),
        Datatype::Int32 => integer(32, true),
        Datatype::Uint32 => integer(32, false),
        Datatype::Int64 => integer(64, true),
        Datatype::Uint64 => integer(64, false),
        Datatype::Int128 => integer(128, true),
        Datatype::Uint128 => integer(128, false),
        Datatype::Float => Format::Float(float(32, 8)),
        Datatype::Double => Format::Float(float(64, 11)),
        Datatype::FloatComplex => Format::Complex(float(32, 8)),
        Datatype::DoubleComplex => Format::Complex(float(64, 11)),
        Datatype::LongDouble => Format::Float(X87),
        Datatype::LongDoubleComplex => Format::Complex(X87),
        Datatype::Float16 => Format::Float(float(16, 5)),
        Datatype::Bfloat16 => Format::Float(float(16, 8)),
        Datatype::Float8E5m2 => Format::Float(float(8, 5)),
        Datatype::Float8E4m3 => Format::Float(Float {
            has_infinity: false,
            ..float(8, 4)
        }),
    }
}

impl Float {
    const fn fraction(self) -> u32 {
        self.bits - 1 - self.exponent
    }

    const fn mask(self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }

    /// The largest finite number.
    fn largest(self) -> u128 {
        let infinity = self.infinity();
        match self.explicit {
            0 => infinity - 1,
            // Both the exponent's last bit and the explicit `1.` before the fraction are cleared.
            _ => infinity - (1 << self.fraction()) + (1 << (self.fraction() - 1)) - 1,
        }
    }

    fn infinity(self) -> u128 {
        let exponent = ((1_u128 << self.exponent) - 1) << self.fraction();
        if self.has_infinity {
            exponent | u128::from(self.explicit) << (self.fraction() - self.explicit)
        } else {
            self.nan()
        }
    }

    const fn nan(self) -> u128 {
        self.mask() >> 1
    }

    fn is_nan(self, bits: u128) -> bool {
        let magnitude = bits & (self.mask() >> 1);
        magnitude > self.infinity() || magnitude == self.nan()
    }

    /// An integer with the order of the numbers: sign and magnitude. None for a NaN.
    fn rank(self, bits: u128) -> Option<i128> {
        let bits = bits & self.mask();
        let magnitude = bits & (self.mask() >> 1);
        let rank = magnitude as i128;
        let signed = if magnitude == bits { rank } else { -rank };
        (!self.is_nan(bits)).then_some(signed)
    }

    /// The value of the bits, for formats up to a double.
    fn decode(self, bits: u128) -> f64 {
        let bits = bits & self.mask();
        let magnitude = bits & (self.mask() >> 1);
        let sign = if magnitude == bits { 1.0 } else { -1.0 };
        if self.is_nan(bits) {
            return f64::NAN;
        }
        if magnitude == self.infinity() {
            return sign * f64::INFINITY;
        }
        let width = self.fraction() - self.explicit;
        let exponent = (magnitude >> self.fraction()) as i32;
        let mut significand = magnitude & ((1 << self.fraction()) - 1);
        if exponent > 0 && self.explicit == 0 {
            significand |= 1 << width;
        }
        let bias = (1 << (self.exponent - 1)) - 1;
        let scale = exponent.max(1) - bias - width as i32;
        sign * significand as f64 * 2_f64.powi(scale / 2) * 2_f64.powi(scale - scale / 2)
    }

    /// The number nearest to `value`, ties to even: found by bisection, since the bits of positive
    /// numbers have their order.
    fn encode(self, value: f64) -> u128 {
        if value.is_nan() {
            return self.nan();
        }
        let sign = u128::from(value.is_sign_negative()) << (self.bits - 1);
        let value = value.abs();
        let (mut low, mut high) = (0, self.largest());
        if value >= self.decode(high) {
            let spacing = self.decode(high) - self.decode(high - 1);
            let is_beyond = value - self.decode(high) >= spacing / 2.0;
            return sign | if is_beyond { self.infinity() } else { high };
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if self.decode(middle) <= value {
                low = middle
            } else {
                high = middle
            }
        }
        let (down, up) = (value - self.decode(low), self.decode(high) - value);
        let rounds_up = up < down || (up == down && low % 2 == 1);
        sign | if rounds_up { high } else { low }
    }

    fn calculate(self, op: Op, target: u128, operand: u128) -> u128 {
        if self.explicit == 1 {
            return x87(op, target, operand);
        }
        let (a, b) = (self.decode(target), self.decode(operand));
        let exact = match op {
            Op::Sum => a + b,
            Op::Diff => a - b,
            _ => a * b,
        };
        match self.bits {
            // The nearest double is the nearest number; a float's is that of its double.
            64 => u128::from(exact.to_bits()),
            32 => u128::from((exact as f32).to_bits()),
            _ => self.encode(exact),
        }
    }
}

/// Bits of numbers that are ordinary, special, and close to each other.
pub(crate) fn samples(datatype: Datatype) -> Vec<u128> {
    match format(datatype) {
        Format::Integer { bits, .. } => {
            let mask = u128::MAX >> (128 - bits);
            let top = 1 << (bits - 1);
            [0, 1, 2, 5, 0x5a, 0xc3, top, top - 1, mask, mask - 1].into()
        }
        Format::Float(float) => samples_of(float),
        Format::Complex(float) => {
            let numbers = samples_of(float);
            let pairs = numbers.iter().zip(numbers.iter().cycle().skip(3));
            let zeros = [(0, 0), (1 << (float.bits - 1), 0), (0, numbers[3])];
            let pairs = pairs.map(|(&re, &im)| (re, im)).chain(zeros);
            pairs
                .map(|(re, im)| re | im << (float.bits % 128))
                .collect()
        }
    }
}

fn samples_of(float: Float) -> Vec<u128> {
    let one = encode_any(float, 1.0);
    let mut bits: Vec<_> = [0.0, -0.0, 1.0, -1.5, 3.0, -0.375]
        .map(|value| encode_any(float, value))
        .into();
    let minus = 1 << (float.bits - 1);
    bits.extend([
        one + 1,
        1,
        minus | 3,
        float.largest(),
        minus | float.largest(),
    ]);
    bits.extend([float.infinity(), minus | float.infinity(), float.nan()]);
    bits
}

fn encode_any(float: Float, value: f64) -> u128 {
    match float.bits {
        80 => from_double(value),
        64 => u128::from(value.to_bits()),
        32 => u128::from((value as f32).to_bits()),
        _ => float.encode(value),
    }
}

/// The target after the operation.
pub(crate) fn apply(
    datatype: Datatype,
    op: Op,
    target: u128,
    compare: u128,
    operand: u128,
) -> u128 {
    match op {
        Op::AtomicRead => return target,
        Op::AtomicWrite => return operand,
        _ => {}
    }
    let value = Value {
        format: format(datatype),
        bits: target,
    };
    value.apply(
        op,
        Value {
            bits: compare,
            ..value
        },
        Value {
            bits: operand,
            ..value
        },
    )
}

/// Whether two elements have the same value; all NaNs do, and unused bits are ignored.
pub(crate) fn is_same(datatype: Datatype, a: u128, b: u128) -> bool {
    let same = |float: Float, a: u128, b: u128| {
        (a ^ b) & float.mask() == 0 || (float.is_nan(a) && float.is_nan(b))
    };
    match format(datatype) {
        Format::Integer { .. } => a == b,
        Format::Float(float) => same(float, a, b),
        Format::Complex(float) => {
            same(float, a, b) && same(float, a >> (float.bits % 128), b >> (float.bits % 128))
        }
    }
}

#[derive(Clone, Copy)]
struct Value {
    format: Format,
    bits: u128,
}

impl Value {
    fn apply(self, op: Op, compare: Self, operand: Self) -> u128 {
        let choose = |is_replaced| if is_replaced { operand.bits } else { self.bits };
        match op {
            Op::Min => choose(operand.is_less(self)),
            Op::Max => choose(self.is_less(operand)),
            Op::Cswap => choose(compare.is_equal(self)),
            Op::CswapNe => choose(!compare.is_equal(self)),
            Op::CswapLe => choose(compare.is_less(self) || compare.is_equal(self)),
            Op::CswapLt => choose(compare.is_less(self)),
            Op::CswapGe => choose(self.is_less(compare) || compare.is_equal(self)),
            Op::CswapGt => choose(self.is_less(compare)),
            Op::Lor => self.truth(self.is_true() | operand.is_true()),
            Op::Land => self.truth(self.is_true() & operand.is_true()),
            Op::Lxor => self.truth(self.is_true() ^ operand.is_true()),
            Op::Bor => self.bits | operand.bits,
            Op::Band => self.bits & operand.bits,
            Op::Bxor => self.bits ^ operand.bits,
            Op::Mswap => (operand.bits & compare.bits) | (self.bits & !compare.bits),
            _ => self.calculate(op, operand),
        }
    }

    fn calculate(self, op: Op, operand: Self) -> u128 {
        let (a, b) = (self.bits, operand.bits);
        match self.format {
            Format::Integer { bits, .. } => {
                let whole = match op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Diff => a.wrapping_add((!b).wrapping_add(1)),
                    _ => a.wrapping_mul(b),
                };
                whole & (u128::MAX >> (128 - bits))
            }
            Format::Float(float) => float.calculate(op, a, b),
            Format::Complex(float) => complex(float, op, a, b),
        }
    }

    fn truth(self, truth: bool) -> u128 {
        match (self.format, truth) {
            (_, false) => 0,
            (Format::Integer { .. }, true) => 1,
            (Format::Float(float) | Format::Complex(float), true) => encode_any(float, 1.0),
        }
    }

    fn is_true(self) -> bool {
        match self.format {
            Format::Integer { .. } => self.bits != 0,
            Format::Float(float) => self.rank(float, 0) != Some(0),
            Format::Complex(float) => {
                self.rank(float, 0) != Some(0) || self.rank(float, float.bits % 128) != Some(0)
            }
        }
    }

    fn is_equal(self, other: Self) -> bool {
        let same = |float, shift| {
            let rank = self.rank(float, shift);
            rank.is_some() && rank == other.rank(float, shift)
        };
        match self.format {
            Format::Integer { .. } => self.bits == other.bits,
            Format::Float(float) => same(float, 0),
            Format::Complex(float) => same(float, 0) && same(float, float.bits % 128),
        }
    }

    fn rank(self, float: Float, shift: u32) -> Option<i128> {
        float.rank(self.bits >> shift)
    }

    fn is_less(self, other: Self) -> bool {
        match self.format {
            Format::Integer { bits, signed } => {
                let flip = if signed { 1 << (bits - 1) } else { 0 };
                self.bits ^ flip < other.bits ^ flip
            }
            Format::Float(float) => {
                let ranks = self.rank(float, 0).zip(other.rank(float, 0));
                ranks.is_some_and(|(left, right)| left < right)
            }
            Format::Complex(_) => unreachable!("complex numbers have no order"),
        }
    }
}

fn complex(float: Float, op: Op, a: u128, b: u128) -> u128 {
    let shift = float.bits % 128;
    let part = |bits: u128| bits & float.mask();
    let (are, aim, bre, bim) = (part(a), part(a >> shift), part(b), part(b >> shift));
    let (re, im) = match op {
        Op::Prod => {
            let product = |x, y| float.calculate(Op::Prod, x, y);
            (
                float.calculate(Op::Diff, product(are, bre), product(aim, bim)),
                float.calculate(Op::Sum, product(are, bim), product(aim, bre)),
            )
        }
        _ => (float.calculate(op, are, bre), float.calculate(op, aim, bim)),
    };
    re | im << shift
}

/// The calculation by the processor's x87 unit.
#[cfg(target_arch = "x86_64")]
fn x87(op: Op, target: u128, operand: u128) -> u128 {
    let mut out = [0_u8; 16];
    let (a, b) = (target.to_le_bytes(), operand.to_le_bytes());
    macro_rules! calculate {
        ($instruction:literal) => {
            // SAFETY: reads ten bytes of each operand, writes ten of `out`, and leaves the stack of
            // the unit as it was: empty, since all its registers are named as overwritten.
            unsafe {
                std::arch::asm!(
                    "fld tbyte ptr [{a}]", "fld tbyte ptr [{b}]", $instruction,
                    "fstp tbyte ptr [{out}]",
                    a = in(reg) a.as_ptr(), b = in(reg) b.as_ptr(), out = in(reg) out.as_mut_ptr(),
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                )
            }
        };
    }
    match op {
        Op::Sum => calculate!("faddp st(1), st"),
        Op::Diff => calculate!("fsubp st(1), st"),
        _ => calculate!("fmulp st(1), st"),
    }
    u128::from_le_bytes(out)
}

#[cfg(target_arch = "x86_64")]
fn from_double(value: f64) -> u128 {
    let mut out = [0_u8; 16];
    // SAFETY: reads a double and writes ten bytes of `out`; the stack is left as in `x87`.
    unsafe {
        std::arch::asm!(
            "fld qword ptr [{value}]", "fstp tbyte ptr [{out}]",
            value = in(reg) &value, out = in(reg) out.as_mut_ptr(),
            out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
            out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
        );
    }
    u128::from_le_bytes(out)
}
