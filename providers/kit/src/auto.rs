//! Automatic progress: a thread that drives endpoints while the application does something else.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::SigSet;
use selvedge::info::{self, DomainAttr};
use selvedge::wait::Object;
use selvedge::{Errno, Error};

use crate::cq::{BUDGET, Progress, Sink};
use crate::driven::Driven;
use crate::wait::{Awaited, Waiting};

/// A thread that drives what is attached, and sleeps while nothing moves. It ends when this is
/// dropped.
///
/// What it drives must be used under locks that are there ([`crate::lock::Mode::Safe`]), whatever
/// the application promised: this thread is not the application's.
#[derive(Debug)]
pub struct Auto {
    work: Arc<Work>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pid: u32,
}

#[derive(Debug)]
struct Work {
    driven: Driven,
    waiting: Arc<Waiting>,
    is_over: AtomicBool,
}

impl Auto {
    /// Starts the thread. It looks for `spin` at most before it sleeps.
    ///
    /// # Errors
    /// The system's, when threads, memory or descriptors are short.
    pub fn start(name: &str, spin: Duration) -> Result<Self, Error> {
        let work = Arc::new(Work {
            driven: Driven::shared(),
            waiting: Waiting::open("automatic progress", Object::Unspec, spin)?,
            is_over: AtomicBool::new(false),
        });
        let builder = thread::Builder::new().name(name.to_owned());
        let of_thread = Arc::clone(&work);
        let thread = builder.spawn(move || of_thread.run()).map_err(failed)?;
        Ok(Self {
            work,
            thread: Mutex::new(Some(thread)),
            pid: std::process::id(),
        })
    }

    /// Drives `ep` from now on. Attaching twice is attaching once.
    ///
    /// # Errors
    /// The system's, when memory is too short to wait for it; it is not attached then.
    pub fn attach(&self, ep: &Arc<dyn Progress>) -> Result<(), Error> {
        self.work.driven.attach(Arc::clone(ep));
        let added = self.work.waiting.add(&**ep);
        added.inspect_err(|_| self.work.driven.detach(ep))
    }

    /// Ends what [`Self::attach`] began. When it returns, the thread is not inside `ep`'s progress,
    /// nor will it be.
    pub fn detach(&self, ep: &Arc<dyn Progress>) {
        self.work.waiting.remove(&**ep);
        self.work.driven.detach(ep);
    }
}

impl Drop for Auto {
    fn drop(&mut self) {
        // A child of fork(2) does not have the thread.
        if std::process::id() != self.pid {
            return;
        }
        self.work.is_over.store(true, Ordering::SeqCst);
        self.work.waiting.wake();
        let thread = self.thread.get_mut();
        if let Some(thread) = thread.unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Work {
    fn run(&self) {
        // Handlers of signals are for the application's threads.
        let _ = SigSet::all().thread_block();
        while !self.is_over() {
            let waited = self.waiting.wait(&self.driven, None, &mut Shift(self));
            waited.expect("there is a wait object");
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

/// From one sleep to the next.
struct Shift<'a>(&'a Work);

impl Awaited for Shift<'_> {
    type Found = ();
    const LEAVES: bool = false;

    /// Works until nothing moves.
    fn read(&mut self) -> Option<()> {
        while !self.0.is_over() {
            if self.0.driven.drive(BUDGET, &mut Sink::none()) == 0 {
                return None;
            }
        }
        Some(())
    }

    /// Whatever it was that woke the thread, it looks for more before it sleeps again.
    fn look(&mut self) -> Option<()> {
        Some(())
    }

    fn watch(&mut self) -> bool {
        self.0.is_over()
    }

    fn unwatch(&mut self) {}
}

fn failed(cause: io::Error) -> Error {
    let errno = cause.raw_os_error().map_or(Errno::NoMem, Errno::from_raw);
    Error::new(errno, "starting the thread of automatic progress").because(cause)
}

/// Progress is made by the application's calls, unless it asks for a thread.
pub fn offer_progress(has: &mut DomainAttr, asked: &DomainAttr) {
    let asks = [asked.control_progress, asked.data_progress].contains(&info::Progress::Auto);
    if asks {
        has.control_progress = info::Progress::Auto;
        has.data_progress = info::Progress::Auto;
    }
}
