//! The operations of a target. A campaign kills or stops the target at each instruction of an
//! operation.

use selvedge::wait;

use crate::campaign::endpoint::{Access, Kind, MemoryKind};

/// One operation of the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its name on the command line and in reports.
    pub(crate) name: &'static str,
    /// The action.
    pub(crate) action: Action,
    /// The protocol of large messages: `FI_SHM_PROTOCOL` of both sides.
    pub(crate) protocol: &'static str,
    /// Whether large messages and registered memory of both sides lie in the shared heap.
    pub(crate) is_on_heap: bool,
}

/// The target's action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Opens an endpoint.
    Open,
    /// Sends the first message to a peer: connects, sends a hello message, and sends.
    Connect,
    /// Receives the first message of a peer: accepts the connection, responds to the hello message,
    /// and receives.
    Accept,
    /// Sends a message, and waits for its completion if it has one.
    Send(Kind, usize),
    /// Sends a message of this length from the shared heap, and forks before its completion.
    SendAndFork(usize),
    /// Sends a message of this length from the shared heap, and overwrites its memory, which is
    /// free after its completion.
    SendAndFree(usize),
    /// Receives a message that has arrived.
    Receive(Kind, usize),
    /// Accesses the partner's memory; the number is the length in bytes.
    Access(Access, MemoryKind, usize),
    /// Makes progress while the partner accesses the target's memory; the number is the length in
    /// bytes.
    Serve(Access, usize),
    /// Sends a message to a parked partner.
    Wake,
    /// Parks.
    Park,
    /// Closes the endpoint, with operations outstanding; the number is the length of their message.
    /// If it was in the shared heap, its memory is overwritten then.
    Close(usize),
}

/// Every operation.
pub(crate) const OPERATIONS: [Operation; 40] = [
    auto("open", Action::Open),
    auto("connect", Action::Connect),
    auto("be-connected", Action::Accept),
    auto("send-inline", Action::Send(Kind::Tagged, 8)),
    auto("send-untagged", Action::Send(Kind::Msg, 40)),
    auto("send-injected", Action::Send(Kind::TaggedInject, 8)),
    auto("send-pool", Action::Send(Kind::Tagged, 1000)),
    auto("send-confirmed", Action::Send(Kind::Delivered, 8)),
    with_protocol("send-cma", Action::Send(Kind::Tagged, 50_000), "cma"),
    with_protocol("send-bounce", Action::Send(Kind::Tagged, 5000), "bounce"),
    auto("send-lent", Action::Send(Kind::Lent, 50_000)),
    auto("receive-lent", Action::Receive(Kind::Lent, 50_000)),
    auto("receive-inline", Action::Receive(Kind::Tagged, 8)),
    auto("receive-pool", Action::Receive(Kind::Delivered, 1000)),
    with_protocol("receive-cma", Action::Receive(Kind::Tagged, 50_000), "cma"),
    with_protocol(
        "receive-bounce",
        Action::Receive(Kind::Tagged, 5000),
        "bounce",
    ),
    auto(
        "write-inline",
        Action::Access(Access::Write, MemoryKind::Ordinary, 8),
    ),
    auto(
        "write-pool",
        Action::Access(Access::Write, MemoryKind::Ordinary, 1000),
    ),
    with_protocol(
        "write-cma",
        Action::Access(Access::Write, MemoryKind::Ordinary, 50_000),
        "cma",
    ),
    with_protocol(
        "write-bounce",
        Action::Access(Access::Write, MemoryKind::Ordinary, 5000),
        "bounce",
    ),
    with_protocol(
        "read-cma",
        Action::Access(Access::Read, MemoryKind::Ordinary, 50_000),
        "cma",
    ),
    with_protocol(
        "read-bounce",
        Action::Access(Access::Read, MemoryKind::Ordinary, 5000),
        "bounce",
    ),
    auto(
        "atomic",
        Action::Access(Access::Add, MemoryKind::Ordinary, 8),
    ),
    auto(
        "put",
        Action::Access(Access::Write, MemoryKind::Special, 5000),
    ),
    auto(
        "get",
        Action::Access(Access::Read, MemoryKind::Special, 5000),
    ),
    auto(
        "atomic-special",
        Action::Access(Access::Add, MemoryKind::Special, 8),
    ),
    with_protocol("be-written", Action::Serve(Access::Write, 50_000), "cma"),
    with_protocol("be-read", Action::Serve(Access::Read, 5000), "bounce"),
    auto("be-changed", Action::Serve(Access::Add, 8)),
    on_heap("send-heap", Action::Send(Kind::Tagged, 100_000)),
    on_heap("send-heap-fork", Action::SendAndFork(100_000)),
    on_heap("send-heap-free", Action::SendAndFree(100_000)),
    // The partner copies for longer than the target takes to close.
    on_heap("close-heap", Action::Close(4 << 20)),
    on_heap("receive-heap", Action::Receive(Kind::Tagged, 100_000)),
    on_heap(
        "write-heap",
        Action::Access(Access::Write, MemoryKind::Ordinary, 65_536),
    ),
    on_heap(
        "read-heap",
        Action::Access(Access::Read, MemoryKind::Ordinary, 65_536),
    ),
    on_heap("be-read-heap", Action::Serve(Access::Read, 65_536)),
    auto("wake", Action::Wake),
    auto("park", Action::Park),
    auto("close", Action::Close(100_000)),
];

