//! The ready-made counter: two numbers, and the endpoints that move them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::cntr::{Attr, Events};
use selvedge::{Counter, Errno, Error, Result, wait};

use crate::birth::Birth;
use crate::cq::{Progress, Sink};
use crate::driven::Driven;
use crate::lock::Mode;

/// A counter of the operations of one or many endpoints, or of their bytes.
///
/// Reading it drives the endpoints that are attached. Errors are counted one by one, also where
/// bytes are counted. Numbers wrap around. In a forked child it counts nothing, and a wait fails with
/// [`Errno::BadF`].
pub struct Cntr {
    birth: Birth,
    good: AtomicU64,
    bad: AtomicU64,
    events: Events,
    wait_obj: wait::Object,
    driven: Driven,
}

impl Cntr {
    /// Opens a counter (fi_cntr_open(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not offered, by name.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use the counter, or the endpoints that it counts
    /// for, at once.
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub unsafe fn open(attr: &Attr, mode: Mode) -> Result<Arc<Self>, Error> {
        // SAFETY: passed on from the caller; progress only adds to counters.
        let driven = unsafe { Driven::new(mode) };
        Ok(Arc::new(Self {
            birth: Birth::here(),
            good: AtomicU64::new(0),
            bad: AtomicU64::new(0),
            events: attr.events,
            wait_obj: checked_wait(attr.wait_obj)?,
            driven,
        }))
    }

    /// Has reads drive `ep` from now on. Attaching twice is attaching once.
    pub fn attach(&self, ep: Arc<dyn Progress>) {
        self.driven.attach(ep);
    }

    /// Ends what [`Self::attach`] began. When it returns, no call of `ep`'s progress by this
    /// counter is running, nor will one start.
    pub fn detach(&self, ep: &Arc<dyn Progress>) {
        self.driven.detach(ep);
    }

    /// An operation of `len` bytes is done.
    #[inline]
    pub fn count(&self, len: usize) {
        match self.events {
            Events::Comp => self.add(1),
            Events::Bytes => self.add(len as u64),
        }
    }

    fn drive(&self) {
        self.driven.drive(BUDGET, &mut Sink::none());
    }
}

impl Counter for Cntr {
    fn read(&self) -> u64 {
        self.drive();
        self.good.load(Ordering::Acquire)
    }

    fn read_err(&self) -> u64 {
        self.drive();
        self.bad.load(Ordering::Acquire)
    }

    fn add(&self, value: u64) {
        self.good.fetch_add(value, Ordering::Release);
    }

    fn add_err(&self, value: u64) {
        self.bad.fetch_add(value, Ordering::Release);
    }

    fn set(&self, value: u64) {
        self.good.store(value, Ordering::Release);
    }

    fn set_err(&self, value: u64) {
        self.bad.store(value, Ordering::Release);
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        if self.wait_obj == wait::Object::None {
            return Err(Errno::NoSys);
        }
        self.birth.check()?;
        let start = Instant::now();
        let errors = self.bad.load(Ordering::Acquire);
        loop {
            if self.read() >= threshold {
                return Ok(());
            }
            if self.bad.load(Ordering::Acquire) != errors {
                return Err(Errno::Avail);
            }
            if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                return Err(Errno::TimedOut);
            }
            thread::yield_now();
        }
    }
}

impl fmt::Debug for Cntr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cntr")
            .field("events", &self.events)
            .field("good", &self.good)
            .field("bad", &self.bad)
            .finish_non_exhaustive()
    }
}

fn checked_wait(object: wait::Object) -> Result<wait::Object, Error> {
    match object {
        wait::Object::None | wait::Object::Unspec | wait::Object::Yield => Ok(object),
        _ => Err(Error::new(
            Errno::NoSys,
            format!("counter: wait object {object:?} is not offered"),
        )),
    }
}

