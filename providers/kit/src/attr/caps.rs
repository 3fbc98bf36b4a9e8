//! Which capabilities a request implies, and which are granted.

use selvedge::Caps;

const MESSAGES: Caps = Caps::MSG.union(Caps::TAGGED);
const MEMORY: Caps = Caps::RMA.union(Caps::ATOMIC);
const KINDS: Caps = MESSAGES
    .union(MEMORY)
    .union(Caps::MULTICAST)
    .union(Caps::COLLECTIVE);

const MESSAGE_DIRECTIONS: Caps = Caps::SEND.union(Caps::RECV);
const MEMORY_DIRECTIONS: Caps = Caps::READ
    .union(Caps::WRITE)
    .union(Caps::REMOTE_READ)
    .union(Caps::REMOTE_WRITE);

/// The capabilities that a request implies: a kind of transfer without a direction means all its
/// directions.
pub(super) fn implied(asked: Caps) -> Caps {
    let mut caps = asked;
    if asked.intersects(MESSAGES) && !asked.intersects(MESSAGE_DIRECTIONS) {
        caps |= MESSAGE_DIRECTIONS;
    }
    if asked.intersects(MEMORY) && !asked.intersects(MEMORY_DIRECTIONS) {
        caps |= MEMORY_DIRECTIONS;
    }
    caps
}

/// Capabilities that are granted only to an application that requests them. For the first three it
/// has to be prepared: one turns messages into errors, one forbids receives from any peer, and one
/// takes a bit of the tag. The other two are newer than most applications, and an application that
/// compares the result with the capabilities that it knows would reject it.
const ON_REQUEST_ONLY: Caps = Caps::SOURCE_ERR
    .union(Caps::EXACT_DIRECTED_RECV)
    .union(Caps::COLLECTIVE)
    .union(Caps::TAGGED_DIRECTED_RECV)
    .union(Caps::TAGGED_MULTI_RECV);

/// The granted capabilities: the implied ones, and those that cost nothing. [`Caps::SOURCE`] costs
/// a lookup for each message, so it is granted on request only; so are [`ON_REQUEST_ONLY`], even if
/// nothing is requested. A request without a kind of transfer means all kinds.
pub(super) fn granted(asked: Caps, has: Caps) -> Caps {
    if asked.is_empty() {
        return has & !ON_REQUEST_ONLY;
    }
    let kinds = if asked.intersects(KINDS) {
        Caps::empty()
    } else {
        has & KINDS & !ON_REQUEST_ONLY
    };
    implied(asked | kinds) & has | free_of_cost(has)
}

/// The capabilities that the whole has to be granted because a part requests them.
pub(super) fn granted_beside(asked: Caps, has: Caps) -> Caps {
    implied(asked) & has
}

/// The capabilities that are granted to the transmit or receive attributes, out of those of the
/// whole: no kind of transfer for which no direction is left.
pub(super) fn granted_part(asked: Caps, has: Caps, whole: Caps) -> Caps {
    let meant = if asked.is_empty() {
        has
    } else if asked.intersects(KINDS) {
        implied(asked) & has | free_of_cost(has)
    } else {
        (asked | (KINDS - Caps::COLLECTIVE)) & has | free_of_cost(has)
    };
    let mut caps = meant & whole;
    if !caps.intersects(MESSAGE_DIRECTIONS) {
        caps -= MESSAGES;
    }
    if !caps.intersects(MEMORY_DIRECTIONS) {
        caps -= MEMORY;
    }
    caps
}

fn free_of_cost(has: Caps) -> Caps {
    has & Caps::SECONDARY & !(Caps::SOURCE | ON_REQUEST_ONLY)
}
