//! The completion queue of every provider.

use std::fmt;
use std::hint;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use selvedge::cq::{Attr, Entry, ErrEntry};
use selvedge::{CompletionFlags, CompletionQueue, Context, Errno, Error, FiAddr, Result};

use super::sink::Sink;
use super::slot::Slot;
use super::store::{DRIVE_INTERVAL, Store};
use crate::completion::progress::{BUDGET, Progress};
use crate::completion::progress_list::ProgressList;
use crate::domain::identity::{DomainId, OfDomain};
use crate::fork_guard::ForkGuard;
use crate::lock::{Lock, Mode};
use crate::wait::{PollPolicy, WaitCondition, WaitObject};

/// A completion queue for one or many endpoints.
///
/// Reads return stored entries. A read of an empty queue, and every read into an empty array, first
/// drives the attached endpoints. A read also drives them after it has taken every 64th entry of
/// the queue: a program whose operations complete at once may never find the queue empty, and its
/// other operations still need progress. Providers check [`Self::room`] before they start
/// operations that will complete here; an entry that is pushed when there is no room is stored all
/// the same.
///
/// The queue belongs to the process that opened it: in a forked child, every call fails with
/// [`Errno::BadF`].
pub struct CqRing {
    fork_guard: ForkGuard,
    domain: DomainId,
    store: Lock<Store>,
    /// The number of entries in `store`, errors included. A poll of an empty queue reads it without
    /// the lock.
    stored: AtomicUsize,
    /// The number of entries that the queue was opened for.
    size: usize,
    drops_failed_injects: bool,
    /// The list's lock is held while endpoints make progress and push entries, so it is taken
    /// before the lock of `store`, never after it.
    endpoints: ProgressList,
    wait_object: Arc<WaitObject>,
}

impl CqRing {
    /// Opens a queue (fi_cq_open(3)). Waiting threads poll for some microseconds before they park.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a size beyond [`Self::MAX_SIZE`]; [`Errno::NoSys`] for a wait object
    /// that is not supported; the error's text contains the refused value. The operating system's
    /// error if no file descriptor is left.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use the queue, or the endpoints that complete on
    /// it, at once.
    #[expect(unsafe_code, reason = "passes the promise about threads to the locks")]
    pub unsafe fn open(attr: &Attr, mode: Mode) -> Result<Arc<Self>, Error> {
        // SAFETY: passed on from the caller.
        unsafe { Self::open_in_domain(attr, &DomainId::unnamed(), mode, PollPolicy::default()) }
    }

    /// As [`Self::open`], for a domain, whose threads poll with `policy`. A spin time in the
    /// attributes takes precedence.
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Safety
    /// As [`Self::open`].
    #[expect(unsafe_code, reason = "passes the promise about threads to the locks")]
    pub unsafe fn open_in_domain(
        attr: &Attr,
        domain: &DomainId,
        mode: Mode,
        policy: PollPolicy,
    ) -> Result<Arc<Self>, Error> {
        // SAFETY: the caller promises that no two threads use the queue at once; `read` and `push`
        // never take the store's lock while they hold it.
        let store = unsafe { Lock::with_mode(mode, Store::new()) };
        // SAFETY: as above; `Progress` must not use the queue that drives it except to push.
        let endpoints = unsafe { ProgressList::new(mode, policy) };
        Ok(Arc::new(Self {
            fork_guard: ForkGuard::current(),
            domain: domain.clone(),
            store,
            stored: AtomicUsize::new(0),
            size: checked_size(attr.size)?,
            drops_failed_injects: attr.drops_failed_injects,
            endpoints,
            wait_object: WaitObject::open(
                "completion queue",
                attr.wait_obj,
                attr.spin_time.unwrap_or(policy.spin),
            )?,
        }))
    }

    /// The largest size that a queue can be opened with.
    pub const MAX_SIZE: usize = 1 << 24;

