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
    /// A completion queue, which is ready when it has an entry or an error.
    Cq(Arc<dyn CompletionQueue>),
    /// A counter, which is ready when a value has changed since the last read.
    Cntr(Arc<dyn Counter>),
    /// An event queue, which is ready when it has an event or an error.
    Eq(Arc<dyn EventQueue>),
}

/// A set of queues and counters: a poll set (fi_poll_open(3)), which reports the ready members, and
/// a wait set (fi_wait_open(3)), which waits until a member is ready.
///
/// The set keeps its members open.
#[derive(Default)]
pub struct Set {
    state: Mutex<SetState>,
    /// An eventfd(2) that wakes parked threads when a member is added.
    doorbell: OnceLock<File>,
}

#[derive(Default)]
struct SetState {
    members: Vec<(Member, Context)>,
    /// The number of members that were added so far, including removed members.
    added: u64,
    /// The number of parked threads.
    parked: usize,
    /// Whether the doorbell is readable. The last parked thread that wakes resets the doorbell.
    is_doorbell_set: bool,
}

impl Set {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member (fi_poll_add(3)). [`Self::poll`] reports the member by `context`.
    ///
    /// # Errors
    /// [`Errno::Inval`] when `member` is already in the set.
    pub fn add(&self, member: Member, context: Context) -> Result {
        let mut state = self.state();
        if state
            .members
            .iter()
            .any(|(other, _)| other.is_same(&member))
        {
            return Err(Errno::Inval);
        }
        state.members.push((member, context));
        state.added += 1;
        if state.parked > 0
            && !state.is_doorbell_set
            && let Some(mut doorbell) = self.doorbell.get()
        {
            state.is_doorbell_set = doorbell.write(&1_u64.to_ne_bytes()).is_ok();
        }
        Ok(())
    }

    /// Removes a member (fi_poll_del(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when `member` is not in the set.
    pub fn remove(&self, member: &Member) -> Result {
        let members = &mut self.state().members;
        let index = members.iter().position(|(other, _)| other.is_same(member));
        members.remove(index.ok_or(Errno::Inval)?);
        Ok(())
    }

    /// Drives progress and stores the contexts of ready members in `out`, as many as fit
    /// (fi_poll(3)). Returns the number of stored contexts.
    pub fn poll(&self, out: &mut [Context]) -> usize {
        self.poll_each(out.len(), |ordinal, context| out[ordinal] = context)
    }

    /// Drives progress and calls `report` with the ordinal and the context of each ready member, at
    /// most
    /// `limit` times. Returns the number of calls.
    pub fn poll_each(&self, limit: usize, mut report: impl FnMut(usize, Context)) -> usize {
        let members = self.state().members.clone();
        let ready = members.iter().filter(|(member, _)| member.is_ready());
        let mut count = 0;
        for (_, context) in ready.take(limit) {
            report(count, *context);
            count += 1;
        }
        count
    }

    /// Parks until a member is ready (fi_wait(3)). `None` waits without a timeout. All members must
    /// have been opened with [`crate::wait::Object::Fd`].
    ///
    /// # Errors
    /// [`Errno::TimedOut`] after `timeout`; [`Errno::NoSys`] for a member without a descriptor.
    pub fn wait(&self, timeout: Option<Duration>) -> Result {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let (members, added) = {
                let state = self.state();
                (state.members.clone(), state.added)
            };
            let is_any_ready = || members.iter().any(|(member, _)| member.is_ready());
            if is_any_ready() {
                return Ok(());
            }
            let remaining = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Err(Errno::TimedOut);
            }
            match members.iter().try_for_each(|(member, _)| member.try_wait()) {
                Ok(()) => self.park(&members, added, remaining)?,
                Err(Errno::Again) => thread::yield_now(),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Parks until one of the members is ready, `timeout` has passed, or a member is added. A
    /// member is new if more than `added` members were added so far.
    fn park(&self, members: &[(Member, Context)], added: u64, timeout: Option<Duration>) -> Result {
        let mut doorbell = self.doorbell()?;
        let mut fds = vec![doorbell.as_fd()];
        for (member, _) in members {
            fds.push(member.wait_fd().ok_or(Errno::NoSys)?);
        }
        {
            let mut state = self.state();
            if state.added != added {
                return Ok(());
            }
            state.parked += 1;
        }
        poll_fds(&fds, timeout);
        let mut state = self.state();
        state.parked -= 1;
        if state.parked == 0 && state.is_doorbell_set {
            state.is_doorbell_set = doorbell.read(&mut [0; size_of::<u64>()]).is_err();
        }
        Ok(())
    }

    fn doorbell(&self) -> Result<&File> {
        if let Some(doorbell) = self.doorbell.get() {
            return Ok(doorbell);
        }
        let opened = open_eventfd()
            .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::ENOMEM)))?;
        Ok(self.doorbell.get_or_init(|| opened))
    }

    fn state(&self) -> MutexGuard<'_, SetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open_eventfd() -> io::Result<File> {
    // SAFETY: the call accesses no memory.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// Waits until one of the descriptors is ready or `timeout` has passed. A signal also ends the
/// wait.
fn poll_fds(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) {
    let mut fds: Vec<_> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let ms = timeout.map_or(-1, |timeout| {
        let ms = timeout.as_nanos().div_ceil(1_000_000);
        i32::try_from(ms).unwrap_or(i32::MAX)
    });
    // SAFETY: the array has the given number of elements, and the descriptors are borrowed.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
}

impl Member {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cq(cq), Self::Cq(other)) => Arc::ptr_eq(cq, other),
            (Self::Cntr(cntr), Self::Cntr(other)) => Arc::ptr_eq(cntr, other),
            (Self::Eq(eq), Self::Eq(other)) => Arc::ptr_eq(eq, other),
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
        f.debug_tuple("Set").field(&self.state().members).finish()
    }
}
