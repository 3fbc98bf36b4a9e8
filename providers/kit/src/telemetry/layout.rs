//! What stands where in a sheet: words of 64 bits, in groups that fill whole cache lines.

/// Changes with the meaning of any word.
pub const VERSION: u64 = 2;
/// Words of a page.
pub const WORDS: usize = 1024;
/// What the memory files are called.
pub const MEMFD_NAME: &str = "selvedge-sight";

/// What a sheet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// What an endpoint counts, and how it stands: its page.
    Stats,
    /// How long its operations took.
    Latency,
    /// Its last calls.
    Calls,
    /// Its collectives.
    Groups,
}

impl PageKind {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::Stats, Self::Latency, Self::Calls, Self::Groups];

    /// The first word of a sheet.
    pub const fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Self::Stats => *b"SLVSIGHT",
            Self::Latency => *b"SLVTIMES",
            Self::Calls => *b"SLVCALLS",
            Self::Groups => *b"SLVGROUP",
        })
    }

    /// How many words there are.
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
/// What every sheet begins with.
pub(super) const HEADER_WORDS: usize = 24;
/// Pairs of a number of operations and their bytes.
pub(super) const AT_OP_COUNTERS: usize = HEADER_WORDS;
/// Likewise, of messages by the way they took.
pub(super) const AT_PROTOCOL_COUNTERS: usize = 48;
/// Odd while what follows is being written.
pub(super) const AT_SEQ: usize = 72;
/// When the endpoint last looked after itself.
pub(super) const AT_SNAPSHOT_TIME: usize = 73;
pub(super) const AT_GAUGES: usize = 74;
pub(super) const GAUGES: usize = 14;
pub(super) const AT_POSTED: usize = 88;
/// Receives that are named.
pub const MAX_POSTED: usize = 8;
pub(super) const POSTED_WORDS: usize = 5;
pub(super) const AT_UNEXPECTED: usize = 128;
pub(super) const MAX_UNEXPECTED: usize = 8;
pub(super) const UNEXPECTED_WORDS: usize = 4;
pub(super) const AT_PEERS: usize = 160;
/// Peers that have a place in the page.
pub const MAX_PEERS: usize = 24;
pub(super) const PEER_WORDS: usize = 16;
pub(super) const PEER_NAME: usize = 8;
/// Events so far; what follows holds the last of them.
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

/// Words of a sheet of latencies.
pub const LATENCY_WORDS: usize = AT_HISTOGRAMS + TimedOp::ALL.len() * SIZES * HISTOGRAM_WORDS;
pub(super) const AT_HISTOGRAMS: usize = 32;
/// Classes of sizes: none, one byte, two and three, four to seven ..
pub const SIZES: usize = 28;
/// All times together, the longest, and how many there were of each class.
pub(super) const HISTOGRAM_WORDS: usize = 128;
pub(super) const HISTOGRAM_TOTAL: usize = 0;
pub(super) const HISTOGRAM_LONGEST: usize = 1;
pub(super) const HISTOGRAM_BUCKETS: usize = 4;
/// Classes of times: a quarter of a doubling each.
pub const BUCKETS: usize = HISTOGRAM_WORDS - HISTOGRAM_BUCKETS;

/// Words of a sheet of calls.
pub const CALLS_WORDS: usize = AT_CALLS + CALLS * CALL_WORDS;
/// Calls so far.
pub(super) const AT_CALL_COUNT: usize = HEADER_WORDS;
pub(super) const AT_CALLS: usize = 32;
/// Calls that a sheet holds.
pub const CALLS: usize = 1000;
pub(super) const CALL_WORDS: usize = 16;

/// Words of a sheet of groups.
pub const GROUPS_WORDS: usize = 512;
/// Odd while what is waited for is being written.
pub(super) const AT_GROUP_SEQ: usize = HEADER_WORDS;
pub(super) const AT_GROUPS: usize = 32;
/// Groups that have a place in a sheet.
pub const GROUPS: usize = 16;
pub(super) const GROUP_WORDS: usize = 4;
pub(super) const AT_GROUP_PENDING: usize = AT_GROUPS + GROUPS * GROUP_WORDS;
/// Collectives and joins that are told of, each with some of the members that it waits for.
pub(super) const MAX_PENDING: usize = 8;
pub(super) const MAX_AWAITED: usize = 4;
pub(super) const AWAITED_MEMBER_WORDS: usize = 8;
pub(super) const GROUP_PENDING_HEADER: usize = 8;
pub(super) const GROUP_PENDING_WORDS: usize =
    GROUP_PENDING_HEADER + MAX_AWAITED * AWAITED_MEMBER_WORDS;
const _: () = assert!(AT_GROUP_PENDING + MAX_PENDING * GROUP_PENDING_WORDS <= GROUPS_WORDS);

/// What an endpoint counts: operations, and their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum OpCounter {
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

impl OpCounter {
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

/// Operations that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum TimedOp {
    /// Sends, from the post to the program's reading of the completion, as all that follows.
    Send,
    /// Tagged sends.
    TaggedSend,
    /// Receives: how long they waited for their message, too.
    Receive,
    /// Tagged receives.
    TaggedReceive,
    /// Reads of peers' memory.
    Read,
    /// Writes of it.
    Write,
    /// Atomics.
    Atomic,
    /// Collectives.
    Collective,
    /// What never completes (fi_inject(3)): the call alone.
    Inject,
}

impl TimedOp {
    /// All of them, in their order.
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

    /// What it is called.
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

/// A way that messages take. Those that are counted under none went the provider's plain way: inside
/// the command, through a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum ProtocolCounter {
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

impl ProtocolCounter {
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
    Connecting,
    /// The two have not finished greeting each other.
    Handshaking,
    /// It can be talked to.
    Connected,
    /// It is gone, and there was no room yet for all that it had sent.
    Draining,
    /// It is gone.
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

    /// What it is called.
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
