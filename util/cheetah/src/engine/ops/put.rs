//! Puts: local bytes are copied into another context's memory.
//!
//! | target memory | method | bells |
//! |---|---|---|
//! | special memory | written by the initiator; the remote bell's name is the data of the write | local at once or at the completion, remote when the target polls |
//! | other memory, few bytes | a message, which the target copies | local at once, remote at the copy |
//! | other memory | rendezvous: the target checks the address and posts a receive; the bytes follow | local when they are sent, remote when they are received |
//!
//! Only the owner accesses its other memory, after the kernel has confirmed that the address is
//! mapped. A wrong address is an error of the initiator.

use selvedge::Errno;

use super::op::{Op, Put, PutOp, PutProtocol, PutReceive};
use crate::bell::BellName;
use crate::engine::state::Engine;
use crate::net::wire::WireMessage;
use crate::{Error, Result, memory};

const PUT: &str = "put";

impl Engine {
    /// Starts a put.
    ///
    /// # Errors
    /// [`Error::NoContext`], [`Error::PeerFailed`]. The local bell carries later errors, which are
    /// also recorded as failures.
    #[inline]
    pub(crate) fn put(&mut self, put: &Put) -> Result {
        self.check(put.to)?;
        if put.to == self.rank {
            return self.put_local(put);
        }
        self.check_alive(put.to)?;
        self.peers[put.to].owes_flush = true;
        let len = put.local.len();
        if let Some(&block) = self.peers[put.to].block_of(put.remote, len) {
            let inject_size = self.nets[self.peers[put.to].net].inject_size();
            if len > inject_size as u64 {
                self.copies.placed(len as usize);
                self.start_put(put, PutProtocol::Written(block));
                return Ok(());
            }
            let bytes = put.local.bytes();
            match self.write_copy(put.to, put.remote, block, bytes, put.remote_bell) {
                Ok(()) => {
                    self.copies.placed(bytes.len());
                    self.ring_local(put.local_bell);
                    return Ok(());
                }
                Err(errno) => self.handle_write_error(put, errno)?,
            }
        }
        self.put_by_message(put);
        Ok(())
    }

    /// Handles a failed write. Without room for the write, the put is sent as a message.
    #[cold]
    fn handle_write_error(&mut self, put: &Put, errno: Errno) -> Result {
        match errno {
            Errno::Again => Ok(()),
            errno => {
                self.handle_send_error(put.to, errno);
                self.check_alive(put.to)
            }
        }
    }

    #[inline]
    fn put_by_message(&mut self, put: &Put) {
        let net = &self.nets[self.peers[put.to].net];
        let len = put.local.len();
        if len > net.eager() as u64 {
            return self.start_put(put, PutProtocol::Requested);
        }
        let message = WireMessage::Put {
            to: put.remote,
            bell: put.remote_bell,
            local: put.local_bell,
        };
        self.copies.packed(len as usize);
        self.send(put.to, &message, put.local.bytes());
        self.ring_local(put.local_bell);
    }

    /// Starts a put from the caller's memory.
    fn start_put(&mut self, put: &Put, protocol: PutProtocol) {
        let token = self.add_op(Op::Put(PutOp {
            put: *put,
            protocol,
        }));
        if protocol != PutProtocol::Requested {
            return self.post_for(token);
        }
        let message = WireMessage::PutRequest {
            to: put.remote,
            len: put.local.len(),
            token,
            bell: put.remote_bell,
        };
        self.send(put.to, &message, &[]);
    }

    fn put_local(&mut self, put: &Put) -> Result {
        let (from, len) = (put.local.address(), put.local.len());
        if memory::copy_within(from, put.remote, len).is_err() {
            let error = Error::bad_pointer(self.rank, put.remote, len, PUT);
            self.fail_bell(put.local_bell, &error);
            self.fail(error);
            return Ok(());
        }
        self.copies.placed(len as usize);
        self.ring_local(put.local_bell);
        self.ring_local(put.remote_bell);
        Ok(())
    }

