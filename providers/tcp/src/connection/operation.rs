//! An operation of ours: the frame that it becomes, its bytes, and what answers it.

use selvedge::OpFlags;
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::wire::frame::Header;

/// Payloads up to this size are copied.
const COPY_MAX: usize = 2048;

/// An operation of ours, as it is posted.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) header: Header,
    pub(crate) body: Body,
    pub(crate) response: Response,
    pub(crate) report: Report,
}

/// The bytes behind a header.
#[derive(Debug)]
pub(crate) enum Body {
    Borrowed(TxBuf),
    Copied(Box<[u8]>),
}

/// What the peer sends for the frame of an operation.
#[derive(Debug)]
pub(crate) enum Response {
    /// Nothing, unless its header asks for an answer.
    None,
    /// The bytes that it asks for.
    ReadData(RxBuf),
    /// Its outcome, with earlier values if there is a buffer.
    AtomicResult(Option<RxBuf>),
}

/// An operation of ours that waits for bytes.
#[derive(Debug)]
pub(crate) struct PendingFetch {
    pub(crate) buf: RxBuf,
    pub(crate) len: usize,
    pub(crate) report: Report,
}

impl Operation {
    /// Whether libfabric does not know such an operation.
    pub(crate) fn needs_extensions(&self) -> bool {
        matches!(self.response, Response::AtomicResult(_))
            || self.report.flags.contains(OpFlags::MATCH_COMPLETE)
    }
}

impl Body {
    /// No bytes.
    pub(crate) fn none() -> Self {
        Self::Borrowed(TxBuf::empty())
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Borrowed(buf) => buf.len(),
            Self::Copied(bytes) => bytes.len(),
        }
    }

    /// Adds the bytes to `out`.
    pub(crate) fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Borrowed(buf) => {
                for segment in buf.segments(0, usize::MAX) {
                    out.extend_from_slice(segment);
                }
            }
            Self::Copied(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Whether the frame of an operation with these flags takes a copy of the bytes.
    pub(crate) fn is_copied(&self, flags: OpFlags) -> bool {
        match self {
            Self::Borrowed(buf) => buf.len() <= COPY_MAX || flags.contains(OpFlags::INJECT),
            Self::Copied(_) => true,
        }
    }

    /// The same bytes, in memory of ours.
    pub(crate) fn into_copied(self) -> Self {
        let mut bytes = Vec::with_capacity(self.len());
        self.append(&mut bytes);
        Self::Copied(bytes.into())
    }
}
