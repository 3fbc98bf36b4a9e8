//! Posts whose memory an operation of the engine keeps.

#![expect(unsafe_code, reason = "operations keep what they have posted")]

use std::ptr;

use selvedge::{Errno, Iov, IovMut, OpFlags};

use super::peer::Block;
use super::{Engine, Mark, Op};
use crate::bell::BellName;
use crate::local::Local;
use crate::net::Place;
use crate::wire::Source;

impl Engine {
    /// Posts the read that an operation waits for, or keeps it for later.
    pub(super) fn read_for(&mut self, number: u64) {
        let Some((peer, source, room)) = self.read_of(number) else {
            return;
        };
        let peer = &self.peers[peer];
        let place = Place {
            peer: peer.addr,
            addr: source.addr,
            key: source.key,
        };
        // SAFETY: the room belongs to the operation, which is kept until the completion with its
        // number; or it is the caller's, who has promised to leave it alone until its bell rings; or
        // it is memory that a peer has named and the kernel vouched for. The engine drops its fabrics
        // before its operations.
        let posted = unsafe { self.nets[peer.net].read(place, room, Mark::Op(number).context()) };
        match posted {
            Ok(()) => self.owes_flush |= self.nets[peer.net].dawdles,
            Err(Errno::Again) => self.to_post.push_back(number),
            Err(errno) => self.op_failed(number, errno, &errno.to_string()),
        }
    }

    /// What an operation reads: from whom, what, and into which memory of ours.
    fn read_of(&mut self, number: u64) -> Option<(usize, Source, IovMut)> {
        let at = |address: u64, len: u64| {
            let first = ptr::with_exposed_provenance_mut(address as usize);
            IovMut::from_raw(first, len as usize)
        };
        Some(match self.ops.get_mut(&number)? {
            Op::PutFetch(op) => (op.from, op.source, at(op.to, op.source.len)),
            Op::Get(op) => (op.of, op.source, at(op.to.address(), op.source.len)),
            Op::Fetch(op) => (op.from, op.source, IovMut::new(op.bytes.bytes_mut())),
            _ => return None,
        })
    }

    /// Writes a small number of bytes directly; they are the caller's again at return.
    #[inline]
    pub(super) fn write_copy(
        &self,
        to: usize,
        address: u64,
        block: Block,
        bytes: &[u8],
        bell: BellName,
    ) -> selvedge::Result {
        let peer = &self.peers[to];
        let context = Mark::To(to).context();
        // SAFETY: with `INJECT` the bytes are copied before the call returns.
        unsafe {
            self.nets[peer.net].write(
                block.place(peer.addr, address),
                Iov::new(bytes),
                bell.word(),
                OpFlags::INJECT,
                context,
            )
        }
    }

    /// Writes the bytes that an operation has lent; it completes with its number.
    pub(super) fn write_lent(
        &self,
        number: u64,
        to: usize,
        address: u64,
        block: Block,
        bytes: Local,
        bell: BellName,
    ) -> selvedge::Result {
        let peer = &self.peers[to];
        // SAFETY: whoever lent them has promised to leave them alone until the local bell rings, which
        // is when the operation completes.
        unsafe {
            self.nets[peer.net].write(
                block.place(peer.addr, address),
                bytes.iov(),
                bell.word(),
                OpFlags::COMPLETION,
                Mark::Op(number).context(),
            )
        }
    }
}
