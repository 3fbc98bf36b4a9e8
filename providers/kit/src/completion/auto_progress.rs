//! Automatic progress (`FI_PROGRESS_AUTO`): a thread that drives endpoints while the application
//! does other work.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;
use selvedge::info::{self, DomainAttr};
use selvedge::wait::Object;
use selvedge::{Errno, Error};

use crate::completion::progress::{BUDGET, Progress};
use crate::completion::progress_list::ProgressList;
use crate::cq::Sink;
use crate::wait::{WaitCondition, WaitObject};

/// A thread that drives the attached endpoints and parks while there is no progress to make.
/// Dropping the handle ends the thread.
///
/// The endpoints must be used under real locks ([`crate::lock::Mode::Safe`]), even if the
/// application serializes its calls: this thread is not one of the application's.
#[derive(Debug)]
pub struct AutoProgress {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pid: u32,
}

#[derive(Debug)]
struct Shared {
    endpoints: ProgressList,
    wait_object: Arc<WaitObject>,
    is_stopping: AtomicBool,
}

impl AutoProgress {
    /// Starts the thread, which polls for `spin` at most before it parks.
    ///
    /// # Errors
    /// The system's error, if no thread, memory or descriptor is left.
    pub fn start(name: &str, spin: Duration) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            endpoints: ProgressList::shared(),
            wait_object: WaitObject::open("automatic progress", Object::Unspec, spin)?,
            is_stopping: AtomicBool::new(false),
        });
        let builder = thread::Builder::new().name(name.to_owned());
        let thread_shared = Arc::clone(&shared);
        let thread = builder
            .spawn(move || thread_shared.run())
            .map_err(start_error)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            pid: std::process::id(),
        })
    }

    /// Drives `ep` from now on. Attaching an attached endpoint has no effect.
    ///
    /// # Errors
    /// The system's error, if there is no memory to wait for the endpoint. The endpoint is then not
    /// attached.
    pub fn attach(&self, ep: &Arc<dyn Progress>) -> Result<(), Error> {
        self.shared.endpoints.attach(Arc::clone(ep));
        let added = self.shared.wait_object.add(&**ep);
        added.inspect_err(|_| self.shared.endpoints.detach(ep))
    }

    /// Reverts [`Self::attach`]. After the return, the thread neither runs nor calls the progress
    /// of `ep`.
    pub fn detach(&self, ep: &Arc<dyn Progress>) {
        self.shared.wait_object.remove(&**ep);
        self.shared.endpoints.detach(ep);
    }
}

impl Drop for AutoProgress {
    fn drop(&mut self) {
        // A child of fork(2) has no copy of the thread.
        if std::process::id() != self.pid {
            return;
        }
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.wait_object.wake();
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        // Signal handlers run on the application's threads only.
        let _ = SigSet::all().thread_block();
        while !self.is_stopping() {
            let waited = self
                .wait_object
                .wait(&self.endpoints, None, &mut Idle(self));
            waited.expect("there is a wait object");
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }
}

/// The wait condition of the thread, whose poll drives the endpoints until they make no progress.
struct Idle<'a>(&'a Shared);

impl WaitCondition for Idle<'_> {
    type Found = ();
    const RETURNS_TO_CALLER: bool = false;

    /// Drives the endpoints until they make no progress.
    fn poll(&mut self) -> Option<()> {
        while !self.0.is_stopping() {
            if self.0.endpoints.drive(BUDGET, &mut Sink::none()) == 0 {
                return None;
            }
        }
        Some(())
    }

    /// After any wake-up, the thread polls again before it parks.
    fn check(&mut self) -> Option<()> {
        Some(())
    }

    fn arm(&mut self) -> bool {
        self.0.is_stopping()
    }

    fn disarm(&mut self) {}
}

fn start_error(cause: io::Error) -> Error {
    let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
    Error::new(errno, "starting the automatic progress thread").because(cause)
}

/// Offers manual progress, or automatic progress to an application that requests it.
pub fn grant_auto_progress(offered: &mut DomainAttr, asked: &DomainAttr) {
    let is_asked = [asked.control_progress, asked.data_progress].contains(&info::Progress::Auto);
    if is_asked {
        offered.control_progress = info::Progress::Auto;
        offered.data_progress = info::Progress::Auto;
    }
}
