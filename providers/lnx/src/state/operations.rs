//! The operations of an endpoint that wait: for a link, for a response of a peer, or for a receive.

use selvedge::FiAddr;
use selvedge::cq::Entry;
use selvedge_kit::Report;
use selvedge_kit::copy::TxBuf;
use selvedge_kit::srx::{Envelope, Posted};

use crate::link::Frame;
use crate::wire::Header;

/// The cost of an unexpected message in addition to its bytes.
const ENTRY_COST: usize = 128;

/// A received frame, its length, and the sender's address index on the link.
pub(crate) type ReceivedFrame = (Frame, usize, FiAddr);

/// An operation on a link, with the memory that it uses.
#[derive(Debug)]
pub(crate) enum Op {
    /// The receive of a frame; the flag tells whether it is for control frames.
    Receive(Frame, bool),
    /// The send of a frame to a peer.
    Send(Frame, usize, AfterSend),
    /// The send of a large message's bytes.
    SendBody(TxBuf, usize, Report),
    /// The receive of a large message's bytes.
    ReceiveBody(Posted, Envelope),
    /// A one-sided operation on a peer's memory.
    OneSided(usize, Report),
    /// The receive that detects a peer's failure.
    Watch(usize),
}

impl Op {
    /// Whether the operation takes room of the link's transmit queue.
    pub(crate) fn is_transmit(&self) -> bool {
        matches!(
            self,
            Self::Send(..) | Self::SendBody(..) | Self::OneSided(..)
        )
    }
}

/// The action after a frame was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AfterSend {
    Nothing,
    Report(Report),
    /// Wait for the peer's response with this number.
    AwaitResponse(u64),
}

/// A send that waits for a response of its peer.
#[derive(Debug)]
pub(crate) struct PendingSend {
    pub(crate) number: u64,
    pub(crate) peer: usize,
    pub(crate) report: Report,
    /// The buffer of a large message, until the peer requests its bytes.
    pub(crate) buf: Option<TxBuf>,
}

/// Work that waits until a link, or the receive queue, has room.
#[derive(Debug)]
pub(crate) enum Deferred {
    Control(usize, Header),
    /// The link's tag, and the number of bytes.
    Body(PendingSend, u64, usize),
    FetchBody(Posted, Envelope, u64),
    Watch(usize),
    /// A completion of a link, with the sender's address index.
    Received(usize, Entry, FiAddr),
}

/// An unexpected message.
#[derive(Debug)]
pub(crate) enum Unexpected {
    /// The bytes, and the number of the acknowledgement that the sender waits for.
    Data(Vec<u8>, Option<u64>),
    /// The bytes are at the sender, under this number.
    AtSender(u64),
}

impl Unexpected {
    /// The bytes of memory that the message uses.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Data(bytes, _) => bytes.len() + ENTRY_COST,
            Self::AtSender(_) => ENTRY_COST,
        }
    }
}
