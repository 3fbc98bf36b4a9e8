//! `Operation`: a posted local operation, with its frame, payload and expected response.

use selvedge::OpFlags;
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::wire::frame::Header;

/// The largest payload, in bytes, that is copied into the send queue.
const COPY_MAX: usize = 2048;

/// A posted local operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) header: Header,
    pub(crate) body: Body,
    pub(crate) response: Response,
    pub(crate) report: Report,
}

/// The payload of a frame.
#[derive(Debug)]
pub(crate) enum Body {
    Borrowed(TxBuf),
    Copied(Box<[u8]>),
}

/// The response that the peer sends for an operation.
#[derive(Debug)]
pub(crate) enum Response {
    /// None, except an acknowledgement if the header requests it.
    None,
    /// The data of a read.
    ReadData(RxBuf),
    /// The result of an atomic, with the fetched values if there is a buffer.
    AtomicResult(Option<RxBuf>),
}

/// A local operation that waits for data.
#[derive(Debug)]
pub(crate) struct PendingFetch {
    pub(crate) buf: RxBuf,
    pub(crate) len: usize,
    pub(crate) report: Report,
}

impl Operation {
    /// Whether the operation needs a peer with Selvedge's extensions of libfabric's protocol.
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

    /// Appends the bytes to `out`.
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

    /// Whether the bytes are copied into the frame of an operation with these flags.
    pub(crate) fn is_copied(&self, flags: OpFlags) -> bool {
        match self {
            Self::Borrowed(buf) => buf.len() <= COPY_MAX || flags.contains(OpFlags::INJECT),
            Self::Copied(_) => true,
        }
    }

    /// Copies the bytes into memory of the endpoint.
    pub(crate) fn into_copied(self) -> Self {
        let mut bytes = Vec::with_capacity(self.len());
        self.append(&mut bytes);
        Self::Copied(bytes.into())
    }
}
