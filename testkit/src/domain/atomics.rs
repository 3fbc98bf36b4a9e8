//! Posts of atomics.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use selvedge::atomic::{AtomicMsg, Datatype, Family, Ioc, IocMut, Op, RmaIoc};
use selvedge::op::{Compared, Fetched};
use selvedge::{Context, Errno};

use super::{Access, DomainEndpoint, Segment};
use crate::op;

/// What is done to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicCall {
    pub family: Family,
    pub datatype: Datatype,
    pub op: Op,
}

/// The local memory of a call; those without a comparand or a result ignore these.
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
    /// The provider's.
    pub fn atomic(
        &self,
        call: AtomicCall,
        parts: &AtomicBuffers<'_>,
        count: usize,
        access: &Access,
    ) -> Result<(), Errno> {
        // SAFETY: the memory is of the endpoint's domain (`Segment::base`), which outlives the
        // operation; nobody has references to it.
        self.atomic_op(call, parts, count, access, |op| unsafe {
            op.post(&*self.ep, access.flags)
        })
    }

    /// Makes the operation of an atomic, and passes it on.
    pub fn atomic_op<T>(
        &self,
        call: AtomicCall,
        parts: &AtomicBuffers<'_>,
        count: usize,
        access: &Access,
        then: impl FnOnce(&selvedge::Op<'_>) -> T,
    ) -> T {
        let ioc =
            |segment: &Segment<'_>| Ioc::from_raw(segment.base(self).cast_const().cast(), count);
        let msg = AtomicMsg {
            iov: &[ioc(&parts.operand)],
            desc: &[parts.operand.rights.desc()],
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
            iov: &[ioc(&parts.comparand)],
            desc: &[parts.comparand.rights.desc()],
        };
        let fetched = Fetched {
            iov: &[IocMut::from_raw(parts.result.base(self).cast(), count)],
            desc: &[parts.result.rights.desc()],
        };
        then(&op::atomic(call.family, msg, compared, fetched))
    }
}
