//! One-sided operations: reads and writes of a peer's registered memory.
//!
//! The initiator looks the key up in the peer's key table before any byte moves
//! ([`remote_memory`]); a denied access is an error completion. The initiator itself loads and
//! stores special memory ([`direct`]). Other writes are commands ([`mod@write`]), because no
//! process writes to the private memory of another process. For other reads, the initiator copies
//! the bytes where the system allows it, and requests them from the peer where the system does not
//! ([`read`]).
//!
//! The peer's key table arrives after its `Hello`. Operations that are posted earlier wait for it,
//! and later posts to the same peer wait behind them.

pub(crate) mod cmd;
pub(crate) mod direct;
pub(crate) mod fast;
pub(crate) mod initiate;
pub(crate) mod notify;
mod post;
pub(crate) mod read;
pub(crate) mod remote_memory;
pub(crate) mod sibling;
pub(crate) mod target;
pub(crate) mod write;

use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Errno, FiAddr, MrAccess, OpFlags};
use selvedge_kit::Ep;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::atomic::Request;
use crate::peers::ops::{Op, OpBody};
use crate::smr::keys::{Denied, Kind, RIGHT_READ, RIGHT_WRITE};
use selvedge_kit::Report;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};

use remote_memory::Grant;

/// A one-sided operation, without the initiator's buffer.
#[derive(Clone, Debug)]
pub(crate) struct RmaOp {
    /// The peer's memory.
    pub(crate) segments: RmaSegments,
    pub(crate) peer: FiAddr,
    /// Remote data for the peer's completion.
    pub(crate) data: Option<u64>,
    pub(crate) report: Report,
}

/// The initiator's buffer of an operation.
#[derive(Debug)]
pub(crate) enum LocalBuffer {
    /// The caller's bytes to write.
    Source(TxBuf),
    /// A copy of the bytes to write.
    SourceCopy(Box<[u8]>),
    /// The buffer that a read fills.
    Destination(RxBuf),
}

/// An operation that waits for the peer's key table.
#[derive(Debug)]
pub(crate) enum DeferredOp {
    RmaOp(RmaOp, LocalBuffer),
    Atomic(Box<Request>),
}

/// The error of an operation that was not posted, and the buffer that the caller gets back.
type PostError = (Errno, LocalBuffer);

/// The grants of the peer's key table for the segments of an operation.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) list: [Option<Grant>; RMA_IOV_LIMIT],
}

impl Grants {
    /// Whether only the peer can check that the addressed memory exists.
    fn need_confirmation(&self) -> bool {
        let mut all = self.list.iter().flatten();
        all.any(|grant| grant.entry.kind == Kind::Whole)
    }
}

impl RmaOp {
    /// Returns the same operation with delivery complete: it completes when the peer acknowledges
    /// it.
    fn with_delivery_complete(&self) -> Self {
        let mut op = self.clone();
        op.report.flags |= OpFlags::DELIVERY_COMPLETE;
        op
    }

    /// Builds the entry of the table of outstanding operations.
    fn to_op(&self, body: OpBody) -> Op {
        let report = self.report;
        Op { report, body }
    }

    fn is_read(&self) -> bool {
        self.report.kind.contains(CompletionFlags::READ)
    }

    fn is_fenced(&self) -> bool {
        self.report.flags.contains(OpFlags::FENCE)
    }

    /// Returns the rights that the operation needs.
    fn access(&self) -> MrAccess {
        if self.is_read() {
            MrAccess::REMOTE_READ
        } else {
            MrAccess::REMOTE_WRITE
        }
    }

    /// Returns the rights that the operation needs, in the key table's encoding.
    fn rights(&self) -> u32 {
        if self.is_read() {
            RIGHT_READ
        } else {
            RIGHT_WRITE
        }
    }
}

impl DeferredOp {
    /// Releases the buffer and reports the failure.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        match self {
            Self::RmaOp(op, local) => {
                drop(local);
                op.report.failed(ep, errno, peer, detail);
            }
            Self::Atomic(request) => request.fail(ep, errno, peer, detail),
        }
    }
}

/// The error text of a denied access: peer, key, length, address and reason.
fn denial_text(name: &str, segment: &RmaIov, denied: Denied) -> String {
    format!(
        "{name}: key {:#x}, {} bytes at {:#x}: {}",
        segment.key,
        segment.len,
        segment.addr,
        denied.text()
    )
}
