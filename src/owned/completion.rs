//! What operations give back: completions, refusals and failures.

use std::fmt;
use std::iter;

use super::Buf;
use super::endpoint::slots::Key;
use crate::{CompletionFlags, Context, Errno, FiAddr, cq};

/// One operation that is done, and its buffer.
///
/// The length of a received buffer is that of the message. After a truncation
/// ([`Errno::Trunc`]) it is what fitted, and [`cq::ErrEntry::olen`] says what was lost.
#[non_exhaustive]
#[derive(Debug)]
pub struct Completion {
    /// The word given to the operation.
    pub context: Context,
    /// The buffer given to the operation.
    pub buf: Buf,
    /// How it ended. The error is boxed, because errors are rare and completions are many.
    pub result: Result<Received, Box<cq::ErrEntry>>,
}

/// What came with a message. For a send only the flags say something.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Who sent it, under [`crate::Caps::SOURCE`]; otherwise [`FiAddr::UNSPEC`].
    pub src: FiAddr,
    /// Its tag; 0 for an untagged message.
    pub tag: u64,
    /// The data of [`super::Endpoint::senddata`] and its kin.
    pub data: Option<u64>,
    /// What completed.
    pub flags: CompletionFlags,
    /// Bytes that arrived; of a message that was looked at, bytes that it has.
    pub len: usize,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Received");
        match self.src {
            FiAddr::UNSPEC => debug.field("src", &format_args!("unknown (needs Caps::SOURCE)")),
            src => debug.field("src", &src),
        };
        debug
            .field("tag", &self.tag)
            .field("data", &self.data)
            .field("flags", &self.flags)
            .field("len", &self.len)
            .finish()
    }
}

impl Received {
    /// What a completion entry says.
    pub(super) fn new(entry: &cq::Entry, src: FiAddr) -> Self {
        let carries_data = entry.flags.contains(CompletionFlags::REMOTE_CQ_DATA);
        Self {
            src,
            tag: entry.tag,
            data: carries_data.then_some(entry.data),
            flags: entry.flags,
            len: entry.len,
        }
    }
}

/// A list of completions with room for a fixed number, to be used again and again.
#[derive(Debug)]
pub struct Completions {
    /// Those of the list, and vacant places.
    places: Box<[Place]>,
    len: usize,
}

/// Room for a completion. In pieces, so that a reader loads what it uses: a load of more than was stored
/// at once, just before, waits.
#[derive(Debug)]
struct Place {
    /// `None` where the place is vacant.
    buf: Option<Buf>,
    context: Context,
    received: Received,
    error: Option<Box<cq::ErrEntry>>,
}

impl Place {
    const VACANT: Self = Self {
        buf: None,
        context: Context(0),
        received: Received {
            src: FiAddr::UNSPEC,
            tag: 0,
            data: None,
            flags: CompletionFlags::empty(),
            len: 0,
        },
        error: None,
    };

    #[inline(always)]
    fn take(&mut self) -> Option<Completion> {
        Some(Completion {
            buf: self.buf.take()?,
            context: self.context,
            result: match self.error.take() {
                None => Ok(self.received),
                Some(error) => Err(error),
            },
        })
    }
}

impl Completions {
    /// An empty list with room for `room` completions, at least one.
    pub fn with_capacity(room: usize) -> Self {
        let vacant = iter::repeat_with(|| Place::VACANT);
        Self {
            places: vacant.take(room.max(1)).collect(),
            len: 0,
        }
    }

    /// Takes all of them out, the oldest first.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Completion> + '_ {
        Drain {
            first: 0,
            list: self,
        }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many fit in addition.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.places.len() - self.len
    }

    /// Adds one, and gives the buffer in it another length if there is one; gives it back where there
    /// is no room.
    // Nothing here panics before it is there: so it is written once, in its place.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        completion: Completion,
        len: Option<usize>,
    ) -> Result<(), Completion> {
        let Some(place @ Place { buf: None, .. }) = self.places.get_mut(self.len) else {
            return Err(completion);
        };
        place.context = completion.context;
        match completion.result {
            Ok(received) => place.received = received,
            Err(error) => place.error = Some(error),
        }
        let buf = place.buf.insert(completion.buf);
        self.len += 1;
        if let Some(len) = len {
            buf.set_len(len).expect("not above the capacity");
        }
        Ok(())
    }
}

/// Takes completions out, the oldest first; those that are left in the end, too.
struct Drain<'a> {
    first: usize,
    list: &'a mut Completions,
}

impl Drain<'_> {
    #[cold]
    #[inline(never)]
    fn drop_rest(&mut self) {
        self.by_ref().for_each(drop);
    }
}

impl Iterator for Drain<'_> {
    type Item = Completion;

    #[inline]
    fn next(&mut self) -> Option<Completion> {
        let is_left = self.first < self.list.len;
        let place = self.list.places.get_mut(self.first).filter(|_| is_left)?;
        self.first += 1;
        place.take()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.len - self.first;
        (left, Some(left))
    }
}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.first < self.list.len {
            self.drop_rest();
        }
        self.list.len = 0;
    }
}

/// Names one posted operation of an endpoint, for [`super::Endpoint::cancel`]. It never names
/// another one, even after its own is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) Key);

/// A post that was not taken, with its buffer as it was.
///
/// [`Errno::Again`] means that a queue is full: poll, and try again.
#[non_exhaustive]
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub errno: Errno,
    /// The buffer given to the operation.
    pub buf: Buf,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation refused: {}", self.errno)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        refused.errno
    }
}

/// An operation of an [`super::AsyncEndpoint`] that did not succeed, with its buffer.
#[non_exhaustive]
#[derive(Debug)]
pub struct Failed {
    /// The buffer given to the operation. Where the endpoint's completions cannot be read, the
    /// operation may still use that: then this is a buffer of capacity 0, and the other one stays
    /// with the endpoint.
    pub buf: Buf,
    /// How it ended. Boxed, because errors are rare and results are many.
    pub entry: Box<cq::ErrEntry>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry.detail, self.entry.errno)
    }
}

impl std::error::Error for Failed {}

impl From<Failed> for Errno {
    fn from(failed: Failed) -> Self {
        failed.entry.errno
    }
}

impl Failed {
    /// An operation without a completion.
    pub(super) fn without_completion(errno: Errno, buf: Buf, detail: &str) -> Self {
        let entry = cq::ErrEntry::new(cq::Entry::default(), errno, detail);
        Self {
            buf,
            entry: Box::new(entry),
        }
    }
}

impl From<Refused> for Failed {
    fn from(Refused { errno, buf }: Refused) -> Self {
        Self::without_completion(errno, buf, "operation refused")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_is_unknown_says_what_it_needs() {
        let entry = cq::Entry::default();
        let text = format!("{:?}", Received::new(&entry, FiAddr::UNSPEC));
        assert!(text.contains("src: unknown (needs Caps::SOURCE)"), "{text}");
        let text = format!("{:?}", Received::new(&entry, FiAddr(3)));
        assert!(text.contains("src: FiAddr(3)"), "{text}");
    }
}
