//! Plain data as messages, without a copy: types of the crate bytemuck.

use std::any::type_name;

use bytemuck::{AnyBitPattern, Pod};

use super::Message;
use crate::Error;

impl Message {
    /// The value that the message is, without a copy, in the byte order of the sender's machine.
    ///
    /// # Errors
    /// [`Error::Decode`] for a message of another length than the type's, and for a type whose
    /// alignment exceeds 32 bytes.
    pub fn plain<T: AnyBitPattern>(&self) -> Result<&T, Error> {
        bytemuck::try_from_bytes(self).map_err(|error| self.undecoded::<T>(error))
    }

    /// The values that the message consists of, as [`Self::plain`].
    ///
    /// # Errors
    /// As [`Self::plain`]; the length is a multiple of the type's.
    pub fn plain_slice<T: AnyBitPattern>(&self) -> Result<&[T], Error> {
        bytemuck::try_cast_slice(self).map_err(|error| self.undecoded::<[T]>(error))
    }

    /// As [`Self::plain_slice`], to fill a message of [`crate::Peer::message`] in place.
    ///
    /// # Errors
    /// As [`Self::plain_slice`].
    pub fn plain_slice_mut<T: Pod>(&mut self) -> Result<&mut [T], Error> {
        let len = self.len();
        bytemuck::try_cast_slice_mut(self).map_err(|error| undecoded::<[T]>(len, error))
    }

    fn undecoded<T: ?Sized>(&self, error: bytemuck::PodCastError) -> Error {
        undecoded::<T>(self.len(), error)
    }
}

fn undecoded<T: ?Sized>(len: usize, error: bytemuck::PodCastError) -> Error {
    Error::Decode {
        type_name: type_name::<T>(),
        len,
        reason: error.to_string(),
    }
}