    /// Copies the bytes of a put by message.
    #[inline]
    pub(crate) fn on_put(&mut self, from: usize, to: u64, bytes: &[u8], bells: [BellName; 2]) {
        let [bell, local] = bells;
        let len = bytes.len() as u64;
        let stored = match self.blocks.find(to, len) {
            Some(block) => {
                block.store(to, bytes);
                self.announce_block(from, to);
                Ok(())
            }
            None => memory::store(to, bytes),
        };
        if stored.is_ok() {
            self.copies.delivered(bytes.len());
            return self.ring_for(from, bell);
        }
        let error = Error::bad_pointer(self.rank, to, len, PUT);
        self.fail_bell(bell, &error);
        self.send(from, &WireMessage::PutFailed { to, len, local }, &[]);
    }

    /// Handles a put request: checks the address and posts the receive.
    pub(crate) fn on_put_request(
        &mut self,
        from: usize,
        (to, len): (u64, u64),
        token: u64,
        bell: BellName,
    ) {
        if !memory::is_writable(to, len) {
            let error = Error::bad_pointer(self.rank, to, len, PUT);
            return self.refuse(from, token, bell, &error);
        }
        if self.blocks.contain(to, len) {
            self.announce_block(from, to);
        }
        let receive = PutReceive {
            from,
            token,
            to,
            len,
            bell,
        };
        let op = self.add_op(Op::PutReceive(receive));
        self.post_for(op);
        self.send(from, &WireMessage::Writable { token }, &[]);
    }

    /// Handles the received bytes of a put.
    pub(crate) fn put_received(&mut self, op: &PutReceive) {
        self.copies.delivered(op.len as usize);
        self.ring_for(op.from, op.bell);
    }

    /// Handles a failed receive of a put.
    pub(crate) fn put_receive_failed(&mut self, op: &PutReceive, errno: Errno) {
        let error = Error::Fabric {
            context: self.rank,
            detail: format!(
                "{} bytes of a put by context {} cannot be received: {errno}",
                op.len, op.from
            ),
        };
        self.fail_bell(op.bell, &error);
    }

    /// Handles the target's response that the receive is posted.
    pub(crate) fn on_writable(&mut self, from: usize, token: u64) {
        match self.ops.get_mut(&token) {
            Some(Op::Put(op)) if op.put.to == from && op.protocol == PutProtocol::Requested => {
                op.protocol = PutProtocol::Sent
            }
            _ => return,
        }
        self.post_for(token);
    }

    /// Handles the completion of an operation by its target.
    pub(crate) fn on_done(&mut self, from: usize, token: u64) {
        let is_from_target = self.ops.get(&token).is_some_and(|op| op.peer() == from);
        if !is_from_target {
            return;
        }
        match self.ops.remove(&token) {
            Some(Op::Invoke(op)) => {
                self.parcels.release(op.bytes);
                self.ring_local(op.bell);
            }
            Some(Op::Flush { .. }) => {}
            Some(other) => {
                self.ops.insert(token, other);
            }
            None => {}
        }
    }

    /// Handles the failure of an operation at its target.
    #[cold]
    pub(crate) fn on_failed(&mut self, from: usize, token: u64, at_source: bool) {
        let is_from_target = self.ops.get(&token).is_some_and(|op| op.peer() == from);
        let op = match self.ops.remove(&token) {
            Some(op) if is_from_target => op,
            Some(op) => {
                self.ops.insert(token, op);
                return;
            }
            None => return,
        };
        let error = match (&op, at_source) {
            (Op::Put(op), false) => {
                Error::bad_pointer(from, op.put.remote, op.put.local.len(), PUT)
            }
            (Op::Get(op), false) => Error::bad_pointer(from, op.source.addr, op.source.len, "get"),
            _ => self.operation_error(from, "the target could not fetch the bytes"),
        };
        self.fail_op(op, &error);
    }

    /// Handles a failed copy or ring at a target.
    #[cold]
    pub(crate) fn on_put_failed(&mut self, from: usize, to: u64, len: u64, local: BellName) {
        let error = Error::bad_pointer(from, to, len, PUT);
        self.fail_bell(local, &error);
        self.fail(error);
    }
}
