//! Posting one-sided operations: the caller's promise becomes a value, the rest is safe.
//!
//! What lies in special memory is done before the post returns; see [`super::direct`].

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Iov, OpFlags, Result, Rma};
use selvedge_kit::copy::{RxBuf, TxBuf};

use crate::cmd::IOV_LIMIT;
use crate::endpoint::Endpoint;
use crate::msg::{TX_DEFAULTS, rx_buf, tx_buf};
use crate::state::State;

const WRITE_FLAGS: OpFlags = TX_DEFAULTS.union(OpFlags::DEFAULT).union(OpFlags::MORE);
const READ_FLAGS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::DEFAULT)
    .union(OpFlags::MORE);

const WRITE: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);
const READ: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::READ);

/// A one-sided operation, as far as all kinds have it in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) peer: FiAddr,
    /// The peer's memory.
    pub(crate) pieces: &'a [RmaIov],
    pub(crate) context: Context,
    pub(crate) flags: OpFlags,
    /// Whether success is reported (fi_inject_write(3) does not).
    pub(crate) reports: bool,
}

#[expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]
impl Rma for Endpoint {
    #[inline]
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: the caller's promise is the one that `RxBuf::new` wants.
        let mut buf = unsafe { rx_buf(msg.iov)? };
        if !READ_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.inner.state.lock()?;
        let access = Access {
            peer: msg.src,
            pieces: checked(msg.rma_iov, buf.len())?,
            context: msg.context,
            flags: state.ep.tx_flags(flags),
            reports: true,
        };
        state.read(&mut buf, &access)
    }

    #[inline]
    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: the caller's promise is the one that `TxBuf::new` wants.
        let buf = unsafe { tx_buf(msg.iov)? };
        if !WRITE_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.inner.state.lock()?;
        let access = Access {
            peer: msg.dest,
            pieces: checked(msg.rma_iov, buf.len())?,
            context: msg.context,
            flags: state.ep.tx_flags(flags),
            reports: true,
        };
        state.write(&buf, &access)
    }

    #[inline]
    fn inject_write(
        &self,
        bytes: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        if data.is_some() {
            return Err(Errno::NoSys);
        }
        // SAFETY: `bytes` is borrowed for the whole call, and an injected write is copied before it
        // returns.
        let buf = unsafe { TxBuf::new(&[Iov::new(bytes)]) };
        let len = bytes.len();
        let access = Access {
            peer: dest,
            pieces: &[RmaIov { addr, len, key }],
            context: Context::default(),
            flags: OpFlags::INJECT,
            reports: false,
        };
        self.inner.state.lock()?.write(&buf, &access)
    }
}

/// The peer's pieces, if there are no more than may be and they are as long as ours.
#[inline(always)]
fn checked(pieces: &[RmaIov], len: usize) -> Result<&[RmaIov]> {
    let sum = match pieces {
        [one] => one.len,
        _ if pieces.len() > IOV_LIMIT => return Err(Errno::Inval),
        _ => pieces
            .iter()
            .fold(0, |sum, piece| piece.len.saturating_add(sum)),
    };
    match sum == len {
        true => Ok(pieces),
        false => Err(Errno::Inval),
    }
}

impl State {
    /// Writes to a peer's memory: at once, if that can be.
    #[inline(always)]
    pub(crate) fn write(&mut self, buf: &TxBuf, access: &Access<'_>) -> Result {
        if access.reports && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        let index = self.peer_at(access.peer)?;
        if !self.peers[index].write_directly(buf, access.pieces) {
            return self.write_patiently(index, buf, access);
        }
        match access.reports {
            true => self
                .ep
                .tx_done(access.context, WRITE, access.flags, buf.len()),
            false => self.ep.tx_counted(WRITE, buf.len()),
        }
        Ok(())
    }

    /// Reads a peer's memory: at once, if that can be.
    #[inline(always)]
    pub(crate) fn read(&mut self, buf: &mut RxBuf, access: &Access<'_>) -> Result {
        if self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        let index = self.peer_at(access.peer)?;
        if !self.peers[index].read_directly(buf, access.pieces) {
            return self.read_patiently(index, buf, access);
        }
        self.ep
            .tx_done(access.context, READ, access.flags, buf.len());
        Ok(())
    }

    /// Writes what cannot be written at once.
    #[inline(never)]
    fn write_patiently(&mut self, index: usize, buf: &TxBuf, access: &Access<'_>) -> Result {
        self.get_ready(index)?;
        if !self.peers[index].write_directly(buf, access.pieces) {
            return Err(Errno::NoSys);
        }
        match access.reports {
            true => self
                .ep
                .tx_done(access.context, WRITE, access.flags, buf.len()),
            false => self.ep.tx_counted(WRITE, buf.len()),
        }
        Ok(())
    }

    /// Reads what cannot be read at once.
    #[inline(never)]
    fn read_patiently(&mut self, index: usize, buf: &mut RxBuf, access: &Access<'_>) -> Result {
        self.get_ready(index)?;
        if !self.peers[index].read_directly(buf, access.pieces) {
            return Err(Errno::NoSys);
        }
        self.ep
            .tx_done(access.context, READ, access.flags, buf.len());
        Ok(())
    }

    /// Hears what the peer has said of its memory.
    fn get_ready(&mut self, index: usize) -> Result {
        self.reach(index)?;
        self.hear(index);
        Ok(())
    }
}
