//! Puts: bytes of ours that go to a place in another context's memory.
//!
//! | to | how | bells |
//! |---|---|---|
//! | special memory | written by us; the remote bell's name is the data of the write | local at once or at the completion, remote when the target polls |
//! | other memory, few bytes | a message, which the target copies | local at once, remote at the copy |
//! | other memory | the target fetches them | both at the end of the fetch |
//!
//! Only the owner of memory touches it, after it has asked the kernel whether it is memory: a wrong
//! address is the initiator's error.

use selvedge::Errno;

use super::{Engine, Op};
use crate::bell::BellName;
use crate::local::Local;
use crate::wire::{Said, Source};
use crate::{Error, Result, memory};

/// What a put is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    pub(crate) to: usize,
    pub(crate) remote: u64,
    pub(crate) local: Local,
    pub(crate) local_bell: BellName,
    pub(crate) remote_bell: BellName,
}

/// Bytes that a target fetches.
#[derive(Debug)]
pub(super) struct PutLent {
    pub(super) to: usize,
    remote: u64,
    len: u64,
    pub(super) bell: BellName,
}

/// Bytes that we write.
#[derive(Debug)]
pub(super) struct PutDirect {
    pub(super) to: usize,
    pub(super) bell: BellName,
}

/// Bytes that we fetch for an initiator.
#[derive(Debug)]
pub(super) struct PutFetch {
    pub(super) from: usize,
    pub(super) source: Source,
    pub(super) to: u64,
    bell: BellName,
    token: u32,
}

const WHAT: &str = "put";

impl Engine {
    /// Starts a put.
    ///
    /// # Errors
    /// When there is no such context, or it is gone. What goes wrong later is told by the local bell
    /// and as a failure.
    #[inline]
    pub(crate) fn put(&mut self, put: &Put) -> Result {
        self.check(put.to)?;
        if put.to == self.me {
            return self.put_here(put);
        }
        self.check_alive(put.to)?;
        self.peers[put.to].owes_flush = true;
        let len = put.local.len();
        if let Some(&block) = self.peers[put.to].block_of(put.remote, len) {
            let inject_size = self.nets[self.peers[put.to].net].inject_size();
            if len <= inject_size as u64 {
                let bytes = put.local.bytes();
                match self.write_copy(put.to, put.remote, block, bytes, put.remote_bell) {
                    Ok(()) => {
                        self.copies.placed(bytes.len());
                        self.ring_own(put.local_bell);
                        return Ok(());
                    }
                    Err(errno) => self.not_written(put, errno)?,
                }
            } else if self.put_direct(put, block)? {
                return Ok(());
            }
        }
        self.put_by_message(put);
        Ok(())
    }

    /// A write was not taken: the message that does the same is, if there just was no room.
    #[cold]
    fn not_written(&mut self, put: &Put, errno: Errno) -> Result {
        match errno {
            Errno::Again => Ok(()),
            errno => {
                self.not_sent(put.to, errno);
                self.check_alive(put.to)
            }
        }
    }

    /// Writes into special memory; says whether it was taken.
    fn put_direct(&mut self, put: &Put, block: super::peer::Block) -> Result<bool> {
        let op = self.add_op(Op::PutDirect(PutDirect {
            to: put.to,
            bell: put.local_bell,
        }));
        let written = self.write_lent(op, put.to, put.remote, block, put.local, put.remote_bell);
        let Err(errno) = written else {
            self.copies.placed(put.local.len() as usize);
            return Ok(true);
        };
        self.ops.remove(&op);
        self.not_written(put, errno)?;
        Ok(false)
    }

    #[inline]
    fn put_by_message(&mut self, put: &Put) {
        let net = &self.nets[self.peers[put.to].net];
        let len = put.local.len();
        if len <= net.eager() as u64 {
            let said = Said::Put {
                to: put.remote,
                bell: put.remote_bell,
                local: put.local_bell,
            };
            self.copies.packed(len as usize);
            self.send(put.to, &said, put.local.bytes());
            self.ring_own(put.local_bell);
            return;
        }
        let source = net.source(put.local.address(), len);
        let token = self.add_op(Op::PutLent(PutLent {
            to: put.to,
            remote: put.remote,
            len,
            bell: put.local_bell,
        }));
        let said = Said::PutFetch {
            source,
            to: put.remote,
            bell: put.remote_bell,
            token: token as u32,
        };
        self.send(put.to, &said, &[]);
    }

