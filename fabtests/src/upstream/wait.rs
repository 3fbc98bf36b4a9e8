//! Waiting for completions, in the four ways of `-c`, and never without end once the peer is known.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionQueue, Counter, Domain, Errno, cntr, cq, wait};

use super::failure::failure;
use super::options::{Options, Waiting};

/// How long anything may take without `--timeout`.
const PATIENCE: Duration = Duration::from_secs(120);
/// Polls without a look at the clock.
const POLLS: u32 = 1 << 12;

/// How long a wait may take.
pub(super) fn patience(options: &Options) -> Duration {
    options.timeout.unwrap_or(PATIENCE)
}

/// How a program waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    waiting: Waiting,
    patience: Duration,
}

impl Manner {
    /// As the options say.
    pub(super) fn new(options: &Options) -> Self {
        Self {
            waiting: options.waiting,
            patience: patience(options),
        }
    }

    /// The same without an end: for a peer that may come at any time.
    pub(super) fn endless(self) -> Self {
        Self {
            patience: Duration::MAX,
            ..self
        }
    }

    /// The same, but for no longer than this.
    pub(super) fn at_most(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    fn object(self) -> wait::Object {
        match self.waiting {
            Waiting::Spin => wait::Object::None,
            Waiting::Sread => wait::Object::Unspec,
            Waiting::Fd => wait::Object::Fd,
            Waiting::Yield => wait::Object::Yield,
        }
    }

    /// Tries until there is something.
    ///
    /// # Errors
    /// Those of the tries; that it takes too long.
    pub(super) fn until<T>(
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
            if start.get_or_insert_with(Instant::now).elapsed() > self.patience {
                let what = format!("{what}: nothing for {:?}", self.patience);
                return Err(failure(Errno::TimedOut, what));
            }
        }
    }

    /// How long a single blocking call may take.
    fn slice(self) -> Duration {
        self.patience.min(Duration::from_secs(3600))
    }
}

/// An operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("an operation failed: {}", .0.detail)]
pub(super) struct Failed(pub(super) ErrEntry, #[source] Errno);

impl From<ErrEntry> for Failed {
    fn from(entry: ErrEntry) -> Self {
        let errno = entry.errno;
        Self(entry, errno)
    }
}

/// A completion queue, and how it is waited for.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    cq: Arc<dyn CompletionQueue>,
    manner: Manner,
}

impl Queue {
    /// Opens one.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn open(domain: &dyn Domain, manner: Manner, size: usize) -> anyhow::Result<Self> {
        let mut attr = cq::Attr::with_size(size);
        attr.wait_obj = manner.object();
        let cq = domain.cq(&attr).context("cannot open a completion queue")?;
        Ok(Self { cq, manner })
    }

    /// The queue itself.
    pub(super) fn cq(&self) -> &Arc<dyn CompletionQueue> {
        &self.cq
    }

    /// How it is waited for.
    pub(super) fn manner(&self) -> Manner {
        self.manner
    }

    /// The same, waited for in another manner.
    pub(super) fn in_manner(&self, change: impl FnOnce(Manner) -> Manner) -> Self {
        Self {
            cq: Arc::clone(&self.cq),
            manner: change(self.manner),
        }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// Of an operation, [`Failed`].
    #[inline]
    pub(super) fn poll(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
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
    pub(super) fn wait(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        match self.manner.waiting {
            Waiting::Spin | Waiting::Yield => self.spin(out),
            Waiting::Sread => self.sleep(out),
            Waiting::Fd => self.wait_at_descriptor(out),
        }
    }

    /// Waits for one completion.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub(super) fn next(&self) -> anyhow::Result<Entry> {
        let mut entry = [Entry::default()];
        self.wait(&mut entry)?;
        Ok(entry[0])
    }

    /// Waits for an operation that has to fail.
    ///
    /// # Errors
    /// That it succeeded, or that nothing comes.
    pub(super) fn next_error(&self) -> anyhow::Result<ErrEntry> {
        match self.next() {
            Ok(entry) => Err(super::failure::wrong(format!(
                "an operation succeeded that has to fail: {entry:?}"
            ))),
            Err(error) => error.downcast::<Failed>().map(|failed| failed.0),
        }
    }

    /// Makes progress, and takes nothing.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub(super) fn progress(&self) -> anyhow::Result<()> {
        match self.cq.read(&mut []) {
            Ok(_) | Err(Errno::Avail) => Ok(()),
            Err(errno) => self.failed(errno),
        }
    }

    fn spin(&self, out: &mut [Entry]) -> anyhow::Result<usize> {
        let yields = self.manner.waiting == Waiting::Yield;
        self.manner.until("waiting for a completion", || {
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
            match self.cq.wait(out, Some(self.manner.slice())) {
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
                Ok(()) => sleep_at(descriptor, self.manner.slice())?,
                Err(Errno::Again) => {}
                Err(errno) => return Err(errno).context("fi_trywait"),
            }
            self.check(start)?;
        }
    }

    fn check(&self, start: Instant) -> anyhow::Result<()> {
        match start.elapsed() > self.manner.patience {
            true => Err(failure(Errno::TimedOut, "waiting for a completion")),
            false => Ok(()),
        }
    }

    #[cold]
    fn failed(&self, errno: Errno) -> anyhow::Result<()> {
        match (errno, self.cq.read_err()) {
            (Errno::Avail, Ok(entry)) => Err(Failed::from(entry).into()),
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
pub(super) fn sleep_at(descriptor: BorrowedFd<'_>, most: Duration) -> anyhow::Result<()> {
    let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    match poll(&mut polled, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(errno) => Err(std::io::Error::from(errno)).context("poll"),
    }
}

/// A counter, and how it is waited for.
#[derive(Clone, Debug)]
pub(super) struct Count {
    cntr: Arc<dyn Counter>,
    manner: Manner,
}

impl Count {
    /// Opens one.
    ///
    /// # Errors
    /// The domain's.
    pub(super) fn open(domain: &dyn Domain, manner: Manner) -> anyhow::Result<Self> {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = manner.object();
        let cntr = domain.cntr(&attr).context("cannot open a counter")?;
        Ok(Self { cntr, manner })
    }

    /// The counter itself.
    pub(super) fn cntr(&self) -> &Arc<dyn Counter> {
        &self.cntr
    }

    /// Its value.
    pub(super) fn read(&self) -> u64 {
        self.cntr.read()
    }

    /// Waits for a value.
    ///
    /// # Errors
    /// That it takes too long, or that an operation failed.
    pub(super) fn wait(&self, value: u64) -> anyhow::Result<()> {
        match self.manner.waiting {
            Waiting::Sread | Waiting::Fd => self.sleep(value),
            Waiting::Spin | Waiting::Yield => {
                let errors = self.cntr.read_err();
                self.manner.until("waiting for a counter", || {
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
        let slice = Some(self.manner.slice());
        self.cntr
            .wait(value, slice)
            .with_context(|| format!("waiting for a counter to be {value}: it is {}", self.read()))
    }
}
