//! Waits for completions by one of the four methods of `-c`, each with a timeout.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Counter, Domain, Errno, cntr, cq, wait};

use crate::run::failure::{failure, wrong};

/// Polls without a look at the clock.
const POLLS: u32 = 1 << 12;

/// How completions are waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitMethod {
    /// Reads again and again.
    #[default]
    Spin,
    /// Blocking reads.
    Sread,
    /// `poll(2)`.
    Fd,
    /// Reads, and lets others run in between.
    Yield,
}

/// How a program waits.
#[derive(Clone, Copy, Debug)]
pub struct WaitStrategy {
    method: WaitMethod,
    timeout: Duration,
}

impl WaitStrategy {
    /// Waits in this way, and fails after `timeout`.
    pub fn new(method: WaitMethod, timeout: Duration) -> Self {
        Self { method, timeout }
    }

    /// The same without an end: for a peer that may come at any time.
    pub fn endless(self) -> Self {
        Self {
            timeout: Duration::MAX,
            ..self
        }
    }

    /// The same, but for no longer than this.
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

    /// Tries until there is something.
    ///
    /// # Errors
    /// Those of the tries; that it takes too long.
    pub fn until<T>(
        self,
        what: &str,
        mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let mut start = None;
        loop {
            for _ in 0..POLLS {
                if let Some(value) = attempt()? {
                    return Ok(value);
                }
            }
            // Whoever waits for so long is not measured; the peer may want this core.
            std::thread::yield_now();
            if start.get_or_insert_with(Instant::now).elapsed() > self.timeout {
                let what = format!("{what}: nothing for {:?}", self.timeout);
                return Err(failure(Errno::TimedOut, what));
            }
        }
    }

    /// How long a single blocking call may take.
    fn slice(self) -> Duration {
        self.timeout.min(Duration::from_secs(3600))
    }
}

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("an operation failed: {}", .0.detail)]
pub struct CompletionError(pub ErrEntry, #[source] Errno);

impl From<ErrEntry> for CompletionError {
    fn from(entry: ErrEntry) -> Self {
        let errno = entry.errno;
        Self(entry, errno)
    }
}

/// A completion queue, and how it is waited for.
#[derive(Clone, Debug)]
pub struct Queue {
    cq: Arc<dyn CompletionQueue>,
    strategy: WaitStrategy,
}

impl Queue {
    /// Opens one.
    ///
    /// # Errors
    /// The domain's.
    pub fn open(domain: &dyn Domain, strategy: WaitStrategy, size: usize) -> anyhow::Result<Self> {
        let mut attr = cq::Attr::with_size(size);
        attr.wait_obj = strategy.object();
        let cq = domain.cq(&attr).context("cannot open a completion queue")?;
        Ok(Self { cq, strategy })
    }

    /// The queue itself.
    pub fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// How it is waited for.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    /// The same, waited for in another strategy.
    pub fn with_strategy(&self, change: impl FnOnce(WaitStrategy) -> WaitStrategy) -> Self {
        Self {
            cq: Arc::clone(&self.cq),
            strategy: change(self.strategy),
        }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// Of an operation, [`CompletionError`].
    #[inline]
    pub fn poll(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        match self.cq.read(out) {
            Ok(count) => Ok(count),
            Err(errno) => self.failed(errno).map(|()| 0),
        }
    }

    /// Waits until something is there.
    ///
    /// # Errors
    /// As [`Self::poll`]; that it takes too long.
    #[inline]
    pub fn wait(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        match self.strategy.method {
            WaitMethod::Spin | WaitMethod::Yield => self.spin(out),
            WaitMethod::Sread => self.sleep(out),
            WaitMethod::Fd => self.wait_at_descriptor(out),
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

    /// Waits for an operation that has to fail.
    ///
    /// # Errors
    /// That it succeeded, or that nothing comes.
    pub fn next_error(&self) -> anyhow::Result<ErrEntry> {
        match self.next() {
            Ok(entry) => Err(wrong(format!(
                "an operation succeeded that has to fail: {entry:?}"
            ))),
            Err(error) => error.downcast::<CompletionError>().map(|failed| failed.0),
        }
    }

    /// Makes progress, and takes nothing.
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

    fn sleep(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        let start = Instant::now();
        loop {
            match self.cq.wait(out, Some(self.strategy.slice())) {
                Ok(0) | Err(Errno::Again | Errno::Intr) => self.check(start)?,
                Ok(count) => return Ok(count),
                Err(errno) => self.failed(errno)?,
            }
        }
    }

    fn wait_at_descriptor(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
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
        match start.elapsed() > self.strategy.timeout {
            true => Err(failure(Errno::TimedOut, "waiting for a completion")),
            false => Ok(()),
        }
    }

    #[cold]
    fn failed(&self, errno: Errno) -> anyhow::Result<()> {
        match (errno, self.cq.read_err()) {
            (Errno::Avail, Ok(entry)) => Err(CompletionError::from(entry).into()),
            // Somebody else has read it.
            (Errno::Avail | Errno::Again, Err(Errno::Again)) => Ok(()),
            _ => Err(failure(errno, "cannot read completions")),
        }
    }
}

/// Sleeps until a descriptor is ready.
///
/// # Errors
/// The system's.
pub fn poll_fd(descriptor: BorrowedFd<'_>, most: Duration) -> anyhow::Result<()> {
    let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(std::io::Error::from(errno)).context("poll"),
    }
}

/// A counter, and how it is waited for.
#[derive(Clone, Debug)]
pub struct Count {
    cntr: Arc<dyn Counter>,
    strategy: WaitStrategy,
}

impl Count {
    /// Opens one.
    ///
    /// # Errors
    /// The domain's.
    pub fn open(domain: &dyn Domain, strategy: WaitStrategy) -> anyhow::Result<Self> {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = strategy.object();
        let cntr = domain.cntr(&attr).context("cannot open a counter")?;
        Ok(Self { cntr, strategy })
    }

    /// The counter itself.
    pub fn cntr(&self) -> &Arc<dyn Counter> {
        &self.cntr
    }

    /// Its value.
    pub fn read(&self) -> u64 {
        self.cntr.read()
    }

    /// Waits for a value.
    ///
    /// # Errors
    /// That it takes too long, or that an operation failed.
    pub fn wait(&self, value: u64) -> anyhow::Result<()> {
        match self.strategy.method {
            WaitMethod::Sread | WaitMethod::Fd => self.sleep(value),
            WaitMethod::Spin | WaitMethod::Yield => {
                let errors = self.cntr.read_err();
                self.strategy.until("waiting for a counter", || {
                    if self.cntr.read() >= value {
                        return Ok(Some(()));
                    }
                    match self.cntr.read_err() == errors {
                        true => Ok(None),
                        false => Err(failure(Errno::Avail, "a counted operation failed")),
                    }
                })
            }
        }
    }

    fn sleep(&self, value: u64) -> anyhow::Result<()> {
        let slice = Some(self.strategy.slice());
        self.cntr
            .wait(value, slice)
            .with_context(|| format!("waiting for a counter to be {value}: it is {}", self.read()))
    }
}
