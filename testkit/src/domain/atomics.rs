//! Posts of atomics to a [`DomainEndpoint`].

#![expect(unsafe_code, reason = "a post is a promise about memory")]

use selvedge::atomic::{AtomicMsg, Datatype, Family, Ioc, IocMut, Op, RmaIoc};
use selvedge::op::{Compared, Fetched};
use selvedge::{Context, Errno};

use super::{Access, DomainEndpoint, Segment};
use crate::op;

/// An atomic operation and its data type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicCall {
    pub family: Family,
    pub datatype: Datatype,
    pub op: Op,
}

/// The local memory of an atomic. An operation without a comparand or a result ignores that
/// segment.
#[derive(Clone, Copy, Debug)]
pub struct AtomicBuffers<'a> {
    pub operand: Segment<'a>,
    pub comparand: Segment<'a>,
    pub result: Segment<'a>,
}

impl DomainEndpoint {
    /// Posts an atomic, once.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn atomic(
        &self,
        call: AtomicCall,
        buffers: &AtomicBuffers<'_>,
        count: usize,
        access: &Access,
    ) -> Result<(), Errno> {
        // SAFETY: the memory belongs to the endpoint's domain (`Segment::base` checks it), which
        // outlives the operation; there are no references to it.
        self.atomic_op(call, buffers, count, access, |op| unsafe {
            op.post(&*self.ep, access.flags)
        })
    }

    /// Builds the operation of an atomic and passes it to `post`.
    pub fn atomic_op<T>(
        &self,
        call: AtomicCall,
        buffers: &AtomicBuffers<'_>,
        count: usize,
        access: &Access,
        post: impl FnOnce(&selvedge::Op<'_>) -> T,
    ) -> T {
        let ioc =
            |segment: &Segment<'_>| Ioc::from_raw(segment.base(self).cast_const().cast(), count);
        let msg = AtomicMsg {
            iov: &[ioc(&buffers.operand)],
            desc: &[buffers.operand.rights.desc()],
            dest: access.peer,
            rma_iov: &[RmaIoc {
                addr: access.remote.addr,
                count,
                key: access.remote.key,
            }],
            datatype: call.datatype,
            op: call.op,
            context: Context(access.context),
            data: 0,
        };
        let compared = Compared {
            iov: &[ioc(&buffers.comparand)],
            desc: &[buffers.comparand.rights.desc()],
        };
        let fetched = Fetched {
            iov: &[IocMut::from_raw(buffers.result.base(self).cast(), count)],
            desc: &[buffers.result.rights.desc()],
        };
        post(&op::atomic(call.family, msg, compared, fetched))
    }
}