    fn put_here(&mut self, put: &Put) -> Result {
        let (from, len) = (put.local.address(), put.local.len());
        if memory::copy_within(from, put.remote, len).is_err() {
            let why = self.bad_pointer(self.me, put.remote, len, WHAT);
            self.muffle(put.local_bell, &why);
            self.fail(why);
            return Ok(());
        }
        self.copies.placed(len as usize);
        self.ring_own(put.local_bell);
        self.ring_own(put.remote_bell);
        Ok(())
    }

    // The target's half.

    /// Copies the few bytes that came with a put.
    #[inline]
    pub(super) fn hear_put(&mut self, from: usize, to: u64, bytes: &[u8], bells: [BellName; 2]) {
        let [bell, local] = bells;
        let len = bytes.len() as u64;
        let stored = match self.blocks.find(to, len) {
            Some(block) => {
                block.store(to, bytes);
                self.introduce_block(from, to);
                Ok(())
            }
            None => memory::store(to, bytes),
        };
        if stored.is_ok() {
            self.copies.delivered(bytes.len());
            return self.ring_for(from, bell);
        }
        let why = self.bad_pointer(self.me, to, len, WHAT);
        self.muffle(bell, &why);
        self.send(from, &Said::PutFailed { to, len, local }, &[]);
    }

    /// Fetches the bytes of a put.
    pub(super) fn hear_put_fetch(
        &mut self,
        from: usize,
        source: Source,
        to: u64,
        bell: BellName,
        token: u32,
    ) {
        if !memory::is_writable(to, source.len) {
            let why = self.bad_pointer(self.me, to, source.len, WHAT);
            self.muffle(bell, &why);
            let said = Said::Failed {
                token: token.into(),
                at_source: false,
            };
            return self.send(from, &said, &[]);
        }
        if self.blocks.contain(to, source.len) {
            self.introduce_block(from, to);
        }
        let op = self.add_op(Op::PutFetch(PutFetch {
            from,
            source,
            to,
            bell,
            token,
        }));
        self.read_for(op);
    }

    pub(super) fn put_fetched(&mut self, op: &PutFetch) {
        self.copies.delivered(op.source.len as usize);
        self.ring_for(op.from, op.bell);
        let token = op.token.into();
        self.send(op.from, &Said::Done { token }, &[]);
    }

    pub(super) fn put_not_fetched(&mut self, op: &PutFetch, errno: Errno) {
        let why = Error::Fabric {
            context: self.me,
            what: format!(
                "{} bytes of a put by context {} cannot be fetched: {errno}",
                op.source.len, op.from
            ),
        };
        self.muffle(op.bell, &why);
        let said = Said::Failed {
            token: op.token.into(),
            at_source: true,
        };
        self.send(op.from, &said, &[]);
    }

    // The initiator's half, later.

    /// A target has fetched what an operation lent.
    pub(super) fn hear_done(&mut self, from: usize, token: u64) {
        let is_theirs = self.ops.get(&token).is_some_and(|op| op.peer() == from);
        if !is_theirs {
            return;
        }
        match self.ops.remove(&token) {
            Some(Op::PutLent(op)) => self.ring_own(op.bell),
            Some(Op::Lent(op)) => {
                self.parcels.take_back(op.bytes);
                self.ring_own(op.bell);
            }
            Some(Op::Flush { .. }) => {}
            Some(other) => {
                self.ops.insert(token, other);
            }
            None => {}
        }
    }

    /// A target could not do what an operation asked for.
    #[cold]
    pub(super) fn hear_failed(&mut self, from: usize, token: u64, at_source: bool) {
        let is_theirs = self.ops.get(&token).is_some_and(|op| op.peer() == from);
        let op = match self.ops.remove(&token) {
            Some(op) if is_theirs => op,
            Some(op) => {
                self.ops.insert(token, op);
                return;
            }
            None => return,
        };
        let why = match (&op, at_source) {
            (Op::PutLent(op), false) => self.bad_pointer(from, op.remote, op.len, WHAT),
            (Op::Get(op), false) => self.bad_pointer(from, op.source.addr, op.source.len, "get"),
            _ => self.refused(from, "it could not fetch the bytes"),
        };
        self.give_up(op, &why);
    }

    /// A target could not copy, or ring.
    #[cold]
    pub(super) fn hear_put_failed(&mut self, from: usize, to: u64, len: u64, local: BellName) {
        let why = self.bad_pointer(from, to, len, WHAT);
        self.muffle(local, &why);
        self.fail(why);
    }
}
