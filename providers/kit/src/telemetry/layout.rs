//! The layout of telemetry pages: words of 64 bits, in groups that fill whole cache lines.

/// The version of the layout. It changes with the meaning of any word.
pub const VERSION: u64 = 3;
/// Words of a statistics page.
pub const WORDS: usize = 1024;
/// The name of the memory file of every page.
pub const MEMFD_NAME: &str = "selvedge-sight";

/// The kinds of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Counters, snapshot and events of an endpoint.
    Stats,
    /// Durations of its operations.
    Latency,
    /// Its last calls.
    Calls,
    /// Its collectives.
    Groups,
}

impl PageKind {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Stats, Self::Latency, Self::Calls, Self::Groups];

    /// The first word of a page of this kind.
    pub const fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Self::Stats => *b"SLVSIGHT",
            Self::Latency => *b"SLVTIMES",
            Self::Calls => *b"SLVCALLS",
            Self::Groups => *b"SLVGROUP",
        })
    }

    /// The number of words of a page of this kind.
    pub const fn words(self) -> usize {
        match self {
            Self::Stats => WORDS,
            Self::Latency => LATENCY_WORDS,
            Self::Calls => CALLS_WORDS,
            Self::Groups => GROUPS_WORDS,
        }
    }
}

pub(super) const AT_MAGIC: usize = 0;
pub(super) const AT_VERSION: usize = 1;
pub(super) const AT_PID: usize = 2;
/// When the endpoint was opened, on the system's monotonic clock, in nanoseconds.
pub(super) const AT_OPENED: usize = 3;
pub(super) const AT_PROVIDER: usize = 6;
pub(super) const PROVIDER_WORDS: usize = 2;
pub(super) const AT_NAME: usize = 8;
pub(super) const NAME_WORDS: usize = 16;
/// Words of the header of every page.
pub(super) const HEADER_WORDS: usize = 24;
/// A pair of words for each [`OpCounter`]: the number of operations, and their bytes.
pub(super) const AT_OP_COUNTERS: usize = HEADER_WORDS;
/// A pair of words for each [`ProtocolCounter`]: the number of messages, and their bytes.
pub(super) const AT_PROTOCOL_COUNTERS: usize = 48;
/// The sequence lock of the snapshot, the words from here to the events: odd during a write.
pub(super) const AT_SEQ: usize = 72;
/// When the endpoint wrote the last snapshot.
pub(super) const AT_SNAPSHOT_TIME: usize = 73;
pub(super) const AT_GAUGES: usize = 74;
pub(super) const GAUGES: usize = 14;
pub(super) const AT_POSTED: usize = 88;
/// Posted receives that a page has room for.
pub const MAX_POSTED: usize = 8;
pub(super) const POSTED_WORDS: usize = 5;
pub(super) const AT_UNEXPECTED: usize = 128;
pub(super) const MAX_UNEXPECTED: usize = 8;
pub(super) const UNEXPECTED_WORDS: usize = 4;
pub(super) const AT_PEERS: usize = 160;
/// Peers that a page has room for.
pub const MAX_PEERS: usize = 24;
pub(super) const PEER_WORDS: usize = 16;
pub(super) const PEER_NAME: usize = 8;
/// The number of events so far. The last [`EVENTS`] of them are at [`AT_EVENTS`].
pub(super) const AT_EVENT_COUNT: usize = AT_PEERS + MAX_PEERS * PEER_WORDS;
pub(super) const AT_EVENTS: usize = AT_EVENT_COUNT + 8;
pub(super) const EVENT_WORDS: usize = 8;
pub(super) const EVENT_TEXT: usize = 3;
/// Events that a page holds.
pub const EVENTS: usize = (WORDS - AT_EVENTS) / EVENT_WORDS;

const _: () = assert!(AT_OP_COUNTERS + 2 * OpCounter::ALL.len() <= AT_PROTOCOL_COUNTERS);
const _: () = assert!(AT_PROTOCOL_COUNTERS + 2 * ProtocolCounter::ALL.len() <= AT_SEQ);
const _: () = assert!(AT_GAUGES + GAUGES <= AT_POSTED);
const _: () = assert!(AT_POSTED + MAX_POSTED * POSTED_WORDS <= AT_UNEXPECTED);
const _: () = assert!(AT_UNEXPECTED + MAX_UNEXPECTED * UNEXPECTED_WORDS <= AT_PEERS);
const _: () = assert!(AT_EVENTS.is_multiple_of(8) && EVENTS >= 32);

/// Words of a page of latencies.
pub const LATENCY_WORDS: usize = AT_HISTOGRAMS + TimedOp::ALL.len() * SIZES * HISTOGRAM_WORDS;
pub(super) const AT_HISTOGRAMS: usize = 32;
/// The number of size classes: 0 bytes, 1 byte, 2 and 3, 4 to 7, and so on.
pub const SIZES: usize = 28;
/// Words of a histogram: the total time, the longest time, and the number of operations in each
/// bucket.
pub(super) const HISTOGRAM_WORDS: usize = 128;
pub(super) const HISTOGRAM_TOTAL: usize = 0;
pub(super) const HISTOGRAM_LONGEST: usize = 1;
pub(super) const HISTOGRAM_BUCKETS: usize = 4;
/// Buckets of a histogram. Four of them cover a doubling of the time.
pub const BUCKETS: usize = HISTOGRAM_WORDS - HISTOGRAM_BUCKETS;

/// Words of a page of calls.
pub const CALLS_WORDS: usize = AT_CALLS + CALLS * CALL_WORDS;
/// The number of calls so far.
pub(super) const AT_CALL_COUNT: usize = HEADER_WORDS;
pub(super) const AT_CALLS: usize = 32;
/// Calls that a page holds.
pub const CALLS: usize = 1000;
pub(super) const CALL_WORDS: usize = 16;

