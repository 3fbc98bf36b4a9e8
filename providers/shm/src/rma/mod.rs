//! One-sided operations: reads and writes of a peer's registered memory.
//!
//! The initiator looks the key up in the peer's table before anything moves ([`op`]); what is
//! not allowed is an error completion. Special memory is read and written by the initiator
//! ([`direct`]). Other writes go as commands ([`write`]), because nobody writes into another
//! process's memory; other reads are made by the initiator alone where it can, and asked for
//! otherwise ([`read`]).
//!
//! Before the peer has said hello its table is not known: operations wait for it, and whatever is
//! posted behind them too.

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
use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags};
use selvedge_kit::Ep;
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::atomic::Request;
use crate::peers::ops::{Op, OpBody};
use crate::smr::keys::{Denied, Kind, RIGHT_READ, RIGHT_WRITE};
use selvedge_kit::Report;
use selvedge_kit::segments::{RMA_IOV_LIMIT, RmaSegments};

use remote_memory::Grant;

/// A one-sided operation, as far as all kinds have it in common.
#[derive(Clone, Debug)]
pub(crate) struct RmaOp {
    pub(crate) segments: RmaSegments,
    pub(crate) peer: FiAddr,
    pub(crate) data: Option<u64>,
    pub(crate) report: Report,
}

/// The own side's memory of an operation.
#[derive(Debug)]
pub(crate) enum LocalBuffer {
    /// The bytes to write.
    Source(TxBuf),
    /// A copy of them.
    SourceCopy(Box<[u8]>),
    /// Where the bytes go that are read.
    Destination(RxBuf),
}

/// An operation that waits until the peer's table is known.
#[derive(Debug)]
pub(crate) enum DeferredOp {
    RmaOp(RmaOp, LocalBuffer),
    Atomic(Box<Request>),
}

/// Why an operation was not taken, and its memory.
type PostError = (Errno, LocalBuffer);

/// What the table says to the places of an operation.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) list: [Option<Grant>; RMA_IOV_LIMIT],
}

impl Grants {
    /// Whether only the peer can tell that there is memory at all.
    fn need_confirmation(&self) -> bool {
        let mut all = self.list.iter().flatten();
        all.any(|grant| grant.row.kind == Kind::Whole)
    }
}

impl RmaOp {
    /// The same operation, complete when the peer says so.
    fn with_delivery_complete(&self) -> Self {
        let mut op = self.clone();
        op.report.flags |= OpFlags::DELIVERY_COMPLETE;
        op
    }

    /// The operation in the table of those that the peer has to answer.
    fn tracked(&self, body: OpBody) -> Op {
        let report = self.report;
        Op { report, body }
    }

    fn is_read(&self) -> bool {
        self.report.kind.contains(CompletionFlags::READ)
    }

    fn is_fenced(&self) -> bool {
        self.report.flags.contains(OpFlags::FENCE)
    }

    /// Rights that it needs.
    fn rights(&self) -> u32 {
        match self.is_read() {
            true => RIGHT_READ,
            false => RIGHT_WRITE,
        }
    }
}

impl DeferredOp {
    /// It will not come to anything.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        match self {
            Self::RmaOp(op, local) => {
                drop(local);
                op.report.failed(ep, errno, peer, detail);
            }
            Self::Atomic(request) => request.failed(ep, errno, peer, detail),
        }
    }
}

/// The sentence of a violation: key and address, and what is wrong.
fn denial_text(name: &str, segment: &RmaIov, denied: Denied) -> String {
    format!(
        "{name}: key {:#x}, {} bytes at {:#x}: {}",
        segment.key,
        segment.len,
        segment.addr,
        denied.text()
    )
}
