//! Posting: method selection, argument checks and immediate completions.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use selvedge::{Iov, IovMut};

use super::bmi::Bmi;
use super::method_instance::{LockedMethod, MethodInstance};
use super::pack;
use crate::ids::{OpId, OpKey};
use crate::method::{Kind, RecvPost, SendPost};
use crate::support::ops::{Op, Retained};
use crate::{Addr, Code, ContextId, Result};

/// Arguments that all posts have in common.
#[derive(Clone, Copy, Debug)]
pub struct Post<P> {
    /// The peer.
    pub addr: Addr,
    /// The memory.
    pub segments: P,
    /// The tag. A send matches a receive of the same tag and peer.
    pub tag: i32,
    /// The application's value, which the completion returns.
    pub user: u64,
    /// The context in which the completion is collected.
    pub context: ContextId,
}

impl<P> Post<P> {
    /// A post with `user` 0.
    pub const fn new(addr: Addr, segments: P, tag: i32, context: ContextId) -> Self {
        Self {
            addr,
            segments,
            tag,
            user: 0,
            context,
        }
    }

    /// Sets the value that the completion returns.
    #[must_use]
    pub fn with_user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }
}

/// Result of a post.
#[derive(Debug)]
pub enum Posted<D = u64> {
    /// The operation is complete, and no test reports it. Holds the number of bytes or the
    /// completion.
    Done(D),
    /// The operation is pending; a later test reports its completion.
    Pending(OpId),
}

