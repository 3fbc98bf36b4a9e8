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

use super::lists;
use super::trigger::queue_if_triggered;
use crate::context;
use crate::ep::endpoint::Ep;
use crate::object::{Class, Object};
use crate::pointer::required;

/// An operation of the object model that is posted to an endpoint.
pub(crate) trait Operation<'a> {
    /// Posts the operation to an endpoint.
    ///
    /// # Errors
    /// The provider's.
    ///
    /// # Safety
    /// The memory of the operation stays valid until the operation is complete.
    unsafe fn post(&self, ep: &dyn Endpoint, flags: OpFlags) -> Result;

    /// The operation as a value.
    fn op(&self) -> Op<'a>;
}

/// A message that C passes as a structure.
pub(crate) trait Message<'a>: Operation<'a> + Sized {
    /// The structure of C.
    type Struct: 'a;

    /// Reads the structure.
    ///
    /// # Errors
    /// [`selvedge::Errno::Inval`] for an invalid segment.
    ///
    /// # Safety
    /// The lists of the structure are valid for `'a`, with the counts that the structure states.
    unsafe fn read(msg_c: &'a Self::Struct) -> Result<Self>;

    /// The flags of an endpoint's short forms.
    fn flags(ep: &Ep) -> OpFlags;
}

/// Implements [`Message`] and [`Operation`]. Each entry names the structure of C, the method of the
/// flags, the method that posts the message and the variant of [`Op`]. The check of the list and
/// the other members follow.
macro_rules! messages {
    ($($message:ty = $struct_type:ty, $flags:ident, $method:ident, $op:ident: |$msg_c:ident| {
        iov: $check:ident,
        $($field:ident: $value:expr,)+
    })+) => {$(
        impl<'a> Message<'a> for $message {
            type Struct = $struct_type;

            #[inline(always)]
            unsafe fn read($msg_c: &'a $struct_type) -> Result<Self> {
                let mut msg = Self {
                    // SAFETY: passed on from the caller.
                    iov: unsafe { lists::bounded($msg_c.msg_iov, $msg_c.iov_count) }?,
                    // SAFETY: passed on from the caller.
                    desc: unsafe { lists::descs($msg_c.desc, $msg_c.iov_count) }?,
                    $($field: $value,)+
                    context: context::from_c($msg_c.context),
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
    msg::SendMsg<'a> = abi::Msg, tx_flags, sendmsg, Send: |msg_c| {
        iov: check_segments,
        dest: FiAddr(msg_c.addr),
        data: msg_c.data,
    }
    msg::RecvMsg<'a> = abi::Msg, rx_flags, recvmsg, Recv: |msg_c| {
        iov: check_receive_segments,
        src: FiAddr(msg_c.addr),
    }
    tagged::SendMsg<'a> = abi::MsgTagged, tx_flags, tsendmsg, TaggedSend: |msg_c| {
        iov: check_segments,
        dest: FiAddr(msg_c.addr),
        tag: msg_c.tag,
        data: msg_c.data,
    }
    tagged::RecvMsg<'a> = abi::MsgTagged, rx_flags, trecvmsg, TaggedRecv: |msg_c| {
        iov: check_receive_segments,
        src: FiAddr(msg_c.addr),
        tag: TagMatch { tag: msg_c.tag, ignore: msg_c.ignore },
    }
    ReadMsg<'a> = abi::MsgRma, tx_flags, readmsg, Read: |msg_c| {
        iov: check_segments,
        src: FiAddr(msg_c.addr),
        // SAFETY: passed on from the caller.
        rma_iov: unsafe { lists::bounded(msg_c.rma_iov, msg_c.rma_iov_count) }?,
    }
    WriteMsg<'a> = abi::MsgRma, tx_flags, writemsg, Write: |msg_c| {
        iov: check_segments,
        dest: FiAddr(msg_c.addr),
        // SAFETY: passed on from the caller.
        rma_iov: unsafe { lists::bounded(msg_c.rma_iov, msg_c.rma_iov_count) }?,
        data: msg_c.data,
    }
}

/// A list of buffers with their descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Buffers<'a, T> {
    pub(crate) iov: *const T,
    pub(crate) desc: *const *mut c_void,
    pub(crate) count: usize,
    lists: PhantomData<&'a T>,
}

/// One buffer.
#[inline(always)]
pub(crate) const fn one_buffer<'a, T>(buffer: &'a T, desc: &'a *mut c_void) -> Buffers<'a, T> {
    buffer_list(buffer, desc, 1)
}

/// Buffers of a list of C.
#[inline(always)]
pub(crate) const fn buffer_list<'a, T>(
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
pub(crate) const fn iov(base: *const c_void, len: usize) -> Iovec {
    Iovec {
        iov_base: base.cast_mut(),
        iov_len: len,
    }
}

/// Elements of memory as a structure of C.
#[inline(always)]
pub(crate) const fn ioc(addr: *const c_void, count: usize) -> Ioc {
    Ioc {
        addr: addr.cast_mut(),
        count,
    }
}

/// An object that messages are posted to.
pub(crate) trait Post {
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

/// Posts a message of a short form, with the object's default flags and `extra_flags`.
///
/// # Errors
/// Those of [`Message::read`] and the provider's.
///
/// # Safety
/// As [`Message::read`] and [`Operation::post`].
#[inline(always)]
pub(crate) unsafe fn post_short_form<'a, M: Message<'a>>(
    target: &impl Post,
    msg_c: &'a M::Struct,
    extra_flags: OpFlags,
) -> Result {
    // SAFETY: passed on from the caller.
    let msg = unsafe { M::read(msg_c) }?;
    // SAFETY: passed on from the caller.
    unsafe { target.post(&msg, target.flags::<M>() | extra_flags) }
}

/// Posts a message of a full form.
///
/// # Errors
/// [`selvedge::Errno::Inval`] for NULL; those of [`Message::read`], of [`lists::flags`] and the
/// provider's.
///
/// # Safety
/// `msg` is NULL or points to a structure. For the structure, as [`Message::read`] and
/// [`Operation::post`].
#[inline(always)]
pub(crate) unsafe fn post_full_form<'a, M: Message<'a>>(
    target: &impl Post,
    msg: *const M::Struct,
    flags: u64,
) -> Result {
    // SAFETY: passed on from the caller.
    let msg_c: &'a M::Struct = unsafe { required(msg) }?;
    // SAFETY: passed on from the caller.
    let msg = unsafe { M::read(msg_c) }?;
    let flags = lists::flags(flags)?;
    // SAFETY: passed on from the caller.
    unsafe { target.post(&msg, flags) }
}

/// Injects bytes.
///
/// # Errors
/// Those of [`lists::bytes`] and the provider's.
///
/// # Safety
/// `buf` is NULL or points to `len` bytes.
#[inline(always)]
pub(crate) unsafe fn post_inject(
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
        unsafe { queue_if_triggered(self, result, flags, || msg.op()) }
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
