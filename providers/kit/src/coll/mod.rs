//! Collectives over tagged messages, for every provider that has those: fi_collective(3).
//!
//! [`open`] puts a layer around a provider's endpoint, for applications that ask for
//! [`selvedge::Caps::COLLECTIVE`]; others never meet it. The layer's messages are the endpoint's own
//! tagged messages, with the tag's highest bit set. That bit is taken from the application: its
//! tags are refused with it, and receives that ignore it are posted without it. The other ways to
//! keep the two apart cost more: a second endpoint has an address that no peer knows, and a third
//! kind of message would be in every provider's matching and on its wire. It is what libfabric's
//! layers do, which makes the operations' flag the same, too: [`selvedge::OpFlags::PEER_TRANSFER`]
//! has an operation reported to the layer alone, in its [`LayerCompletions`], whatever queues and counters
//! the endpoint is bound to.
//!
//! What a member does in a collective is a [`plan`](self); the engine carries it out whenever the
//! endpoint's queues or counters are read. A member that is lost fails the receives that name it.
//! Whoever finds out breaks the group: its own collectives fail, and all members are told, who do
//! the same. A member hears it as soon as it has waited for a while for anybody; then it also asks
//! those that it waits for for a sign of life, because a provider notices the end of a peer that it
//! has no connection to only by sending.

mod channel;
mod completions;
mod endpoint;
mod engine;
mod fast_path;
mod group;
mod join;
mod members;
mod memory;
mod notification;
mod plan;
mod small_message;
mod tag;
mod telemetry;
mod wire;

use selvedge::collective::{Attr, Op, Query};
use selvedge::{Caps, Errno, atomic};

use crate::atomic::{Kernel, query as kernel_of};

pub use channel::{CollectiveChannel, CollectiveChannels, SMALL_MESSAGE_MAX, SmallMessage};
pub use completions::LayerCompletions;
pub use endpoint::{Inner, open};
pub use members::Members;

/// The most members of a group: their number is in the tag.
const MOST_MEMBERS: usize = u16::MAX as usize;

/// What is carried (fi_query_collective(3)).
///
/// # Errors
/// [`Errno::OpNotSupp`] for operations that are none on two values of equal standing;
/// [`Errno::Inval`] for a collective of data without a type, or a reduction without an operation.
pub fn query(query: &Query) -> Result<Attr, Errno> {
    let size = match (query.coll, query.datatype) {
        (Op::Barrier, _) => 1,
        (_, None) => return Err(Errno::Inval),
        (coll, Some(datatype)) if coll.reduces() => {
            let op = query.op.ok_or(Errno::Inval)?;
            reduction(datatype, op)?.size()
        }
        (_, Some(datatype)) => datatype.size(),
    };
    Ok(Attr {
        count: match query.coll {
            Op::Barrier => 0,
            _ => isize::MAX as usize / size / MOST_MEMBERS,
        },
        size,
        max_members: MOST_MEMBERS,
    })
}

/// What reduces elements: the operations of fi_atomic(3) for which it does not matter who is first.
///
/// # Errors
/// [`Errno::OpNotSupp`] for others, and what is not carried for the type.
fn reduction(datatype: atomic::Datatype, op: atomic::Op) -> Result<Kernel, Errno> {
    use atomic::Op::{Band, Bor, Bxor, Land, Lor, Lxor, Max, Min, Prod, Sum};
    match op {
        Min | Max | Sum | Prod | Lor | Land | Bor | Band | Lxor | Bxor => {
            kernel_of(atomic::Family::Base, datatype, op)
        }
        _ => Err(Errno::OpNotSupp),
    }
}

/// Adds collectives to what a provider offers, whose endpoints have tags and directed receives.
pub fn advertise(info: &mut selvedge::Info) {
    info.caps |= Caps::COLLECTIVE;
    info.tx_attr.caps |= Caps::COLLECTIVE;
    info.rx_attr.caps |= Caps::COLLECTIVE;
}

/// Takes the layer's bit out of the tags of an answer that has collectives.
pub fn reserve_tag_bit(mut info: selvedge::Info) -> selvedge::Info {
    let format = &mut info.ep_attr.mem_tag_format.0;
    if info.caps.contains(Caps::COLLECTIVE) && *format == 0 {
        *format = !tag::LAYER;
    }
    info
}
