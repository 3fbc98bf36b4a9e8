//! Methods: the interface between the control layer and a transport.
//!
//! A [`Module`] is a transport that is not open: a scheme and a constructor. A [`Method`] is the
//! open transport. The control layer makes all calls to one method under one lock and passes `&mut
//! self`, so a method needs no lock of its own.
//!
//! The seed's method interface has one function for each function of the application. Here, one
//! [`Method::progress`] serves the three tests and the three waits. It reports completions and
//! unexpected messages to the [`MethodQueues`], from which the control layer's tests and waits take
//! them.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::{Allocation, Iov, IovMut};

use crate::control::queues::MethodQueues;
use crate::ids::OpKey;
use crate::url::Url;
use crate::{Error, Result};

pub use crate::ids::MethodAddr;

/// Parameters for opening a method.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Where peers find this process; `None` for a client.
    pub listen: Option<Url>,
    /// The first peer of a client, which uses the peer's address family.
    pub first_peer: Option<Url>,
    /// Listen at exactly the address of `listen` instead of at all addresses of the machine
    /// (`BMI_TCP_BIND_SPECIFIC`).
    pub bind_specific: bool,
}

/// A transport that can be opened.
pub trait Module: fmt::Debug + Sync {
    /// The scheme of its URLs: its name without `bmi_`.
    fn scheme(&self) -> &str;

    /// Opens the method (`BMI_method_initialize`). Dropping the method closes it
    /// (`BMI_method_finalize`).
    ///
    /// # Errors
    /// The reason why the method cannot be opened.
    fn initialize(&self, setup: &Setup) -> Result<Box<dyn Method>, Error>;
}

/// Limits of a method.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the largest message.
    pub size: u64,
    /// Bytes of the largest unexpected message.
    pub unexpected: u64,
    /// The largest number of segments in a list. The control layer packs longer lists.
    pub segments: usize,
}

/// How a message is matched at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By a receive that the peer has posted.
    Expected,
    /// By a test for unexpected messages of this class.
    Unexpected {
        /// Selects the tests that may take the message.
        class: u8,
    },
}

/// One send.
#[derive(Clone, Copy, Debug)]
pub struct SendPost<'a> {
    /// The receiver.
    pub dest: MethodAddr,
    /// The message, in at most [`Limits::segments`] segments.
    pub segments: &'a [Iov],
    /// Bytes of all segments, within [`Limits::size`] or [`Limits::unexpected`].
    pub size: usize,
    /// The tag. A receive matches by tag and peer.
    pub tag: i32,
    /// How the message is matched.
    pub kind: Kind,
}

/// One receive.
#[derive(Clone, Copy, Debug)]
pub struct RecvPost<'a> {
    /// The sender.
    pub src: MethodAddr,
    /// Destination of the message, in at most [`Limits::segments`] segments.
    pub segments: &'a [IovMut],
    /// Bytes of all segments.
    pub size: usize,
    /// The tag. The receive matches only messages with it.
    pub tag: i32,
}

/// Whether a thread may park on a method's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryWait {
    /// No: there may be events.
    Ready,
    /// Yes, until the descriptor is ready.
    Park,
    /// Yes, for at most this time.
    ParkAtMost(Duration),
}

/// A setting of methods (`BMI_set_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// Bytes of the system's send buffer (`BMI_TCP_BUFFER_SEND_SIZE`).
    SendBuffer(usize),
    /// Bytes of the system's receive buffer (`BMI_TCP_BUFFER_RECEIVE_SIZE`).
    ReceiveBuffer(usize),
    /// A cancel may end other operations as well (`BMI_FORCEFUL_CANCEL_MODE`).
    ForcefulCancel,
}

