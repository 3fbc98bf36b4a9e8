//! Poll sets and wait sets: fi_poll(3).

#![expect(unsafe_code, reason = "system calls without wrappers")]

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{CompletionQueue, Context, Counter, Errno, EventQueue, Result};

/// A member of a set.
#[derive(Clone, Debug)]
pub enum Member {
    /// A completion queue. It is ready when it has an entry or an error.
    Cq(Arc<dyn CompletionQueue>),
    /// A counter. It is ready when a value has changed since it was last read.
    Cntr(Arc<dyn Counter>),
    /// An event queue. It is ready when it has an event or an error.
    Eq(Arc<dyn EventQueue>),
}

/// A set of queues and counters, to poll which of them are ready (fi_poll_open(3)), or to wait until one
/// is (fi_wait_open(3)).
///
/// The set keeps its members open.
#[derive(Default)]
pub struct Set {
    inner: Mutex<Inner>,
    /// An eventfd(2) that wakes parked threads when a member is added.
    doorbell: OnceLock<File>,
}

#[derive(Default)]
struct Inner {
    members: Vec<(Member, Context)>,
    /// The number of members that were ever added.
    added: u64,
    /// The number of parked threads.
    parked: usize,
    /// Whether the doorbell is readable. It is reset when no thread is parked any more.
    has_rung: bool,
}

impl Set {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member (fi_poll_add(3)). [`Self::poll`] reports it by `context`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is already a member.
    pub fn add(&self, member: Member, context: Context) -> Result {
        let mut inner = self.inner();
        if inner
            .members
            .iter()
            .any(|(other, _)| other.is_same(&member))
        {
            return Err(Errno::Inval);
        }
        inner.members.push((member, context));
        inner.added += 1;
        if inner.parked > 0
            && !inner.has_rung
            && let Some(mut doorbell) = self.doorbell.get()
        {
            inner.has_rung = doorbell.write(&1_u64.to_ne_bytes()).is_ok();
        }
        Ok(())
    }

    /// Removes a member (fi_poll_del(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is not a member.
    pub fn remove(&self, member: &Member) -> Result {
        let members = &mut self.inner().members;
        let index = members.iter().position(|(other, _)| other.is_same(member));
        members.remove(index.ok_or(Errno::Inval)?);
        Ok(())
    }

    /// Drives progress and stores the contexts of ready members in `out`, as many as fit (fi_poll(3)).
    /// Returns their number.
    pub fn poll(&self, out: &mut [Context]) -> usize {
        self.poll_each(out.len(), |at, context| out[at] = context)
    }

    /// Drives progress and calls `report` with the ordinal and the context of each ready member, at most
    /// `limit` times. Returns the number of calls.
    pub fn poll_each(&self, limit: usize, mut report: impl FnMut(usize, Context)) -> usize {
        let members = self.inner().members.clone();
        let ready = members.iter().filter(|(member, _)| member.is_ready());
        let mut count = 0;
        for (_, context) in ready.take(limit) {
            report(count, *context);
            count += 1;
        }
        count
    }

    /// Parks until a member is ready (fi_wait(3)). `None` waits without a timeout. All members must have
    /// been opened with [`crate::wait::Object::Fd`].
    ///
    /// # Errors
    /// [`Errno::TimedOut`] after `timeout`; [`Errno::NoSys`] for a member without a descriptor.
    pub fn wait(&self, timeout: Option<Duration>) -> Result {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let (members, added) = {
                let inner = self.inner();
                (inner.members.clone(), inner.added)
            };
            let is_any_ready = || members.iter().any(|(member, _)| member.is_ready());
            if is_any_ready() {
                return Ok(());
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::TimedOut);
            }
            match members.iter().try_for_each(|(member, _)| member.try_wait()) {
                Ok(()) => self.park(&members, added, left)?,
                Err(Errno::Again) => thread::yield_now(),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Parks until one of the members is ready, a member is added after the first `added` ones, or `left`
    /// has passed.
    fn park(&self, members: &[(Member, Context)], added: u64, left: Option<Duration>) -> Result {
        let mut doorbell = self.doorbell()?;
        let mut fds = vec![doorbell.as_fd()];
        for (member, _) in members {
            fds.push(member.wait_fd().ok_or(Errno::NoSys)?);
        }
        {
            let mut inner = self.inner();
            if inner.added != added {
                return Ok(());
            }
            inner.parked += 1;
        }
        poll(&fds, left);
        let mut inner = self.inner();
        inner.parked -= 1;
        if inner.parked == 0 && inner.has_rung {
            inner.has_rung = doorbell.read(&mut [0; size_of::<u64>()]).is_err();
        }
        Ok(())
    }

    fn doorbell(&self) -> Result<&File> {
        if let Some(doorbell) = self.doorbell.get() {
            return Ok(doorbell);
        }
        let opened = eventfd()
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::ENOMEM)))?;
        Ok(self.doorbell.get_or_init(|| opened))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: the call takes no memory.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Waits until one of the descriptors is ready or `left` has passed. A signal ends the wait, too.
fn poll(fds: &[BorrowedFd<'_>], left: Option<Duration>) {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ms = left.map_or(-1, |left| {
        let ms = left.as_nanos().div_ceil(1_000_000);
        i32::try_from(ms).unwrap_or(i32::MAX)
    });
    // SAFETY: the array has the given number of elements, and the descriptors are borrowed.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
}

impl Member {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cq(own), Self::Cq(other)) => Arc::ptr_eq(own, other),
            (Self::Cntr(own), Self::Cntr(other)) => Arc::ptr_eq(own, other),
            (Self::Eq(own), Self::Eq(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Cq(cq) => cq.is_ready(),
            Self::Cntr(cntr) => cntr.is_ready(),
            Self::Eq(eq) => eq.peek().map(drop) != Err(Errno::Again),
        }
    }

    fn try_wait(&self) -> Result {
        match self {
            Self::Cq(cq) => cq.try_wait(),
            Self::Cntr(cntr) => cntr.try_wait(),
            Self::Eq(eq) => eq.try_wait(),
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Cq(cq) => cq.wait_fd(),
            Self::Cntr(cntr) => cntr.wait_fd(),
            Self::Eq(eq) => eq.wait_fd(),
        }
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Set").field(&self.inner().members).finish()
    }
}
