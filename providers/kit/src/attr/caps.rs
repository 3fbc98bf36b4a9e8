//! Which capabilities are meant, and which are given.

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

/// What is meant: a kind of transfer without a direction means all of its directions.
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

/// Capabilities that a program has to be prepared for: one turns messages into errors, one forbids
/// receives from any peer, and one takes a bit of the tag.
const MANNERS: Caps = Caps::SOURCE_ERR
    .union(Caps::EXACT_DIRECTED_RECV)
    .union(Caps::COLLECTIVE);

/// What is given: what is meant, and whatever costs nothing. [`Caps::SOURCE`] costs a lookup for
/// each message, so it counts as asked for only; so do [`MANNERS`], even where nothing is asked
/// for. Asking for no kind of transfer asks for all.
pub(super) fn granted(asked: Caps, has: Caps) -> Caps {
    if asked.is_empty() {
        return has & !MANNERS;
    }
    let kinds = if asked.intersects(KINDS) {
        Caps::empty()
    } else {
        has & KINDS & !MANNERS
    };
    implied(asked | kinds) & has | free(has)
}

/// What the whole has to be given because a part of it asks for it.
pub(super) fn granted_beside(asked: Caps, has: Caps) -> Caps {
    implied(asked) & has
}

/// What is given to sending or receiving, out of what is given to the whole: no kind of transfer
/// for which no direction is left.
pub(super) fn granted_part(asked: Caps, has: Caps, whole: Caps) -> Caps {
    let meant = if asked.is_empty() {
        has
    } else if asked.intersects(KINDS) {
        implied(asked) & has | free(has)
    } else {
        (asked | (KINDS - Caps::COLLECTIVE)) & has | free(has)
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

fn free(has: Caps) -> Caps {
    has & Caps::SECONDARY & !(Caps::SOURCE | MANNERS)
}
