//! Collectives: fi_collective(3).
//!
//! A group is joined with a set of addresses ([`av::Set`]); every member joins, and then posts the
//! same collectives in the same order. `count` is what one member contributes or gets: where data
//! is sliced ([`Op::Alltoall`], [`Op::Allgather`], [`Op::ReduceScatter`], [`Op::Scatter`],
//! [`Op::Gather`]), the longer side holds as many slices of `count` elements as there are members,
//! in the order of the set.

#![expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as of the man page's structures"
)]

use std::ffi::c_void;
use std::sync::Arc;

use crate::atomic::{self, Datatype, IocMut};
use crate::{Context, FiAddr, Membership, OpFlags, Result, av};

/// Which collective (`enum fi_collective_op`, with libfabric's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// Nobody goes on before everybody is there.
    Barrier,
    /// The root's data to everybody.
    Broadcast,
    /// A slice of everybody's to everybody.
    Alltoall,
    /// Everybody's data, reduced, to everybody.
    Allreduce,
    /// Everybody's data, side by side, to everybody.
    Allgather,
    /// Everybody's data, reduced, a slice to everybody.
    ReduceScatter,
    /// Everybody's data, reduced, to the root.
    Reduce,
    /// A slice of the root's data to everybody.
    Scatter,
    /// Everybody's data, side by side, to the root.
    Gather,
}

impl Op {
    /// All of them, in the order of libfabric's numbers, which begin at 0.
    pub const ALL: &[Self] = &[
        Self::Barrier,
        Self::Broadcast,
        Self::Alltoall,
        Self::Allreduce,
        Self::Allgather,
        Self::ReduceScatter,
        Self::Reduce,
        Self::Scatter,
        Self::Gather,
    ];

    /// The one with this number.
    pub fn from_raw(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether elements are calculated with.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::Allreduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether one member has another part than the others.
    pub const fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather
        )
    }
}

/// What is asked of a domain (`struct fi_collective_attr`, what goes in).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The collective.
    pub coll: Op,
    /// The type of the elements; none for a barrier.
    pub datatype: Option<Datatype>,
    /// What elements are reduced by; none where they are not.
    pub op: Option<atomic::Op>,
}

/// What a domain answers (`struct fi_collective_attr`, what comes out).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The most elements of one call.
    pub count: usize,
    /// Size of one element in bytes.
    pub size: usize,
    /// The most members of a group.
    pub max_members: usize,
}

/// One collective (`struct fi_msg_collective`).
#[derive(Clone, Copy, Debug)]
pub struct CollectiveMsg {
    /// Which.
    pub coll: Op,
    /// The group ([`Membership::addr`]).
    pub group: FiAddr,
    /// The root, by its index in the address vector, where there is one.
    pub root: FiAddr,
    /// Elements of each member, as the module's page has it.
    pub count: usize,
    /// The first element that is read. A broadcast reads and writes `result`.
    pub buf: *const c_void,
    /// The first element that is written. It may be `buf` where both have the same length.
    pub result: *mut c_void,
    /// The type of every element.
    pub datatype: Datatype,
    /// What elements are reduced by, where they are.
    pub op: atomic::Op,
    /// Comes back with the completion.
    pub context: Context,
}

#[expect(unsafe_code, reason = "a description of memory, not an access to it")]
mod thread_safety {
    // SAFETY: the value is two addresses and a count; code that dereferences them has its own
    // argument.
    unsafe impl Send for super::CollectiveMsg {}
    // SAFETY: as above.
    unsafe impl Sync for super::CollectiveMsg {}
}

/// Groups and their collectives: what [`crate::Endpoint::collective`] gives.
///
/// A collective completes in the queue of sends, with
/// [`crate::CompletionFlags::COLLECTIVE`]. It fails if a member is lost that it needs, and so does
/// from then on every other one of that group, everywhere.
pub trait Collective {
    /// Begins to join the group of the members of `set` (fi_join_collective(3)), which has the
    /// endpoint itself among them: a context of a scalable endpoint by its [`FiAddr::rx_addr`]. The
    /// event queue is told with `context` when all have joined.
    /// Members that join several groups at once do so in the same order, or give the sets different
    /// keys.
    ///
    /// # Errors
    /// [`crate::Errno::NoEq`] without an event queue; [`crate::Errno::Inval`] for a set of another
    /// address vector's members, without this endpoint, with one endpoint twice, or with an index that
    /// is nobody's; the log says which.
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>>;

