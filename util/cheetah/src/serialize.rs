//! Serialization in place: the sizes of values are computed first, values are packed into the
//! message, and received values are views of the message.
//!
//! The size of every part is a multiple of 8, so all parts of a message are aligned to 8, and plain
//! data is used in place. Tags select formats: [`Cheetah`] is the default, [`Array`] is a count
//! followed by elements.

use crate::{Error, Result};

/// The default format: a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cheetah;

/// A count, followed by the elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Array;

/// A type that can be packed into a message and unpacked from it in place.
pub trait Serialize<Tag = Cheetah> {
    /// Result of unpacking: a reference into the message where possible.
    type View<'a>;

    /// Packed size in bytes: a multiple of 8.
    fn size(&self) -> usize;

    /// Packs the value into `buffer`, which has [`Self::size`] bytes at an address that is a
    /// multiple of 8.
    fn pack(&self, buffer: &mut [u8]);

    /// Unpacks a value from the beginning of `bytes`. The remaining bytes are aligned to 8, too.
    ///
    /// # Errors
    /// [`Error::Garbled`] when `bytes` is too short or invalid.
    fn unpack(bytes: &[u8]) -> Result<(Self::View<'_>, &[u8])>;
}

/// Alignment of parts.
const UNIT: usize = 8;

/// Rounds `len` up to a multiple of 8.
pub const fn rounded(len: usize) -> usize {
    len.next_multiple_of(UNIT)
}

/// Implements [`Serialize`] for plain types: types that are [`bytemuck::Pod`] and have an alignment
/// of at most 8. The view is a reference into the message.
///
/// # Examples
/// ```
/// use selvedge_cheetah::serialize::{Serialize, plain};
///
/// #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
/// #[repr(C)]
/// struct Cell {
///     row: u32,
///     column: u32,
///     value: f64,
/// }
/// plain!(Cell);
///
/// # fn main() -> Result<(), selvedge_cheetah::Error> {
/// let cell = Cell { row: 1, column: 2, value: 0.5 };
/// let mut message = [0_u64; 2];
/// let buffer = bytemuck::cast_slice_mut(&mut message);
/// cell.pack(buffer);
/// assert_eq!(Cell::unpack(buffer)?.0, &cell);
/// # Ok(())
/// # }
/// ```
#[macro_export]
#[doc(hidden)]
macro_rules! serialize_plain {
    ($($kind:ty),+ $(,)?) => {$(
        impl $crate::serialize::Serialize for $kind {
            type View<'a> = &'a $kind;

            fn size(&self) -> usize {
                $crate::serialize::rounded(size_of::<$kind>())
            }

            fn pack(&self, buffer: &mut [u8]) {
                buffer[..size_of::<$kind>()].copy_from_slice($crate::bytemuck::bytes_of(self));
            }

            fn unpack(bytes: &[u8]) -> $crate::Result<(&$kind, &[u8])> {
                const { assert!(align_of::<$kind>() <= 8, "more alignment than parts have") };
                let (part, rest) = $crate::serialize::split(bytes, size_of::<$kind>())?;
                Ok(($crate::serialize::view(part)?, rest))
            }
        }
    )+};
}
pub use serialize_plain as plain;

plain!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize, f32, f64);

/// Splits off `len` bytes, and drops their padding to a multiple of 8.
///
/// # Errors
/// [`Error::Garbled`] when `bytes` is shorter.
pub fn split(bytes: &[u8], len: usize) -> Result<(&[u8], &[u8])> {
    let short = || {
        let message = format!(
            "a value of {len} bytes in a message with {} bytes left",
            bytes.len()
        );
        Error::Garbled(message)
    };
    if len > bytes.len() {
        return Err(short());
    }
    let (part, _) = bytes.split_at(len);
    Ok((part, bytes.get(rounded(len)..).unwrap_or(&[])))
}

/// Reinterprets bytes as a value.
///
/// # Errors
/// [`Error::Garbled`] when the bytes are not aligned.
pub fn view<T: bytemuck::Pod>(bytes: &[u8]) -> Result<&T> {
    bytemuck::try_from_bytes(bytes).map_err(|error| Error::Garbled(format!("a value: {error}")))
}

impl<T: bytemuck::Pod> Serialize<Array> for [T] {
    type View<'a> = &'a [T];

    fn size(&self) -> usize {
        UNIT + rounded(size_of_val(self))
    }

    fn pack(&self, buffer: &mut [u8]) {
        let (count, elements) = buffer.split_at_mut(UNIT);
        count.copy_from_slice(&(self.len() as u64).to_ne_bytes());
        let bytes = bytemuck::cast_slice(self);
        elements[..bytes.len()].copy_from_slice(bytes);
    }

    fn unpack(bytes: &[u8]) -> Result<(&[T], &[u8])> {
        const { assert!(align_of::<T>() <= UNIT, "more alignment than parts have") };
        let (count, rest) = <u64 as Serialize>::unpack(bytes)?;
        let len = usize::try_from(*count).ok();
        let len = len.and_then(|count| count.checked_mul(size_of::<T>()));
        let len = len.ok_or_else(|| Error::Garbled(format!("an array of {count} elements")))?;
        let (array, rest) = split(rest, len)?;
        let elements = bytemuck::try_cast_slice(array);
        let elements = elements.map_err(|error| Error::Garbled(format!("an array: {error}")))?;
        Ok((elements, rest))
    }
}

impl<T: bytemuck::Pod> Serialize<Array> for Vec<T> {
    type View<'a> = &'a [T];

    fn size(&self) -> usize {
        self.as_slice().size()
    }

