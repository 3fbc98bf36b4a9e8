//! One-sided operations: reads and writes of a peer's registered memory.
//!
//! The initiator looks the key up in the peer's table before anything moves ([`access`]); what is
//! not allowed is an error completion. Special memory is read and written by the initiator
//! ([`direct`]). Other writes go as commands ([`write`]), because nobody writes into another
//! process's memory; other reads are made by the initiator alone where it can, and asked for
//! otherwise ([`read`]).
//!
//! Before the peer has said hello its table is not known: operations wait for it, and whatever is
//! posted behind them too.

pub(crate) mod access;
pub(crate) mod cmd;
pub(crate) mod direct;
pub(crate) mod fast;
pub(crate) mod initiate;
pub(crate) mod notify;
mod post;
pub(crate) mod read;
pub(crate) mod sibling;
pub(crate) mod take;
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

use access::Grant;

/// A one-sided operation, as far as all kinds have it in common.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) places: RmaSegments,
    pub(crate) peer: FiAddr,
    pub(crate) data: Option<u64>,
    pub(crate) report: Report,
}

/// The own side's memory of an operation.
#[derive(Debug)]
pub(crate) enum Local {
    /// The bytes to write.
    From(TxBuf),
    /// A copy of them.
    Copy(Box<[u8]>),
    /// Where the bytes go that are read.
    To(RxBuf),
}

/// An operation that waits until the peer's table is known.
#[derive(Debug)]
pub(crate) enum Later {
    Access(Access, Local),
    Atomic(Box<Request>),
}

/// Why an operation was not taken, and its memory.
type Refused = (Errno, Local);

/// What the table says to the places of an operation.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    pub(crate) list: [Option<Grant>; RMA_IOV_LIMIT],
}

impl Grants {
    /// Whether only the peer can tell that there is memory at all.
    fn are_vague(&self) -> bool {
        let mut all = self.list.iter().flatten();
        all.any(|grant| grant.row.kind == Kind::Whole)
    }
}

impl Access {
    /// The same operation, complete when the peer says so.
    fn confirmed(&self) -> Self {
        let mut access = self.clone();
        access.report.flags |= OpFlags::DELIVERY_COMPLETE;
        access
    }

    /// The operation in the table of those that the peer has to answer.
    fn op(&self, body: OpBody) -> Op {
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

impl Later {
    /// It will not come to anything.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        match self {
            Self::Access(access, local) => {
                drop(local);
                access.report.failed(ep, errno, peer, detail);
            }
            Self::Atomic(request) => request.failed(ep, errno, peer, detail),
        }
    }
}

/// The sentence of a violation: key and address, and what is wrong.
fn violation(name: &str, place: &RmaIov, denied: Denied) -> String {
    format!(
        "{name}: key {:#x}, {} bytes at {:#x}: {}",
        place.key,
        place.len,
        place.addr,
        denied.text()
    )
}
