//! Posted multi-receive buffers, each of which takes one message after the other.
//!
//! Programs keep a few of them, so a linear search is enough.

use selvedge::Context;

use super::{Envelope, Posted, Source};
use crate::copy::{MultiBuf, RxBuf};

/// The posted multi-receive buffers, in the order of their posts.
#[derive(Debug, Default)]
pub(super) struct MultiBuffers(Vec<MultiBuffer>);

#[derive(Debug)]
struct MultiBuffer {
    buf: MultiBuf,
    /// The receive, without its memory.
    rx: Posted,
    /// The number of the next single receive when this buffer was posted.
    number: u64,
    /// The buffer is given back when fewer bytes than this are left.
    min_left: usize,
}

/// The index of a buffer in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiIndex(usize);

impl MultiBuffers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the buffer of a receive, posted before the single receive with this number.
    ///
    /// # Errors
    /// The receive, if its buffer has more than one segment.
    pub(super) fn add(&mut self, rx: Posted, number: u64, min_left: usize) -> Result<(), Posted> {
        let Posted { buf, .. } = rx;
        let rx = Posted {
            buf: RxBuf::default(),
            ..rx
        };
        match MultiBuf::new(buf) {
            Ok(buf) => {
                self.0.push(MultiBuffer {
                    buf,
                    rx,
                    number,
                    // An empty buffer takes no message.
                    min_left: min_left.max(1),
                });
                Ok(())
            }
            Err(buf) => Err(Posted { buf, ..rx }),
        }
    }

    /// The buffer that takes this message: the one posted first.
    pub(super) fn find(&self, env: &Envelope) -> Option<MultiIndex> {
        let index = self.0.iter().position(|multi| multi.rx.accepts(env));
        index.map(MultiIndex)
    }

    /// The buffer that was posted last, and its receive.
    pub(super) fn newest(&self) -> Option<(MultiIndex, &Posted)> {
        let index = self.0.len().checked_sub(1)?;
        Some((MultiIndex(index), &self.0[index].rx))
    }

    /// Whether a buffer waits for this source alone.
    pub(super) fn awaits(&self, src: Source) -> bool {
        self.0.iter().any(|multi| multi.rx.src == src)
    }

    /// Whether a buffer was posted before the single receive with this number.
    pub(super) fn is_before(&self, MultiIndex(index): MultiIndex, number: u64) -> bool {
        self.0[index].number <= number
    }

    /// Makes a receive for a message of `len` bytes in the next part of a buffer. The buffer takes
    /// no more messages once fewer bytes than its minimum are left.
    pub(super) fn cut(&mut self, MultiIndex(index): MultiIndex, len: usize) -> Posted {
        let multi = &mut self.0[index];
        let is_last = multi.buf.len().saturating_sub(len) < multi.min_left;
        let rx = Posted {
            buf: multi.buf.cut(len),
            ..multi.rx
        };
        if is_last {
            self.0.remove(index);
        }
        rx
    }

    /// Removes the buffers that `is_selected` accepts, in the order of their posts.
    pub(super) fn take(&mut self, is_selected: impl Fn(&Posted) -> bool) -> Vec<Posted> {
        let taken = self.0.extract_if(.., |multi| is_selected(&multi.rx));
        taken.map(MultiBuffer::into_posted).collect()
    }

    /// Removes the first buffer posted with this context.
    pub(super) fn cancel(&mut self, context: Context) -> Option<Posted> {
        let index = self.0.iter().position(|multi| multi.rx.context == context);
        index.map(|index| self.0.remove(index).into_posted())
    }
}

impl MultiBuffer {
    /// Makes a receive for the rest of the buffer.
    fn into_posted(self) -> Posted {
        Posted {
            buf: self.buf.into_rest(),
            ..self.rx
        }
    }
}
