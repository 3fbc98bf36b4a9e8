//! Collectives over tagged messages, for every provider with tagged messages and directed receives:
//! fi_collective(3).
//!
//! [`open`] puts a layer around a provider's endpoint if the application requests
//! [`selvedge::Caps::COLLECTIVE`]; other endpoints have no layer. The layer's messages are tagged
//! messages of the endpoint with the highest bit of the tag set. The layer takes that bit from the
//! application: it refuses tags with the bit, and posts receives that ignore the bit without it.
//! The alternatives cost more: a second endpoint has an address that no peer knows, and a third
//! kind of message would be in every provider's matching and wire format. libfabric's layers take a
//! bit as well. They also define the flag [`selvedge::OpFlags::PEER_TRANSFER`], with which a
//! provider reports an operation to the layer's [`LayerCompletions`] alone, and not to the
//! endpoint's queues and counters.
//!
//! A [`plan`](self) has the messages and calculations of one member. The engine executes plans when
//! the application reads the endpoint's queues or counters. If a member fails, the receives that
//! name it fail. The member that sees the failure breaks the group: its own collectives fail, and
//! it notifies all members, which do the same. A member posts the receive for this notification
//! only after its collective has waited for a while. The member then also pings the members that it
//! waits for, because a provider without a connection to a peer notices the peer's end only when it
//! sends.

mod channel;
mod completions;
mod endpoint;
mod engine;
mod fast_collective;
mod group;
mod members;
mod memory;
mod plan;
mod tag;
mod wire;

use selvedge::collective::{Attr, Op, Query};
use selvedge::{Caps, Errno, atomic};

use crate::atomic::{Kernel, query as kernel_of};

pub use channel::{CollectiveChannel, CollectiveChannels, SMALL_MESSAGE_MAX, SmallMessage};
pub use completions::LayerCompletions;
pub use endpoint::{InnerEndpoint, open};
pub use members::Members;

/// The error that has broken a group or failed a collective, with a description.
type Failure = (Errno, String);

/// The largest number of members of a group, which has 16 bits in the tag.
const MAX_MEMBERS: usize = u16::MAX as usize;

/// The collectives that the layer supports (fi_query_collective(3)).
///
/// # Errors
/// [`Errno::OpNotSupp`] for a reduction that is not commutative; [`Errno::Inval`] for a collective
/// of data without a type, or a reduction without an operation.
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
            _ => isize::MAX as usize / size / MAX_MEMBERS,
        },
        size,
        max_members: MAX_MEMBERS,
    })
}

/// The kernel of a reduction: the commutative operations of fi_atomic(3).
///
/// # Errors
/// [`Errno::OpNotSupp`] for other operations, and for operations that the type does not have.
fn reduction(datatype: atomic::Datatype, op: atomic::Op) -> Result<Kernel, Errno> {
    use atomic::Op::{Band, Bor, Bxor, Land, Lor, Lxor, Max, Min, Prod, Sum};
    match op {
        Min | Max | Sum | Prod | Lor | Land | Bor | Band | Lxor | Bxor => {
            kernel_of(atomic::Family::Base, datatype, op)
        }
        _ => Err(Errno::OpNotSupp),
    }
}

/// Adds collectives to the capabilities of a provider whose endpoints have tagged messages and
/// directed receives.
pub fn advertise(info: &mut selvedge::Info) {
    info.caps |= Caps::COLLECTIVE;
    info.tx_attr.caps |= Caps::COLLECTIVE;
    info.rx_attr.caps |= Caps::COLLECTIVE;
}

/// Removes the layer's bit from the tag format of an info with collectives.
pub fn reserve_tag_bit(mut info: selvedge::Info) -> selvedge::Info {
    let format = &mut info.ep_attr.mem_tag_format.0;
    if info.caps.contains(Caps::COLLECTIVE) && *format == 0 {
        *format = !tag::LAYER;
    }
    info
}
