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

/// Capabilities that are given only to an application that asks for them. For the first three it has
/// to be prepared: one turns messages into errors, one forbids receives from any peer, and one takes
/// a bit of the tag. The other two are newer than most applications, and those that hold an answer
/// against the capabilities that they know take them for an error.
const ASKED_ONLY: Caps = Caps::SOURCE_ERR
    .union(Caps::EXACT_DIRECTED_RECV)
    .union(Caps::COLLECTIVE)
    .union(Caps::TAGGED_DIRECTED_RECV)
    .union(Caps::TAGGED_MULTI_RECV);

/// What is given: what is meant, and whatever costs nothing. [`Caps::SOURCE`] costs a lookup for
/// each message, so it counts as asked for only; so do [`ASKED_ONLY`], even where nothing is asked
/// for. Asking for no kind of transfer asks for all.
pub(super) fn granted(asked: Caps, has: Caps) -> Caps {
    if asked.is_empty() {
        return has & !ASKED_ONLY;
    }
    let kinds = if asked.intersects(KINDS) {
        Caps::empty()
    } else {
        has & KINDS & !ASKED_ONLY
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
    has & Caps::SECONDARY & !(Caps::SOURCE | ASKED_ONLY)
}
