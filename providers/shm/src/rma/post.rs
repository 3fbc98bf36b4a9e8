//! Posting one-sided operations: the caller's promise becomes a value, the rest is safe.
//!
//! What lies in special memory is done before the post returns; see [`super::direct`].

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Iov, OpFlags, Result, Rma};
use selvedge_kit::Report;
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::places::Places;

use super::{Access, Local};
use crate::endpoint::Endpoint;
use crate::msg::{TX_DEFAULTS, rx_buf, tx_buf};
use crate::state::State;

const WRITE: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::WRITE);
const READ: CompletionFlags = CompletionFlags::RMA.union(CompletionFlags::READ);

const READ_FLAGS: OpFlags = TX_DEFAULTS
    .union(OpFlags::DEFAULT)
    .union(OpFlags::FENCE)
    .union(OpFlags::MORE)
    .union(OpFlags::DEFERRED);
const WRITE_FLAGS: OpFlags = READ_FLAGS.union(OpFlags::REMOTE_CQ_DATA);

/// A one-sided operation as it is posted.
#[derive(Clone, Copy, Debug)]
struct Post<'a> {
    peer: FiAddr,
    /// The peer's memory.
    pieces: &'a [RmaIov],
    data: Option<u64>,
    report: Report,
}

#[expect(unsafe_code, reason = "the raw face: a post is a promise about memory")]
impl Rma for Endpoint {
    #[inline]
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        if !READ_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.inner.state.lock()?;
        let flags = state.ep.tx_flags(flags);
        if let &[piece] = msg.iov
            && piece.len == 8
        {
            // SAFETY: the caller's promise is the one that `RxBuf::new` wants.
            let buf = unsafe { RxBuf::one(piece) };
            let report = report(READ, msg.context, flags, 8);
            if state.get_word(buf, msg.src, msg.rma_iov, &report) {
                return Ok(());
            }
        }
        // SAFETY: as above.
        let buf = unsafe { rx_buf(msg.iov)? };
        let post = Post {
            peer: msg.src,
            pieces: msg.rma_iov,
            data: None,
            report: report(READ, msg.context, flags, buf.len()),
        };
        state.post_read(buf, &post)
    }

    #[inline]
    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        if !WRITE_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.inner.state.lock()?;
        let flags = state.ep.tx_flags(flags);
        if let &[piece] = msg.iov
            && piece.len == 8
        {
            // SAFETY: the caller's promise is the one that `TxBuf::new` wants.
            let word = unsafe { TxBuf::one(piece) }.word();
            let report = report(WRITE, msg.context, flags, 8);
            if state.put_word(word, msg.dest, msg.rma_iov, &report) {
                return Ok(());
            }
        }
        // SAFETY: as above.
        let buf = unsafe { tx_buf(msg.iov)? };
        let has_data = flags.contains(OpFlags::REMOTE_CQ_DATA);
        let post = Post {
            peer: msg.dest,
            pieces: msg.rma_iov,
            data: has_data.then_some(msg.data),
            report: report(WRITE, msg.context, flags, buf.len()),
        };
        state.post_write(buf, &post)
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
        if bytes.len() > self.inject_size {
            return Err(Errno::MsgSize);
        }
        // SAFETY: `bytes` is borrowed for the whole call, and an operation with `INJECT` keeps no
        // buffer beyond it: what is not sent at once is copied.
        let buf = unsafe { TxBuf::new(&[Iov::new(bytes)]) };
        let len = bytes.len();
        let post = Post {
            peer: dest,
            pieces: &[RmaIov { addr, len, key }],
            data,
            report: Report {
                what: WRITE,
                context: Context::default(),
                flags: OpFlags::INJECT,
                completes: false,
                len,
            },
        };
        self.inner.state.lock()?.post_write(buf, &post)
    }
}

/// How an operation that reports success is told of.
#[inline(always)]
fn report(what: CompletionFlags, context: Context, flags: OpFlags, len: usize) -> Report {
    Report {
        what,
        context,
        flags,
        completes: true,
        len,
    }
}

impl State {
    /// Writes to a peer's memory: at once, if that is all there is to do.
    #[inline(always)]
    fn post_write(&mut self, buf: TxBuf, post: &Post<'_>) -> Result {
        if post.report.completes && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        let index = self.peer_at(post.peer)?;
        let peer = &mut self.peers[index];
        if !peer.is_careful && post.is_plain() && peer.write_directly(&buf, post.pieces) {
            post.report.done(&self.ep);
            return Ok(());
        }
        if self.write_and_tell(index, &buf, post.pieces, post.data, post.report.flags) {
            post.report.done(&self.ep);
            return Ok(());
        }
        if self.write_inside(index, &buf, post.pieces, post.data, post.report.flags) {
            post.report.done(&self.ep);
            return Ok(());
        }
        self.access(post.access()?, Local::From(buf))
    }

    /// Reads a peer's memory: at once, if that is all there is to do.
    #[inline(always)]
    fn post_read(&mut self, mut buf: RxBuf, post: &Post<'_>) -> Result {
        if self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        let index = self.peer_at(post.peer)?;
        let peer = &mut self.peers[index];
        if !peer.is_careful && post.is_plain() && peer.read_directly(&mut buf, post.pieces) {
            drop(buf);
            post.report.done(&self.ep);
            return Ok(());
        }
        self.access(post.access()?, Local::To(buf))
    }
}

impl Post<'_> {
    /// Whether the bytes are all that there is to it.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.data.is_none() && !self.report.flags.contains(OpFlags::FENCE)
    }

    /// The operation, whose places have as many bytes as its buffer.
    fn access(&self) -> Result<Access> {
        let places = Places::new(self.pieces)?;
        if places.len() != self.report.len {
            return Err(Errno::Inval);
        }
        Ok(Access {
            places,
            peer: self.peer,
            data: self.data,
            report: self.report,
        })
    }
}