    /// Makes threads take the locks from now on, even under [`Mode::Asserted`]. This is called when
    /// an event queue drives an endpoint that completes here: an event queue belongs to no domain,
    /// so the domain's promise about threads does not cover its readers.
    pub(crate) fn share(&self) {
        self.store.share();
        self.endpoints.share();
    }

    /// The mode of the queue's locks.
    #[cfg(test)]
    pub(crate) fn mode(&self) -> Mode {
        self.store.mode()
    }

    /// Whether a failed inject gets no error entry in this queue.
    pub const fn drops_failed_injects(&self) -> bool {
        self.drops_failed_injects
    }

    /// Makes the queue drive `ep` from now on. Attaching twice is attaching once.
    ///
    /// # Errors
    /// The operating system's error if it has no memory to watch the endpoint for wake-ups. The
    /// endpoint is not attached then.
    pub fn attach(&self, ep: &Arc<dyn Progress>) -> Result<(), Error> {
        self.endpoints.attach(Arc::clone(ep));
        self.wait_object
            .add(&**ep)
            .inspect_err(|_| self.endpoints.detach(ep))
    }

    /// Reverts [`Self::attach`]. After it has returned, this queue no longer drives `ep`, in any
    /// thread.
    pub fn detach(&self, ep: &Arc<dyn Progress>) {
        self.wait_object.remove(&**ep);
        self.endpoints.detach(ep);
    }

    /// Adds a completion; `src` is the source of a received message.
    #[inline(always)]
    pub fn push(&self, entry: Entry, src: FiAddr) {
        let mut store = self.store.lock();
        let was_armed = store.push(entry, src);
        self.publish_len(&store);
        if was_armed {
            self.wait_object.wake();
        }
    }

    /// Adds a completion that has only a context and flags: that of an operation that the local
    /// endpoint initiated.
    #[inline(always)]
    pub fn push_plain(&self, context: Context, flags: CompletionFlags) {
        if let Some(mut store) = self.store.try_lock()
            && store.try_push_plain(context, flags)
        {
            self.publish_len(&store);
            return store.unlock();
        }
        self.push_plain_slow(context, flags);
    }

    /// Slow path of [`Self::push_plain`]: waits for the lock, grows the store, or wakes a thread.
    #[cold]
    #[inline(never)]
    fn push_plain_slow(&self, context: Context, flags: CompletionFlags) {
        let entry = Entry {
            context,
            flags,
            ..Entry::default()
        };
        self.push(entry, FiAddr::UNSPEC);
    }

    /// Adds an error behind the completions pushed so far.
    #[cold]
    pub fn push_err(&self, error: ErrEntry) {
        let mut store = self.store.lock();
        let was_armed = store.push_err(error);
        self.publish_len(&store);
        if was_armed {
            self.wait_object.wake();
        }
    }

    /// The number of completions that fit before the queue reaches the size that it was opened
    /// with.
    #[inline]
    pub fn room(&self) -> usize {
        self.size
            .saturating_sub(self.stored.load(Ordering::Relaxed))
    }

    /// The number of completions and errors that the application has not read.
    pub(crate) fn unread(&self) -> usize {
        self.stored.load(Ordering::Relaxed)
    }

    /// Fast path of a read into an array of one: takes one entry if nothing else has to be done.
    #[inline(always)]
    fn take_one_fast(&self, copy_out: impl FnOnce(&Slot)) -> bool {
        if !self.fork_guard.is_owner() {
            return false;
        }
        let Some(mut store) = self.store.try_lock() else {
            return false;
        };
        let Some(slot) = store.take_one_fast() else {
            return false;
        };
        copy_out(slot);
        self.publish_len(&store);
        store.unlock();
        true
    }

    /// Drives the endpoints for a program that polls, and takes the entries that they push. `src`
    /// may be empty.
    #[inline(never)]
    fn poll_and_take(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.drive_and_take(out, src, Self::poll)
    }

