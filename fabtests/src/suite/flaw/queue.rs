//! Completion queues with a defect.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::eventfd::EventFd;
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, CompletionQueue, Errno, FiAddr, Result};
use selvedge_kit::layer::{CqLayer, Layered, ObjectLayer};

use super::Flaw;

/// What is done at the next read.
type Late = Box<dyn FnOnce() + Send>;

pub(crate) struct FlawedQueue {
    shared: Arc<Shared>,
    dead: Option<OwnedFd>,
}

/// What an endpoint knows of its queue, too.
pub(super) struct Shared {
    flaw: Flaw,
    late: Mutex<Vec<Late>>,
    /// Entries that are given out again.
    again: Mutex<VecDeque<(Entry, FiAddr)>>,
    count: Mutex<usize>,
    was_ready: AtomicBool,
}

impl Shared {
    /// Has something done at the next read.
    pub(super) fn later(&self, late: Late) {
        lock(&self.late).push(late);
    }

    /// Gives out an entry that the provider knows nothing of.
    pub(super) fn invent(&self, entry: Entry) {
        lock(&self.again).push_back((entry, FiAddr::UNSPEC));
    }
}

/// What is said of a queue or a counter that is ready or not, and was so or not before.
pub(super) fn readiness(flaw: Flaw, is_ready: bool, was_ready: &AtomicBool) -> bool {
    let was_ready = was_ready.fetch_or(is_ready, Ordering::Relaxed);
    match flaw {
        Flaw::NeverReady => false,
        Flaw::StaysReady => is_ready || was_ready,
        _ => is_ready,
    }
}

impl FlawedQueue {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self {
            shared: Arc::new(Shared {
                flaw,
                late: Mutex::default(),
                again: Mutex::default(),
                count: Mutex::default(),
                was_ready: AtomicBool::new(false),
            }),
            dead: (flaw == Flaw::DeadDescriptor)
                .then(|| EventFd::new().ok().map(OwnedFd::from))
                .flatten(),
        }
    }

    pub(super) fn of(queue: &dyn CompletionQueue) -> Option<Arc<Shared>> {
        let own = Layered::<_, Self>::downcast(queue)?;
        Some(Arc::clone(&own.layer().shared))
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.shared.flaw == flaw
    }

    fn begin(&self) {
        let late = std::mem::take(&mut *lock(&self.shared.late));
        late.into_iter().for_each(|late| late());
    }

    /// Reads one by one, because entries may be added or left out.
    fn flawed(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: Option<&mut [FiAddr]>,
    ) -> Result<usize> {
        self.begin();
        if out.is_empty() {
            return below.read(out);
        }
        let (mut entry, mut from) = ([Entry::default()], [FiAddr::UNSPEC]);
        let again = lock(&self.shared.again).pop_front();
        let count = match again {
            Some(again) => {
                (entry[0], from[0]) = again;
                1
            }
            None => match below.read_from(&mut entry, &mut from) {
                Err(Errno::Avail) if self.is(Flaw::HidesErrors) => {
                    let error = below.read_err()?;
                    (entry[0], from[0]) = (error.entry, error.src);
                    1
                }
                other => {
                    let count = other?;
                    if count > 0 && !self.is_kept(entry[0], from[0]) {
                        return Ok(0);
                    }
                    count
                }
            },
        };
        if count > 0 {
            if self.is(Flaw::Hoards) && *lock(&self.shared.count) < MOST_HOARDED {
                // Memory that nobody looks at may be left out by the compiler.
                std::mem::forget(std::hint::black_box(vec![1_u8; HOARDED]));
            }
            self.spoil(&mut entry[0], &mut from[0]);
            out[0] = entry[0];
            if let Some(place) = src.and_then(|src| src.first_mut()) {
                *place = from[0];
            }
        }
        Ok(count)
    }

    /// Whether an entry is given out at all; it may be given out again, too.
    fn is_kept(&self, entry: Entry, from: FiAddr) -> bool {
        let mut count = lock(&self.shared.count);
        *count += 1;
        if self.is(Flaw::CompletesTwice) && count.is_multiple_of(3) {
            lock(&self.shared.again).push_back((entry, from));
        }
        !(self.is(Flaw::LosesCompletions) && count.is_multiple_of(5))
    }

    fn spoil(&self, entry: &mut Entry, from: &mut FiAddr) {
        use CompletionFlags as Flags;
        let is_receive = entry.flags.contains(Flags::RECV);
        match self.shared.flaw {
            Flaw::CountsOneLess if is_receive => entry.len = entry.len.saturating_sub(1),
            Flaw::NoKind => entry.flags -= Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::ATOMIC,
            Flaw::WrongTag if is_receive => entry.tag ^= 1 << 40,
            Flaw::NoSource => *from = FiAddr::UNSPEC,
            Flaw::WrongSource if *from != FiAddr::UNSPEC => *from = FiAddr(0),
            Flaw::NeverReleases => entry.flags -= Flags::MULTI_RECV,
            Flaw::WrongPlace if entry.buf != 0 => entry.buf += 1,
            _ => {}
        }
    }
}

impl ObjectLayer for FlawedQueue {
    type Layers = Flaw;
}

impl CqLayer for FlawedQueue {
    fn read(&self, below: &dyn CompletionQueue, out: &mut [Entry]) -> Result<usize> {
        self.flawed(below, out, None)
    }

    fn read_from(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.flawed(below, out, Some(src))
    }

    fn read_ready(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.flawed(below, out, Some(src))
    }

    fn is_ready(&self, below: &dyn CompletionQueue) -> bool {
        readiness(self.shared.flaw, below.is_ready(), &self.shared.was_ready)
    }

    fn read_err(&self, below: &dyn CompletionQueue) -> Result<ErrEntry> {
        let mut error = below.read_err()?;
        match self.shared.flaw {
            Flaw::WrongErrno => error.errno = Errno::Io,
            Flaw::NoOlen => error.olen = 0,
            Flaw::NoSource => error.err_data.clear(),
            _ => {}
        }
        Ok(error)
    }

    fn wait(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        timeout: Option<Duration>,
    ) -> Result<usize> {
        self.begin();
        let until = timeout.map(|time| Instant::now() + time);
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        match self.shared.flaw {
            Flaw::NeverWakes => {
                while !is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::Again)
            }
            Flaw::SpinsInWaits => loop {
                match below.read(out) {
                    Ok(0) if is_over() => return Err(Errno::Again),
                    Ok(0) => {}
                    other => return other,
                }
            },
            _ => below.wait(out, timeout),
        }
    }

    fn signal(&self, below: &dyn CompletionQueue) -> Result {
        match self.shared.flaw {
            Flaw::NoSignal => Ok(()),
            _ => below.signal(),
        }
    }

    fn try_wait(&self, below: &dyn CompletionQueue) -> Result {
        match self.shared.flaw {
            Flaw::AlwaysTryWait => Ok(()),
            _ => below.try_wait(),
        }
    }

    fn wait_fd<'a>(&'a self, below: &'a dyn CompletionQueue) -> Option<BorrowedFd<'a>> {
        match &self.dead {
            Some(dead) => Some(dead.as_fd()),
            None => below.wait_fd(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that a completion takes and keeps, and completions that do.
const HOARDED: usize = 1 << 20;
const MOST_HOARDED: usize = 400;
