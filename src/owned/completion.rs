//! The results of operations: completions and errors.

use std::fmt;
use std::iter;
use std::mem;

use super::Buf;
use super::endpoint::slots::Key;
use crate::{CompletionFlags, Context, Errno, FiAddr, cq};

/// A completed operation, with its buffer.
///
/// The length of a received buffer is that of the message. After a truncation ([`Errno::Trunc`])
/// the buffer holds the bytes that fitted, and [`cq::ErrEntry::olen`] is the number of lost bytes.
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
    #[inline]
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
    /// The entries of the completions, then vacant entries. The completion queue stores its entries
    /// here; then the context of the post replaces the key of the operation. Entries are not
    /// copied: a load that is wider than the preceding store stalls on store forwarding.
    entries: Box<[cq::Entry]>,
    /// The other parts of the completions, by the index of the entry.
    parts: Box<[Parts]>,
    len: usize,
}

/// The parts of a completion that a [`cq::Entry`] does not have.
#[derive(Debug)]
pub(super) struct Parts {
    /// `None` for a vacant entry.
    buf: Option<Buf>,
    src: FiAddr,
    error: Option<Box<cq::ErrEntry>>,
}

impl Parts {
    const VACANT: Self = Self {
        buf: None,
        src: FiAddr::UNSPEC,
        error: None,
    };

    /// Stores the parts of a completion in vacant ones.
    #[inline]
    pub(super) fn set(&mut self, src: FiAddr, buf: Buf, error: Option<Box<cq::ErrEntry>>) {
        self.src = src;
        // There is no previous buffer. An assignment would drop one; since a drop may unwind, the
        // caller would keep its values in memory.
        mem::forget(self.buf.replace(buf));
        if error.is_some() {
            self.error = error;
        }
    }
}

impl Completions {
    /// An empty list with room for `capacity` completions, at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            entries: vec![cq::Entry::default(); capacity].into(),
            parts: iter::repeat_with(|| Parts::VACANT).take(capacity).collect(),
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

    /// Whether there is no room for another completion.
    pub(super) fn is_full(&self) -> bool {
        self.len == self.entries.len()
    }

    /// The vacant entries, and the parts for their completions.
    #[inline]
    pub(super) fn vacant(&mut self) -> (&mut [cq::Entry], &mut [Parts]) {
        let first = self.len;
        (&mut self.entries[first..], &mut self.parts[first..])
    }

    /// Appends the `count` completions that are stored in the first `read` vacant entries.
    #[inline]
    pub(super) fn append(&mut self, count: usize, read: usize) {
        if count == read {
            self.len += count
        } else {
            self.append_with_gaps(read)
        }
    }

    /// Appends the completions that are stored in some of the first `read` vacant entries.
    #[cold]
    fn append_with_gaps(&mut self, read: usize) {
        for position in self.len..self.len + read {
            if self.parts[position].buf.is_some() {
                self.entries.swap(self.len, position);
                self.parts.swap(self.len, position);
                self.len += 1;
            }
        }
    }

    /// Takes a completion out; `None` for a vacant entry.
    #[inline(always)]
    fn take(&mut self, position: usize) -> Option<Completion> {
        let entry = self.entries.get(position)?;
        let parts = self.parts.get_mut(position)?;
        Some(Completion {
            buf: parts.buf.take()?,
            context: entry.context,
            result: match parts.error {
                None => Ok(Received::new(entry, parts.src)),
                Some(_) => Err(parts.error.take()?),
            },
        })
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
        let completion = self.list.take(self.first)?;
        self.first += 1;
        Some(completion)
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

/// Identifies one posted operation of an endpoint, for [`super::Endpoint::cancel`]. A handle is
/// never reused for another operation.
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
    /// The buffer of the operation. When completions cannot be read, the operation may still use
    /// its buffer: the buffer then stays with the endpoint, and this is one of capacity 0.
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
