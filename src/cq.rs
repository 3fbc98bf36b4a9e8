//! Completion queues: fi_cq(3).

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{Address, CompletionFlags, Context, Errno, FiAddr, Result, wait};

/// How a completion queue is opened (`struct fi_cq_attr`).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attr {
    /// Entries that fit; 0 for the provider's default.
    pub size: usize,
    /// How a thread waits for entries.
    pub wait_obj: wait::Object,
    /// How long a thread that waits looks before it sleeps, at most, also inside
    /// [`CompletionQueue::try_wait`]; `None` for the provider's default (`FI_SHM_SPIN_TIME` and the
    /// like). [`Duration::ZERO`] suits programs that look for themselves before they wait. Providers
    /// of another libfabric decide for themselves.
    pub spin_time: Option<Duration>,
    /// Have injects that fail (fi_inject(3)) be counted and warned of, without an entry: it would have
    /// no context, which programs in C follow without a look. Without this, there is an entry with
    /// context 0.
    pub drops_failed_injects: bool,
}

impl Attr {
    /// A queue of `size` entries, without waiting.
    pub fn with_size(size: usize) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }
}

/// One completion: `struct fi_cq_tagged_entry`.
#[expect(
    clippy::exhaustive_structs,
    reason = "the layout of the man page's structure"
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// The context of the operation.
    pub context: Context,
    /// What completed.
    pub flags: CompletionFlags,
    /// Bytes received; 0 for a send.
    pub len: usize,
    /// The address at which a multi-receive buffer took the message; 0 otherwise.
    pub buf: usize,
    /// The peer's data, under [`CompletionFlags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The tag of a received message.
    pub tag: u64,
}

/// One operation that failed: `struct fi_cq_err_entry`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrEntry {
    /// What an entry would have said. Of a message that has arrived all the same
    /// ([`Errno::Trunc`], [`Errno::AddrNotAvail`]) it says everything.
    pub entry: Entry,
    /// Bytes that did not fit the receive buffer.
    pub olen: usize,
    /// What went wrong.
    pub errno: Errno,
    /// The provider's own number for it; its text is in `detail`.
    pub prov_errno: i32,
    /// The peer of the operation, if it is known.
    pub src: FiAddr,
    /// The provider's sentence: which peer, what happened.
    pub detail: String,
    /// More, in a form that belongs to `errno`, at most `domain_attr.max_err_data` bytes. With
    /// [`Errno::AddrNotAvail`] it is the address of a sender that is not in the address vector:
    /// see [`Self::sender`].
    pub err_data: Vec<u8>,
}

impl ErrEntry {
    /// An error without a peer.
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

    /// The address of a sender that is not in the address vector, under
    /// [`crate::Caps::SOURCE_ERR`]. Once it is inserted, its messages complete as all others.
    pub fn sender(&self) -> Option<Address> {
        Address::from_bytes(&self.err_data)
    }
}

/// Where operations report that they are done.
///
/// Reading drives the progress of the endpoints bound to the queue (`FI_PROGRESS_MANUAL`).
pub trait CompletionQueue: Any + fmt::Debug + Send + Sync {
    /// Reads up to `out.len()` completions (fi_cq_read(3)); 0 when there is none yet. With an
    /// empty `out` it only drives progress.
    ///
    /// # Errors
    /// [`Errno::Avail`] when the next entry is an error: read it with [`Self::read_err`].
    /// [`Errno::Overrun`] when entries were lost because the queue was full.
    fn read(&self, out: &mut [Entry]) -> Result<usize>;

    /// As [`Self::read`], with the source of each received message in `src`
    /// (fi_cq_readfrom(3)); [`FiAddr::UNSPEC`] where it is unknown.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Errno::Inval`] when `src` is shorter than `out`.
    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize>;

    /// As [`Self::read_from`], but takes only what is there already: it drives no progress, if the
    /// provider can leave that out. It tells a post that was over at once from one that goes on,
    /// for next to nothing.
    ///
    /// # Errors
    /// As [`Self::read_from`].
    fn read_ready(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.read_from(out, src)
    }

    /// Drives progress, and says whether there is something to read, an entry or an error. A provider
    /// that cannot tell says so always.
    fn is_ready(&self) -> bool {
        true
    }

    /// Takes the error at the head (fi_cq_readerr(3)).
    ///
    /// # Errors
    /// [`Errno::Again`] when the next entry is none.
    fn read_err(&self) -> Result<ErrEntry>;

    /// Reads, and sleeps until there is an entry or `timeout` has passed (fi_cq_sread(3)); `None`
    /// waits without end.
    ///
    /// # Errors
    /// As [`Self::read`]; [`Errno::Again`] after the time or [`Self::signal`]; [`Errno::NoSys`]
    /// for a queue without a wait object.
    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        let _ = (out, timeout);
        Err(Errno::NoSys)
    }

    /// Wakes a thread that sleeps in [`Self::wait`] (fi_cq_signal(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a queue without a wait object.
    fn signal(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// Whether it is safe to block in `poll(2)` on [`Self::wait_fd`] (fi_trywait(3)). Drives
    /// progress for a moment, as [`Self::wait`] does before it sleeps: what comes meanwhile needs no
    /// sleep. How long that is depends on what came of it before, and is no more than
    /// [`Attr::spin_time`].
    ///
    /// # Errors
    /// [`Errno::Again`] when there may be entries: read first.
    fn try_wait(&self) -> Result {
        Err(Errno::NoSys)
    }

    /// The descriptor to poll, for a queue opened with [`wait::Object::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

const _: () = assert!(size_of::<Entry>() == 48);
