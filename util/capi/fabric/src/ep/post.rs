//! Converts C's messages to operations and posts them.
//!
//! C posts one operation in several forms. The full form (`fi_sendmsg`) passes a structure, and
//! deferred work contains the same structure. The short forms (`fi_send`, `fi_sendv`,
//! `fi_senddata`) pass arguments, from which `msg`, `tagged` and `rma` build the structure. A
//! [`Message`] is read from the structure and posted, or becomes an [`Op`] that waits for a
//! counter.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::c_void;
use std::marker::PhantomData;

use selvedge::rma::{ReadMsg, WriteMsg};
use selvedge::{Endpoint, FiAddr, Op, OpFlags, Result, TagMatch, msg, tagged};
use selvedge_abi::{self as abi, Ioc, Iovec};

use super::deferred::or_trigger;
use super::{Ep, lists};
use crate::object::{Class, Object};
use crate::pointer::required;

/// An operation of the object model that is posted to an endpoint.
pub(super) trait Operation<'a> {
    /// Posts it to an endpoint.
    ///
    /// # Errors
    /// The provider's.
    ///
    /// # Safety
    /// The memory of the operation stays valid until it is complete.
    unsafe fn post(&self, ep: &dyn Endpoint, flags: OpFlags) -> Result;

    /// The operation as a value.
    fn op(&self) -> Op<'a>;
}

/// A message that C passes as a structure.
pub(super) trait Message<'a>: Operation<'a> + Sized {
    /// The structure.
    type Given: 'a;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a segment that is no memory.
    ///
    /// # Safety
    /// The lists of the structure are valid for `'a`, with the counts that it states.
    unsafe fn read(given: &'a Self::Given) -> Result<Self>;

    /// The flags of an endpoint's short forms.
    fn flags(ep: &Ep) -> OpFlags;
}

/// Implements [`Message`] and [`Operation`]. Each entry names the structure, the flags, the method
/// that posts the message and the variant of [`Op`], followed by the check of its list and its
/// other members.
macro_rules! messages {
    ($($message:ty = $given_type:ty, $flags:ident, $method:ident, $op:ident: |$given:ident| {
        iov: $check:ident,
        $($field:ident: $value:expr,)+
    })+) => {$(
        impl<'a> Message<'a> for $message {
            type Given = $given_type;

            #[inline(always)]
            unsafe fn read($given: &'a $given_type) -> Result<Self> {
                let mut msg = Self {
                    // SAFETY: passed on from the caller.
                    iov: unsafe { lists::bounded($given.msg_iov, $given.iov_count) }?,
                    // SAFETY: passed on from the caller.
                    desc: unsafe { lists::descs($given.desc, $given.iov_count) }?,
                    $($field: $value,)+
                    context: lists::context($given.context),
                };
                msg.iov = lists::$check(msg.iov)?;
                Ok(msg)
            }

            #[inline(always)]
            fn flags(ep: &Ep) -> OpFlags {
                ep.$flags()
            }
        }

        impl<'a> Operation<'a> for $message {
            #[inline(always)]
            unsafe fn post(&self, ep: &dyn Endpoint, flags: OpFlags) -> Result {
                // SAFETY: passed on from the caller.
                unsafe { ep.$method(self, flags) }
            }

            fn op(&self) -> Op<'a> {
                Op::$op(*self)
            }
        }
    )+};
}

messages! {
    msg::SendMsg<'a> = abi::Msg, tx_flags, sendmsg, Send: |given| {
        iov: checked,
        dest: FiAddr(given.addr),
        data: given.data,
    }
    msg::RecvMsg<'a> = abi::Msg, rx_flags, recvmsg, Recv: |given| {
        iov: checked_or_empty,
        src: FiAddr(given.addr),
    }
    tagged::SendMsg<'a> = abi::MsgTagged, tx_flags, tsendmsg, TaggedSend: |given| {
        iov: checked,
        dest: FiAddr(given.addr),
        tag: given.tag,
        data: given.data,
    }
    tagged::RecvMsg<'a> = abi::MsgTagged, rx_flags, trecvmsg, TaggedRecv: |given| {
        iov: checked_or_empty,
        src: FiAddr(given.addr),
        tag: TagMatch { tag: given.tag, ignore: given.ignore },
    }
    ReadMsg<'a> = abi::MsgRma, tx_flags, readmsg, Read: |given| {
        iov: checked,
        src: FiAddr(given.addr),
        // SAFETY: passed on from the caller.
        rma_iov: unsafe { lists::bounded(given.rma_iov, given.rma_iov_count) }?,
    }
    WriteMsg<'a> = abi::MsgRma, tx_flags, writemsg, Write: |given| {
        iov: checked,
        dest: FiAddr(given.addr),
        // SAFETY: passed on from the caller.
        rma_iov: unsafe { lists::bounded(given.rma_iov, given.rma_iov_count) }?,
        data: given.data,
    }
}

