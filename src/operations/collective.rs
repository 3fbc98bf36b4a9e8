//! Collectives: fi_collective(3).
//!
//! A group is joined with a set of addresses ([`av::Set`]). Every member joins, then posts the same
//! collectives in the same order. `count` is the number of elements that one member contributes or
//! receives. Where data is sliced ([`Op::Alltoall`], [`Op::Allgather`], [`Op::ReduceScatter`],
//! [`Op::Scatter`], [`Op::Gather`]), the longer buffer holds one slice of `count` elements for each
//! member, in the order of the set.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use std::ffi::c_void;
use std::sync::Arc;

use crate::atomic::{self, Datatype, IocMut};
use crate::{Context, FiAddr, Membership, OpFlags, Result, av};

/// The collective operation (`enum fi_collective_op`, with libfabric's numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Op {
    /// Completes at each member after all members have posted it.
    Barrier,
    /// Sends the root's data to all members.
    Broadcast,
    /// Sends a slice of each member's data to each member.
    Alltoall,
    /// Reduces the data of all members; all members receive the result.
    Allreduce,
    /// Concatenates the data of all members; all members receive the result.
    Allgather,
    /// Reduces the data of all members; each member receives a slice of the result.
    ReduceScatter,
    /// Reduces the data of all members; the root receives the result.
    Reduce,
    /// Sends a slice of the root's data to each member.
    Scatter,
    /// Concatenates the data of all members; the root receives the result.
    Gather,
}

impl Op {
    /// All values, in the order of libfabric's numbers, which begin at 0.
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

    /// Returns the value with this number, or `None` if no value has it.
    pub fn from_raw(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Returns whether the operation reduces elements.
    pub const fn reduces(self) -> bool {
        matches!(self, Self::Allreduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Returns whether one member of the operation is the root.
    pub const fn has_root(self) -> bool {
        matches!(
            self,
            Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather
        )
    }
}

/// The input of a query (the input fields of `struct fi_collective_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The collective.
    pub coll: Op,
    /// The type of the elements; `None` for a barrier.
    pub datatype: Option<Datatype>,
    /// The reduction; `None` for a collective that does not reduce.
    pub op: Option<atomic::Op>,
}

/// The result of a query (the output fields of `struct fi_collective_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The maximum number of elements of one call.
    pub count: usize,
    /// Size of one element in bytes.
    pub size: usize,
    /// The maximum number of members of a group.
    pub max_members: usize,
}

/// A collective operation (`struct fi_msg_collective`).
#[derive(Clone, Copy, Debug)]
pub struct CollectiveMsg {
    /// The operation.
    pub coll: Op,
    /// The group ([`Membership::addr`]).
    pub group: FiAddr,
    /// The index of the root in the address vector, if the operation has a root.
    pub root: FiAddr,
    /// The number of elements of each member (see the [module](self)).
    pub count: usize,
    /// The address of the first element that is read. A broadcast reads and writes `result`
    /// instead.
    pub buf: *const c_void,
    /// The address of the first element that is written. `result` may equal `buf` where both have
    /// the same length.
    pub result: *mut c_void,
    /// The type of every element.
    pub datatype: Datatype,
    /// The reduction, if the operation reduces.
    pub op: atomic::Op,
    /// The context of the completion.
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

/// Groups and their collectives: the interface that [`crate::Endpoint::collective`] returns.
///
/// A collective completes in the transmit queue, with [`crate::CompletionFlags::COLLECTIVE`]. A
/// collective that depends on a failed member fails. All other collectives of that group then fail
/// at all members.
pub trait Collective {
    /// Starts to join the group of the members of `set` (fi_join_collective(3)). The set includes
    /// this endpoint; a context of a scalable endpoint is included by its [`FiAddr::rx_addr`]. The
    /// event queue reports [`crate::eq::Event::JoinComplete`] with `context` when all members have
    /// joined. Members that join several groups at the same time must join these groups in the same
    /// order, or use sets with different keys.
    ///
    /// # Errors
    /// [`crate::Errno::NoEq`] without an event queue; [`crate::Errno::Inval`] for a set of another
    /// address vector, without this endpoint, with a duplicate endpoint, or with an unused index.
    /// The log has the reason.
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>>;

    /// Posts a collective.
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`] for the memory that is read, and [`crate::Msg::recvmsg`] for the
    /// memory that is written.
    ///
    /// # Errors
    /// [`crate::Errno::OpBadState`] before the group is joined; the error of a group that has failed;
    /// [`crate::Errno::Inval`] for an invalid group or root; [`crate::Errno::OpNotSupp`] for an
    /// unsupported operation; [`crate::Errno::BadFlags`] for unsupported flags.
    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result;
}

/// The memory that a short form reads and writes. An address that the collective does not use at
/// this member may be null.
#[derive(Clone, Copy, Debug)]
pub struct Buffers {
    /// The address of the first element that is read.
    pub buf: *const c_void,
    /// The address of the first element that is written.
    pub result: *mut c_void,
    /// The number of elements of each member (see the [module](self)).
    pub count: usize,
}

impl Buffers {
    const fn apply(self, msg: CollectiveMsg) -> CollectiveMsg {
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
        // SAFETY: a barrier accesses no memory.
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

    /// fi_alltoall(3): `count` elements for each member in either buffer.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn alltoall(
        &self,
        buffers: Buffers,
        datatype: Datatype,
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Alltoall, group, datatype, context);
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&buffers.apply(msg), flags) }
    }

    /// fi_allreduce(3).
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn allreduce(
        &self,
        buffers: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Allreduce, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            ..buffers.apply(msg)
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
        buffers: Buffers,
        datatype: Datatype,
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Allgather, group, datatype, context);
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&buffers.apply(msg), flags) }
    }

    /// fi_reduce_scatter(3): `buf` has `count` elements for each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn reduce_scatter(
        &self,
        buffers: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        group: FiAddr,
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::ReduceScatter, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            ..buffers.apply(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_reduce(3): only the root has a result.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn reduce(
        &self,
        buffers: Buffers,
        (datatype, op): (Datatype, atomic::Op),
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Reduce, group, datatype, context);
        let msg = CollectiveMsg {
            op,
            root,
            ..buffers.apply(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_scatter(3): only the root's `buf` is read, which has `count` elements for each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn scatter(
        &self,
        buffers: Buffers,
        datatype: Datatype,
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Scatter, group, datatype, context);
        let msg = CollectiveMsg {
            root,
            ..buffers.apply(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }

    /// fi_gather(3): only the root has a result, with `count` elements of each member.
    ///
    /// # Safety
    /// As [`Collective::collective`].
    unsafe fn gather(
        &self,
        buffers: Buffers,
        datatype: Datatype,
        (group, root): (FiAddr, FiAddr),
        flags: OpFlags,
        context: Context,
    ) -> Result {
        let msg = CollectiveMsg::new(Op::Gather, group, datatype, context);
        let msg = CollectiveMsg {
            root,
            ..buffers.apply(msg)
        };
        // SAFETY: passed on from the caller.
        unsafe { self.collective(&msg, flags) }
    }
}

impl<T: Collective + ?Sized> CollectiveExt for T {}

impl CollectiveMsg {
    /// Creates a collective without memory. The caller sets the other fields.
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