    /// Drives the endpoints with `drive`, and takes the entries that they push.
    #[inline(always)]
    fn drive_and_take(
        &self,
        out: &mut [Entry],
        src: &mut [FiAddr],
        drive: impl FnOnce(&Self, &mut Sink<'_>),
    ) -> Result<usize> {
        let mut sink = self.sink(out, src);
        drive(self, &mut sink);
        if sink.filled() > 0 {
            return Ok(sink.filled());
        }
        if self.is_empty() {
            return self.fork_guard.check().map(|()| 0);
        }
        // The arrays are taken from the sink, where they are in memory: kept in registers, they
        // would be saved and restored around every drive.
        let (out, src) = sink.into_arrays();
        self.take_stored_and_drive(out, src)
    }

    /// Takes stored entries, and drives the endpoints if one of them was the queue's 64th, 128th
    /// and so on.
    #[inline(never)]
    fn take_stored_and_drive(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.fork_guard.check()?;
        let (taken, must_drive) = self.take_locked(out, src)?;
        if must_drive {
            self.drive_after_take();
        }
        Ok(taken)
    }

    /// Takes stored entries, without driving the endpoints.
    fn take_stored(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        self.take_locked(out, src).map(|(taken, _)| taken)
    }

    /// Takes stored entries under the store's lock. Also returns whether the endpoints have to be
    /// driven ([`Store::take`]).
    #[inline(always)]
    fn take_locked(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<(usize, bool)> {
        let mut store = self.store.lock();
        let taken = store.take(out, src);
        self.publish_len(&store);
        taken
    }

    /// Drives the endpoints although the queue was not empty. Their entries are stored behind the
    /// existing ones. Each endpoint completes at most [`DRIVE_INTERVAL`] operations, about as
    /// many as entries were read since the last such call.
    #[cold]
    #[inline(never)]
    fn drive_after_take(&self) {
        self.endpoints.drive(DRIVE_INTERVAL, &mut Sink::none());
    }

    /// A sink for a reader of this queue.
    #[inline(always)]
    pub(super) fn sink<'a>(&self, out: &'a mut [Entry], src: &'a mut [FiAddr]) -> Sink<'a> {
        Sink::new(self.address(), out, src)
    }

    /// The address of the queue, by which a [`Sink`] recognises it.
    #[inline(always)]
    fn address(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Drives the attached endpoints for a program that polls, unless another thread is driving
    /// them: the entries that the other thread causes are stored in this queue, too.
    #[inline(always)]
    fn poll(&self, sink: &mut Sink<'_>) {
        self.endpoints.poll(budget(sink), sink);
    }

    /// As [`Self::poll`], for a thread that waits.
    fn drive(&self, sink: &mut Sink<'_>) {
        self.endpoints.drive(budget(sink), sink);
    }

    /// Whether the queue stores neither a completion nor an error.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.stored.load(Ordering::Relaxed) == 0
    }

    /// Publishes the number of stored entries; called under the store's lock.
    #[inline]
    fn publish_len(&self, store: &Store) {
        self.stored.store(store.stored(), Ordering::Relaxed);
    }
}

/// The number of messages that each endpoint may take in a read into this sink.
#[inline(always)]
fn budget(sink: &Sink<'_>) -> usize {
    match sink.capacity() {
        0 => BUDGET,
        capacity => capacity,
    }
}

impl Sink<'_> {
    /// Reports a completion of `queue`: directly to the reader if the reader reads this queue, the
    /// queue is empty, and the array has room; otherwise to the queue.
    #[inline(always)]
    pub fn push(&mut self, queue: &CqRing, entry: Entry, src: FiAddr) {
        if self.is_for(queue.address()) && queue.is_empty() && self.store(entry, src) {
            return;
        }
        hint::cold_path();
        queue.push(entry, src);
    }
}

impl CompletionQueue for CqRing {
    #[inline]
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        if out.is_empty() || self.is_empty() {
            return self.poll_and_take(out, &mut []);
        }
        if let [one] = &mut *out
            && self.take_one_fast(|slot| *one = slot.entry())
        {
            return Ok(1);
        }
        self.take_stored_and_drive(out, &mut [])
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        if src.len() < out.len() {
            return Err(Errno::Inval);
        }
        if out.is_empty() || self.is_empty() {
            return self.poll_and_take(out, src);
        }
        if self.unread() == 1
            && let ([one, ..], [from, ..]) = (&mut *out, &mut *src)
            && self.take_one_fast(|slot| (*one, *from) = (slot.entry(), slot.src()))
        {
            return Ok(1);
        }
        self.take_stored_and_drive(out, src)
    }

