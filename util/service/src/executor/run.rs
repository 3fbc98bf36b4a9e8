//! `run`: runs a future on this thread, and drives every listener and connection that it uses.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::Error;
use crate::hub::Hub;

thread_local! {
    /// The innermost run of this thread.
    static CURRENT: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

/// Runs a future to completion on this thread, which parks while the future is pending. The future
/// may use any number of listeners and connections.
///
/// # Errors
/// [`Error::Transport`] when the thread cannot wait.
///
/// # Examples
///
/// ```no_run
/// use selvedge_service::{Error, connect, run};
///
/// fn main() -> Result<(), Error> {
///     run(async {
///         let (near, far) = (connect("shm://kv").await?, connect("tcp://192.0.2.7:7000").await?);
///         far.send(&near.request(b"all").await?).await
///     })?
/// }
/// ```
pub fn run<F: Future>(future: F) -> Result<F::Output, Error> {
    let run = Rc::new(Run::new()?);
    let _entered = Entered::new(&run);
    let waker = Waker::from(Arc::clone(&run.thread));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        run.drive_until_woken()?;
    }
}

/// Whether a thread, a task or a driver makes the futures of a hub progress. A run of this thread
/// drives the hub from now on.
pub(crate) fn is_driven(hub: &Arc<Hub>) -> bool {
    let run = CURRENT.with_borrow(Option::clone);
    match run {
        Some(run) => run.add(hub),
        None => hub.is_driven(),
    }
}

/// The call of [`run`] on a thread.
struct Run {
    thread: Arc<ThreadWaker>,
    hubs: RefCell<Vec<DrivenHub>>,
}

impl Run {
    fn new() -> Result<Self, Error> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let thread = Arc::new(ThreadWaker {
            state: AtomicU8::new(RUNNING),
            event: event.map_err(failed)?,
        });
        let hubs = RefCell::default();
        Ok(Self { thread, hubs })
    }

    /// Drives a hub from now on. Returns whether it can be driven.
    fn add(&self, hub: &Arc<Hub>) -> bool {
        let mut hubs = self.hubs.borrow_mut();
        if hubs
            .iter()
            .any(|known| known.hub.as_ptr() == Arc::as_ptr(hub))
        {
            return true;
        }
        match DrivenHub::new(hub) {
            Ok(driven) => hubs.push(driven),
            Err(error) => {
                log::warn!("a thread cannot drive a hub: {error}");
                return false;
            }
        }
        true
    }

    /// Drives the hubs until the future is woken.
    fn drive_until_woken(&self) -> Result<(), Error> {
        let mut spin_until = None;
        loop {
            let mut is_active = false;
            self.for_each(|hub| is_active |= hub.poll());
            if self.thread.take_wakeup() {
                // A future that wakes itself again and again delays no timer.
                self.for_each(Hub::sweep);
                return Ok(());
            }
            if is_active {
                spin_until = None;
                continue;
            }
            let now = Instant::now();
            if now < *spin_until.get_or_insert_with(|| now + self.spin_time()) {
                self.for_each(Hub::sweep);
                std::hint::spin_loop();
                continue;
            }
            let mut settled = Ok(true);
            self.for_each(|hub| match (hub.settle(), &mut settled) {
                (Ok(may_block), Ok(settled)) => *settled &= may_block,
                (Err(error), Ok(_)) => settled = Err(error),
                (_, Err(_)) => {}
            });
            if settled? {
                self.park()?;
                self.for_each(Hub::take_events);
                spin_until = None;
            }
        }
    }

    /// Calls `operation` for each hub that still exists.
    fn for_each(&self, mut operation: impl FnMut(&Hub)) {
        // The hub wakes tasks, and the code of a waker may use another hub.
        let hubs: Vec<_> = {
            let mut hubs = self.hubs.borrow_mut();
            hubs.retain(|driven| driven.hub.strong_count() > 0);
            hubs.iter()
                .filter_map(|driven| driven.hub.upgrade())
                .collect()
        };
        hubs.iter().for_each(|hub| operation(hub));
    }

    fn spin_time(&self) -> std::time::Duration {
        let mut time = std::time::Duration::ZERO;
        self.for_each(|hub| time = time.max(hub.spin_time()));
        time
    }

    /// Blocks the thread until a hub has something to do or the future is woken.
    fn park(&self) -> Result<(), Error> {
        if !self.thread.prepare_park() {
            return Ok(());
        }
        let hubs = self.hubs.borrow();
        let fds = hubs.iter().map(|driven| driven.fd.as_fd());
        let mut fds: Vec<_> = fds
            .chain([self.thread.event.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let polled = poll(&mut fds, PollTimeout::NONE);
        self.thread.end_park();
        match polled {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// Makes a run the current one of its thread, until it is dropped.
struct Entered {
    outer: Option<Rc<Run>>,
}

impl Entered {
    fn new(run: &Rc<Run>) -> Self {
        let outer = CURRENT.replace(Some(Rc::clone(run)));
        Self { outer }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.outer.take());
    }
}

/// A hub that a run drives. The run does not keep the hub alive: the future may drop it.
struct DrivenHub {
    hub: Weak<Hub>,
    /// A descriptor of its own, which stays open when the hub is dropped during a wait.
    fd: OwnedFd,
}

impl DrivenHub {
    fn new(hub: &Arc<Hub>) -> std::io::Result<Self> {
        let fd = hub.fd().try_clone_to_owned()?;
        hub.add_driver();
        let hub = Arc::downgrade(hub);
        Ok(Self { hub, fd })
    }
}

impl Drop for DrivenHub {
    fn drop(&mut self) {
        if let Some(hub) = self.hub.upgrade() {
            hub.remove_driver();
        }
    }
}

/// The thread runs, and its future was not woken.
const RUNNING: u8 = 0;
/// The future was woken.
const WOKEN: u8 = 1;
/// The thread blocks, or is about to.
const PARKED: u8 = 2;

/// Wakes the thread of a run. Only a wake-up of a parked thread is a system call.
struct ThreadWaker {
    state: AtomicU8,
    event: EventFd,
}

impl ThreadWaker {
    /// Whether the future was woken since the last call.
    fn take_wakeup(&self) -> bool {
        let taken =
            self.state
                .compare_exchange(WOKEN, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok()
    }

    /// Returns whether the thread may block: the future was not woken.
    fn prepare_park(&self) -> bool {
        let parked =
            self.state
                .compare_exchange(RUNNING, PARKED, Ordering::AcqRel, Ordering::Acquire);
        parked.is_ok()
    }

    fn end_park(&self) {
        let _ = self
            .state
            .compare_exchange(PARKED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        let _ = self.event.read();
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, Ordering::AcqRel) == PARKED {
            // A full counter is readable, too.
            let _ = self.event.write(1);
        }
    }
}

fn failed(errno: Errno) -> Error {
    Error::Transport(format!("a thread cannot wait: {errno}"))
}
