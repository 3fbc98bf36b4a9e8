//! The protocols of messages, and their selection. Each file has both halves of one protocol.
//!
//! | protocol | messages | copies |
//! |---|---|---|
//! | [`inline`] | payload fits the command | sender and receiver |
//! | [`inject`] | up to `FI_SHM_INJECT_SIZE` | sender and receiver, through the inject pool |
//! | [`iov`] | larger | receiver, from mapped special memory or by cross-memory attach |
//! | [`sar`] | larger, where [`iov`] is slower or denied | sender and receiver, in bounce segments |

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

/// The status of a response to a command (`smr_resp.status`). The lowest byte is the kind.
pub(crate) mod status {
    /// The receiver has the message.
    pub(crate) const DONE: u32 = 0;
    /// The receiver has the message, which it has received in bounce segments.
    pub(crate) const BOUNCED: u32 = 1;
    /// The receiver requests the message in bounce segments.
    pub(crate) const BOUNCE: u32 = 2;
    /// `msg_id` is a bounce segment that the receiver has freed.
    pub(crate) const SEGMENT: u32 = 3;
    /// The receive failed; the error number is in the upper bits.
    pub(crate) const FAILED: u32 = 4;

    /// The status of a failed receive.
    pub(crate) fn failed(errno: selvedge::Errno) -> u32 {
        FAILED | (errno.as_raw() as u32) << 8
    }
}

/// The maximum number of outstanding operations per peer. The peer responds to each operation twice
/// at most, and frees every bounce segment once: the response queue has room for all these
/// responses.
pub(crate) const MAX_OPS: usize = 128;

/// Completion levels that need an acknowledgement of the receiver.
pub(crate) const ACK_FLAGS: OpFlags = OpFlags::DELIVERY_COMPLETE.union(OpFlags::MATCH_COMPLETE);

/// The state of a message after its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The message no longer depends on the sender's memory.
    Done,
    /// The message completes with the peer's response.
    Pending,
}
