//! Posting: which method, what is not allowed, and what is done at once.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use selvedge::{Iov, IovMut};

use super::station::{Held, Station};
use super::{Bmi, pack};
use crate::ids::{OpId, OpKey};
use crate::method::{Kind, RecvPost, SendPost};
use crate::support::ops::{Keep, Op};
use crate::{Addr, Code, ContextId, Result};

/// What every post has in common.
#[derive(Clone, Copy, Debug)]
pub struct Post<P> {
    /// The peer.
    pub addr: Addr,
    /// The memory.
    pub pieces: P,
    /// Sends and receives match by it.
    pub tag: i32,
    /// Comes back with the completion.
    pub user: u64,
    /// Where the completion is collected.
    pub context: ContextId,
}

impl<P> Post<P> {
    /// A post whose completion carries no word.
    pub const fn new(addr: Addr, pieces: P, tag: i32, context: ContextId) -> Self {
        Self {
            addr,
            pieces,
            tag,
            user: 0,
            context,
        }
    }

    /// The same, with a word for the completion.
    #[must_use]
    pub fn with_user(mut self, user: u64) -> Self {
        self.user = user;
        self
    }
}

/// What became of a post.
#[derive(Debug)]
pub enum Posted<D = u64> {
    /// It is over, and no test will tell of it: so many bytes were moved.
    Done(D),
    /// It goes on; a test will tell of it.
    Pending(OpId),
}

