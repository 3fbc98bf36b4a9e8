//! Waits for completions by one of the four methods of `-c`, each with a timeout.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Counter, Domain, Errno, cntr, cq, wait};

use crate::run::failure::{failure, wrong};

/// Number of polls between two checks of the clock.
const POLLS: u32 = 1 << 12;

/// The method of waiting for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMethod {
    /// Non-blocking reads in a loop.
    #[default]
    Spin,
    /// Blocking reads.
    Sread,
    /// `poll(2)` on the descriptor of the queue.
    Fd,
    /// Non-blocking reads, with `sched_yield(2)` between them.
    Yield,
}

/// The wait strategy of a program: a method and a timeout.
#[derive(Clone, Copy, Debug)]
pub struct WaitStrategy {
    method: WaitMethod,
    timeout: Duration,
}

impl WaitStrategy {
    /// A strategy that fails after `timeout`.
    pub fn new(method: WaitMethod, timeout: Duration) -> Self {
        Self { method, timeout }
    }

    /// Removes the timeout, for a peer that may start at any time.
    pub fn endless(self) -> Self {
        Self {
            timeout: Duration::MAX,
            ..self
        }
    }

    /// Sets the timeout.
    pub fn at_most(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    fn object(self) -> wait::Object {
        match self.method {
            WaitMethod::Spin => wait::Object::None,
            WaitMethod::Sread => wait::Object::Unspec,
            WaitMethod::Fd => wait::Object::Fd,
            WaitMethod::Yield => wait::Object::Yield,
        }
    }

    /// Calls `attempt` until it returns a value.
    ///
    /// # Errors
    /// Those of `attempt`; [`Errno::TimedOut`] after the timeout.
    pub fn until<T>(
        self,
        awaited: &str,
        mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let mut start = None;
        loop {
            for _ in 0..POLLS {
                if let Some(value) = attempt()? {
                    return Ok(value);
                }
            }
            // A wait of this length is not part of a measurement, and the peer may need this core.
            std::thread::yield_now();
            if start.get_or_insert_with(Instant::now).elapsed() > self.timeout {
                let message = format!("{awaited}: nothing for {:?}", self.timeout);
                return Err(failure(Errno::TimedOut, message));
            }
        }
    }

    /// The timeout of a single blocking call.
    fn slice(self) -> Duration {
        self.timeout.min(Duration::from_secs(3600))
    }
}

/// The error of a failed operation.
#[derive(Debug, thiserror::Error)]
#[error("an operation failed: {}", .0.detail)]
pub struct CompletionError(pub ErrEntry, #[source] Errno);

impl From<ErrEntry> for CompletionError {
    fn from(entry: ErrEntry) -> Self {
        let errno = entry.errno;
        Self(entry, errno)
    }
}

/// A completion queue with a wait strategy.
#[derive(Clone, Debug)]
pub struct Queue {
    cq: Arc<dyn CompletionQueue>,
    strategy: WaitStrategy,
}

impl Queue {
    /// Opens a completion queue.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn open(domain: &dyn Domain, strategy: WaitStrategy, size: usize) -> anyhow::Result<Self> {
        let mut attr = cq::Attr::with_size(size);
        attr.wait_obj = strategy.object();
        Self::open_with(domain, strategy, &attr)
    }

    /// Opens a completion queue with other attributes than those of the strategy.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn open_with(
        domain: &dyn Domain,
        strategy: WaitStrategy,
        attr: &cq::Attr,
    ) -> anyhow::Result<Self> {
        let cq = domain.cq(attr).context("cannot open a completion queue")?;
        Ok(Self { cq, strategy })
    }

    /// The queue.
    pub fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// The wait strategy.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    /// Returns the same queue with the wait strategy that `change` makes of this one.
    pub fn with_strategy(&self, change: impl FnOnce(WaitStrategy) -> WaitStrategy) -> Self {
        Self {
            cq: Arc::clone(&self.cq),
            strategy: change(self.strategy),
        }
    }

    /// Reads available completions into `out`, and returns their number, which may be 0.
    ///
    /// # Errors
    /// [`CompletionError`] for a failed operation; those of the queue.
    #[inline]
    pub fn poll(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        match self.cq.read(out) {
            Ok(count) => Ok(count),
            Err(errno) => self.failed(errno).map(|()| 0),
        }
    }

    /// Waits for completions, reads them into `out`, and returns their number.
    ///
    /// # Errors
    /// As [`Self::poll`]; [`Errno::TimedOut`].
    #[inline]
    pub fn wait(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        match self.strategy.method {
            WaitMethod::Spin | WaitMethod::Yield => self.spin(out),
            WaitMethod::Sread => self.wait_blocking(out),
            WaitMethod::Fd => self.wait_fd(out),
        }
    }

