//! Methods: what the control layer asks of whoever carries messages.
//!
//! A [`Module`] is what is known before anything is open: a scheme, and how to begin. A [`Method`]
//! is what it opened. Every call to one method is made under one lock, so it needs none of its own;
//! it takes `&mut self`, and the compiler holds it to that.
//!
//! The seed has a function of the method interface for each of the application's. Here the three
//! tests and three waits are one [`Method::progress`]: what it finds done or arrived it tells the
//! [`Desk`], which knows who asked for what.

#![expect(unsafe_code, reason = "posts are promises about memory")]

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::{Allocation, Iov, IovMut};

use crate::control::desk::Desk;
use crate::ids::OpKey;
use crate::url::Url;
use crate::{Error, Result};

/// A method's own number for a peer. Small numbers: tables are indexed by them. The application
/// never sees one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MethodAddr(pub u32);

/// What an application's process is, as far as a method is concerned.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Where peers find it; `None` for a client.
    pub listen: Option<Url>,
    /// The first peer of a client, and of which kind its peers are.
    pub toward: Option<Url>,
    /// Listen at that address alone, and not at all of the machine's
    /// (`BMI_TCP_BIND_SPECIFIC`).
    pub bind_specific: bool,
}

/// A kind of method.
pub trait Module: fmt::Debug + Sync {
    /// The scheme of its addresses, which is its name without `bmi_`.
    fn scheme(&self) -> &str;

    /// Begins (`BMI_method_initialize`). It ends by being dropped (`BMI_method_finalize`).
    ///
    /// # Errors
    /// What kept it from beginning.
    fn initialize(&self, setup: &Setup) -> Result<Box<dyn Method>, Error>;
}

/// What a method can do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the largest message.
    pub size: u64,
    /// Bytes of the largest unexpected one.
    pub unexpected: u64,
    /// Pieces of a list. With 1 it has no support for lists, and the control layer packs them.
    pub pieces: usize,
}

/// What a send is met by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A receive that the peer has posted.
    Expected,
    /// A test for unexpected messages of this class.
    Unexpected {
        /// Which of the peer's tests sees it.
        class: u8,
    },
}

/// One send.
#[derive(Clone, Copy, Debug)]
pub struct SendPost<'a> {
    /// The peer.
    pub dest: MethodAddr,
    /// The message, in at most [`Limits::pieces`] pieces.
    pub pieces: &'a [Iov],
    /// Bytes of all pieces, at most what [`Limits`] says.
    pub size: usize,
    /// Receives match by it.
    pub tag: i32,
    /// What it is met by.
    pub kind: Kind,
}

/// One receive.
#[derive(Clone, Copy, Debug)]
pub struct RecvPost<'a> {
    /// The peer.
    pub src: MethodAddr,
    /// Where the message goes, in at most [`Limits::pieces`] pieces.
    pub pieces: &'a [IovMut],
    /// Bytes of all pieces.
    pub size: usize,
    /// Only messages with this tag.
    pub tag: i32,
}

/// Whether a thread may sleep, as far as one method is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// No: there may be news.
    News,
    /// Yes, until its descriptor is ready.
    UntilWoken,
    /// Yes, but not for longer.
    AtMost(Duration),
}

/// A setting that concerns methods (`BMI_set_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// Bytes of the system's buffers for sending (`BMI_TCP_BUFFER_SEND_SIZE`).
    SendBuffer(usize),
    /// Bytes of the system's buffers for receiving (`BMI_TCP_BUFFER_RECEIVE_SIZE`).
    ReceiveBuffer(usize),
    /// Whether a cancel may end more than its operation (`BMI_FORCEFUL_CANCEL_MODE`).
    ForcefulCancel,
}

