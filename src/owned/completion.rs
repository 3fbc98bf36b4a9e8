//! The results of operations: completions and errors.

use std::fmt;
use std::iter;

use super::Buf;
use super::endpoint::slots::Key;
use crate::{CompletionFlags, Context, Errno, FiAddr, cq};

/// A completed operation, with its buffer.
///
/// The length of a received buffer is that of the message. After a truncation ([`Errno::Trunc`]) the
/// buffer holds the bytes that fitted, and [`cq::ErrEntry::olen`] is the number of lost bytes.
#[non_exhaustive]
#[derive(Debug)]
pub struct Completion {
    /// The context of the post.
    pub context: Context,
    /// The buffer of the post.
    pub buf: Buf,
    /// The result. The error is boxed, because errors are rare and completions are many.
    pub result: Result<Received, Box<cq::ErrEntry>>,
}

/// The metadata of a received message. For a send, only the flags are meaningful.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// The sender, under [`crate::Caps::SOURCE`]; otherwise [`FiAddr::UNSPEC`].
    pub src: FiAddr,
    /// The tag; 0 for an untagged message.
    pub tag: u64,
    /// The remote data of [`super::Endpoint::senddata`] and the other methods with `data`.
    pub data: Option<u64>,
    /// The kind of the completed operation, and further flags.
    pub flags: CompletionFlags,
    /// The number of bytes received; for a peek, the length of the message.
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
    /// The metadata in a completion entry.
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

/// A reusable list of completions with a fixed capacity.
#[derive(Debug)]
pub struct Completions {
    /// The completions of the list, then vacant entries.
    entries: Box<[Entry]>,
    len: usize,
}

/// Storage for a completion. Its fields are stored one by one, so that a reader loads what was stored: a
/// load that is wider than a preceding store stalls on store forwarding.
#[derive(Debug)]
struct Entry {
    /// `None` in a vacant entry.
    buf: Option<Buf>,
    context: Context,
    received: Received,
    error: Option<Box<cq::ErrEntry>>,
}

impl Entry {
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
    /// An empty list with room for `capacity` completions, at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let vacant = iter::repeat_with(|| Entry::VACANT);
        Self {
            entries: vacant.take(capacity.max(1)).collect(),
            len: 0,
        }
    }

    /// Removes all completions, the oldest first.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Completion> + '_ {
        Drain {
            first: 0,
            list: self,
        }
    }

    /// The number of completions.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of vacant entries.
    #[inline]
    pub(super) fn free(&self) -> usize {
        self.entries.len() - self.len
    }

    /// Appends a completion, and sets the length of its buffer to `len` if there is one.
    ///
    /// # Errors
    /// The completion, when the list is full.
    // Nothing panics before the completion is stored, so it is written once, in place.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        completion: Completion,
        len: Option<usize>,
    ) -> Result<(), Completion> {
        let Some(entry @ Entry { buf: None, .. }) = self.entries.get_mut(self.len) else {
            return Err(completion);
        };
        entry.context = completion.context;
        match completion.result {
            Ok(received) => entry.received = received,
            Err(error) => entry.error = Some(error),
        }
        let buf = entry.buf.insert(completion.buf);
        self.len += 1;
        if let Some(len) = len {
            buf.set_len(len).expect("not above the capacity");
        }
        Ok(())
    }
}

/// Removes completions, the oldest first. Dropping it drops the remaining ones.
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
        let entry = self.list.entries.get_mut(self.first).filter(|_| is_left)?;
        self.first += 1;
        entry.take()
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

/// Identifies one posted operation of an endpoint, for [`super::Endpoint::cancel`]. A handle is never
/// reused for another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) Key);

/// The error of a failed post. It returns the unchanged buffer.
///
/// [`Errno::Again`] means that a queue is full: poll, then retry.
#[non_exhaustive]
#[derive(Debug)]
pub struct TryPostError {
    /// The error number.
    pub errno: Errno,
    /// The buffer of the post.
    pub buf: Buf,
}

impl fmt::Display for TryPostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "post failed: {}", self.errno)
    }
}

impl std::error::Error for TryPostError {}

impl From<TryPostError> for Errno {
    fn from(refused: TryPostError) -> Self {
        refused.errno
    }
}

/// The error of a failed operation of an [`super::AsyncEndpoint`]. It returns the buffer.
#[non_exhaustive]
#[derive(Debug)]
pub struct OpError {
    /// The buffer of the operation. When completions cannot be read, the operation may still use its
    /// buffer: the buffer then stays with the endpoint, and this is one of capacity 0.
    pub buf: Buf,
    /// The error entry. It is boxed, because errors are rare and results are many.
    pub entry: Box<cq::ErrEntry>,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.entry.detail, self.entry.errno)
    }
}

impl std::error::Error for OpError {}

impl From<OpError> for Errno {
    fn from(failed: OpError) -> Self {
        failed.entry.errno
    }
}

impl OpError {
    /// The error of an operation without a completion.
    pub(super) fn without_completion(errno: Errno, buf: Buf, detail: &str) -> Self {
        let entry = cq::ErrEntry::new(cq::Entry::default(), errno, detail);
        Self {
            buf,
            entry: Box::new(entry),
        }
    }
}

impl From<TryPostError> for OpError {
    fn from(TryPostError { errno, buf }: TryPostError) -> Self {
        Self::without_completion(errno, buf, "post failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_an_unknown_source_names_the_missing_capability() {
        let entry = cq::Entry::default();
        let text = format!("{:?}", Received::new(&entry, FiAddr::UNSPEC));
        assert!(text.contains("src: unknown (needs Caps::SOURCE)"), "{text}");
        let text = format!("{:?}", Received::new(&entry, FiAddr(3)));
        assert!(text.contains("src: FiAddr(3)"), "{text}");
    }
}