    /// Waits for one completion.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn next(&self) -> anyhow::Result<Entry> {
        let mut entry = [Entry::default()];
        self.wait(&mut entry)?;
        Ok(entry[0])
    }

    /// Waits for an operation that has to fail, and returns its error.
    ///
    /// # Errors
    /// When it succeeds; [`Errno::TimedOut`].
    pub fn next_error(&self) -> anyhow::Result<ErrEntry> {
        match self.next() {
            Ok(entry) => Err(wrong(format!(
                "an operation succeeded that has to fail: {entry:?}"
            ))),
            Err(error) => error.downcast::<CompletionError>().map(|failed| failed.0),
        }
    }

    /// Drives progress without reading completions.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn progress(&self) -> anyhow::Result<()> {
        match self.cq.read(&mut []) {
            Ok(_) | Err(Errno::Avail) => Ok(()),
            Err(errno) => self.failed(errno),
        }
    }

    fn spin(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        let yields = self.strategy.method == WaitMethod::Yield;
        self.strategy.until("waiting for a completion", || {
            let count = self.poll(out)?;
            if count == 0 && yields {
                std::thread::yield_now();
            }
            Ok((count > 0).then_some(count))
        })
    }

    fn wait_blocking(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        let start = Instant::now();
        loop {
            match self.cq.wait(out, Some(self.strategy.slice())) {
                Ok(0) | Err(Errno::Again | Errno::Intr) => self.check(start)?,
                Ok(count) => return Ok(count),
                Err(errno) => self.failed(errno)?,
            }
        }
    }

    fn wait_fd(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        let start = Instant::now();
        let descriptor = self.cq.wait_fd();
        let descriptor = descriptor.context("the queue has no descriptor to wait at")?;
        loop {
            let count = self.poll(out)?;
            if count > 0 {
                return Ok(count);
            }
            match self.cq.try_wait() {
                Ok(()) => poll_fd(descriptor, self.strategy.slice())?,
                Err(Errno::Again) => {}
                Err(errno) => return Err(errno).context("fi_trywait"),
            }
            self.check(start)?;
        }
    }

    fn check(&self, start: Instant) -> anyhow::Result<()> {
        if start.elapsed() > self.strategy.timeout {
            Err(failure(Errno::TimedOut, "waiting for a completion"))
        } else {
            Ok(())
        }
    }

    #[cold]
    fn failed(&self, errno: Errno) -> anyhow::Result<()> {
        match (errno, self.cq.read_err()) {
            (Errno::Avail, Ok(entry)) => Err(CompletionError::from(entry).into()),
            // Another thread has read the error.
            (Errno::Avail | Errno::Again, Err(Errno::Again)) => Ok(()),
            _ => Err(failure(errno, "cannot read completions")),
        }
    }
}

/// Blocks until a descriptor is readable, the time `limit` has passed, or a signal arrives.
///
/// # Errors
/// Those of the system.
pub fn poll_fd(descriptor: BorrowedFd<'_>, limit: Duration) -> anyhow::Result<()> {
    let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(std::io::Error::from(errno)).context("poll"),
    }
}

/// A counter with a wait strategy.
#[derive(Clone, Debug)]
pub struct Count {
    cntr: Arc<dyn Counter>,
    strategy: WaitStrategy,
}

impl Count {
    /// Opens a counter.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn open(domain: &dyn Domain, strategy: WaitStrategy) -> anyhow::Result<Self> {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = strategy.object();
        let cntr = domain.cntr(&attr).context("cannot open a counter")?;
        Ok(Self { cntr, strategy })
    }

    /// The counter.
    pub fn cntr(&self) -> &Arc<dyn Counter> {
        &self.cntr
    }

    /// The number of successes.
    pub fn read(&self) -> u64 {
        self.cntr.read()
    }

    /// Waits until the counter reaches `value`.
    ///
    /// # Errors
    /// [`Errno::TimedOut`]; [`Errno::Avail`] when a counted operation has failed.
    pub fn wait(&self, value: u64) -> anyhow::Result<()> {
        match self.strategy.method {
            WaitMethod::Sread | WaitMethod::Fd => self.wait_blocking(value),
            WaitMethod::Spin | WaitMethod::Yield => {
                let errors = self.cntr.read_err();
                self.strategy.until("waiting for a counter", || {
                    if self.cntr.read() >= value {
                        return Ok(Some(()));
                    }
                    if self.cntr.read_err() == errors {
                        Ok(None)
                    } else {
                        Err(failure(Errno::Avail, "a counted operation failed"))
                    }
                })
            }
        }
    }

    fn wait_blocking(&self, value: u64) -> anyhow::Result<()> {
        let slice = Some(self.strategy.slice());
        self.cntr
            .wait(value, slice)
            .with_context(|| format!("waiting for a counter to be {value}: it is {}", self.read()))
    }
}
