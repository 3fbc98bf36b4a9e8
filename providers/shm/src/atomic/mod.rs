//! Atomics: fi_atomic(3) on a peer's memory, by atomic instructions of the processor.
//!
//! The initiator checks key, bounds and rights against the peer's key table, and the alignment of
//! every target, before it changes any element (`initiate`). Two paths follow:
//!
//! - The initiator changes mapped special memory itself (`direct`, and `word` for one element of
//!   eight bytes), without progress of the peer.
//! - For other memory the peer receives a command, checks it again, executes it and responds
//!   (`command`).
//!
//! Atomics of one endpoint to one peer are executed in the order of their posts: the initiator
//! executes no atomic directly while a command to the peer is outstanding.

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
use selvedge_kit::atomic::{Args, Kernel, Unaligned};
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::smr::keys::Denied;
use crate::transfers::cmd::IOV_LIMIT;

/// The largest payload, in bytes, that is stored without an allocation.
const SMALL: usize = 64;

/// A posted atomic, with a copy of its operands and compare values.
#[derive(Debug)]
pub(crate) struct Request {
    kernel: Kernel,
    dest: FiAddr,
    targets: Targets,
    payload: Payload,
    /// The buffer for the fetched values.
    result: Option<RxBuf>,
    /// Remote data for the peer's completion.
    data: Option<u64>,
    report: Report,
}

/// The elements of a peer's memory that an atomic changes.
#[derive(Debug)]
pub(crate) enum Targets {
    One(RmaIoc),
    Many(Box<[RmaIoc]>),
}

/// Outstanding atomics and delayed responses of one peer.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The number of this endpoint's atomics to which the peer has not responded.
    outstanding: usize,
    /// This endpoint's responses that wait for room, in the order of the atomics.
    owed_responses: VecDeque<Response>,
}

/// The payload of an atomic: the operands, followed by the compare values.
#[derive(Debug)]
pub(crate) struct Payload {
    small: [u8; SMALL],
    large: Box<[u8]>,
    /// Bytes of the operands.
    operand_len: usize,
    /// Bytes of operands and compare values.
    len: usize,
}

/// An outstanding atomic: the buffer for its fetched values, and the facts for its error text.
#[derive(Debug)]
pub(crate) struct OutstandingAtomic {
    pub(crate) addr: u64,
    pub(crate) key: u64,
    /// Bytes of the target.
    pub(crate) len: usize,
    pub(crate) result: Option<RxBuf>,
}

impl OutstandingAtomic {
    /// Creates the record of an outstanding atomic, with the first target for error texts.
    fn new(kernel: &Kernel, target: &RmaIoc) -> Self {
        Self {
            addr: target.addr,
            key: target.key,
            len: target.count.saturating_mul(kernel.size()),
            result: None,
        }
    }

    /// The number of bytes of fetched values that the response must have.
    fn result_len(&self) -> usize {
        self.result.as_ref().map_or(0, RxBuf::len)
    }
}

impl fmt::Display for OutstandingAtomic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, key, len, .. } = self;
        write!(f, "{len} bytes at {addr:#x}, key {key:#x}")
    }
}

/// The response to an atomic command.
#[derive(Debug)]
pub(crate) struct Response {
    msg_id: u32,
    errno: Option<Errno>,
    bytes: Box<[u8]>,
}

/// The reason why an atomic is refused, by the initiator or by the target.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtomicError {
    Denied(Denied),
    Unaligned(Unaligned),
    /// The fetched values exceed the longest response.
    TooLong,
}

impl Backlog {
    /// Whether no response waits for room.
    pub(crate) fn is_empty(&self) -> bool {
        self.owed_responses.is_empty()
    }

    /// Whether no atomic of this endpoint is outstanding.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding == 0
    }
}

impl Request {
    /// Releases the buffer and reports the failure of a request.
    pub(crate) fn fail(self, ep: &Ep, errno: Errno, peer: FiAddr, detail: String) {
        let report = self.report;
        // The buffer is released before the completion is written.
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
    /// Copies the caller's operands and compare values.
    #[inline]
    fn gather(operand: &TxBuf, compare: &TxBuf) -> Self {
        let len = operand.len() + compare.len();
        let mut payload = Self::zeroed(operand.len(), len);
        let (operands, compares) = payload.split_mut();
        operand.read(0, operands);
        compare.read(0, compares);
        payload
    }

    /// Creates a payload of `len` zero bytes, the first `operand_len` of which are the operands.
    #[inline]
    fn zeroed(operand_len: usize, len: usize) -> Self {
        Self {
            small: [0; SMALL],
            large: if len <= SMALL {
                Box::default()
            } else {
                vec![0; len].into()
            },
            operand_len,
            len,
        }
    }

    #[inline]
    fn as_slice(&self) -> &[u8] {
        if self.len <= SMALL {
            &self.small[..self.len]
        } else {
            &self.large
        }
    }

    #[inline]
    fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.len <= SMALL {
            &mut self.small[..self.len]
        } else {
            &mut self.large
        }
    }

    /// Splits the payload into the operands and the compare values.
    #[inline]
    fn split(&self) -> (&[u8], &[u8]) {
        self.as_slice().split_at(self.operand_len)
    }

    /// The arguments for the elements from a position of the operands on, in bytes. Their fetched
    /// values have the same position in `fetched`.
    #[inline]
    fn args<'a>(&'a self, position: usize, fetched: &'a mut Self) -> Args<'a> {
        let (operand, compare) = self.split();
        Args {
            operand: operand.get(position..).unwrap_or(&[]),
            compare: compare.get(position..).unwrap_or(&[]),
            result: fetched
                .as_mut_slice()
                .get_mut(position..)
                .unwrap_or(&mut []),
        }
    }

    /// As [`Self::split`], for writing.
    #[inline]
    fn split_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        let operand_len = self.operand_len;
        self.as_mut_slice().split_at_mut(operand_len)
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

    /// The reason, for the end of an error text.
    fn text(self) -> String {
        match self {
            Self::Denied(denied) => denied.text().to_owned(),
            Self::Unaligned(unaligned) => unaligned.to_string(),
            Self::TooLong => "the fetched values exceed the room of a response".to_owned(),
        }
    }
}

/// The memory segment of a target; `None` if its length overflows.
#[inline]
fn target_segment(kernel: &Kernel, target: &RmaIoc) -> Option<RmaIov> {
    Some(RmaIov {
        addr: target.addr,
        len: target.count.checked_mul(kernel.size())?,
        key: target.key,
    })
}

/// The rights that a kernel needs, in the key table's encoding.
#[inline]
fn rights(kernel: &Kernel) -> u32 {
    crate::memory::keys::rights(kernel.access())
}

/// The completion flags at the initiator of an operation of this family.
#[inline]
const fn completion_flags(family: Family) -> CompletionFlags {
    let direction = match family {
        Family::Base => CompletionFlags::WRITE,
        Family::Fetch | Family::Compare => CompletionFlags::READ,
    };
    CompletionFlags::ATOMIC.union(direction)
}
