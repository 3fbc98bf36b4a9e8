//! What a victim does when it dies or is stopped: one operation after the other, each through all
//! of its instructions.

use selvedge::wait;

use super::endpoint::{Access, Kind, Place};

/// One operation of the victim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its name on the command line and in reports.
    pub(crate) name: &'static str,
    /// What is done.
    pub(crate) act: Act,
    /// How large messages travel: `FI_SHM_PROTOCOL` of both ends.
    pub(crate) protocol: &'static str,
}

/// What is done, from the victim's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Open an endpoint.
    Open,
    /// Send the first message to somebody: connect, say hello, send.
    Meet,
    /// Be sent a first message: accept, answer the hello, receive.
    BeMet,
    /// Send a message, until its completion if it has one.
    Send(Kind, usize),
    /// Receive a message that is there.
    Receive(Kind, usize),
    /// Access so many bytes of the partner's memory.
    Access(Access, Place, usize),
    /// Be there while the partner accesses so many bytes of the victim's memory.
    Serve(Access, usize),
    /// Send a message to a partner that sleeps.
    Wake,
    /// Fall asleep.
    LieDown,
    /// Close the endpoint, with operations outstanding.
    Close,
}

/// Every operation.
pub(crate) const OPERATIONS: [Operation; 30] = [
    plain("open", Act::Open),
    plain("meet", Act::Meet),
    plain("be-met", Act::BeMet),
    plain("send-inline", Act::Send(Kind::Tagged, 8)),
    plain("send-untagged", Act::Send(Kind::Msg, 40)),
    plain("send-injected", Act::Send(Kind::TaggedInject, 8)),
    plain("send-pool", Act::Send(Kind::Tagged, 1000)),
    plain("send-confirmed", Act::Send(Kind::Delivered, 8)),
    large("send-cma", Act::Send(Kind::Tagged, 50_000), "cma"),
    large("send-bounce", Act::Send(Kind::Tagged, 5000), "bounce"),
    plain("receive-inline", Act::Receive(Kind::Tagged, 8)),
    plain("receive-pool", Act::Receive(Kind::Delivered, 1000)),
    large("receive-cma", Act::Receive(Kind::Tagged, 50_000), "cma"),
    large("receive-bounce", Act::Receive(Kind::Tagged, 5000), "bounce"),
    plain("write-inline", Act::Access(Access::Write, Place::Plain, 8)),
    plain("write-pool", Act::Access(Access::Write, Place::Plain, 1000)),
    large(
        "write-cma",
        Act::Access(Access::Write, Place::Plain, 50_000),
        "cma",
    ),
    large(
        "write-bounce",
        Act::Access(Access::Write, Place::Plain, 5000),
        "bounce",
    ),
    large(
        "read-cma",
        Act::Access(Access::Read, Place::Plain, 50_000),
        "cma",
    ),
    large(
        "read-bounce",
        Act::Access(Access::Read, Place::Plain, 5000),
        "bounce",
    ),
    plain("atomic", Act::Access(Access::Add, Place::Plain, 8)),
    plain("put", Act::Access(Access::Write, Place::Special, 5000)),
    plain("get", Act::Access(Access::Read, Place::Special, 5000)),
    plain(
        "atomic-special",
        Act::Access(Access::Add, Place::Special, 8),
    ),
    large("be-written", Act::Serve(Access::Write, 50_000), "cma"),
    large("be-read", Act::Serve(Access::Read, 5000), "bounce"),
    plain("be-changed", Act::Serve(Access::Add, 8)),
    plain("wake", Act::Wake),
    plain("lie-down", Act::LieDown),
    plain("close", Act::Close),
];

const fn plain(name: &'static str, act: Act) -> Operation {
    large(name, act, "auto")
}

const fn large(name: &'static str, act: Act, protocol: &'static str) -> Operation {
    Operation {
        name,
        act,
        protocol,
    }
}

impl Operation {
    /// The operation of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
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

    /// Whether victim and partner know each other before.
    pub(crate) fn is_acquainted(&self) -> bool {
        !matches!(self.act, Act::Open | Act::Meet | Act::BeMet)
    }

    /// What the victim sends, if it sends.
    pub(crate) fn sends(&self) -> Option<(Kind, usize)> {
        match self.act {
            Act::Meet | Act::Wake => Some((Kind::Tagged, 8)),
            Act::Send(kind, len) => Some((kind, len)),
            _ => None,
        }
    }

    /// What is sent to the victim, if something is.
    pub(crate) fn receives(&self) -> Option<(Kind, usize)> {
        match self.act {
            Act::BeMet | Act::Serve(..) => Some((Kind::Delivered, 8)),
            Act::Receive(kind, len) => Some((kind, len)),
            _ => None,
        }
    }

    /// Whether the victim's operation goes on without its partner.
    pub(crate) fn is_alone(&self) -> bool {
        let needs = |(kind, len)| kind == Kind::Delivered || len > 4096;
        match self.act {
            Act::Access(_, Place::Special, _) => true,
            Act::Access(Access::Write, _, len) => len <= 4096,
            Act::Access(Access::Read, ..) => self.protocol == "cma",
            Act::Access(Access::Add, ..) => false,
            _ => self.receives().is_none() && !self.sends().is_some_and(needs),
        }
    }

    /// How the victim's queue can be waited at.
    pub(crate) fn victim_waits(&self) -> wait::Object {
        match self.act {
            Act::LieDown => wait::Object::Fd,
            _ => wait::Object::None,
        }
    }

    /// How the partner's queue can be waited at.
    pub(crate) fn partner_waits(&self) -> wait::Object {
        match self.act {
            Act::Wake => wait::Object::Fd,
            _ => wait::Object::None,
        }
    }
}

/// The numbers of the messages of one life.
pub(crate) mod number {
    /// The first of an acquaintance, in either direction.
    pub(crate) const GREETING: u32 = 0;
    /// The operation's own, in either direction.
    pub(crate) const OWN: u32 = 1;
    /// The last one of a victim that goes on living.
    pub(crate) const LAST: u32 = 1 << 16;
    /// The partner's, which a victim receives only if it goes on living.
    pub(crate) const WITNESS: u32 = 2 << 16;
}
