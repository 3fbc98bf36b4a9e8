//! Posting to the endpoint: at once, or when there is room.
//!
//! What is posted to one peer goes in the order of the posts: while something waits, all that comes
//! behind it waits too.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::time::Duration;

use selvedge::{Context, Errno, FiAddr, Iov, IovMut, OpFlags, TagMatch, msg, tagged};

use super::peers::{Peers, Recv, Send};
use super::{Fabric, mark, unexpected, whole, wire_tag};
use crate::control::desk::Desk;
use crate::ids::OpKey;
use crate::method::{Kind, Method, MethodAddr, RecvPost, SendPost};
use crate::{Code, Result};

/// How soon something that waits is tried again, when nobody calls meanwhile.
pub(super) const RETRY: Duration = Duration::from_micros(250);
/// Pieces of short messages are put together here.
const SHORT: usize = 4096;

impl Fabric {
    /// Sends a short message to a peer that is there, without a completion.
    ///
    /// # Safety
    /// The pieces may be read during the call.
    #[inline]
    pub(super) unsafe fn inject(&mut self, post: &SendPost<'_>) -> Result<bool> {
        if post.size > self.inject_size {
            return Ok(false);
        }
        let addr = Peers::addr(post.dest);
        match self.peers.get_mut(addr) {
            // One that was never heard may not be there, and an injected message tells of nothing.
            Some(peer) if peer.is_met && peer.sends.is_empty() => {}
            _ => return Ok(false),
        }
        let sent = match whole(post.pieces) {
            Some(piece) if piece.len > 0 => {
                // SAFETY: the caller promises that the piece may be read now.
                let bytes = unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) };
                self.inject_bytes(post, bytes)
            }
            _ if post.size <= SHORT => {
                // SAFETY: passed on from the caller.
                unsafe { self.inject_list(post) }
            }
            _ => return Ok(false),
        };
        match sent {
            Ok(()) => Ok(true),
            Err(Errno::Again | Errno::MsgSize) => Ok(false),
            Err(errno) => Err(self.lost(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::inject`].
    #[inline(never)]
    unsafe fn inject_list(&self, post: &SendPost<'_>) -> selvedge::Result {
        let mut short = [0; SHORT];
        // SAFETY: passed on from the caller.
        let len = unsafe { gather(post.pieces, &mut short) };
        self.inject_bytes(post, &short[..len])
    }

    #[inline]
    fn inject_bytes(&self, post: &SendPost<'_>, bytes: &[u8]) -> selvedge::Result {
        let dest = Peers::addr(post.dest);
        match post.kind {
            Kind::Expected => self.ep.tinject(bytes, dest, wire_tag(post.tag), None),
            Kind::Unexpected { class } => {
                let data = unexpected::data(post.tag, class);
                self.ep.inject(bytes, dest, Some(data))
            }
        }
    }

    /// Posts a send, or has it wait.
    ///
    /// # Safety
    /// The pieces stay valid and unwritten until the operation is told of as done.
    pub(super) unsafe fn send(
        &mut self,
        key: OpKey,
        post: &SendPost<'_>,
        desk: &mut Desk,
    ) -> Result {
        let addr = Peers::addr(post.dest);
        let is_free = self
            .peers
            .get_mut(addr)
            .is_some_and(|peer| peer.sends.is_empty());
        let posted = match is_free {
            // SAFETY: passed on from the caller.
            true => unsafe { self.post(key, addr, post.pieces, post.tag, post.kind) },
            false => Err(Errno::Again),
        };
        match posted {
            Ok(()) => Ok(()),
            Err(Errno::Again) => {
                // A thread that is parked tries again from now on.
                desk.has_news |= self.peers.is_calm();
                self.peers.hold_send(
                    post.dest,
                    Send {
                        key,
                        pieces: post.pieces.to_vec(),
                        tag: post.tag,
                        kind: post.kind,
                    },
                );
                Ok(())
            }
            Err(errno) => Err(self.lost(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::send`].
    unsafe fn post(
        &self,
        key: OpKey,
        dest: FiAddr,
        iov: &[Iov],
        tag: i32,
        kind: Kind,
    ) -> selvedge::Result {
        let context = Context(key.0);
        match kind {
            Kind::Expected => {
                let msg = tagged::SendMsg {
                    iov,
                    desc: &[],
                    dest,
                    tag: wire_tag(tag),
                    context,
                    data: 0,
                };
                // SAFETY: passed on from the caller.
                unsafe { self.ep.tsendmsg(&msg, OpFlags::empty()) }
            }
            Kind::Unexpected { class } => {
                let msg = msg::SendMsg {
                    iov,
                    desc: &[],
                    dest,
                    context,
                    data: unexpected::data(tag, class),
                };
                // SAFETY: passed on from the caller.
                unsafe { self.ep.sendmsg(&msg, OpFlags::REMOTE_CQ_DATA) }
            }
        }
    }

    /// Posts a receive, or has it wait.
    ///
    /// # Safety
    /// The pieces stay valid, and nobody else reads or writes them, until the operation is told of
    /// as done.
    #[inline]
    pub(super) unsafe fn recv(&mut self, key: OpKey, post: &RecvPost<'_>) -> Result {
        let addr = Peers::addr(post.src);
        let is_free = self
            .peers
            .get_mut(addr)
            .is_some_and(|peer| peer.recvs.is_empty());
        let posted = match is_free {
            // SAFETY: passed on from the caller.
            true => unsafe { self.expect(Context(key.0), addr, post.pieces, wire_tag(post.tag)) },
            false => Err(Errno::Again),
        };
        match posted {
            Ok(()) => Ok(()),
            Err(Errno::Again) => {
                self.peers.hold_recv(
                    post.src,
                    Recv {
                        key,
                        pieces: post.pieces.to_vec(),
                        tag: post.tag,
                    },
                );
                Ok(())
            }
            Err(errno) => Err(self.lost(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::recv`].
    #[inline]
    unsafe fn expect(
        &self,
        context: Context,
        src: FiAddr,
        iov: &[IovMut],
        tag: u64,
    ) -> selvedge::Result {
        let msg = tagged::RecvMsg {
            iov,
            desc: &[],
            src,
            tag: TagMatch::exact(tag),
            context,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.ep.trecvmsg(&msg, OpFlags::empty()) }
    }

    /// A receive was posted for a peer that is gone. Unless a message was there for it, it ends:
    /// nobody else would tell of it.
    #[cold]
    pub(super) fn end_late(&mut self, key: OpKey, desk: &mut Desk) {
        if desk.ops.get(key).is_some_and(|op| op.outcome.is_none()) {
            self.cancel(key, desk);
        }
    }

    /// Has the end of a peer that came by itself be noticed though nothing else is expected of it:
    /// by a receive that no message meets.
    #[cold]
    pub(super) fn watch(&mut self, addr: FiAddr) {
        let context = Context(mark::SENTRY | addr.0);
        let nowhere = [IovMut::from_raw(std::ptr::null_mut(), 0)];
        // SAFETY: there are no bytes.
        let posted = unsafe { self.expect(context, addr, &nowhere, SENTRY_TAG) };
        if let Some(peer) = self.peers.get_mut(addr) {
            peer.has_sentry = posted.is_ok();
        }
    }

    /// Forgets a peer.
    pub(super) fn forget(&mut self, addr: MethodAddr) {
        let index = Peers::addr(addr);
        if self
            .peers
            .get_mut(index)
            .is_some_and(|peer| peer.has_sentry)
        {
            // If it is over already, its completion is, too, and means nothing any more.
            let _ = self.ep.cancel(Context(mark::SENTRY | index.0));
        }
        self.peers.forget(addr);
        // An index that is not there any more is as good as removed.
        let _ = self.av.remove(&[index]);
    }

    /// Tries what waits again.
    #[cold]
    pub(super) fn retry(&mut self, desk: &mut Desk) {
        for index in self.peers.take_busy() {
            let addr = FiAddr(u64::from(index));
            while let Some(send) = self
                .peers
                .get_mut(addr)
                .and_then(|peer| peer.sends.pop_front())
            {
                // SAFETY: who posted it promised that the pieces stay valid until it is told of as
                // done, which was not yet.
                let posted =
                    unsafe { self.post(send.key, addr, &send.pieces, send.tag, send.kind) };
                match posted {
                    Ok(()) => {}
                    Err(Errno::Again) => {
                        let peer = self.peers.get_mut(addr);
                        peer.expect("it was there").sends.push_front(send);
                        break;
                    }
                    Err(errno) => desk.complete(send.key, Err(self.lost(addr, errno))),
                }
            }
            while let Some(recv) = self
                .peers
                .get_mut(addr)
                .and_then(|peer| peer.recvs.pop_front())
            {
                let context = Context(recv.key.0);
                // SAFETY: as above.
                let posted =
                    unsafe { self.expect(context, addr, &recv.pieces, wire_tag(recv.tag)) };
                match posted {
                    Ok(()) => {}
                    Err(Errno::Again) => {
                        let peer = self.peers.get_mut(addr);
                        peer.expect("it was there").recvs.push_front(recv);
                        break;
                    }
                    Err(errno) => desk.complete(recv.key, Err(self.lost(addr, errno))),
                }
            }
            self.peers.put_back(index);
        }
    }

    /// A peer is lost, or refused a post. The code that says why.
    #[cold]
    pub(super) fn lost(&mut self, addr: FiAddr, errno: Errno) -> Code {
        let code = Code::from(errno);
        let Some(peer) = self.peers.get_mut(addr) else {
            return code;
        };
        peer.is_met = false;
        match errno {
            Errno::NotConn => return peer.lost_by.unwrap_or(code),
            Errno::ConnRefused | Errno::ConnReset | Errno::TimedOut => peer.lost_by = Some(code),
            _ => {}
        }
        code
    }
}

/// No message has it: tags of BMI have 32 bits.
const SENTRY_TAG: u64 = 1 << 63;

/// Puts the pieces of a short message together.
///
/// # Safety
/// The pieces may be read now.
unsafe fn gather(pieces: &[Iov], into: &mut [u8]) -> usize {
    let mut len = 0;
    for piece in pieces.iter().filter(|piece| piece.len > 0) {
        // SAFETY: the caller promises that the piece may be read now.
        let bytes = unsafe { std::slice::from_raw_parts(piece.base.cast(), piece.len) };
        into[len..len + piece.len].copy_from_slice(bytes);
        len += piece.len;
    }
    len
}