    fn read_ready(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        if src.len() < out.len() {
            return Err(Errno::Inval);
        }
        if self.is_empty() {
            return Ok(0);
        }
        self.fork_guard.check()?;
        self.take_stored(out, src)
    }

    fn is_ready(&self) -> bool {
        if self.is_empty() {
            self.poll(&mut self.sink(&mut [], &mut []));
        }
        !self.is_empty()
    }

    fn read_err(&self) -> Result<ErrEntry> {
        self.fork_guard.check()?;
        let mut store = self.store.lock();
        let error = store.take_err();
        self.publish_len(&store);
        error.ok_or(Errno::Again)
    }

    fn wait(&self, out: &mut [Entry], timeout: Option<Duration>) -> Result<usize> {
        let mut reader = Reader { cq: self, out };
        let found = self
            .wait_object
            .wait(&self.endpoints, timeout, &mut reader)?;
        found.unwrap_or(Err(Errno::Again))
    }

    fn signal(&self) -> Result {
        self.wait_object.signal()
    }

    fn try_wait(&self) -> Result {
        let mut reader = Reader {
            cq: self,
            out: &mut [],
        };
        self.wait_object.try_wait(&self.endpoints, &mut reader)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_object.fd()
    }
}

/// A thread that waits for entries. If `out` is empty, it takes none and waits until some are
/// stored.
struct Reader<'a> {
    cq: &'a CqRing,
    out: &'a mut [Entry],
}

impl Reader<'_> {
    /// The result of the wait after an attempt to take entries; `None` if the wait goes on.
    fn found(&self, taken: Result<usize>) -> Option<Result<usize>> {
        match taken {
            Ok(0) if !self.out.is_empty() || self.cq.is_empty() => None,
            taken => Some(taken),
        }
    }
}

impl WaitCondition for Reader<'_> {
    type Found = Result<usize>;

    fn poll(&mut self) -> Option<Result<usize>> {
        let taken = if self.out.is_empty() || self.cq.is_empty() {
            self.cq.drive_and_take(self.out, &mut [], CqRing::drive)
        } else {
            self.cq.take_stored_and_drive(self.out, &mut [])
        };
        self.found(taken)
    }

    fn check(&mut self) -> Option<Result<usize>> {
        let taken = self.cq.take_stored(self.out, &mut []);
        self.found(taken)
    }

    fn arm(&mut self) -> bool {
        let mut store = self.cq.store.lock();
        store.arm_wakeup();
        store.stored() > 0
    }

    fn disarm(&mut self) {
        self.cq.store.lock().disarm_wakeup();
    }
}

impl OfDomain for CqRing {
    fn domain(&self) -> &DomainId {
        &self.domain
    }
}

impl fmt::Debug for CqRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqRing")
            .field("domain", &self.domain)
            .field("size", &self.size)
            .field("stored", &self.stored)
            .finish_non_exhaustive()
    }
}

fn checked_size(size: usize) -> Result<usize, Error> {
    match size {
        0 => Ok(DEFAULT_SIZE),
        1..=CqRing::MAX_SIZE => Ok(size),
        _ => Err(Error::new(
            Errno::Inval,
            format!("completion queue: size {size} exceeds {}", CqRing::MAX_SIZE),
        )),
    }
}

const DEFAULT_SIZE: usize = 1024;

#[cfg(test)]
mod tests;
