//! Values of serde's types as messages, in the format of postcard.

use std::any::type_name;

use serde::{Deserialize, Serialize};

use super::Message;
use crate::Error;

impl Message {
    /// Decodes a value that the peer has encoded with the feature `postcard`. The value may borrow
    /// from the message.
    ///
    /// # Errors
    /// [`Error::Decode`] when the bytes are not exactly one value of the type.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        let failed = |reason: String| Error::Decode {
            type_name: type_name::<T>(),
            len: self.len(),
            reason,
        };
        match postcard::take_from_bytes(self) {
            Ok((value, [])) => Ok(value),
            Ok((_, rest)) => Err(failed(format!("{} bytes follow the value", rest.len()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// A message with the encoded value, from a function that makes a message of a length.
    pub(crate) fn encoded<T: Serialize + ?Sized>(
        value: &T,
        message_of_len: impl FnOnce(usize) -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let failed = |error: postcard::Error| Error::Encode {
            type_name: type_name::<T>(),
            reason: error.to_string(),
        };
        let len = postcard::experimental::serialized_size(value).map_err(failed)?;
        let mut message = message_of_len(len)?;
        postcard::to_slice(value, &mut message).map_err(failed)?;
        Ok(message)
    }
}
