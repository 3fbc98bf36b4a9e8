//! The operations of an engine.

use crate::bell::BellName;
use crate::engine::parts::blocks::Block;
use crate::engine::parts::parcel::Bytes;
use crate::memory::local::Local;
use crate::net::recv::{Aligned, Payload};
use crate::net::wire::{Port, Source};

/// An operation that completes later.
#[derive(Debug)]
pub(crate) enum Op {
    Put(PutOp),
    PutReceive(PutReceive),
    Get(Get),
    Invoke(OutgoingInvocation),
    Fetch(Fetch),
    Flush { to: usize },
}

impl Op {
    /// Returns the remote context of the operation.
    pub(crate) fn peer(&self) -> usize {
        match self {
            Self::Put(op) => op.put.to,
            Self::PutReceive(op) => op.from,
            Self::Get(op) => op.target,
            Self::Invoke(op) => op.to,
            Self::Fetch(op) => op.from,
            Self::Flush { to } => *to,
        }
    }
}

/// An invocation of this context.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) from: usize,
    pub(crate) port: Port,
    pub(crate) payload: Payload,
}

/// The arguments of a put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) to: usize,
    pub(crate) remote: u64,
    pub(crate) local: Local,
    pub(crate) local_bell: BellName,
    pub(crate) remote_bell: BellName,
}

/// A put whose bytes the caller lends until they have been sent.
#[derive(Debug)]
pub(crate) struct PutOp {
    pub(crate) put: Put,
    pub(crate) protocol: PutProtocol,
}

/// Protocol and progress of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutProtocol {
    /// Rendezvous: the request was sent to the target.
    Requested,
    /// Rendezvous: the target has posted a receive.
    Sent,
    /// Written directly to special memory.
    Written(Block),
}

/// A receive that is posted for the bytes of a put.
#[derive(Debug)]
pub(crate) struct PutReceive {
    pub(crate) from: usize,
    /// The initiator's number of the put.
    pub(crate) token: u64,
    pub(crate) to: u64,
    pub(crate) len: u64,
    pub(crate) bell: BellName,
}

/// A pending get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Get {
    /// The context that owns the source.
    pub(crate) target: usize,
    /// Source of the bytes; the key is used for a direct read.
    pub(crate) source: Source,
    pub(crate) destination: Local,
    pub(crate) local_bell: BellName,
    pub(crate) remote_bell: BellName,
    /// Whether the read was posted.
    pub(crate) is_reading: bool,
}

/// The target of an invocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InvokeTarget {
    pub(crate) to: usize,
    pub(crate) port: Port,
    pub(crate) bell: BellName,
}

/// An outgoing invocation that its target fetches.
#[derive(Debug)]
pub(crate) struct OutgoingInvocation {
    pub(crate) to: usize,
    pub(crate) bytes: Bytes,
    pub(crate) bell: BellName,
}

/// An incoming invocation that is being fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: usize,
    pub(crate) source: Source,
    pub(crate) bytes: Aligned,
    pub(crate) port: Port,
    pub(crate) token: u64,
}
