//! The ways of a message: which one it takes, and each way with both its halves in one file.
//!
//! | way | for | who copies |
//! |---|---|---|
//! | [`inline`] | what fits the command | both |
//! | [`inject`] | up to `FI_SHM_INJECT_SIZE` | both, through the inject pool |
//! | [`iov`] | the rest | the receiver, out of the sender's memory: special memory that it has mapped, or by cross-memory attach |
//! | [`sar`] | the rest where that is slower or not allowed | both, through bounce segments |

pub(crate) mod cma;
pub(crate) mod cmd;
pub(crate) mod destination;
pub(crate) mod incoming;
pub(crate) mod inject;
pub(crate) mod inline;
pub(crate) mod iov;
pub(crate) mod protocol_selector;
pub(crate) mod sar;
pub(crate) mod send;
pub(crate) mod transfer;

use selvedge::OpFlags;

/// Answers to commands (`smr_resp.status`): what happened, in the lowest byte.
pub(crate) mod status {
    /// The message has been received.
    pub(crate) const DONE: u32 = 0;
    /// The message has been received through bounce segments.
    pub(crate) const BOUNCED: u32 = 1;
    /// The sender is to bounce the message.
    pub(crate) const BOUNCE: u32 = 2;
    /// `msg_id` is a segment that may be used again.
    pub(crate) const SEGMENT: u32 = 3;
    /// The message was not received; the error number is in the upper bits.
    pub(crate) const FAILED: u32 = 4;

    /// It was not received, and why.
    pub(crate) fn failed(errno: selvedge::Errno) -> u32 {
        FAILED | (errno.as_raw() as u32) << 8
    }
}

/// Operations that one peer may owe us an answer for. Each is answered twice at most, and every
/// segment is given back once: the response queue has room for all of that.
pub(crate) const MAX_OPS: usize = 128;

/// Flags that ask for more than the sender can know by itself.
pub(crate) const ACK_FLAGS: OpFlags = OpFlags::DELIVERY_COMPLETE.union(OpFlags::MATCH_COMPLETE);

/// What became of a message that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It no longer depends on the sender's memory.
    Done,
    /// The peer will answer.
    Pending,
}