    fn pack(&self, buffer: &mut [u8]) {
        self.as_slice().pack(buffer);
    }

    fn unpack(bytes: &[u8]) -> Result<(&[T], &[u8])> {
        <[T]>::unpack(bytes)
    }
}

impl<T: bytemuck::Pod> Serialize for Vec<T> {
    type View<'a> = &'a [T];

    fn size(&self) -> usize {
        Serialize::<Array>::size(self)
    }

    fn pack(&self, buffer: &mut [u8]) {
        Serialize::<Array>::pack(self, buffer);
    }

    fn unpack(bytes: &[u8]) -> Result<(&[T], &[u8])> {
        <[T]>::unpack(bytes)
    }
}

impl Serialize for str {
    type View<'a> = &'a Self;

    fn size(&self) -> usize {
        Serialize::<Array>::size(self.as_bytes())
    }

    fn pack(&self, buffer: &mut [u8]) {
        Serialize::<Array>::pack(self.as_bytes(), buffer);
    }

    fn unpack(bytes: &[u8]) -> Result<(&Self, &[u8])> {
        let (text, rest) = <[u8] as Serialize<Array>>::unpack(bytes)?;
        let text = std::str::from_utf8(text);
        let text = text.map_err(|error| Error::Garbled(format!("a string: {error}")))?;
        Ok((text, rest))
    }
}

impl Serialize for String {
    type View<'a> = &'a str;

    fn size(&self) -> usize {
        self.as_str().size()
    }

    fn pack(&self, buffer: &mut [u8]) {
        self.as_str().pack(buffer);
    }

    fn unpack(bytes: &[u8]) -> Result<(&str, &[u8])> {
        str::unpack(bytes)
    }
}

impl<Tag, T: Serialize<Tag> + ?Sized> Serialize<Tag> for &T {
    type View<'a> = T::View<'a>;

    fn size(&self) -> usize {
        (**self).size()
    }

    fn pack(&self, buffer: &mut [u8]) {
        (**self).pack(buffer);
    }

    fn unpack(bytes: &[u8]) -> Result<(T::View<'_>, &[u8])> {
        T::unpack(bytes)
    }
}

impl Serialize for () {
    type View<'a> = ();

    fn size(&self) -> usize {
        0
    }

    fn pack(&self, _room: &mut [u8]) {}

    fn unpack(bytes: &[u8]) -> Result<(Self::View<'_>, &[u8])> {
        Ok(((), bytes))
    }
}

macro_rules! tuples {
    ($(($($part:ident $index:tt),*))+) => {$(
        impl<$($part: Serialize),*> Serialize for ($($part,)*) {
            type View<'a> = ($($part::View<'a>,)*);

            fn size(&self) -> usize {
                0 $(+ self.$index.size())*
            }

            fn pack(&self, buffer: &mut [u8]) {
                let mut rest = buffer;
                $(
                    let (element, remaining) = rest.split_at_mut(self.$index.size());
                    self.$index.pack(element);
                    rest = remaining;
                )*
                let _ = rest;
            }

            fn unpack(bytes: &[u8]) -> Result<(Self::View<'_>, &[u8])> {
                let mut rest = bytes;
                let view = ($({
                    let (element, remaining) = $part::unpack(rest)?;
                    rest = remaining;
                    element
                },)*);
                Ok((view, rest))
            }
        }
    )+};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack_to_words<Tag, T: Serialize<Tag> + ?Sized>(value: &T) -> Vec<u64> {
        let mut message = vec![u64::MAX; value.size() / UNIT];
        assert_eq!(value.size() % UNIT, 0);
        value.pack(bytemuck::cast_slice_mut(&mut message));
        message
    }

    #[test]
    fn values_round_trip() -> Result {
        let value = (7_u8, "name".to_owned(), vec![1.5_f64, -2.0], 3_i64);
        let message = pack_to_words::<Cheetah, _>(&value);
        let (view, rest) = <(u8, String, Vec<f64>, i64)>::unpack(bytemuck::cast_slice(&message))?;
        assert_eq!(view, (&7, "name", &[1.5, -2.0][..], &3));
        assert!(rest.is_empty());
        Ok(())
    }

    #[test]
    fn views_lie_in_the_message() -> Result {
        let message = pack_to_words::<Array, _>(&[1_u32, 2, 3][..]);
        let bytes: &[u8] = bytemuck::cast_slice(&message);
        let (view, _) = <[u32]>::unpack(bytes)?;
        assert!(bytes.as_ptr_range().contains(&view.as_ptr().cast()));
        Ok(())
    }

    #[test]
    fn sizes_are_whole_units() {
        assert_eq!(3_u8.size(), 8);
        assert_eq!(Serialize::<Array>::size(&[0_u8; 9][..]), 24);
        assert_eq!("".size(), 8);
        assert_eq!(().size(), 0);
        assert_eq!((1_u16, 2_f64).size(), 16);
    }

    #[test]
    fn truncated_values_and_invalid_lengths_are_refused() {
        let mut message = pack_to_words::<Cheetah, _>(&vec![1_u64, 2, 3]);
        for len in 0..4 {
            let short = bytemuck::cast_slice(&message[..len]);
            assert!(<Vec<u64> as Serialize>::unpack(short).is_err(), "{len}");
        }
        message[0] = u64::MAX / 4;
        let long = bytemuck::cast_slice(&message);
        assert!(<Vec<u64> as Serialize>::unpack(long).is_err());
        let bad = [2_u64, u64::MAX];
        assert!(str::unpack(bytemuck::cast_slice(&bad)).is_err());
    }
}