/// An active method.
///
/// Messages of one sender with one tag meet receives in the order of their posts, and unexpected
/// ones are told of in that order; messages are whole, and none is lost while both ends live. What
/// cannot go at once is kept, in order, by the method.
///
/// # Safety
/// For implementors: after an operation was told of as done ([`Desk::complete`]), a post of it has
/// failed, or the method was dropped, its memory is not touched any more; what is said to have
/// arrived was written.
pub unsafe trait Method: fmt::Debug + Send {
    /// What it can do. It does not change.
    fn limits(&self) -> Limits;

    /// Finds the peer that a URL names, without asking it (`BMI_method_addr_lookup`). The same peer
    /// always has the same number.
    ///
    /// # Errors
    /// When the URL names nothing.
    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error>;

    /// Nothing more will be asked of a peer (`BMI_DROP_ADDR`): its number may be given to another.
    fn addr_forget(&mut self, addr: MethodAddr);

    /// The peer's machine, or whatever people know the peer by.
    fn host(&self, addr: MethodAddr) -> String;

    /// Whether a peer is among those that `pattern` with `netmask` names.
    fn is_in_range(&self, addr: MethodAddr, pattern: &str, netmask: Option<u8>) -> Result<bool>;

    /// Sends a message if that needs nothing afterwards: nobody will be told of its end, and it leaves
    /// though nobody calls again. `false` if it has to be posted.
    ///
    /// # Errors
    /// When the peer is gone.
    ///
    /// # Safety
    /// The bytes of `post.pieces` may be read during the call.
    unsafe fn send_now(&mut self, post: &SendPost<'_>) -> Result<bool> {
        let _ = post;
        Ok(false)
    }

    /// Posts a send (`BMI_method_post_send`, `_sendunexpected` and the list forms). It may be over
    /// when the call returns.
    ///
    /// # Errors
    /// When the peer is gone; nothing was kept then.
    ///
    /// # Safety
    /// The bytes of `post.pieces` stay valid and unwritten until the operation is told of as done.
    unsafe fn post_send(&mut self, key: OpKey, post: &SendPost<'_>, desk: &mut Desk) -> Result;

    /// Posts a receive (`BMI_method_post_recv` and the list form). It may be over when the call
    /// returns. A message that is longer than the receive fails it with [`crate::Code::EMSGSIZE`],
    /// and nothing else.
    ///
    /// # Errors
    /// As [`Self::post_send`].
    ///
    /// # Safety
    /// The bytes of `post.pieces` stay valid, and nobody else reads or writes them, until the
    /// operation is told of as done.
    unsafe fn post_recv(&mut self, key: OpKey, post: &RecvPost<'_>, desk: &mut Desk) -> Result;

    /// Ends an operation if it has not begun (`BMI_method_unpost`): it is then told of as done, with
    /// [`crate::Code::ECANCEL`]. One that has begun goes on.
    fn cancel(&mut self, key: OpKey, desk: &mut Desk);

    /// Moves what can move, and tells of what is done and what has arrived
    /// (`BMI_method_test` and its kin).
    fn progress(&mut self, desk: &mut Desk);

    /// Whether a thread may sleep on [`Self::wait_fd`] (`BMI_method_wait` and its kin).
    fn rest(&mut self, desk: &mut Desk) -> Rest;

    /// What becomes ready when there is news. It stays the same.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Makes memory that the method sends and receives best (`BMI_method_memalloc`); dropped under
    /// the same lock that the method is called under (`BMI_method_memfree`). `None` if any memory is
    /// as good.
    fn memalloc(&mut self, len: usize) -> Option<Arc<dyn Allocation>> {
        let _ = len;
        None
    }

    /// The port that peers reach it at, if it listens (`BMI_TCP_GET_PORT`); 0 where the host alone
    /// names it.
    fn listen_port(&self) -> Option<u16> {
        None
    }

    /// Changes a setting (`BMI_method_set_info`). One that means nothing to the method is ignored.
    ///
    /// # Errors
    /// [`crate::Code::EINVAL`] for a value that it cannot have.
    fn set_info(&mut self, setting: Setting) -> Result {
        let _ = setting;
        Ok(())
    }
}
