//! Gets: bytes of another context's memory are copied to this context.
//!
//! The initiator reads special memory directly. For other memory it sends a request to the owner,
//! whose response has the bytes, or for many bytes the confirmation that they are readable. The
//! initiator then reads the bytes. The remote bell rings when the bytes have been copied out.

use super::op::{Get, Op};
use crate::bell::BellName;
use crate::engine::state::Engine;
use crate::net::wire::{Source, WireMessage};
use crate::{Error, Result, memory};

impl Engine {
    /// Starts a get.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub(crate) fn get(&mut self, mut get: Get) -> Result {
        self.check(get.target)?;
        if get.target == self.rank {
            self.get_local(&get);
            return Ok(());
        }
        self.check_alive(get.target)?;
        self.peers[get.target].owes_flush = true;
        let Source { addr, len, .. } = get.source;
        let peer = &self.peers[get.target];
        if let Some(block) = peer.block_of(addr, len) {
            get.source.key = block.key;
            get.source.addr = block.base + (addr - block.start);
            get.is_reading = true;
            let op = self.add_op(Op::Get(get));
            self.post_for(op);
            return Ok(());
        }
        get.source.key = peer.key;
        let token = self.add_op(Op::Get(get));
        let message = WireMessage::Get {
            from: addr,
            len,
            token,
            bell: get.remote_bell,
        };
        self.send(get.target, &message, &[]);
        Ok(())
    }

    fn get_local(&mut self, get: &Get) {
        let Source { addr, len, .. } = get.source;
        if memory::copy_within(addr, get.destination.address(), len).is_err() {
            let error = Error::bad_pointer(self.rank, addr, len, "get");
            self.fail_bell(get.local_bell, &error);
            return self.fail(error);
        }
        self.copies.placed(len as usize);
        self.ring_local(get.remote_bell);
        self.ring_local(get.local_bell);
    }

    /// Target side: sends the bytes, or confirms that they are readable.
    pub(crate) fn on_get(
        &mut self,
        from: usize,
        address: u64,
        len: u64,
        token: u64,
        bell: BellName,
    ) {
        let eager = self.nets[self.peers[from].net].eager() as u64;
        let mut bytes = Vec::new();
        let is_mapped = if len <= eager {
            memory::load(address, len as usize, &mut bytes).is_ok()
        } else {
            memory::is_readable(address, len)
        };
        if !is_mapped {
            let error = Error::bad_pointer(self.rank, address, len, "get");
            return self.refuse(from, token, bell, &error);
        }
        if self.blocks.contain(address, len) {
            self.announce_block(from, address);
        }
        if len > eager {
            return self.send(from, &WireMessage::Readable { token }, &[]);
        }
        self.send(from, &WireMessage::Bytes { token }, &bytes);
        self.copies.packed(bytes.len());
        self.ring_for(from, bell);
    }

    /// Target side: refuses an operation at an invalid address, whose bell never rings.
    pub(crate) fn refuse(&mut self, from: usize, token: u64, bell: BellName, error: &Error) {
        self.fail_bell(bell, error);
        let at_source = false;
        self.send(from, &WireMessage::Failed { token, at_source }, &[]);
    }

    /// Handles the bytes of a get.
    pub(crate) fn on_bytes(&mut self, from: usize, token: u64, bytes: &[u8]) {
        let Some(Op::Get(get)) = self.ops.get(&token) else {
            return;
        };
        if get.target != from || get.source.len != bytes.len() as u64 {
            return;
        }
        get.destination.fill(bytes);
        let bell = get.local_bell;
        self.ops.remove(&token);
        self.copies.delivered(bytes.len());
        self.ring_local(bell);
    }

    /// Handles the owner's confirmation that the bytes are readable.
    pub(crate) fn on_readable(&mut self, from: usize, token: u64) {
        match self.ops.get_mut(&token) {
            Some(Op::Get(get)) if get.target == from && !get.is_reading => get.is_reading = true,
            _ => return,
        }
        self.post_for(token);
    }

    /// Completes a get by a read.
    pub(crate) fn get_done(&mut self, get: Get) {
        self.copies.delivered(get.source.len as usize);
        if !get.remote_bell.is_none() {
            let bell = get.remote_bell;
            self.send(get.target, &WireMessage::Ring { bell }, &[]);
        }
        self.ring_local(get.local_bell);
    }
}
