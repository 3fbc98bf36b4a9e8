//! Poll sets and wait sets: fi_poll(3).

#![expect(unsafe_code, reason = "a system call without a wrapper")]

use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{CompletionQueue, Context, Counter, Errno, EventQueue, Result};

/// Something that is in a set.
#[derive(Clone, Debug)]
pub enum Member {
    /// A completion queue, which is ready when there is something to read.
    Cq(Arc<dyn CompletionQueue>),
    /// A counter, which is ready when a number is another one than was read last.
    Cntr(Arc<dyn Counter>),
    /// An event queue, which is ready when there is an event or an error.
    Eq(Arc<dyn EventQueue>),
}

/// Queues and counters that are asked together which of them are ready (fi_poll_open(3)), or waited
/// for together (fi_wait_open(3)).
///
/// It holds its members open.
#[derive(Default)]
pub struct Set {
    members: Mutex<Vec<(Member, Context)>>,
}

impl Set {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member, which [`Self::poll`] names by `context` (fi_poll_add(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is there already.
    pub fn add(&self, member: Member, context: Context) -> Result {
        let mut members = self.members();
        if members.iter().any(|(other, _)| other.is(&member)) {
            return Err(Errno::Inval);
        }
        members.push((member, context));
        Ok(())
    }

    /// Takes a member out (fi_poll_del(3)).
    ///
    /// # Errors
    /// [`Errno::Inval`] when it is not there.
    pub fn remove(&self, member: &Member) -> Result {
        let mut members = self.members();
        let place = members.iter().position(|(other, _)| other.is(member));
        members.remove(place.ok_or(Errno::Inval)?);
        Ok(())
    }

    /// Drives progress, and names members that are ready, as many as there is room for (fi_poll(3)).
    pub fn poll(&self, out: &mut [Context]) -> usize {
        self.poll_each(out.len(), |at, context| out[at] = context)
    }

    /// Drives progress, and calls `tell` with the number and the context of each member that is
    /// ready, `most` times at most; says how often.
    pub fn poll_each(&self, most: usize, mut tell: impl FnMut(usize, Context)) -> usize {
        let members = self.members().clone();
        let ready = members.iter().filter(|(member, _)| member.is_ready());
        let mut count = 0;
        for (_, context) in ready.take(most) {
            tell(count, *context);
            count += 1;
        }
        count
    }

    /// Sleeps until a member is ready (fi_wait(3)); `None` waits without end. All members must have
    /// been opened with [`crate::wait::Object::Fd`].
    ///
    /// # Errors
    /// [`Errno::TimedOut`] after the time; [`Errno::NoSys`] for a member without a descriptor.
    pub fn wait(&self, timeout: Option<Duration>) -> Result {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let members = self.members().clone();
            let is_any_ready = || members.iter().any(|(member, _)| member.is_ready());
            if is_any_ready() {
                return Ok(());
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::TimedOut);
            }
            match members.iter().try_for_each(|(member, _)| member.try_wait()) {
                Ok(()) => sleep(&members, left)?,
                Err(Errno::Again) => thread::yield_now(),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<(Member, Context)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sleeps until one of the descriptors is ready or the time is over. A signal ends it, too.
fn sleep(members: &[(Member, Context)], left: Option<Duration>) -> Result {
    let mut fds = Vec::with_capacity(members.len());
    for (member, _) in members {
        let fd = member.wait_fd().ok_or(Errno::NoSys)?;
        fds.push(libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
    }
    let ms = left.map_or(-1, |left| {
        let ms = left.as_nanos().div_ceil(1_000_000);
        i32::try_from(ms).unwrap_or(i32::MAX)
    });
    // SAFETY: the array has as many elements as it is said to, and the descriptors are those of
    // members, which `members` keeps open.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
    Ok(())
}

impl Member {
    fn is(&self, other: &Self) -> bool {
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
        f.debug_tuple("Set").field(&*self.members()).finish()
    }
}