/// Messages that a read lets each endpoint take.
const BUDGET: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    #[expect(unsafe_code, reason = "opens with the real locks")]
    fn open(events: Events, wait_obj: wait::Object) -> Result<Arc<Cntr>, Error> {
        let mut attr = Attr::default();
        attr.events = events;
        attr.wait_obj = wait_obj;
        // SAFETY: the safe mode asks for nothing.
        unsafe { Cntr::open(&attr, Mode::Safe) }
    }

    /// Completes an operation of eight bytes each time that it is driven.
    #[derive(Debug)]
    struct Source(Weak<Cntr>);

    impl Progress for Source {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            self.0.upgrade().unwrap().count(8);
            1
        }
    }

    #[test]
    fn numbers_are_added_to_and_set_apart_from_each_other() {
        let cntr = open(Events::Comp, wait::Object::None).unwrap();
        cntr.add(3);
        cntr.add_err(2);
        assert_eq!((cntr.read(), cntr.read_err()), (3, 2));
        cntr.set(u64::MAX);
        cntr.set_err(7);
        cntr.add(2);
        assert_eq!((cntr.read(), cntr.read_err()), (1, 7));
    }

    #[test]
    fn operations_or_their_bytes_are_counted() {
        for (events, expected) in [(Events::Comp, 2), (Events::Bytes, 105)] {
            let cntr = open(events, wait::Object::None).unwrap();
            cntr.count(100);
            cntr.count(5);
            assert_eq!(cntr.read(), expected, "{events:?}");
        }
    }

    #[test]
    fn reading_drives_what_is_attached_and_nothing_else() {
        let cntr = open(Events::Bytes, wait::Object::None).unwrap();
        let ep: Arc<dyn Progress> = Arc::new(Source(Arc::downgrade(&cntr)));
        cntr.attach(Arc::clone(&ep));
        cntr.attach(Arc::clone(&ep));
        assert_eq!(cntr.read(), 8);
        assert_eq!(cntr.read_err(), 0);
        cntr.detach(&ep);
        assert_eq!(cntr.read(), 16);
        assert_eq!(Arc::strong_count(&ep), 1);
    }

    #[test]
    fn a_wait_for_a_number_ends_with_it_an_error_or_the_time() {
        let cntr = open(Events::Comp, wait::Object::Yield).unwrap();
        assert_eq!(cntr.wait(1, Some(Duration::ZERO)), Err(Errno::TimedOut));
        let waiter = |threshold| {
            let cntr = Arc::clone(&cntr);
            thread::spawn(move || cntr.wait(threshold, None))
        };
        let (first, second) = (waiter(2), waiter(2));
        cntr.add(2);
        assert_eq!(first.join().unwrap(), Ok(()));
        assert_eq!(second.join().unwrap(), Ok(()));
        let ep: Arc<dyn Progress> = Arc::new(Source(Arc::downgrade(&cntr)));
        cntr.attach(Arc::clone(&ep));
        assert_eq!(cntr.wait(100, None), Ok(()));
        cntr.detach(&ep);
    }

    #[test]
    fn an_error_that_is_new_ends_a_wait() {
        #[derive(Debug)]
        struct Failing(Weak<Cntr>);
        impl Progress for Failing {
            fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
                self.0.upgrade().unwrap().add_err(1);
                1
            }
        }
        let cntr = open(Events::Comp, wait::Object::Unspec).unwrap();
        cntr.add_err(5);
        assert_eq!(cntr.wait(1, Some(Duration::ZERO)), Err(Errno::TimedOut));
        cntr.attach(Arc::new(Failing(Arc::downgrade(&cntr))));
        assert_eq!(cntr.wait(1, None), Err(Errno::Avail));
    }

    #[test]
    fn waiting_for_a_number_needs_a_wait_object_that_is_offered() {
        let cntr = open(Events::Comp, wait::Object::None).unwrap();
        assert_eq!(cntr.wait(0, None), Err(Errno::NoSys));
        let error = open(Events::Comp, wait::Object::Fd).unwrap_err();
        assert!(error.what().contains("Fd"), "{error}");
    }
}