/// A list of buffers with their descriptors.
#[derive(Clone, Copy)]
pub(super) struct Buffers<'a, T> {
    pub(super) iov: *const T,
    pub(super) desc: *const *mut c_void,
    pub(super) count: usize,
    lists: PhantomData<&'a T>,
}

/// One buffer.
#[inline(always)]
pub(super) const fn one<'a, T>(buffer: &'a T, desc: &'a *mut c_void) -> Buffers<'a, T> {
    list(buffer, desc, 1)
}

/// Buffers of a list of C.
#[inline(always)]
pub(super) const fn list<'a, T>(
    iov: *const T,
    desc: *const *mut c_void,
    count: usize,
) -> Buffers<'a, T> {
    Buffers {
        iov,
        desc,
        count,
        lists: PhantomData,
    }
}

/// A segment of memory as a structure of C.
#[inline(always)]
pub(super) const fn iov(base: *const c_void, len: usize) -> Iovec {
    Iovec {
        iov_base: base.cast_mut(),
        iov_len: len,
    }
}

/// Elements of memory as a structure of C.
#[inline(always)]
pub(super) const fn ioc(addr: *const c_void, count: usize) -> Ioc {
    Ioc {
        addr: addr.cast_mut(),
        count,
    }
}

/// The flag of a short form with remote data.
pub(super) const fn data_flag(data: Option<u64>) -> OpFlags {
    match data {
        Some(_) => OpFlags::REMOTE_CQ_DATA,
        None => OpFlags::empty(),
    }
}

/// An object that messages are posted to.
pub(super) trait Post {
    /// The flags of the short forms.
    fn flags<'a, M: Message<'a>>(&self) -> OpFlags;

    /// Posts an operation.
    ///
    /// # Errors
    /// The provider's.
    ///
    /// # Safety
    /// As [`Operation::post`].
    unsafe fn post<'a>(&self, msg: &impl Operation<'a>, flags: OpFlags) -> Result;
}

/// Posts a message of a short form, with the object's default flags and `more`.
///
/// # Errors
/// Those of [`Message::read`] and the provider's.
///
/// # Safety
/// As [`Message::read`] and [`Operation::post`].
#[inline(always)]
pub(super) unsafe fn short<'a, M: Message<'a>>(
    to: &impl Post,
    given: &'a M::Given,
    more: OpFlags,
) -> Result {
    // SAFETY: passed on from the caller.
    let msg = unsafe { M::read(given) }?;
    // SAFETY: passed on from the caller.
    unsafe { to.post(&msg, to.flags::<M>() | more) }
}

/// Posts a message of a full form.
///
/// # Errors
/// [`Errno::Inval`] for NULL; those of [`Message::read`], of [`lists::flags`] and the provider's.
///
/// # Safety
/// `msg` is NULL or points to a structure; for that, as [`Message::read`] and [`Operation::post`].
#[inline(always)]
pub(super) unsafe fn full<'a, M: Message<'a>>(
    to: &impl Post,
    msg: *const M::Given,
    flags: u64,
) -> Result {
    // SAFETY: passed on from the caller.
    let given: &'a M::Given = unsafe { required(msg) }?;
    // SAFETY: passed on from the caller.
    let msg = unsafe { M::read(given) }?;
    let flags = lists::flags(flags)?;
    // SAFETY: passed on from the caller.
    unsafe { to.post(&msg, flags) }
}

/// Injects bytes.
///
/// # Errors
/// Those of [`lists::bytes`] and the provider's.
///
/// # Safety
/// `buf` is NULL or points to `len` bytes.
#[inline(always)]
pub(super) unsafe fn injected(
    ep: &Ep,
    buf: *const c_void,
    len: usize,
    inject: impl FnOnce(&dyn Endpoint, &[u8]) -> Result,
) -> Result {
    // SAFETY: passed on from the caller.
    let bytes = unsafe { lists::bytes(buf, len) }?;
    inject(ep.live()?, bytes)
}

impl Post for Ep {
    #[inline(always)]
    fn flags<'a, M: Message<'a>>(&self) -> OpFlags {
        M::flags(self)
    }

    /// Posts a message, or queues it if it has `FI_TRIGGER` and the provider does not trigger it.
    #[inline(always)]
    unsafe fn post<'a>(&self, msg: &impl Operation<'a>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let result = unsafe { msg.post(self.live()?, flags) };
        // SAFETY: passed on from the caller.
        unsafe { or_trigger(self, result, flags, || msg.op()) }
    }
}

impl<T: Class + Post> Post for Object<T> {
    #[inline(always)]
    fn flags<'a, M: Message<'a>>(&self) -> OpFlags {
        T::flags::<M>(self)
    }

    #[inline(always)]
    unsafe fn post<'a>(&self, msg: &impl Operation<'a>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { T::post(self, msg, flags) }
    }
}
