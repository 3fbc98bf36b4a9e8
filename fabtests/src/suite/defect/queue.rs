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

use super::kind::Defect;

/// An action that the next read executes.
type Deferred = Box<dyn FnOnce() + Send>;

pub(crate) struct DefectiveQueue {
    shared: Arc<QueueState>,
    dead_descriptor: Option<OwnedFd>,
}

/// The state that an endpoint shares with its queue.
pub(super) struct QueueState {
    defect: Defect,
    deferred: Mutex<Vec<Deferred>>,
    /// Entries that are reported again.
    repeated: Mutex<VecDeque<(Entry, FiAddr)>>,
    count: Mutex<usize>,
    was_ready: AtomicBool,
}

impl QueueState {
    /// Schedules an action for the next read.
    pub(super) fn defer(&self, deferred: Deferred) {
        lock(&self.deferred).push(deferred);
    }

    /// Reports an entry that the provider did not report.
    pub(super) fn report(&self, entry: Entry) {
        lock(&self.repeated).push_back((entry, FiAddr::UNSPEC));
    }
}

/// Returns the readiness of a queue or a counter as the defect reports it.
pub(super) fn report_readiness(defect: Defect, is_ready: bool, was_ready: &AtomicBool) -> bool {
    let was_ready = was_ready.fetch_or(is_ready, Ordering::Relaxed);
    match defect {
        Defect::NeverReady => false,
        Defect::StaysReady => is_ready || was_ready,
        _ => is_ready,
    }
}

impl DefectiveQueue {
    pub(super) fn new(defect: Defect) -> Self {
        Self {
            shared: Arc::new(QueueState {
                defect,
                deferred: Mutex::default(),
                repeated: Mutex::default(),
                count: Mutex::default(),
                was_ready: AtomicBool::new(false),
            }),
            dead_descriptor: (defect == Defect::DeadDescriptor)
                .then(|| EventFd::new().ok().map(OwnedFd::from))
                .flatten(),
        }
    }

    /// Returns the state of a queue with a defect.
    pub(super) fn state_of(queue: &dyn CompletionQueue) -> Option<Arc<QueueState>> {
        let queue = Layered::<_, Self>::downcast(queue)?;
        Some(Arc::clone(&queue.layer().shared))
    }

    fn has_defect(&self, defect: Defect) -> bool {
        self.shared.defect == defect
    }

    fn run_deferred(&self) {
        let deferred = std::mem::take(&mut *lock(&self.shared.deferred));
        deferred.into_iter().for_each(|deferred| deferred());
    }

    /// Reads one entry at a time, because entries may be added or left out.
    fn read_with_defect(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: Option<&mut [FiAddr]>,
    ) -> Result<usize> {
        self.run_deferred();
        if out.is_empty() {
            return below.read(out);
        }
        let (mut entry, mut source) = ([Entry::default()], [FiAddr::UNSPEC]);
        let repeated = lock(&self.shared.repeated).pop_front();
        let count = match repeated {
            Some(repeated) => {
                (entry[0], source[0]) = repeated;
                1
            }
            None => match below.read_from(&mut entry, &mut source) {
                Err(Errno::Avail) if self.has_defect(Defect::HidesErrors) => {
                    let error = below.read_err()?;
                    (entry[0], source[0]) = (error.entry, error.src);
                    1
                }
                other => {
                    let count = other?;
                    if count > 0 && !self.is_reported(entry[0], source[0]) {
                        return Ok(0);
                    }
                    count
                }
            },
        };
        if count > 0 {
            if self.has_defect(Defect::LeaksMemory) && *lock(&self.shared.count) < MAX_LEAKS {
                // The compiler may remove memory that is never read.
                std::mem::forget(std::hint::black_box(vec![1_u8; LEAKED]));
            }
            self.corrupt_entry(&mut entry[0], &mut source[0]);
            out[0] = entry[0];
            if let Some(slot) = src.and_then(|src| src.first_mut()) {
                *slot = source[0];
            }
        }
        Ok(count)
    }

