//! The layout of a region, byte by byte. docs/WIRE.md describes it in prose.
//!
//! ```text
//! byte 0      header: identity and offsets, written once before the region is shared
//!      128    credit line: the owner's cursors over the peer's region
//!      256    state line: whether the region is closed
//!      320    peer_addr: the peer's index in the owner's map, and the peer's name
//!      512    resp_queue: responses to the peer's commands
//!      ...    cmd_queue:  commands to the peer, one cache line each
//!      ...    collective channel: messages of collectives, one cache line each
//!      ...    inject_pool: payloads of the commands
//! ```
//!
//! The owner alone writes; the peer maps the region read-only. Cache lines that change are 128
//! bytes apart from each other, because processors fetch cache lines in pairs.

use super::queues::cmd_queue::SLOT_WORDS;

/// The first word of every region: "selvedge" in ASCII.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"selvedge");

/// The version of this layout and of the commands in it. Two versions never share memory.
pub const VERSION: u32 = 6;

/// Indices of the header's words.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    /// Lower half: version. Upper half: the owner's pid, for debugging.
    pub(crate) const VERSION: usize = 1;
    pub(crate) const TOTAL_SIZE: usize = 2;
    pub(crate) const RESP_OFFSET: usize = 3;
    pub(crate) const RESP_COUNT: usize = 4;
    pub(crate) const CMD_OFFSET: usize = 5;
    pub(crate) const CMD_COUNT: usize = 6;
    pub(crate) const INJECT_OFFSET: usize = 7;
    pub(crate) const INJECT_SIZE: usize = 8;
    /// The notifications that the owner requests: 1 for one-sided operations that the peer executes
    /// directly.
    pub(crate) const NOTIFY: usize = 9;
    /// Whether fences of other processes (`membarrier(2)`) also take effect on the owner's
    /// processors.
    pub(crate) const FENCED: usize = 10;
    /// The number of the peer's commands that the owner has consumed.
    pub(crate) const CREDIT: usize = 16;
    /// Whether the owner polls the peer's queue (1), needs the doorbell (0), or is parked.
    pub(crate) const POLL_STATE: usize = 17;
    /// Not zero once the owner has closed the region: memory that its commands name must not be
    /// used any more.
    pub(crate) const CLOSED: usize = 32;
    /// The number of messages in the peer's collective channel that the owner has consumed. This
    /// word is not in the cache line of the poll state, which the peer reads with each message.
    pub(crate) const COLL_CREDIT: usize = 56;
}

/// The number of bytes before the response queue.
pub(crate) const HEADER_SIZE: usize = 512;
/// Offset of the peer's index in the owner's map. The owner may change the index at any time.
pub(crate) const PEER_ADDR: usize = 320;
/// Offset of the peer's name, which is written once and zero-terminated.
pub(crate) const PEER_NAME: usize = PEER_ADDR + 8;
/// The index of a peer that is not in the map.
pub const UNSPEC: u64 = u64::MAX;
/// The longest name in bytes, without the terminating zero.
pub const NAME_MAX: usize = 88;
/// Bytes of one command slot.
pub(crate) const SLOT_SIZE: usize = SLOT_WORDS * 8;
/// The number of slots of the collective channel. They have the size of command slots.
pub(crate) const COLL_COUNT: usize = 32;
/// Bytes of one response.
pub(crate) const RESP_SIZE: usize = 16;

/// The sizes of a region, which determine its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of command slots; a power of two.
    pub cmd_count: usize,
    /// The number of responses; a power of two.
    pub resp_count: usize,
    /// The size of the inject pool in bytes; a multiple of 64.
    pub inject_size: usize,
}

impl Sizes {
    /// The largest region that is created or accepted, in bytes.
    pub const MAX_TOTAL: usize = 1 << 30;

    /// Whether every size is within the limits of a region.
    pub(crate) const fn are_sane(self) -> bool {
        self.cmd_count.is_power_of_two()
            && self.resp_count.is_power_of_two()
            && self.inject_size.is_multiple_of(64)
            && self.cmd_count <= 1 << 20
            && self.resp_count <= 1 << 20
            && self.inject_size <= Self::MAX_TOTAL / 2
    }

    /// Offset of the response queue.
    pub(crate) const fn resp_offset(self) -> usize {
        HEADER_SIZE
    }

    /// Offset of the command queue.
    pub(crate) const fn cmd_offset(self) -> usize {
        (self.resp_offset() + self.resp_count * RESP_SIZE).next_multiple_of(128)
    }

    /// Offset of the collective channel.
    pub(crate) const fn coll_offset(self) -> usize {
        (self.cmd_offset() + self.cmd_count * SLOT_SIZE).next_multiple_of(128)
    }

    /// Offset of the inject pool.
    pub(crate) const fn inject_offset(self) -> usize {
        (self.coll_offset() + COLL_COUNT * SLOT_SIZE).next_multiple_of(4096)
    }

    /// Total size in bytes.
    pub(crate) const fn total(self) -> usize {
        (self.inject_offset() + self.inject_size).next_multiple_of(4096)
    }
}

const _: () = assert!(word::CREDIT * 8 == 128 && word::CLOSED * 8 == 256);
const _: () = assert!(PEER_NAME + NAME_MAX < word::COLL_CREDIT * 8);
const _: () = assert!(word::COLL_CREDIT * 8 < HEADER_SIZE);