impl Bmi {
    /// Posts a send (`BMI_post_send` and `BMI_post_send_list`). Calls `on_id` with the operation's
    /// id before any thread can see its completion.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for an unknown peer and [`Code::EPIPE`] for a disconnected one,
    /// [`Code::EMSGSIZE`] for a message above the limit, [`Code::EINVAL`] for a context that is not
    /// open.
    ///
    /// # Safety
    /// The bytes of `post.segments` stay valid and unwritten until the operation is collected or
    /// this instance is dropped. If the operation is not pending, only until the call returns.
    #[inline]
    pub unsafe fn post_send_raw(
        &self,
        post: &Post<&[Iov]>,
        on_id: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(post, Kind::Expected, &mut None, on_id) }
    }

    /// Posts an unexpected message (`BMI_post_sendunexpected_class` and its list form). Apart from
    /// that, as [`Self::post_send_raw`].
    ///
    /// # Errors
    /// As [`Self::post_send_raw`].
    ///
    /// # Safety
    /// As [`Self::post_send_raw`].
    #[inline]
    pub unsafe fn post_sendunexpected_raw(
        &self,
        post: &Post<&[Iov]>,
        class: u8,
        on_id: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(post, Kind::Unexpected { class }, &mut None, on_id) }
    }

    /// Posts a receive (`BMI_post_recv` and `BMI_post_recv_list`). Apart from that, as
    /// [`Self::post_send_raw`].
    ///
    /// # Errors
    /// As [`Self::post_send_raw`], but [`Code::EINVAL`] for a size above the method's limit.
    ///
    /// # Safety
    /// The bytes of `post.segments` stay valid, and no other code reads or writes them, until the
    /// operation is collected or this instance is dropped. If the operation is not pending, only
    /// until the call returns.
    #[inline]
    pub unsafe fn post_recv_raw(
        &self,
        post: &Post<&[IovMut]>,
        on_id: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.recv(post, &mut None, on_id) }
    }

    /// Posts a send. A pending operation takes the memory out of `retained`; after any other
    /// result, `retained` holds the memory again.
    ///
    /// # Safety
    /// As [`Self::post_send_raw`]; `retained` may own the bytes.
    #[inline]
    pub(crate) unsafe fn send(
        &self,
        post: &Post<&[Iov]>,
        kind: Kind,
        retained: &mut Option<Box<dyn Retained>>,
        on_id: impl FnOnce(OpId),
    ) -> Result<Posted> {
        let instance = self.instance_of(post.addr)?;
        let context = self.context(post.context)?;
        let size =
            total_size(post.segments.iter().map(|segment| segment.len)).ok_or(Code::EMSGSIZE)?;
        let limit = match kind {
            Kind::Expected => instance.limits.size,
            Kind::Unexpected { .. } => instance.limits.unexpected,
        };
        if size as u64 > limit {
            return Err(Code::EMSGSIZE);
        }
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let send = SendPost {
            dest: queues.references.resolve(post.addr)?,
            segments: post.segments,
            size,
            tag: post.tag,
            kind,
        };
        if post.segments.len() <= instance.limits.segments {
            // SAFETY: passed on from the caller.
            if unsafe { method.send_now(&send) }? {
                return Ok(Posted::Done(size as u64));
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { send_slow_path(locked, instance, post, context, send, retained, on_id) }
    }

    /// Posts a receive. A pending operation takes the memory out of `retained`; after any other
    /// result, `retained` holds the memory again.
    ///
    /// # Safety
    /// As [`Self::post_recv_raw`]; `retained` may own the bytes.
    #[inline]
    pub(crate) unsafe fn recv(
        &self,
        post: &Post<&[IovMut]>,
        retained: &mut Option<Box<dyn Retained>>,
        on_id: impl FnOnce(OpId),
    ) -> Result<Posted> {
        let instance = self.instance_of(post.addr)?;
        let context = self.context(post.context)?;
        let size =
            total_size(post.segments.iter().map(|segment| segment.len)).ok_or(Code::EINVAL)?;
        if size as u64 > instance.limits.size {
            return Err(Code::EINVAL);
        }
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let src = queues.references.resolve_source(post.addr)?;
        let mut op = Op::new(post.addr, post.tag, size as u64);
        op.user = post.user;
        op.context = Some(context);
        let mut segments = post.segments;
        let segment;
        if post.segments.len() > instance.limits.segments {
            // SAFETY: the caller guarantees that the segments stay valid until the operation is
            // complete.
            let mut unpack = unsafe { pack::Unpacked::new(post.segments, size) }?;
            segment = [unpack.segment()];
            op.retained = Some(Box::new(unpack.with(retained.take())));
            segments = &segment;
        } else {
            op.retained = retained.take();
        }
        let key = queues.alloc_op(op)?;
        on_id(OpId::new(instance.index, key));
        let post = RecvPost {
            src,
            segments,
            size,
            tag: post.tag,
        };
        // SAFETY: the caller keeps its own segments valid. The operation owns a buffer for
        // unpacking until the operation is freed.
        let posted = unsafe { method.post_recv(key, &post, queues) };
        finish_post(&mut locked, instance, key, posted, retained)
    }

    #[inline]
    fn instance_of(&self, addr: Addr) -> Result<&MethodInstance> {
        if addr.0 <= 0 {
            return Err(self.unknown_peer_code());
        }
        self.method_instance(addr.method())
            .ok_or_else(|| self.unknown_peer_code())
    }

    #[cold]
    fn unknown_peer_code(&self) -> Code {
        Code::EPROTO
    }
}

/// Slow path of a send: allocates an operation, and packs a segment list above the method's limit.
///
/// # Safety
/// As [`Bmi::send`].
#[inline(never)]
unsafe fn send_slow_path(
    mut locked: LockedMethod<'_>,
    instance: &MethodInstance,
    post: &Post<&[Iov]>,
    context: u8,
    send: SendPost<'_>,
    retained: &mut Option<Box<dyn Retained>>,
    on_id: impl FnOnce(OpId),
) -> Result<Posted> {
    let (method, queues) = locked.split();
    let mut packed = None;
    let segment;
    let mut send = send;
    if post.segments.len() > instance.limits.segments {
        // SAFETY: the caller guarantees that the segments are readable.
        let pack = unsafe { pack::Packed::gather(post.segments, send.size) }?;
        segment = [pack.segment()];
        packed = Some(pack);
        send.segments = &segment;
        // SAFETY: `packed` outlives the call.
        if unsafe { method.send_now(&send) }? {
            return Ok(Posted::Done(send.size as u64));
        }
    }
    let mut op = Op::new(post.addr, post.tag, send.size as u64);
    op.user = post.user;
    op.context = Some(context);
    op.retained = match packed {
        Some(pack) => Some(Box::new(pack.with(retained.take()))),
        None => retained.take(),
    };
    let key = queues.alloc_op(op)?;
    on_id(OpId::new(instance.index, key));
    // SAFETY: the caller keeps its own segments valid. The operation owns a packed buffer until the
    // operation is freed.
    let posted = unsafe { method.post_send(key, &send, queues) };
    finish_post(&mut locked, instance, key, posted, retained)
}

/// Frees an operation that failed or is already complete, and returns the outcome of its post.
#[inline]
fn finish_post(
    locked: &mut LockedMethod<'_>,
    instance: &MethodInstance,
    key: OpKey,
    posted: Result<()>,
    retained: &mut Option<Box<dyn Retained>>,
) -> Result<Posted> {
    let queues = locked.queues();
    if let Err(code) = posted {
        *retained = queues.free_op(key).and_then(|op| op.retained);
        return Err(code);
    }
    match queues.take_success(key) {
        Some((len, memory)) => {
            *retained = memory;
            Ok(Posted::Done(len))
        }
        None => Ok(Posted::Pending(OpId::new(instance.index, key))),
    }
}

/// The sum of the sizes; `None` if it exceeds `isize::MAX`.
#[inline]
fn total_size(sizes: impl Iterator<Item = usize>) -> Option<usize> {
    let mut total_size = 0_usize;
    for size in sizes {
        total_size = total_size.checked_add(size)?;
    }
    (total_size <= isize::MAX as usize).then_some(total_size)
}