const fn auto(name: &'static str, action: Action) -> Operation {
    with_protocol(name, action, "auto")
}

const fn with_protocol(name: &'static str, action: Action, protocol: &'static str) -> Operation {
    Operation {
        name,
        action,
        protocol,
        is_on_heap: false,
    }
}

const fn on_heap(name: &'static str, action: Action) -> Operation {
    Operation {
        is_on_heap: true,
        ..auto(name, action)
    }
}

impl Operation {
    /// The operation of this name.
    pub(crate) fn by_name(name: &str) -> Option<&'static Self> {
        OPERATIONS.iter().find(|operation| operation.name == name)
    }

    /// Parameters of both endpoints.
    pub(crate) fn params(&self) -> [(&'static str, &'static str); 3] {
        [
            ("FI_SHM_PROTOCOL", self.protocol),
            ("FI_SHM_SEGMENT_SIZE", "4k"),
            ("FI_SHM_PEER_TIMEOUT", "50s"),
        ]
    }

    /// Returns whether the target and its partner are connected before the operation.
    pub(crate) fn is_connected(&self) -> bool {
        !matches!(self.action, Action::Open | Action::Connect | Action::Accept)
    }

    /// The kind and length of the message that the target sends in the operation, if any.
    pub(crate) fn sends(&self) -> Option<(Kind, usize)> {
        match self.action {
            Action::Connect | Action::Wake => Some((Kind::Tagged, 8)),
            Action::Send(kind, len) => Some((kind, len)),
            Action::SendAndFork(len) | Action::SendAndFree(len) => Some((Kind::Tagged, len)),
            _ => None,
        }
    }

    /// The kind and length of the message that the partner sends in the operation, if any.
    pub(crate) fn receives(&self) -> Option<(Kind, usize)> {
        match self.action {
            Action::Accept | Action::Serve(..) => Some((Kind::Delivered, 8)),
            Action::Receive(kind, len) => Some((kind, len)),
            _ => None,
        }
    }

    /// The length of the longest message of the target.
    pub(crate) fn longest_message(&self) -> usize {
        match self.action {
            Action::Close(len) => len,
            _ => self.sends().map_or(0, |(_, len)| len).max(8),
        }
    }

    /// Returns whether the target's operation ends without progress of its partner.
    pub(crate) fn needs_no_partner(&self) -> bool {
        let needs = |(kind, len)| matches!(kind, Kind::Delivered | Kind::Lent) || len > 4096;
        match self.action {
            Action::Access(_, MemoryKind::Special, _) => true,
            Action::Access(Access::Write, _, len) => len <= 4096,
            Action::Access(Access::Read, ..) => self.protocol == "cma",
            Action::Access(Access::Add, ..) => false,
            _ => self.receives().is_none() && !self.sends().is_some_and(needs),
        }
    }

    /// Returns whether the operation's message is lent.
    pub(crate) fn lends(&self) -> bool {
        let mut messages = self.sends().into_iter().chain(self.receives());
        messages.any(|(kind, _)| kind == Kind::Lent)
    }

    /// How much longer the operation takes than most others.
    pub(crate) fn slowness(&self) -> u64 {
        match self.action {
            Action::SendAndFork(_) | Action::SendAndFree(_) => 10,
            Action::Close(_) if self.is_on_heap => 10,
            _ => 1,
        }
    }

    /// The wait object of the target's queue.
    pub(crate) fn target_wait_object(&self) -> wait::Object {
        match self.action {
            Action::Park => wait::Object::Fd,
            _ => wait::Object::None,
        }
    }

    /// The wait object of the partner's queue.
    pub(crate) fn partner_wait_object(&self) -> wait::Object {
        match self.action {
            Action::Wake => wait::Object::Fd,
            _ => wait::Object::None,
        }
    }
}

/// The numbers of the messages between one incarnation of the target and its partner.
pub(crate) mod number {
    /// The first message when connecting, in either direction.
    pub(crate) const CONNECT: u32 = 0;
    /// The operation's own message, in either direction.
    pub(crate) const OPERATION: u32 = 1;
    /// The last message of a target that runs to its end.
    pub(crate) const LAST: u32 = 1 << 16;
    /// The partner's message, which only a target that runs to its end receives.
    pub(crate) const FROM_PARTNER: u32 = 2 << 16;
}
