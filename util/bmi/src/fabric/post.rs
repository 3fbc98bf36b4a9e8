//! Posts to the endpoint, at once or when the endpoint has room.
//!
//! Posts to one peer are made in order: while a post is queued, all later posts are queued too.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::time::Duration;

use selvedge::{Context, Errno, FiAddr, Iov, IovMut, OpFlags, TagMatch, msg, tagged};

use super::endpoint::Fabric;
use super::peers::{Peers, Recv, Send};
use super::wire::{context_flags, encode_data, wire_tag};
use crate::control::queues::MethodQueues;
use crate::ids::OpKey;
use crate::method::{Kind, Method, MethodAddr, RecvPost, SendPost};
use crate::{Code, Result};

/// Interval between attempts to make a queued post while no thread calls.
pub(super) const RETRY: Duration = Duration::from_micros(250);
/// Limit in bytes for gathering a list before an injection.
const SHORT: usize = 4096;

impl Fabric {
    /// Injects a short message to a connected peer, without a completion.
    ///
    /// # Safety
    /// The segments are readable during the call.
    #[inline]
    pub(super) unsafe fn inject(&mut self, post: &SendPost<'_>) -> Result<bool> {
        if post.size > self.inject_size {
            return Ok(false);
        }
        let addr = Peers::addr(post.dest);
        match self.peers.get_mut(addr) {
            // An injected message reports no error, so the peer must have been reached before.
            Some(peer) if peer.is_connected && peer.sends.is_empty() => {}
            _ => return Ok(false),
        }
        let sent = match single_segment(post.segments) {
            Some(segment) if segment.len > 0 => {
                // SAFETY: the caller guarantees that the segment is readable now.
                let bytes = unsafe { std::slice::from_raw_parts(segment.base.cast(), segment.len) };
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
            Err(errno) => Err(self.peer_failure(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::inject`].
    #[inline(never)]
    unsafe fn inject_list(&self, post: &SendPost<'_>) -> selvedge::Result {
        let mut gathered = [0; SHORT];
        // SAFETY: passed on from the caller.
        let len = unsafe { gather(post.segments, &mut gathered) };
        self.inject_bytes(post, &gathered[..len])
    }

    #[inline]
    fn inject_bytes(&self, post: &SendPost<'_>, bytes: &[u8]) -> selvedge::Result {
        let dest = Peers::addr(post.dest);
        match post.kind {
            Kind::Expected => self.ep.tinject(bytes, dest, wire_tag(post.tag), None),
            Kind::Unexpected { class } => {
                let data = encode_data(post.tag, class);
                self.ep.inject(bytes, dest, Some(data))
            }
        }
    }

    /// Posts a send, or queues it.
    ///
    /// # Safety
    /// The segments stay valid and unwritten until the operation is reported as complete.
    pub(super) unsafe fn send(
        &mut self,
        key: OpKey,
        post: &SendPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        let addr = Peers::addr(post.dest);
        let has_no_backlog = self
            .peers
            .get_mut(addr)
            .is_some_and(|peer| peer.sends.is_empty());
        let posted = if has_no_backlog {
            // SAFETY: passed on from the caller.
            unsafe { self.post_message(key, addr, post.segments, post.tag, post.kind) }
        } else {
            Err(Errno::Again)
        };
        match posted {
            Ok(()) => Ok(()),
            Err(Errno::Again) => {
                // A parked thread must retry from now on.
                queues.has_events |= !self.peers.has_backlog();
                self.peers.queue_send(
                    post.dest,
                    Send {
                        key,
                        segments: post.segments.to_vec(),
                        tag: post.tag,
                        kind: post.kind,
                    },
                );
                Ok(())
            }
            Err(errno) => Err(self.peer_failure(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::send`].
    unsafe fn post_message(
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
                    data: encode_data(tag, class),
                };
                // SAFETY: passed on from the caller.
                unsafe { self.ep.sendmsg(&msg, OpFlags::REMOTE_CQ_DATA) }
            }
        }
    }

    /// Posts a receive, or queues it.
    ///
    /// # Safety
    /// The segments stay valid, and no other code reads or writes them, until the operation is
    /// reported as complete.
    #[inline]
    pub(super) unsafe fn recv(&mut self, key: OpKey, post: &RecvPost<'_>) -> Result {
        let addr = Peers::addr(post.src);
        let has_no_backlog = self
            .peers
            .get_mut(addr)
            .is_some_and(|peer| peer.recvs.is_empty());
        let posted = if has_no_backlog {
            // SAFETY: passed on from the caller.
            unsafe {
                self.post_tagged_recv(Context(key.0), addr, post.segments, wire_tag(post.tag))
            }
        } else {
            Err(Errno::Again)
        };
        match posted {
            Ok(()) => Ok(()),
            Err(Errno::Again) => {
                self.peers.queue_recv(
                    post.src,
                    Recv {
                        key,
                        segments: post.segments.to_vec(),
                        tag: post.tag,
                    },
                );
                Ok(())
            }
            Err(errno) => Err(self.peer_failure(addr, errno)),
        }
    }

    /// # Safety
    /// As [`Self::recv`].
    #[inline]
    unsafe fn post_tagged_recv(
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

    /// Cancels a receive from a disconnected peer unless a message matched it. No later event would
    /// end it.
    #[cold]
    pub(super) fn cancel_unmatched(&mut self, key: OpKey, queues: &mut MethodQueues) {
        if queues.ops.get(key).is_some_and(|op| op.outcome.is_none()) {
            self.cancel(key, queues);
        }
    }

    /// Posts a receive that matches no message, so that the disconnect of a peer without a lookup
    /// is reported.
    #[cold]
    pub(super) fn watch(&mut self, addr: FiAddr) {
        let context = Context(context_flags::WATCH | addr.0);
        let no_buffer = [IovMut::from_raw(std::ptr::null_mut(), 0)];
        // SAFETY: the receive has no bytes.
        let posted = unsafe { self.post_tagged_recv(context, addr, &no_buffer, WATCH_TAG) };
        if let Some(peer) = self.peers.get_mut(addr) {
            peer.has_watch = posted.is_ok();
        }
    }

    /// Forgets a peer.
    pub(super) fn forget(&mut self, addr: MethodAddr) {
        let index = Peers::addr(addr);
        if self.peers.get_mut(index).is_some_and(|peer| peer.has_watch) {
            // A watch receive that has failed already has a completion, which is ignored.
            let _ = self.ep.cancel(Context(context_flags::WATCH | index.0));
        }
        self.peers.forget(addr);
        // The index may have been removed already.
        let _ = self.av.remove(&[index]);
    }

    /// Retries the queued posts.
    #[cold]
    pub(super) fn retry(&mut self, queues: &mut MethodQueues) {
        for index in self.peers.take_backlogged() {
            let addr = FiAddr(u64::from(index));
            while let Some(send) = self
                .peers
                .get_mut(addr)
                .and_then(|peer| peer.sends.pop_front())
            {
                // SAFETY: the poster guaranteed that the segments stay valid until the operation is
                // reported as complete, which has not happened yet.
                let posted = unsafe {
                    self.post_message(send.key, addr, &send.segments, send.tag, send.kind)
                };
                match posted {
                    Ok(()) => {}
                    Err(Errno::Again) => {
                        let peer = self.peers.get_mut(addr);
                        peer.expect("the send came from this peer")
                            .sends
                            .push_front(send);
                        break;
                    }
                    Err(errno) => queues.complete(send.key, Err(self.peer_failure(addr, errno))),
                }
            }
            while let Some(recv) = self
                .peers
                .get_mut(addr)
                .and_then(|peer| peer.recvs.pop_front())
            {
                let context = Context(recv.key.0);
                // SAFETY: as above.
                let posted = unsafe {
                    self.post_tagged_recv(context, addr, &recv.segments, wire_tag(recv.tag))
                };
                match posted {
                    Ok(()) => {}
                    Err(Errno::Again) => {
                        let peer = self.peers.get_mut(addr);
                        peer.expect("the receive came from this peer")
                            .recvs
                            .push_front(recv);
                        break;
                    }
                    Err(errno) => queues.complete(recv.key, Err(self.peer_failure(addr, errno))),
                }
            }
            self.peers.requeue(index);
        }
    }

    /// Records a peer failure or a refused post. Returns the code that explains it.
    #[cold]
    pub(super) fn peer_failure(&mut self, addr: FiAddr, errno: Errno) -> Code {
        let code = Code::from(errno);
        let Some(peer) = self.peers.get_mut(addr) else {
            return code;
        };
        peer.is_connected = false;
        match errno {
            Errno::NotConn => return peer.last_failure.unwrap_or(code),
            Errno::ConnRefused | Errno::ConnReset | Errno::TimedOut => {
                peer.last_failure = Some(code)
            }
            _ => {}
        }
        code
    }
}

/// A tag that no message has: BMI tags have 32 bits.
const WATCH_TAG: u64 = 1 << 63;

/// Copies the segments of a short message into one buffer.
///
/// # Safety
/// The segments are readable.
unsafe fn gather(segments: &[Iov], buffer: &mut [u8]) -> usize {
    let mut len = 0;
    for segment in segments.iter().filter(|segment| segment.len > 0) {
        // SAFETY: the caller guarantees that the segment is readable now.
        let bytes = unsafe { std::slice::from_raw_parts(segment.base.cast(), segment.len) };
        buffer[len..len + segment.len].copy_from_slice(bytes);
        len += segment.len;
    }
    len
}

/// The only segment of a message; `None` for a list.
#[inline]
fn single_segment(segments: &[Iov]) -> Option<Iov> {
    match *segments {
        [segment] => Some(segment),
        _ => None,
    }
}