    /// Returns whether an entry is reported. The entry may also be scheduled for another report.
    fn is_reported(&self, entry: Entry, source: FiAddr) -> bool {
        let mut count = lock(&self.shared.count);
        *count += 1;
        if self.has_defect(Defect::CompletesTwice) && count.is_multiple_of(3) {
            lock(&self.shared.repeated).push_back((entry, source));
        }
        !(self.has_defect(Defect::LosesCompletions) && count.is_multiple_of(5))
    }

    fn corrupt_entry(&self, entry: &mut Entry, source: &mut FiAddr) {
        use CompletionFlags as Flags;
        let is_receive = entry.flags.contains(Flags::RECV);
        match self.shared.defect {
            Defect::CountsOneLess if is_receive => entry.len = entry.len.saturating_sub(1),
            Defect::NoKind => {
                entry.flags -= Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::ATOMIC
            }
            Defect::WrongTag if is_receive => entry.tag ^= 1 << 40,
            Defect::NoSource => *source = FiAddr::UNSPEC,
            Defect::WrongSource if *source != FiAddr::UNSPEC => *source = FiAddr(0),
            Defect::NeverReleases => entry.flags -= Flags::MULTI_RECV,
            Defect::WrongBufferAddress if entry.buf != 0 => entry.buf += 1,
            _ => {}
        }
    }
}

impl ObjectLayer for DefectiveQueue {
    type Layers = Defect;
}

impl CqLayer for DefectiveQueue {
    fn read(&self, below: &dyn CompletionQueue, out: &mut [Entry]) -> Result<usize> {
        self.read_with_defect(below, out, None)
    }

    fn read_from(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.read_with_defect(below, out, Some(src))
    }

    fn read_ready(
        &self,
        below: &dyn CompletionQueue,
        out: &mut [Entry],
        src: &mut [FiAddr],
    ) -> Result<usize> {
        self.read_with_defect(below, out, Some(src))
    }

    fn is_ready(&self, below: &dyn CompletionQueue) -> bool {
        report_readiness(self.shared.defect, below.is_ready(), &self.shared.was_ready)
    }

    fn read_err(&self, below: &dyn CompletionQueue) -> Result<ErrEntry> {
        let mut error = below.read_err()?;
        match self.shared.defect {
            Defect::WrongErrno => error.errno = Errno::Io,
            Defect::NoOlen => error.olen = 0,
            Defect::NoSource => error.err_data.clear(),
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
        self.run_deferred();
        let deadline = timeout.map(|time| Instant::now() + time);
        let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match self.shared.defect {
            Defect::NeverWakes => {
                while !is_over() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::Again)
            }
            Defect::SpinsInWaits => loop {
                match below.read(out) {
                    Ok(0) if is_over() => return Err(Errno::Again),
                    // A program that only reads may park where other threads compute.
                    Ok(0) => use_processor(Duration::from_micros(100)),
                    other => return other,
                }
            },
            _ => below.wait(out, timeout),
        }
    }

    fn signal(&self, below: &dyn CompletionQueue) -> Result {
        match self.shared.defect {
            Defect::NoSignal => Ok(()),
            _ => below.signal(),
        }
    }

    fn try_wait(&self, below: &dyn CompletionQueue) -> Result {
        match self.shared.defect {
            Defect::AlwaysTryWait => Ok(()),
            _ => below.try_wait(),
        }
    }

    fn wait_fd<'a>(&'a self, below: &'a dyn CompletionQueue) -> Option<BorrowedFd<'a>> {
        match &self.dead_descriptor {
            Some(dead_descriptor) => Some(dead_descriptor.as_fd()),
            None => below.wait_fd(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that a completion leaks.
const LEAKED: usize = 1 << 20;
/// Maximum number of completions that leak.
const MAX_LEAKS: usize = 400;

fn use_processor(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
