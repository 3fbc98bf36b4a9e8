//! `Plain`: the types of values that a [`super::View`] reads.

/// A type of which any bytes are a value: integers, floating-point numbers and arrays of them, in
/// native byte order.
///
/// The trait is sealed.
pub trait Plain: sealed::Sealed {}

pub(super) mod sealed {
    /// Reads the value from consecutive bytes.
    #[expect(unnameable_types, reason = "the trait is sealed")]
    pub trait Sealed: Copy {
        /// Calls `fill` for the parts of the value, in order, with the bytes to fill.
        fn read_from(fill: &mut dyn FnMut(&mut [u8])) -> Self;
    }
}

macro_rules! plain {
    ($($type:ty)*) => {$(
        impl Plain for $type {}

        impl sealed::Sealed for $type {
            fn read_from(fill: &mut dyn FnMut(&mut [u8])) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                fill(&mut bytes);
                Self::from_ne_bytes(bytes)
            }
        }
    )*};
}

plain!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64);

impl<T: Plain, const N: usize> Plain for [T; N] {}

impl<T: Plain, const N: usize> sealed::Sealed for [T; N] {
    fn read_from(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        std::array::from_fn(|_| T::read_from(fill))
    }
}