/// An active method.
///
/// Messages of one sender with one tag match receives in the order of their posts. Unexpected
/// messages are reported in the order of their posts. Messages arrive whole, and none is lost while
/// both processes live. The method queues, in order, posts that it cannot make at once.
///
/// # Safety
/// For implementors: a method does not access an operation's memory after it reported the operation
/// as complete ([`MethodQueues::complete`]), after a failed post, or after the method was dropped.
/// The method has written all bytes that it reports as received.
pub unsafe trait Method: fmt::Debug + Send {
    /// The limits, which do not change.
    fn limits(&self) -> Limits;

    /// Finds the peer that a URL names, without contacting it (`BMI_method_addr_lookup`). The same
    /// peer always has the same number.
    ///
    /// # Errors
    /// When the URL names no peer.
    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error>;

    /// Forgets a peer (`BMI_DROP_ADDR`): the method may give its number to another peer.
    fn addr_forget(&mut self, addr: MethodAddr);

    /// The host of a peer, or its name if the method has no hosts.
    fn host(&self, addr: MethodAddr) -> String;

    /// Returns whether a peer's address is in the range of `pattern` with `netmask`.
    fn is_in_range(&self, addr: MethodAddr, pattern: &str, netmask: Option<u8>) -> Result<bool>;

    /// Sends a message that needs no completion, if it can leave without a further call to the
    /// method. Returns whether it was sent; if not, the caller posts it.
    ///
    /// # Errors
    /// When the peer has disconnected.
    ///
    /// # Safety
    /// The bytes of `post.segments` may be read during the call.
    unsafe fn send_now(&mut self, post: &SendPost<'_>) -> Result<bool> {
        let _ = post;
        Ok(false)
    }

    /// Posts a send (`BMI_method_post_send`, `_sendunexpected` and the list forms). The operation
    /// may be complete when the call returns.
    ///
    /// # Errors
    /// When the peer has disconnected. The method then retains nothing.
    ///
    /// # Safety
    /// The bytes of `post.segments` stay valid and unwritten until the operation is reported as
    /// complete.
    unsafe fn post_send(
        &mut self,
        key: OpKey,
        post: &SendPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result;

    /// Posts a receive (`BMI_method_post_recv` and the list form). The operation may be complete
    /// when the call returns. A message longer than the receive fails the receive with
    /// [`crate::Code::EMSGSIZE`], and nothing else.
    ///
    /// # Errors
    /// As [`Self::post_send`].
    ///
    /// # Safety
    /// The bytes of `post.segments` stay valid, and no other code reads or writes them, until the
    /// operation is reported as complete.
    unsafe fn post_recv(
        &mut self,
        key: OpKey,
        post: &RecvPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result;

    /// Cancels an operation that has not begun (`BMI_method_unpost`) and reports it as complete
    /// with [`crate::Code::ECANCEL`]. An operation that has begun goes on.
    fn cancel(&mut self, key: OpKey, queues: &mut MethodQueues);

    /// Progresses operations, and reports completions and unexpected messages (`BMI_method_test`
    /// and its variants).
    fn progress(&mut self, queues: &mut MethodQueues);

    /// Whether a thread may park on [`Self::wait_fd`] (`BMI_method_wait` and its variants).
    fn try_wait(&mut self, queues: &mut MethodQueues) -> TryWait;

    /// The descriptor that becomes ready when there are events. It does not change.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Allocates memory that is fast to send and receive with this method (`BMI_method_memalloc`).
    /// Returns `None` if any memory is as fast. The caller drops the memory under the lock of the
    /// method (`BMI_method_memfree`).
    fn memalloc(&mut self, len: usize) -> Option<Arc<dyn Allocation>> {
        let _ = len;
        None
    }

    /// The listening port (`BMI_TCP_GET_PORT`); `None` if the method does not listen, 0 if its URL
    /// has no port.
    fn listen_port(&self) -> Option<u16> {
        None
    }

    /// Changes a setting (`BMI_method_set_info`). The method ignores settings that do not concern
    /// it.
    ///
    /// # Errors
    /// [`crate::Code::EINVAL`] for an invalid value.
    fn set_info(&mut self, setting: Setting) -> Result {
        let _ = setting;
        Ok(())
    }
}
