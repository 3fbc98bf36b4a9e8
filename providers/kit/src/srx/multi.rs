//! Posted multi-receive buffers, which take one message after the other.
//!
//! Programs keep a few of them: they are searched from the front.

use selvedge::Context;

use super::{Envelope, Posted, Source};
use crate::copy::{MultiBuf, RxBuf};

/// The posted multi-receive buffers, in the order of their posts.
#[derive(Debug, Default)]
pub(super) struct Multis(Vec<Multi>);

#[derive(Debug)]
struct Multi {
    buf: MultiBuf,
    /// The receive, without its memory.
    rx: Posted,
    /// The number that the next single receive was to get when this was posted.
    number: u64,
    /// The buffer is given back when less than this is left.
    least: usize,
}

/// A place in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

impl Multis {
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
    /// The receive, if its buffer is not in one piece.
    pub(super) fn add(&mut self, rx: Posted, number: u64, least: usize) -> Result<(), Posted> {
        let Posted { buf, .. } = rx;
        let rx = Posted {
            buf: RxBuf::default(),
            ..rx
        };
        match MultiBuf::new(buf) {
            Ok(buf) => {
                self.0.push(Multi {
                    buf,
                    rx,
                    number,
                    // A buffer without room takes nothing.
                    least: least.max(1),
                });
                Ok(())
            }
            Err(buf) => Err(Posted { buf, ..rx }),
        }
    }

    /// The buffer that takes this message: the one posted first.
    pub(super) fn find(&self, env: &Envelope) -> Option<Place> {
        let place = self.0.iter().position(|multi| multi.rx.accepts(env));
        place.map(Place)
    }

    /// The buffer that was posted last, and whose messages it takes.
    pub(super) fn newest(&self) -> Option<(Place, &Posted)> {
        let place = self.0.len().checked_sub(1)?;
        Some((Place(place), &self.0[place].rx))
    }

    /// Whether a buffer waits for this source alone.
    pub(super) fn awaits(&self, src: Source) -> bool {
        self.0.iter().any(|multi| multi.rx.src == src)
    }

    /// Whether a buffer was posted before the single receive with this number.
    pub(super) fn is_before(&self, Place(place): Place, number: u64) -> bool {
        self.0[place].number <= number
    }

    /// A receive for a message of `len` bytes in the next part of a buffer. The buffer takes no more
    /// when less than its least is left.
    pub(super) fn cut(&mut self, Place(place): Place, len: usize) -> Posted {
        let multi = &mut self.0[place];
        let is_last = multi.buf.len().saturating_sub(len) < multi.least;
        let rx = Posted {
            buf: multi.buf.cut(len),
            ..multi.rx
        };
        if is_last {
            self.0.remove(place);
        }
        rx
    }

    /// Takes back the buffers that `which` names, in the order of their posts.
    pub(super) fn take(&mut self, which: impl Fn(&Posted) -> bool) -> Vec<Posted> {
        let gone = self.0.extract_if(.., |multi| which(&multi.rx));
        gone.map(Multi::end).collect()
    }

    /// Takes back the first buffer posted with this context.
    pub(super) fn cancel(&mut self, context: Context) -> Option<Posted> {
        let place = self.0.iter().position(|multi| multi.rx.context == context);
        place.map(|place| self.0.remove(place).end())
    }
}

impl Multi {
    /// The receive as one for the rest of its buffer.
    fn end(self) -> Posted {
        Posted {
            buf: self.buf.into_rest(),
            ..self.rx
        }
    }
}
