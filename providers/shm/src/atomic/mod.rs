//! Atomics: fi_atomic(3) on a peer's memory, by instructions of a processor.
//!
//! What is checked before anything is changed: key, bounds and rights against the peer's key table,
//! and the alignment of every target (`initiate`). Then there are two ways:
//!
//! - special memory that we have mapped is changed by us (`direct`, and `word` for what is usual),
//!   without the peer's help;
//! - for everything else the peer gets a command, checks it again, and answers (`command`).
//!
//! Atomics of one endpoint to one peer are carried out in the order of their posts: none is done
//! directly while a command is unanswered.

pub(crate) mod command;
mod direct;
pub(crate) mod initiate;
mod post;
pub(crate) mod response;
mod word;

use std::collections::VecDeque;
use std::fmt;

use selvedge::atomic::{Family, RmaIoc};
use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Errno, FiAddr, Result};
use selvedge_kit::Ep;
use selvedge_kit::Report;
use selvedge_kit::atomic::{Kernel, Unaligned};
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::smr::keys::Denied;
use crate::transfers::cmd::IOV_LIMIT;

/// Bytes of operands that need no memory of their own.
const SMALL: usize = 64;

/// An atomic to carry out, with a copy of what it reads.
#[derive(Debug)]
pub(crate) struct Request {
    kernel: Kernel,
    dest: FiAddr,
    targets: Targets,
    payload: Payload,
    /// Where the earlier values go.
    result: Option<RxBuf>,
    /// For the peer's completion.
    data: Option<u64>,
    report: Report,
}

/// The elements of a peer's memory that an atomic changes.
#[derive(Debug)]
pub(crate) enum Targets {
    One(RmaIoc),
    Many(Box<[RmaIoc]>),
}

/// What waits for something, with one peer.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Atomics of ours that the peer has not answered.
    outstanding: usize,
    /// Answers of ours, until there is room for them, in their order.
    owed_responses: VecDeque<Response>,
}

/// Operands, and behind them what is compared with.
#[derive(Debug)]
pub(crate) struct Payload {
    small: [u8; SMALL],
    large: Box<[u8]>,
    operand: usize,
    len: usize,
}

/// What was asked: where earlier values go, and what is said in the sentence of an error.
#[derive(Debug)]
pub(crate) struct OutstandingAtomic {
    pub(crate) addr: u64,
    pub(crate) key: u64,
    /// Bytes there.
    pub(crate) len: usize,
    pub(crate) result: Option<RxBuf>,
}

impl OutstandingAtomic {
    /// About one target.
    fn new(kernel: &Kernel, target: &RmaIoc) -> Self {
        Self {
            addr: target.addr,
            key: target.key,
            len: target.count.saturating_mul(kernel.size()),
            result: None,
        }
    }

    /// Bytes of earlier values that are wanted.
    fn room(&self) -> usize {
        self.result.as_ref().map_or(0, RxBuf::len)
    }
}

impl fmt::Display for OutstandingAtomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, key, len, .. } = self;
        write!(f, "{len} bytes at {addr:#x}, key {key:#x}")
    }
}

/// An answer to a command.
#[derive(Debug)]
pub(crate) struct Response {
    msg_id: u32,
    errno: Option<Errno>,
    bytes: Box<[u8]>,
}

/// Why an atomic is refused, by us or by the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtomicError {
    Denied(Denied),
    Unaligned(Unaligned),
    /// There is no room for the answer.
    TooLong,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.owed_responses.is_empty()
    }

    /// Whether no atomic of ours is on its way.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }
}

impl Request {
    /// Will not be carried out.
    pub(crate) fn failed(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        let report = self.report;
        // The buffer goes before the completion comes.
        drop(self);
        report.failed(ep, errno, peer, detail);
    }
}

impl Targets {
    fn new(list: &[RmaIoc]) -> Result<Self> {
        match *list {
            [one] => Ok(Self::One(one)),
            _ if (1..=IOV_LIMIT).contains(&list.len()) => Ok(Self::Many(list.into())),
            _ => Err(Errno::Inval),
        }
    }

    #[inline]
    fn as_slice(&self) -> &[RmaIoc] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl Payload {
    /// Copies what the caller lends.
    #[inline]
    fn gather(operand: &TxBuf, compare: &TxBuf) -> Self {
        let len = operand.len() + compare.len();
        let mut payload = Self::zeroed(operand.len(), len);
        let (operands, compares) = payload.parts_mut();
        operand.read(0, operands);
        compare.read(0, compares);
        payload
    }

    /// As many zeros, of which the first `operand` are the operands.
    #[inline]
    fn zeroed(operand: usize, len: usize) -> Self {
        Self {
            small: [0; SMALL],
            large: match len <= SMALL {
                true => Box::default(),
                false => vec![0; len].into(),
            },
            operand,
            len,
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self.len <= SMALL {
            true => &self.small[..self.len],
            false => &self.large,
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.len <= SMALL {
            true => &mut self.small[..self.len],
            false => &mut self.large,
        }
    }

    #[inline]
    fn parts(&self) -> (&[u8], &[u8]) {
        self.as_slice().split_at(self.operand)
    }

    #[inline]
    fn parts_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let operand = self.operand;
        self.as_mut_slice().split_at_mut(operand)
    }
}

impl AtomicError {
    fn errno(self) -> Errno {
        match self {
            Self::Denied(denied) => denied.errno(),
            Self::Unaligned(_) => Errno::Inval,
            Self::TooLong => Errno::MsgSize,
        }
    }

    /// The end of a sentence that begins with what was asked.
    fn text(self) -> String {
        match self {
            Self::Denied(denied) => denied.text().to_owned(),
            Self::Unaligned(unaligned) => unaligned.to_string(),
            Self::TooLong => "more than an answer has room for".to_owned(),
        }
    }
}

/// The stretch of memory that a target is; nothing for one that no memory has.
#[inline]
fn target_segment(kernel: &Kernel, target: &RmaIoc) -> Option<RmaIov> {
    Some(RmaIov {
        addr: target.addr,
        len: target.count.checked_mul(kernel.size())?,
        key: target.key,
    })
}

/// The rights that a kernel takes, as a key table has them.
#[inline]
fn rights(kernel: &Kernel) -> u32 {
    crate::memory::keys::rights(kernel.access())
}

/// What a completion says of an operation of this family at its initiator.
#[inline]
const fn completion_flags(family: Family) -> CompletionFlags {
    let direction = match family {
        Family::Base => CompletionFlags::WRITE,
        Family::Fetch | Family::Compare => CompletionFlags::READ,
    };
    CompletionFlags::ATOMIC.union(direction)
}
