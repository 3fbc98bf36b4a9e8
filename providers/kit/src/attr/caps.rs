//! The capabilities that a request implies, and those that are granted.

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

/// Capabilities that are granted only to an application that requests them. An application has to
/// be prepared for the first three: [`Caps::SOURCE_ERR`] turns messages into errors,
/// [`Caps::EXACT_DIRECTED_RECV`] forbids receives from any peer, and [`Caps::COLLECTIVE`] takes a
/// bit of the tag. The other two are newer than most applications. An application that accepts only
/// capabilities of its own version would reject a result with them.
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

/// The capabilities that are granted to the endpoint because its transmit or receive attributes
/// request them.
pub(super) fn granted_for_part(asked: Caps, has: Caps) -> Caps {
    implied(asked) & has
}

/// The capabilities that are granted to the transmit or receive attributes: a subset of `whole`,
/// the endpoint's capabilities. A kind of transfer without a remaining direction is not granted.
pub(super) fn granted_to_part(asked: Caps, has: Caps, whole: Caps) -> Caps {
    let requested = if asked.is_empty() {
        has
    } else if asked.intersects(KINDS) {
        implied(asked) & has | free_of_cost(has)
    } else {
        (asked | (KINDS - Caps::COLLECTIVE)) & has | free_of_cost(has)
    };
    let mut caps = requested & whole;
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