/// Words of a page of groups.
pub const GROUPS_WORDS: usize = 512;
/// The sequence lock of the pending collectives: odd during a write.
pub(super) const AT_GROUP_SEQ: usize = HEADER_WORDS;
pub(super) const AT_GROUPS: usize = 32;
/// Groups that a page has room for.
pub const GROUPS: usize = 16;
pub(super) const GROUP_WORDS: usize = 4;
pub(super) const AT_GROUP_PENDING: usize = AT_GROUPS + GROUPS * GROUP_WORDS;
/// Pending collectives and joins that a page has room for.
pub(super) const MAX_PENDING: usize = 8;
/// Members that a page names for each of them, of those that it waits for.
pub(super) const MAX_AWAITED: usize = 4;
pub(super) const AWAITED_MEMBER_WORDS: usize = 8;
pub(super) const GROUP_PENDING_HEADER: usize = 8;
pub(super) const GROUP_PENDING_WORDS: usize =
    GROUP_PENDING_HEADER + MAX_AWAITED * AWAITED_MEMBER_WORDS;
const _: () = assert!(AT_GROUP_PENDING + MAX_PENDING * GROUP_PENDING_WORDS <= GROUPS_WORDS);

/// Counters of operations, and of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpCounter {
    /// Sent messages that are complete.
    Sent,
    /// Operations of this endpoint that failed.
    SendErrors,
    /// Reads of peers' memory.
    Read,
    /// Writes of peers' memory, and atomics.
    Written,
    /// Received messages; the receive counters have a cache line of their own.
    Received = 4,
    /// Receives that failed.
    ReceiveErrors,
    /// Reads of this endpoint's memory by peers.
    PeerRead,
    /// Writes to this endpoint's memory by peers.
    PeerWritten,
}

impl OpCounter {
    /// All variants, in the order of their numbers.
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

    /// The name in reports.
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

/// The kinds of operations that have a latency histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum TimedOp {
    /// Sends. The time of this and the following kinds runs from the post until the application
    /// reads the completion.
    Send,
    /// Tagged sends.
    TaggedSend,
    /// Receives. The time includes the wait for the message.
    Receive,
    /// Tagged receives.
    TaggedReceive,
    /// Reads of peers' memory.
    Read,
    /// Writes of peers' memory.
    Write,
    /// Atomics.
    Atomic,
    /// Collectives.
    Collective,
    /// Operations without a completion (fi_inject(3)). The time is that of the call alone.
    Inject,
}

impl TimedOp {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Send,
        Self::TaggedSend,
        Self::Receive,
        Self::TaggedReceive,
        Self::Read,
        Self::Write,
        Self::Atomic,
        Self::Collective,
        Self::Inject,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::TaggedSend => "tsend",
            Self::Receive => "recv",
            Self::TaggedReceive => "trecv",
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
            Self::Collective => "collective",
            Self::Inject => "inject",
        }
    }
}

/// Counters of messages by the protocol that carried them. No counter counts the messages by the
/// provider's default protocol: inside the command, or through a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ProtocolCounter {
    /// Sent through a pool of payloads.
    SentInject,
    /// Sent by cross-memory attach: the receiver copies out of the sender's memory.
    SentCma,
    /// Sent through bounce buffers in shared memory, copied twice.
    SentBounce,
    /// Sent from memory that the receiver has mapped and copies from.
    SentDirect,
    /// Lent: the receiver read the sender's memory and gave it back.
    SentLent,
    /// Received from a pool of payloads.
    ReceivedInject,
    /// Received by cross-memory attach: copied out of the sender's memory.
    ReceivedCma,
    /// Received through bounce buffers.
    ReceivedBounce,
    /// Received from memory of the sender that this process has mapped.
    ReceivedDirect,
    /// Received by reference.
    ReceivedLent,
    /// Stored until a receive was posted.
    ReceivedLate,
}

impl ProtocolCounter {
    /// All variants, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::SentInject,
        Self::SentCma,
        Self::SentBounce,
        Self::SentDirect,
        Self::SentLent,
        Self::ReceivedInject,
        Self::ReceivedCma,
        Self::ReceivedBounce,
        Self::ReceivedDirect,
        Self::ReceivedLent,
        Self::ReceivedLate,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SentInject | Self::ReceivedInject => "inject",
            Self::SentCma | Self::ReceivedCma => "cma",
            Self::SentBounce | Self::ReceivedBounce => "bounce",
            Self::SentDirect | Self::ReceivedDirect => "direct",
            Self::SentLent | Self::ReceivedLent => "lent",
            Self::ReceivedLate => "unexpected",
        }
    }

    /// Whether it counts sent messages.
    pub const fn is_sent(self) -> bool {
        (self as usize) < Self::ReceivedInject as usize
    }
}

/// The state of the connection to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The address vector has the peer, and nothing was sent.
    Idle,
    /// No endpoint has the peer's name yet, or the peer's host has not accepted the connection yet.
    Connecting,
    /// The handshake is not complete.
    Handshaking,
    /// The connection is established.
    Connected,
    /// The peer has ended, and messages that it sent are still being processed.
    Draining,
    /// The peer has ended.
    Disconnected,
}

impl PeerState {
    pub(super) const ALL: [Self; 6] = [
        Self::Idle,
        Self::Connecting,
        Self::Handshaking,
        Self::Connected,
        Self::Draining,
        Self::Disconnected,
    ];

    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "awaited",
            Self::Handshaking => "greeting",
            Self::Connected => "up",
            Self::Draining => "ending",
            Self::Disconnected => "gone",
        }
    }
}