    /// Posts a collective.
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`] for what is read, and [`crate::Msg::recvmsg`] for what is
    /// written.
    ///
    /// # Errors
    /// [`crate::Errno::OpBadState`] before the group is joined; the error that has broken the group, if
    /// one has; [`crate::Errno::Inval`] for a group or root that is none; [`crate::Errno::OpNotSupp`] for an
    /// operation that is not carried; [`crate::Errno::BadFlags`].
    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result;
}

/// What the short forms read and write: the first elements, and `count` as the module's page has it.
/// An address that the collective does not use at this member may be null.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The first element that is read.
    pub buf: *const c_void,
    /// The first element that is written.
    pub result: *mut c_void,
    /// Elements of each member.
    pub count: usize,
}

impl Buffers {
    const fn of(self, msg: CollectiveMsg) -> CollectiveMsg {
        let Self { buf, result, count } = self;
        CollectiveMsg {
            buf,
            result,
            count,
            ..msg
        }
    }
}

/// The short forms of [`Collective`], under the man page's names.
pub trait CollectiveExt: Collective {
    /// fi_barrier(3), and fi_barrier2(3) with flags.
    ///
    /// # Errors
    /// As [`Collective::collective`].
    fn barrier(&self, group: FiAddr, flags: OpFlags, context: Context) -> Result {
        let msg = CollectiveMsg::new(Op::Barrier, group, Datatype::Uint8, context);
        // SAFETY: there is no memory.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_broadcast(3).
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn broadcast(
        &self,
        buf: IocMut,
        datatype: Datatype,
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let mut msg = CollectiveMsg::new(Op::Broadcast, group, datatype, context);
        (msg.root, msg.count, msg.result) = (root, buf.count, buf.addr);
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_alltoall(3): `count` elements for each member in either list.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn alltoall(
        &self,
        lists: Buffers,
        datatype: Datatype,
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Alltoall, group, datatype, context);
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&lists.of(msg), flags) }
    }

    /// fi_allreduce(3).
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn allreduce(
        &self,
        lists: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Allreduce, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            ..lists.of(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_allgather(3): the result has `count` elements of each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn allgather(
        &self,
        lists: Buffers,
        datatype: Datatype,
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Allgather, group, datatype, context);
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&lists.of(msg), flags) }
    }

    /// fi_reduce_scatter(3): what is read has `count` elements for each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn reduce_scatter(
        &self,
        lists: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::ReduceScatter, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            ..lists.of(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_reduce(3): the root alone has a result.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn reduce(
        &self,
        lists: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Reduce, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            root,
            ..lists.of(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_scatter(3): the root alone is read, `count` elements for each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn scatter(
        &self,
        lists: Buffers,
        datatype: Datatype,
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Scatter, group, datatype, context);
        let msg = CollectiveMsg {
            root,
            ..lists.of(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_gather(3): the root alone has a result, `count` elements of each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn gather(
        &self,
        lists: Buffers,
        datatype: Datatype,
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Gather, group, datatype, context);
        let msg = CollectiveMsg {
            root,
            ..lists.of(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }
}

impl<T: Collective + ?Sized> CollectiveExt for T {}

impl CollectiveMsg {
    /// A collective without memory, to be filled in.
    pub const fn new(coll: Op, group: FiAddr, datatype: Datatype, context: Context) -> Self {
        Self {
            coll,
            group,
            root: FiAddr::NOTAVAIL,
            count: 0,
            buf: std::ptr::null(),
            result: std::ptr::null_mut(),
            datatype,
            op: atomic::Op::Sum,
            context,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectives_have_the_numbers_of_the_header() {
        for (number, op) in (0..).zip(Op::ALL) {
            assert_eq!((*op as u32, Op::from_raw(number)), (number, Some(*op)));
        }
        assert_eq!((Op::Gather as u32, Op::from_raw(9)), (8, None));
    }
}
