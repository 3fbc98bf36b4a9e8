//! What stands where in a page: words of 64 bits, in groups that fill whole cache lines.

/// The first word of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SLVSIGHT");
/// Changes with the meaning of any word.
pub const VERSION: u64 = 1;
/// Words of a page.
pub const WORDS: usize = 1024;
/// What the memory file is called.
pub const FILE: &str = "selvedge-sight";

pub(super) const AT_MAGIC: usize = 0;
pub(super) const AT_VERSION: usize = 1;
pub(super) const AT_PID: usize = 2;
/// When the endpoint was opened, on the system's monotonic clock, in nanoseconds.
pub(super) const AT_OPENED: usize = 3;
pub(super) const AT_PROVIDER: usize = 6;
pub(super) const PROVIDER_WORDS: usize = 2;
pub(super) const AT_NAME: usize = 8;
pub(super) const NAME_WORDS: usize = 16;
/// Pairs of a number of operations and their bytes.
pub(super) const AT_TALLIES: usize = 24;
/// Likewise, of messages by the way they took.
pub(super) const AT_WAYS: usize = 48;
/// Odd while what follows is being written.
pub(super) const AT_SEQ: usize = 72;
/// When the endpoint last looked after itself.
pub(super) const AT_LOOKED: usize = 73;
pub(super) const AT_GAUGES: usize = 74;
pub(super) const GAUGES: usize = 14;
pub(super) const AT_WAITS: usize = 88;
pub(super) const WAITS: usize = 8;
pub(super) const WAIT_WORDS: usize = 5;
pub(super) const AT_KEPT: usize = 128;
pub(super) const KEPT: usize = 8;
pub(super) const KEPT_WORDS: usize = 4;
pub(super) const AT_PEERS: usize = 160;
/// Peers that have a place in the page.
pub const PEERS: usize = 24;
pub(super) const PEER_WORDS: usize = 16;
pub(super) const PEER_NAME: usize = 8;
/// Events so far; what follows holds the last of them.
pub(super) const AT_EVENT_COUNT: usize = AT_PEERS + PEERS * PEER_WORDS;
pub(super) const AT_EVENTS: usize = AT_EVENT_COUNT + 8;
pub(super) const EVENT_WORDS: usize = 8;
pub(super) const EVENT_TEXT: usize = 3;
/// Events that a page holds.
pub const EVENTS: usize = (WORDS - AT_EVENTS) / EVENT_WORDS;

const _: () = assert!(AT_TALLIES + 2 * Tally::ALL.len() <= AT_WAYS);
const _: () = assert!(AT_WAYS + 2 * Way::ALL.len() <= AT_SEQ);
const _: () = assert!(AT_GAUGES + GAUGES <= AT_WAITS);
const _: () = assert!(AT_WAITS + WAITS * WAIT_WORDS <= AT_KEPT);
const _: () = assert!(AT_KEPT + KEPT * KEPT_WORDS <= AT_PEERS);
const _: () = assert!(AT_EVENTS.is_multiple_of(8) && EVENTS >= 32);

/// What an endpoint counts: operations, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Tally {
    /// Messages of ours that are complete.
    Sent,
    /// Own operations that failed.
    SendErrors,
    /// Reads of peers' memory.
    Read,
    /// Writes of peers' memory, and atomics.
    Written,
    /// Messages that were received; those in our own cache line.
    Received = 4,
    /// Receives that failed.
    ReceiveErrors,
    /// What peers have read here.
    PeerRead,
    /// What peers have written here.
    PeerWritten,
}

impl Tally {
    /// All of them, in their order.
    pub const ALL: [Self; 8] = [
        Self::Sent,
        Self::SendErrors,
        Self::Read,
        Self::Written,
        Self::Received,
        Self::ReceiveErrors,
        Self::PeerRead,
        Self::PeerWritten,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::SendErrors => "send_errors",
            Self::Read => "read",
            Self::Written => "written",
            Self::Received => "received",
            Self::ReceiveErrors => "receive_errors",
            Self::PeerRead => "peer_read",
            Self::PeerWritten => "peer_written",
        }
    }
}

/// A way that messages take. Those that are counted under none went the provider's plain way: inside
/// the command, through a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    /// Through a pool of payloads.
    SentInject,
    /// Copied by the receiver out of our memory.
    SentCma,
    /// Through segments of shared memory, copied twice.
    SentBounce,
    /// Copied by the receiver out of memory that it has mapped.
    SentDirect,
    /// Out of a pool of payloads.
    ReceivedInject,
    /// Copied out of the sender's memory.
    ReceivedCma,
    /// Out of segments.
    ReceivedBounce,
    /// Copied out of memory of the sender that is mapped here.
    ReceivedDirect,
    /// Kept until a receive was posted.
    ReceivedLate,
}

impl Way {
    /// All of them, in their order.
    pub const ALL: [Self; 9] = [
        Self::SentInject,
        Self::SentCma,
        Self::SentBounce,
        Self::SentDirect,
        Self::ReceivedInject,
        Self::ReceivedCma,
        Self::ReceivedBounce,
        Self::ReceivedDirect,
        Self::ReceivedLate,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SentInject | Self::ReceivedInject => "inject",
            Self::SentCma | Self::ReceivedCma => "cma",
            Self::SentBounce | Self::ReceivedBounce => "bounce",
            Self::SentDirect | Self::ReceivedDirect => "direct",
            Self::ReceivedLate => "unexpected",
        }
    }

    /// Whether messages of ours take it.
    pub const fn is_sent(self) -> bool {
        (self as usize) < Self::ReceivedInject as usize
    }
}

/// How far an endpoint is with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// It was named, and nothing was sent.
    Idle,
    /// Nobody has its name, or takes its connection, yet.
    Awaited,
    /// The two have not finished greeting each other.
    Greeting,
    /// It can be talked to.
    Up,
    /// It is gone, and there was no room yet for all that it had sent.
    Ending,
    /// It is gone.
    Gone,
}

impl PeerState {
    pub(super) const ALL: [Self; 6] = [
        Self::Idle,
        Self::Awaited,
        Self::Greeting,
        Self::Up,
        Self::Ending,
        Self::Gone,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Awaited => "awaited",
            Self::Greeting => "greeting",
            Self::Up => "up",
            Self::Ending => "ending",
            Self::Gone => "gone",
        }
    }
}
