//! `Publication`: the bytes that a subscriber has received, and `PublicationMut`: those that a
//! publisher fills.

#![expect(
    unsafe_code,
    reason = "a publication is read in place, in memory that the publisher's process may write"
)]

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use selvedge::Errno;
use selvedge::owned::{Buf, Plain, SharedBuf, View};

use crate::wire::HEADER;
use crate::{End, Error};

/// The bytes in front of a publication: the room for a header, and the number. Publications begin
/// at a cache line.
const PREFIX: usize = 64;

/// A publication that a subscriber has received.
///
/// Over shared memory, a publication of more than 4,032 bytes is in memory of the publisher: it is
/// *lent*, and no byte was copied. Dropping it gives the memory back. A subscriber may keep it: the
/// publisher lends a subscriber up to 8 publications, and sends it copies of further ones.
///
/// The publisher's process could write its memory at any time, though it has no reason to. A
/// publication has therefore no safe `&[u8]`: methods copy bytes out.
///
/// Lent publications can be read as long as the subscriber exists and the publisher has not ended
/// the connection; also after the publisher was killed.
pub struct Publication {
    view: View,
    number: u64,
    lost: u64,
}

impl Publication {
    /// The publication in a response; `lost` counts, from its number, those before it.
    ///
    /// # Errors
    /// [`Error::Failed`] for a response that is no publication, and as [`Self::copy_to`].
    pub(super) fn new(view: Option<View>, lost: impl FnOnce(u64) -> u64) -> Result<Self, Error> {
        let view = view.filter(|view| view.len() >= PREFIX);
        let short = || Error::Failed("a publication has no number".to_owned());
        let view = view.ok_or_else(short)?;
        let number = view.read::<[u8; 8]>(HEADER).map_err(ended)?;
        let number = u64::from_le_bytes(number);
        let lost = lost(number);
        Ok(Self { view, number, lost })
    }

    /// The number of the publication. The numbers of a publisher are consecutive.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of publications that the subscriber has lost between the one before and this one,
    /// because it was too slow.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The length, in bytes.
    pub fn len(&self) -> usize {
        self.view.len().saturating_sub(PREFIX)
    }

    /// Whether the publication has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes are in memory of the publisher.
    pub fn is_lent(&self) -> bool {
        self.view.is_lent()
    }

    /// The bytes: a copy of a lent publication, and a reference to any other one.
    ///
    /// # Errors
    /// As [`Self::copy_to`].
    pub fn bytes(&self) -> Result<Cow<'_, [u8]>, Error> {
        if let Some(bytes) = self.view.as_received() {
            return Ok(Cow::Borrowed(bytes.get(PREFIX..).unwrap_or_default()));
        }
        self.to_vec().map(Cow::Owned)
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    /// As [`Self::copy_to`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut copy = vec![0; self.len()];
        self.copy_to(0, &mut copy)?;
        Ok(copy)
    }

    /// Copies bytes from `offset` on into `to`.
    ///
    /// # Errors
    /// [`Error::Range`] when the publication has fewer bytes; [`Error::Ended`] when the publisher has
    /// ended the connection, and may have changed the bytes.
    pub fn copy_to(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let copied = self.view.copy_to(PREFIX.saturating_add(offset), to);
        copied.map_err(|errno| self.error(errno, offset, to.len()))
    }

    /// Reads the value at `offset`, which needs no alignment, in the byte order of this machine.
    ///
    /// # Errors
    /// As [`Self::copy_to`].
    pub fn read<T: Plain>(&self, offset: usize) -> Result<T, Error> {
        let value = self.view.read(PREFIX.saturating_add(offset));
        value.map_err(|errno| self.error(errno, offset, size_of::<T>()))
    }

    /// The bytes, without a copy. They begin at a multiple of 64.
    ///
    /// # Safety
    /// While the slice of a lent publication ([`Self::is_lent`]) is used:
    /// - the publisher's process does not write the bytes, which this crate never does;
    /// - neither the [`crate::Publisher`] nor the [`crate::Subscriber`] is dropped, because the
    ///   publisher may then reuse the memory.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the caller promises what `View::as_slice` requires.
        let bytes = unsafe { self.view.as_slice() };
        bytes.get(PREFIX..).unwrap_or_default()
    }

    fn error(&self, errno: Errno, offset: usize, count: usize) -> Error {
        match errno {
            Errno::Inval => Error::Range {
                len: self.len(),
                offset,
                count,
            },
            errno => ended(errno),
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publication({}, {} bytes)", self.number, self.len())
    }
}

/// The error of a lent publication after the end of the connection.
fn ended(errno: Errno) -> Error {
    let text = "the publisher has ended the connection, and may have changed the publication";
    Error::Ended(End::Lost(format!("{text}: {errno}")))
}

/// A publication to be filled: see [`crate::Publisher::message`]. It dereferences to its bytes.
pub struct PublicationMut(Buf);

impl PublicationMut {
    /// The length of the buffer of a publication of `len` bytes.
    pub(super) const fn buffer_len(len: usize) -> usize {
        PREFIX.saturating_add(len)
    }

    /// The publication in a buffer of [`Self::buffer_len`] bytes.
    pub(super) const fn new(buf: Buf) -> Self {
        Self(buf)
    }

    /// The publication with its number, for all subscribers.
    pub(super) fn finish(mut self, number: u64) -> SharedBuf {
        if let Some(prefix) = self.0.first_chunk_mut::<PREFIX>() {
            prefix.fill(0);
            prefix[HEADER..HEADER + 8].copy_from_slice(&number.to_le_bytes());
        }
        self.0.into()
    }
}

impl Deref for PublicationMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.get(PREFIX..).unwrap_or_default()
    }
}

impl DerefMut for PublicationMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.get_mut(PREFIX..).unwrap_or_default()
    }
}

impl fmt::Debug for PublicationMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicationMut({} bytes)", self.len())
    }
}
