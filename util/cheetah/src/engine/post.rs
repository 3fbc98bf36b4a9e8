//! Posts whose memory an operation of the engine keeps.

#![expect(unsafe_code, reason = "operations keep what they have posted")]

use std::ptr;

use selvedge::{Errno, FiAddr, Iov, IovMut, OpFlags};

use super::peer::Block;
use super::put::Way;
use super::{Engine, Mark, Op};
use crate::bell::BellName;
use crate::net::Place;
use crate::wire::Source;

/// What an operation has the fabric do.
enum Transfer {
    Read(Source, IovMut),
    /// With a bell that the target rings.
    Write(Place, Iov, BellName),
    /// To a place that was posted under the operation's number.
    Send(Iov),
    /// From a peer, under a number of its own.
    Take(u64, IovMut),
}

impl Engine {
    /// Posts what an operation waits for, or keeps it for later.
    pub(super) fn post_for(&mut self, number: u64) {
        let Some((peer, transfer)) = self.transfer_of(number) else {
            return;
        };
        let net = &self.nets[self.peers[peer].net];
        let (peer, context) = (self.peers[peer].addr, Mark::Op(number).context());
        let posted = match transfer {
            // SAFETY: the room belongs to the operation, which is kept until the completion with its
            // number; or it is the caller's, who has promised to leave it alone until its bell rings.
            // The engine drops its fabrics before its operations.
            Transfer::Read(from, room) => unsafe { net.read(from.place(peer), room, context) },
            // SAFETY: whoever lent the bytes has promised to leave them alone until the local bell
            // rings, which is when the operation completes.
            Transfer::Write(place, bytes, bell) => unsafe {
                net.write(place, bytes, bell.word(), OpFlags::COMPLETION, context)
            },
            // SAFETY: as above.
            Transfer::Send(bytes) => unsafe { net.send_bulk(peer, number, bytes, context) },
            // SAFETY: it is memory that a peer has named and the kernel vouched for, and whoever puts
            // there has promised that nobody minds.
            Transfer::Take(token, room) => unsafe { net.take_bulk(peer, token, room, context) },
        };
        match posted {
            Ok(()) => self.owes_flush |= net.dawdles,
            Err(Errno::Again) => self.to_post.push_back(number),
            Err(errno) => self.op_failed(number, errno, &errno.to_string()),
        }
    }

    /// What an operation does, and with whom.
    fn transfer_of(&mut self, number: u64) -> Option<(usize, Transfer)> {
        let room = |address: u64, len: u64| {
            let first = ptr::with_exposed_provenance_mut(address as usize);
            IovMut::from_raw(first, len as usize)
        };
        Some(match self.ops.get_mut(&number)? {
            Op::Put(op) => {
                let (put, bytes) = (&op.put, op.put.local.iov());
                let transfer = match op.way {
                    Way::Asked => return None,
                    Way::Sent => Transfer::Send(bytes),
                    Way::Written(block) => {
                        let place = block.place(self.peers[put.to].addr, put.remote);
                        Transfer::Write(place, bytes, put.remote_bell)
                    }
                };
                (put.to, transfer)
            }
            Op::Taking(op) => (op.from, Transfer::Take(op.token, room(op.to, op.len))),
            Op::Get(op) => {
                let room = room(op.to.address(), op.source.len);
                (op.of, Transfer::Read(op.source, room))
            }
            Op::Fetch(op) => {
                let room = IovMut::new(op.bytes.bytes_mut());
                (op.from, Transfer::Read(op.source, room))
            }
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
}

impl Source {
    fn place(&self, peer: FiAddr) -> Place {
        Place {
            peer,
            addr: self.addr,
            key: self.key,
        }
    }
}
