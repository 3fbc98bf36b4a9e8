//! Posts whose memory an operation of the engine owns.

#![expect(
    unsafe_code,
    reason = "operations own the memory that they have posted"
)]

use std::ptr;

use selvedge::{Errno, FiAddr, Iov, IovMut, OpFlags};

use super::op::{Op, PutProtocol};
use crate::bell::BellName;
use crate::engine::parts::blocks::Block;
use crate::engine::parts::completion::CompletionKind;
use crate::engine::state::Engine;
use crate::net::RemoteAddr;
use crate::net::wire::Source;

/// The transfer of an operation.
enum Transfer {
    Read(Source, IovMut),
    /// A write, with a bell that the target rings.
    Write(RemoteAddr, Iov, BellName),
    /// A send to a receive that was posted under the operation's number.
    Send(Iov),
    /// A receive from a peer, with the token of the peer's operation.
    Receive(u64, IovMut),
}

impl Engine {
    /// Posts the transfer of an operation, or queues it.
    pub(crate) fn post_for(&mut self, number: u64) {
        let Some((peer, transfer)) = self.transfer_of(number) else {
            return;
        };
        let net = &self.nets[self.peers[peer].net];
        let (peer, context) = (self.peers[peer].addr, CompletionKind::Op(number).context());
        let posted = match transfer {
            // SAFETY: the buffer belongs to the operation, which is retained until the completion
            // with its number, or to the caller, which guarantees not to access the buffer until
            // the bell rings. The engine drops its fabrics before its operations.
            Transfer::Read(from, buffer) => unsafe {
                net.read(from.remote_addr(peer), buffer, context)
            },
            // SAFETY: the caller guarantees not to change the bytes until the local bell rings,
            // which happens when the operation completes.
            Transfer::Write(remote, bytes, bell) => unsafe {
                net.write(remote, bytes, bell.word(), OpFlags::COMPLETION, context)
            },
            // SAFETY: as above.
            Transfer::Send(bytes) => unsafe { net.send_bulk(peer, number, bytes, context) },
            // SAFETY: a peer has named the memory and the kernel has confirmed that it is writable.
            // The initiator of the put guarantees that it may be overwritten.
            Transfer::Receive(token, buffer) => unsafe {
                net.post_bulk_recv(peer, token, buffer, context)
            },
        };
        match posted {
            Ok(()) => self.owes_flush |= net.defers_sends,
            Err(Errno::Again) => self.to_post.push_back(number),
            Err(errno) => self.op_failed(number, errno, &errno.to_string()),
        }
    }

    /// The transfer of an operation, and its peer.
    fn transfer_of(&mut self, number: u64) -> Option<(usize, Transfer)> {
        let buffer = |address: u64, len: u64| {
            let first = ptr::with_exposed_provenance_mut(address as usize);
            IovMut::from_raw(first, len as usize)
        };
        Some(match self.ops.get_mut(&number)? {
            Op::Put(op) => {
                let (put, bytes) = (&op.put, op.put.local.iov());
                let transfer = match op.protocol {
                    PutProtocol::Requested => return None,
                    PutProtocol::Sent => Transfer::Send(bytes),
                    PutProtocol::Written(block) => {
                        let remote = block.remote_addr(self.peers[put.to].addr, put.remote);
                        Transfer::Write(remote, bytes, put.remote_bell)
                    }
                };
                (put.to, transfer)
            }
            Op::PutReceive(op) => (op.from, Transfer::Receive(op.token, buffer(op.to, op.len))),
            Op::Get(op) => {
                let buffer = buffer(op.destination.address(), op.source.len);
                (op.target, Transfer::Read(op.source, buffer))
            }
            Op::Fetch(op) => {
                let buffer = IovMut::new(op.bytes.bytes_mut());
                (op.from, Transfer::Read(op.source, buffer))
            }
            _ => return None,
        })
    }

    /// Writes a small number of bytes directly, from a copy.
    #[inline]
    pub(crate) fn write_copy(
        &self,
        to: usize,
        address: u64,
        block: Block,
        bytes: &[u8],
        bell: BellName,
    ) -> selvedge::Result {
        let peer = &self.peers[to];
        let context = CompletionKind::Unreported(to).context();
        // SAFETY: with `INJECT` the bytes are copied before the call returns.
        unsafe {
            self.nets[peer.net].write(
                block.remote_addr(peer.addr, address),
                Iov::new(bytes),
                bell.word(),
                OpFlags::INJECT,
                context,
            )
        }
    }
}

impl Source {
    fn remote_addr(&self, peer: FiAddr) -> RemoteAddr {
        RemoteAddr {
            peer,
            addr: self.addr,
            key: self.key,
        }
    }
}
