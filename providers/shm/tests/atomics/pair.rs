//! A pair of endpoints: one registers memory, the other one posts atomics on that memory.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::ops::Deref;

use selvedge::atomic::{AtomicMsg, Datatype, Family, Ioc, IocMut, Op, RmaIoc, Target};
use selvedge::{Caps, Context, FiAddr, Hints, Info, MrAccess, OpFlags, Result};
use selvedge_testkit::domain::{Block, Memory};
use selvedge_testkit::local::{self, EndpointPair, LocalEndpoint};

/// The kind of the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Registered memory of its process.
    Plain,
    /// Memory that the domain allocates.
    Special,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Special];
}

pub(crate) fn info(params: &[(&str, &str)]) -> Info {
    let hints = Hints::new().caps(Caps::MSG | Caps::ATOMIC).provider("shm");
    local::info(&selvedge_shm::PROVIDER, params, &hints)
}

pub(crate) fn open() -> LocalEndpoint {
    LocalEndpoint::open(&info(&[]))
}

pub(crate) const RIGHTS: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// Allocates and registers memory of a target. Dropping the block ends the registration, and that
/// of special memory its allocation.
pub(crate) fn register(
    target: &LocalEndpoint,
    kind: Kind,
    len: usize,
    access: MrAccess,
    key: u64,
) -> Block {
    let memory = match kind {
        Kind::Plain => target.memory(len),
        Kind::Special => {
            let domain = &**target.domain();
            Memory::special(target.context.number(), domain, len, access, key).unwrap()
        }
    };
    let rights = target.register(&memory, access, key);
    Block { memory, rights }
}

/// One atomic with all its arguments: lists of operands and of targets (address, elements).
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) family: Family,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) operand: &'a [&'a [u8]],
    pub(crate) compare: &'a [&'a [u8]],
    /// The lengths of the result buffers, in elements.
    pub(crate) result: &'a [usize],
    pub(crate) targets: &'a [(u64, usize)],
    pub(crate) key: u64,
    pub(crate) dest: FiAddr,
    pub(crate) flags: OpFlags,
    pub(crate) data: u64,
}

impl Call<'_> {
    /// Posts the atomic under a context, with leaked result buffers. Returns the buffers.
    pub(crate) fn post(
        &self,
        endpoint: &LocalEndpoint,
        context: u64,
    ) -> Result<Vec<&'static [u8]>> {
        let size = self.datatype.size();
        let ioc = |bytes: &&[u8]| Ioc::from_raw(bytes.as_ptr().cast(), bytes.len() / size);
        let operand: Vec<_> = self.operand.iter().map(ioc).collect();
        let compare: Vec<_> = self.compare.iter().map(ioc).collect();
        let buffers: Vec<&'static mut [u8]> = self
            .result
            .iter()
            .map(|count| vec![0xee; count * size].leak())
            .collect();
        let result: Vec<_> = buffers
            .iter()
            .map(|buffer| IocMut::from_raw(buffer.as_ptr().cast_mut().cast(), buffer.len() / size))
            .collect();
        let rma_iov: Vec<_> = self
            .targets
            .iter()
            .map(|&(addr, count)| RmaIoc {
                addr,
                count,
                key: self.key,
            })
            .collect();
        let msg = AtomicMsg {
            iov: &operand,
            desc: &[],
            dest: self.dest,
            rma_iov: &rma_iov,
            datatype: self.datatype,
            op: self.op,
            context: Context(context),
            data: self.data,
        };
        // Operands are injected, or outlive the wait for the completion. Result buffers are leaked,
        // and read after the completion.
        match self.family {
            // SAFETY: as said above.
            Family::Base => unsafe { endpoint.ep.atomicmsg(&msg, self.flags) },
            // SAFETY: as above.
            Family::Fetch => unsafe { endpoint.ep.fetch_atomicmsg(&msg, &result, &[], self.flags) },
            // SAFETY: as above.
            Family::Compare => unsafe {
                endpoint
                    .ep
                    .compare_atomicmsg(&msg, &compare, &[], &result, &[], self.flags)
            },
        }?;
        Ok(buffers.into_iter().map(|buffer| &*buffer).collect())
    }
}

/// An initiator and a target with each other's addresses.
pub(crate) struct AtomicPair(pub(crate) EndpointPair);

impl Deref for AtomicPair {
    type Target = EndpointPair;

    fn deref(&self) -> &EndpointPair {
        &self.0
    }
}

impl AtomicPair {
    pub(crate) fn new() -> Self {
        Self::connect(open(), open())
    }

    pub(crate) fn connect(a: LocalEndpoint, b: LocalEndpoint) -> Self {
        Self(EndpointPair::connect(a, b))
    }

    /// Describes a sum on the 64-bit words of `memory` that `targets` selects. `operand` has the
    /// same number of words.
    pub(crate) fn sum<'a>(
        &self,
        family: Family,
        block: &Block,
        operand: &'a [&'a [u8]],
        result: &'a [usize],
        targets: &'a [(u64, usize)],
    ) -> Call<'a> {
        Call {
            family,
            datatype: Datatype::Uint64,
            op: Op::Sum,
            operand,
            compare: &[],
            result,
            targets,
            key: block.rights.key(),
            dest: self.to_b,
            flags: OpFlags::DEFAULT,
            data: 0,
        }
    }

    pub(crate) fn target(&self, block: &Block, addr: u64) -> Target {
        Target {
            dest: self.to_b,
            addr,
            key: block.rights.key(),
            datatype: Datatype::Uint64,
            op: Op::Sum,
        }
    }
}
