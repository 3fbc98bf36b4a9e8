//! Completion queues: fi_cq(3).

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{Address, CompletionFlags, Context, Errno, FiAddr, Result, wait};

/// Attributes of a completion queue (`struct fi_cq_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// The capacity in entries; 0 for the provider's default.
    pub size: usize,
    /// The wait object for threads that wait.
    pub wait_obj: wait::Object,
    /// The maximum time that a waiting thread polls before it parks, also in
    /// [`CompletionQueue::try_wait`]; `None` for the provider's default (such as `FI_SHM_SPIN_TIME`).
    /// [`Duration::ZERO`] suits programs that poll before they wait. Providers of another libfabric
    /// ignore this attribute.
    pub spin_time: Option<Duration>,
    /// Whether failed injects (fi_inject(3)) are counted and logged instead of reported as entries.
    /// Such an entry would have context 0, which C programs dereference without a check.
    pub drops_failed_injects: bool,
}

impl Attr {
    /// Returns the attributes of a queue of `size` entries without a wait object.
    pub fn with_size(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }
}

impl From<wait::Object> for Attr {
    /// The attributes of a queue of the provider's default size with this wait object.
    fn from(wait_obj: wait::Object) -> Self {
        Self {
            wait_obj,
            ..Self::default()
        }
    }
}

/// A completion entry: `struct fi_cq_tagged_entry`.
#[expect(
    clippy::exhaustive_structs,
    reason = "the layout of the man page's structure"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The context of the operation.
    pub context: Context,
    /// The kind of the completed operation, and further flags.
    pub flags: CompletionFlags,
    /// The number of bytes received; 0 for a send.
    pub len: usize,
    /// The address of the message in a multi-receive buffer; 0 otherwise.
    pub buf: usize,
    /// The peer's data, under [`CompletionFlags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The tag of a received message.
    pub tag: u64,
}

/// The error entry of a failed operation: `struct fi_cq_err_entry`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrEntry {
    /// The completion entry of the operation. All fields are valid if the message was received
    /// despite the error ([`Errno::Trunc`], [`Errno::AddrNotAvail`]).
    pub entry: Entry,
    /// The number of bytes that did not fit the receive buffer.
    pub olen: usize,
    /// The error number.
    pub errno: Errno,
    /// The provider's own error number; its text is in `detail`.
    pub prov_errno: i32,
    /// The peer of the operation, if it is known.
    pub src: FiAddr,
    /// The provider's error text, which names the peer and the cause.
    pub detail: String,
    /// Error data, whose format depends on `errno`; at most `domain_attr.max_err_data` bytes. The
    /// error data of [`Errno::AddrNotAvail`] are the address of a sender that is not in the address
    /// vector: see [`Self::sender`].
    pub err_data: Vec<u8>,
}

impl ErrEntry {
    /// Creates an error entry without a peer and without error data.
    pub fn new(entry: Entry, errno: Errno, detail: impl Into<String>) -> Self {
        Self {
            entry,
            olen: 0,
            errno,
            prov_errno: errno.as_raw(),
            src: FiAddr::UNSPEC,
            detail: detail.into(),
            err_data: Vec::new(),
        }
    }

    /// Returns the address of a sender that is not in the address vector, under
    /// [`crate::Caps::SOURCE_ERR`]. After the address is inserted, messages of that sender complete
    /// without an error.
    pub fn sender(&self) -> Option<Address> {
        Address::from_bytes(&self.err_data)
    }
}

/// A queue that reports completed operations.
///
/// Reading a queue drives the progress of the endpoints that are bound to it
/// (`FI_PROGRESS_MANUAL`).
pub trait CompletionQueue: Any + fmt::Debug + Send + Sync {
    /// Reads up to `out.len()` completions (fi_cq_read(3)) and returns their number, which may be
    /// 0. With an empty `out` the call only drives progress.
    ///
    /// # Errors
    /// [`Errno::Avail`] when the next entry is an error, which [`Self::read_err`] reads.
    /// [`Errno::Overrun`] when entries were lost because the queue was full.
    fn read(&self, out: &mut [Entry]) -> Result<usize>;

    /// Reads completions as [`Self::read`] does, and stores the source of each received message in
    /// `src` (fi_cq_readfrom(3)), or [`FiAddr::UNSPEC`] for an unknown source.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Errno::Inval`] when `src` is shorter than `out`.
    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize>;

    /// Reads entries that are already in the queue, as [`Self::read_from`] does, without driving
    /// progress if the provider can avoid it. After a post, this call is the cheap test whether the
    /// operation has completed at once.
    ///
    /// # Errors
    /// As [`Self::read_from`].
    fn read_ready(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.read_from(out, src)
    }

    /// Drives progress and returns whether the queue has an entry or an error to read. A provider
    /// without this test returns `true`.
    fn is_ready(&self) -> bool {
        true
    }

    /// Removes the error entry at the head (fi_cq_readerr(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the next entry is not an error.
    fn read_err(&self) -> Result<ErrEntry>;

    /// Reads completions, and parks until the queue has an entry or `timeout` has passed
    /// (fi_cq_sread(3)). `None` waits without a timeout.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Errno::Again`] after `timeout` or [`Self::signal`]; [`Errno::NoSys`]
    /// for a queue without a wait object.
    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        let _ = (out, timeout);
        Err(Errno::NoSys)
    }

    /// Wakes a thread that is parked in [`Self::wait`] (fi_cq_signal(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a queue without a wait object.
    fn signal(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// Checks that it is safe to block in `poll(2)` on [`Self::wait_fd`] (fi_trywait(3)). Polls
    /// first, as
    /// [`Self::wait`] does before it parks. The polling time adapts to earlier waits, and is at most
    /// [`Attr::spin_time`].
    ///
    /// # Errors
    /// [`Errno::Again`] when the queue may have entries, which the caller must read first.
    fn try_wait(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// Returns the descriptor to poll, for a queue opened with [`wait::Object::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const _: () = assert!(size_of::<Entry>() == 48);