impl Bmi {
    /// Posts a send (`BMI_post_send` and `BMI_post_send_list`). Its id is handed to `stored` before
    /// its completion can be seen.
    ///
    /// # Errors
    /// [`Code::EPROTO`] for no peer and [`Code::EPIPE`] for one that is gone, [`Code::EMSGSIZE`]
    /// for a message that is too large, [`Code::EINVAL`] for a context that is not open.
    ///
    /// # Safety
    /// The bytes of `post.pieces` stay valid and unwritten until the operation was collected, or
    /// this instance is gone; if it is not pending, until the call returns.
    #[inline]
    pub unsafe fn post_send_raw(
        &self,
        post: &Post<&[Iov]>,
        stored: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(post, Kind::Expected, &mut None, stored) }
    }

    /// Posts an unexpected message (`BMI_post_sendunexpected_class` and its list form); otherwise as
    /// [`Self::post_send_raw`].
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
        stored: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(post, Kind::Unexpected { class }, &mut None, stored) }
    }

    /// Posts a receive (`BMI_post_recv` and `BMI_post_recv_list`); otherwise as
    /// [`Self::post_send_raw`].
    ///
    /// # Errors
    /// As [`Self::post_send_raw`], but [`Code::EINVAL`] for a size that no message has.
    ///
    /// # Safety
    /// The bytes of `post.pieces` stay valid, and nobody else reads or writes them, until the
    /// operation was collected, or this instance is gone; if it is not pending, until the call
    /// returns.
    #[inline]
    pub unsafe fn post_recv_raw(
        &self,
        post: &Post<&[IovMut]>,
        stored: impl FnOnce(OpId),
    ) -> Result<Posted> {
        // SAFETY: passed on from the caller.
        unsafe { self.recv(post, &mut None, stored) }
    }

    /// What is in `kept` stays with an operation that is pending, and comes back otherwise.
    ///
    /// # Safety
    /// As [`Self::post_send_raw`]; what `kept` keeps may be among it.
    #[inline]
    pub(crate) unsafe fn send(
        &self,
        post: &Post<&[Iov]>,
        kind: Kind,
        kept: &mut Option<Box<dyn Keep>>,
        stored: impl FnOnce(OpId),
    ) -> Result<Posted> {
        let station = self.station_of(post.addr)?;
        let context = self.context(post.context)?;
        let size = total(post.pieces.iter().map(|piece| piece.len)).ok_or(Code::EMSGSIZE)?;
        let most = match kind {
            Kind::Expected => station.limits.size,
            Kind::Unexpected { .. } => station.limits.unexpected,
        };
        if size as u64 > most {
            return Err(Code::EMSGSIZE);
        }
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let out = SendPost {
            dest: desk.references.resolve(post.addr)?,
            pieces: post.pieces,
            size,
            tag: post.tag,
            kind,
        };
        if post.pieces.len() <= station.limits.pieces {
            // SAFETY: the pieces are the caller's, who promises it.
            if unsafe { method.send_now(&out) }? {
                return Ok(Posted::Done(size as u64));
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { send_later(held, station, post, context, out, kept, stored) }
    }

    /// What is in `kept` stays with an operation that is pending, and comes back otherwise.
    ///
    /// # Safety
    /// As [`Self::post_recv_raw`]; what `kept` keeps may be among it.
    #[inline]
    pub(crate) unsafe fn recv(
        &self,
        post: &Post<&[IovMut]>,
        kept: &mut Option<Box<dyn Keep>>,
        stored: impl FnOnce(OpId),
    ) -> Result<Posted> {
        let station = self.station_of(post.addr)?;
        let context = self.context(post.context)?;
        let size = total(post.pieces.iter().map(|piece| piece.len)).ok_or(Code::EINVAL)?;
        if size as u64 > station.limits.size {
            return Err(Code::EINVAL);
        }
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let src = desk.references.resolve_source(post.addr)?;
        let mut op = Op::new(post.addr, post.tag, size as u64);
        op.user = post.user;
        op.context = Some(context);
        let mut pieces = post.pieces;
        let piece;
        if post.pieces.len() > station.limits.pieces {
            // SAFETY: the caller promises that the pieces are valid until the operation is over.
            let mut unpack = unsafe { pack::Unpacked::room(post.pieces, size) }?;
            piece = [unpack.piece()];
            op.kept = Some(Box::new(unpack.with(kept.take())));
            pieces = &piece;
        } else {
            op.kept = kept.take();
        }
        let key = desk.admit(op)?;
        stored(OpId::new(station.index, key));
        let post = RecvPost {
            src,
            pieces,
            size,
            tag: post.tag,
        };
        // SAFETY: the caller promises it for what it has named, and the operation keeps the room
        // for what is to be unpacked until it is released.
        let posted = unsafe { method.post_recv(key, &post, desk) };
        conclude(&mut held, station, key, posted, kept)
    }

    #[inline]
    fn station_of(&self, addr: Addr) -> Result<&Station> {
        if addr.0 <= 0 {
            return Err(self.no_peer());
        }
        self.station(addr.method()).ok_or_else(|| self.no_peer())
    }

    #[cold]
    fn no_peer(&self) -> Code {
        Code::EPROTO
    }
}

/// Posts a send that is not over at once; a list that is too long for the method is packed.
///
/// # Safety
/// As [`Bmi::send`].
#[inline(never)]
unsafe fn send_later(
    mut held: Held<'_>,
    station: &Station,
    post: &Post<&[Iov]>,
    context: u8,
    out: SendPost<'_>,
    kept: &mut Option<Box<dyn Keep>>,
    stored: impl FnOnce(OpId),
) -> Result<Posted> {
    let (method, desk) = held.parts();
    let mut packed = None;
    let piece;
    let mut out = out;
    if post.pieces.len() > station.limits.pieces {
        // SAFETY: the caller promises that the pieces are valid.
        let pack = unsafe { pack::Packed::gather(post.pieces, out.size) }?;
        piece = [pack.piece()];
        packed = Some(pack);
        out.pieces = &piece;
        // SAFETY: the packed piece lives on.
        if unsafe { method.send_now(&out) }? {
            return Ok(Posted::Done(out.size as u64));
        }
    }
    let mut op = Op::new(post.addr, post.tag, out.size as u64);
    op.user = post.user;
    op.context = Some(context);
    op.kept = match packed {
        Some(pack) => Some(Box::new(pack.with(kept.take()))),
        None => kept.take(),
    };
    let key = desk.admit(op)?;
    stored(OpId::new(station.index, key));
    // SAFETY: the caller promises it for what it has named, and the operation keeps what was packed
    // until it is released.
    let posted = unsafe { method.post_send(key, &out, desk) };
    conclude(&mut held, station, key, posted, kept)
}

/// Says whether the operation is over already, and takes it out if so.
#[inline]
fn conclude(
    held: &mut Held<'_>,
    station: &Station,
    key: OpKey,
    posted: Result<()>,
    kept: &mut Option<Box<dyn Keep>>,
) -> Result<Posted> {
    let desk = held.desk();
    if let Err(code) = posted {
        *kept = desk.release(key).and_then(|op| op.kept);
        return Err(code);
    }
    match desk.take_success(key) {
        Some((len, back)) => {
            *kept = back;
            Ok(Posted::Done(len))
        }
        None => Ok(Posted::Pending(OpId::new(station.index, key))),
    }
}

/// The sum, unless it is more than memory has.
#[inline]
fn total(sizes: impl Iterator<Item = usize>) -> Option<usize> {
    let mut total = 0_usize;
    for size in sizes {
        total = total.checked_add(size)?;
    }
    (total <= isize::MAX as usize).then_some(total)
}
