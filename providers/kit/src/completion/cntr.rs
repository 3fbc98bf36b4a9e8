//! The counter (fi_cntr(3)): the number of successes, the number of errors, and the endpoints that
//! reading it drives.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selvedge::cntr::{Attr, Events};
use selvedge::{Counter, Errno, Error, Result};

use crate::completion::progress::{BUDGET, Progress};
use crate::completion::progress_list::ProgressList;
use crate::cq::Sink;
use crate::domain::identity::{DomainId, OfDomain};
use crate::endpoint::work::CounterWork;
use crate::lock::Mode;
use crate::wait::{PollPolicy, WaitCondition, WaitObject};

/// A counter of the completed operations of its endpoints, or of their bytes.
///
/// Reading the counter drives the attached endpoints. A failed operation adds one to the number of
/// errors, even if the counter counts bytes. Both numbers wrap around. In a forked child the
/// counter counts nothing, and a wait fails with [`Errno::BadF`].
pub struct Cntr {
    domain: DomainId,
    successes: AtomicU64,
    errors: AtomicU64,
    /// The lowest threshold that a parked thread waits for. All accesses to `successes`, `errors`
    /// and `wake_at` are `SeqCst`. A thread that counts stores a number and then loads `wake_at`; a
    /// thread that is about to park stores `wake_at` and then loads the numbers. At least one of
    /// the two threads sees the other's store.
    wake_at: AtomicU64,
    /// The results of the last [`Counter::read`] and the last [`Counter::read_err`].
    last_read: [AtomicU64; 2],
    events: Events,
    endpoints: ProgressList,
    wait_object: Arc<WaitObject>,
    /// The deferred work that waits for thresholds of this counter.
    pub(crate) work: CounterWork,
}

impl Cntr {
    /// Opens a counter (fi_cntr_open(3)). Waiting threads poll for some microseconds before they
    /// park.
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not supported; the text names the wait object.
    /// The system's error, if no descriptor is left.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use the counter, or the endpoints whose operations
    /// it counts, at once.
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub unsafe fn open(attr: &Attr, mode: Mode) -> Result<Arc<Self>, Error> {
        // SAFETY: passed on from the caller.
        unsafe { Self::open_in_domain(attr, &DomainId::unnamed(), mode, PollPolicy::default()) }
    }

    /// As [`Self::open`], for a counter that belongs to `domain`, whose threads poll with `policy`.
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Safety
    /// As [`Self::open`].
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub unsafe fn open_in_domain(
        attr: &Attr,
        domain: &DomainId,
        mode: Mode,
        policy: PollPolicy,
    ) -> Result<Arc<Self>, Error> {
        // SAFETY: passed on from the caller. The progress of endpoints only adds to counters: it
        // does not use the list.
        let endpoints = unsafe { ProgressList::new(mode, policy) };
        Ok(Arc::new(Self {
            domain: domain.clone(),
            successes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            wake_at: AtomicU64::new(u64::MAX),
            last_read: [const { AtomicU64::new(0) }; 2],
            events: attr.events,
            endpoints,
            wait_object: WaitObject::open("counter", attr.wait_obj, policy.spin)?,
            work: CounterWork::new(),
        }))
    }

    /// Makes reads drive `ep` from now on. Attaching an endpoint again has no effect.
    ///
    /// # Errors
    /// The system's error, if the endpoint cannot be added to the wait object for lack of memory.
    /// The endpoint is then not attached.
    pub fn attach(&self, ep: &Arc<dyn Progress>) -> Result<(), Error> {
        self.endpoints.attach(Arc::clone(ep));
        self.wait_object
            .add(&**ep)
            .inspect_err(|_| self.endpoints.detach(ep))
    }

    /// Reverts [`Self::attach`]. When it returns, no call of `ep`'s progress by this counter is
    /// running, nor will one start.
    pub fn detach(&self, ep: &Arc<dyn Progress>) {
        self.wait_object.remove(&**ep);
        self.endpoints.detach(ep);
    }

    /// Makes threads take the lock of the endpoint list from now on, even under [`Mode::Asserted`].
    pub(crate) fn share(&self) {
        self.endpoints.share();
    }

    /// Returns the unit of the counter: operations or bytes.
    pub const fn events(&self) -> Events {
        self.events
    }

    /// Counts a completed operation of `len` bytes.
    #[inline]
    pub fn count(&self, len: usize) {
        match self.events {
            Events::Comp => self.add(1),
            Events::Bytes => self.add(len as u64),
        }
    }

    /// Wakes the parked threads, which then poll again.
    pub(crate) fn wake(&self) {
        self.wait_object.wake();
    }

    /// Releases the deferred work whose threshold was reached.
    #[cold]
    pub(crate) fn release_work(&self) {
        self.work.release(|| [self.successes(), self.errors()]);
    }

    /// Drives the endpoints for a program that reads the counter.
    fn poll(&self) {
        self.endpoints.poll(BUDGET, &mut Sink::none());
    }

    /// Drives the endpoints for a thread that waits.
    fn drive(&self) {
        self.endpoints.drive(BUDGET, &mut Sink::none());
    }

    fn successes(&self) -> u64 {
        self.successes.load(Ordering::SeqCst)
    }

    fn errors(&self) -> u64 {
        self.errors.load(Ordering::SeqCst)
    }
}

impl Counter for Cntr {
    fn read(&self) -> u64 {
        self.poll();
        let successes = self.successes();
        self.last_read[0].store(successes, Ordering::Relaxed);
        successes
    }

    fn read_err(&self) -> u64 {
        self.poll();
        let errors = self.errors();
        self.last_read[1].store(errors, Ordering::Relaxed);
        errors
    }

    fn add(&self, value: u64) {
        let successes = self.successes.fetch_add(value, Ordering::SeqCst);
        let successes = successes.wrapping_add(value);
        if successes >= self.wake_at.load(Ordering::SeqCst) {
            self.wake();
        }
        if self.work.is_due(successes) {
            self.release_work();
        }
    }

    fn add_err(&self, value: u64) {
        self.errors.fetch_add(value, Ordering::SeqCst);
        self.wake();
        self.release_work();
    }

    fn set(&self, value: u64) {
        self.successes.store(value, Ordering::SeqCst);
        self.wake();
        self.release_work();
    }

    fn set_err(&self, value: u64) {
        self.errors.store(value, Ordering::SeqCst);
        self.wake();
        self.release_work();
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        let mut threshold = Threshold {
            cntr: self,
            successes: threshold,
            errors: self.errors(),
        };
        let wait_object = &self.wait_object;
        let found = if wait_object.has_object() {
            wait_object.wait(&self.endpoints, timeout, &mut threshold)?
        } else {
            wait_object.poll_for(timeout, &mut threshold)?
        };
        found.unwrap_or(Err(Errno::TimedOut))
    }

    fn is_ready(&self) -> bool {
        Change(self).poll().is_some()
    }

    fn try_wait(&self) -> Result {
        self.wait_object
            .try_wait(&self.endpoints, &mut Change(self))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_object.fd()
    }
}

/// Downcasts a counter of a domain to the kit's type; error texts call it `name`.
///
/// # Errors
/// [`Errno::Inval`] for a counter of another domain.
pub(crate) fn resolve(
    domain: &DomainId,
    name: &str,
    cntr: &Arc<dyn Counter>,
) -> Result<Arc<Cntr>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Counter>::clone(cntr);
    domain.downcast(name, any, cntr)
}

/// The condition that a counter has reached `successes`, or that its number of errors is no longer
/// `errors`.
struct Threshold<'a> {
    cntr: &'a Cntr,
    successes: u64,
    errors: u64,
}

impl WaitCondition for Threshold<'_> {
    type Found = Result;

    fn poll(&mut self) -> Option<Result> {
        self.cntr.drive();
        self.check()
    }

    fn check(&mut self) -> Option<Result> {
        if self.cntr.successes() >= self.successes {
            return Some(Ok(()));
        }
        (self.cntr.errors() != self.errors).then_some(Err(Errno::Avail))
    }

    fn arm(&mut self) -> bool {
        self.cntr
            .wake_at
            .fetch_min(self.successes, Ordering::SeqCst);
        self.check().is_some()
    }

    fn disarm(&mut self) {
        self.cntr.wake_at.store(u64::MAX, Ordering::SeqCst);
    }
}

/// The condition that one of a counter's numbers has changed since it was last read.
struct Change<'a>(&'a Cntr);

impl WaitCondition for Change<'_> {
    type Found = ();

    fn poll(&mut self) -> Option<()> {
        self.0.drive();
        self.check()
    }

    fn check(&mut self) -> Option<()> {
        let last_read = self.0.last_read.each_ref();
        let last_read = last_read.map(|number| number.load(Ordering::Relaxed));
        ([self.0.successes(), self.0.errors()] != last_read).then_some(())
    }

    fn arm(&mut self) -> bool {
        self.0.wake_at.store(0, Ordering::SeqCst);
        self.check().is_some()
    }

    fn disarm(&mut self) {
        self.0.wake_at.store(u64::MAX, Ordering::SeqCst);
    }
}

impl OfDomain for Cntr {
    fn domain(&self) -> &DomainId {
        &self.domain
    }
}

impl fmt::Debug for Cntr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cntr")
            .field("domain", &self.domain)
            .field("events", &self.events)
            .field("successes", &self.successes)
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::thread;

    use crate::completion::progress::ArmOutcome;
    use selvedge::trigger::{Action, Work};
    use selvedge::wait;

    use super::*;
    use crate::endpoint::work::{self, ReadyWork, WorkItem};

    #[expect(
        unsafe_code,
        reason = "calls an unsafe constructor, with thread-safe locks"
    )]
    fn open(events: Events, wait_obj: wait::Object) -> Result<Arc<Cntr>, Error> {
        let mut attr = Attr::default();
        attr.events = events;
        attr.wait_obj = wait_obj;
        // SAFETY: `Mode::Safe` requires nothing.
        unsafe { Cntr::open(&attr, Mode::Safe) }
    }

    /// An endpoint that completes an operation of eight bytes at each progress call.
    #[derive(Debug)]
    struct Source(Weak<Cntr>);

    impl Progress for Source {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            self.0.upgrade().unwrap().count(8);
            1
        }
    }

    #[test]
    fn reads_without_progress_count_as_polls_in_vain() {
        let cntr = open(Events::Comp, wait::Object::None).unwrap();
        for polls in 1..4 {
            assert_eq!(cntr.read(), 0);
            assert_eq!(cntr.endpoints.polls_in_vain(), Some(polls));
        }
    }

    /// An endpoint that completes an operation when it is armed.
    #[derive(Debug)]
    struct CompletesWhenArmed(Weak<Cntr>);

    impl Progress for CompletesWhenArmed {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn arm(&self, _: &mut u64) -> ArmOutcome {
            self.0.upgrade().unwrap().count(8);
            ArmOutcome::Progressed
        }
    }

    #[test]
    fn a_read_beside_threads_that_compute_parks() {
        let cntr = open(Events::Comp, wait::Object::None).unwrap();
        let ep: Arc<dyn Progress> = Arc::new(CompletesWhenArmed(Arc::downgrade(&cntr)));
        cntr.attach(&ep).unwrap();
        cntr.endpoints.park_from_now_on();
        assert!((0..1_000_000).any(|_| cntr.read() > 0), "no read parks");
    }

    #[test]
    fn the_two_numbers_change_independently() {
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
    fn reading_drives_the_attached_endpoints_alone() {
        let cntr = open(Events::Bytes, wait::Object::None).unwrap();
        let ep: Arc<dyn Progress> = Arc::new(Source(Arc::downgrade(&cntr)));
        cntr.attach(&ep).unwrap();
        cntr.attach(&ep).unwrap();
        assert_eq!(cntr.read(), 8);
        assert_eq!(cntr.read_err(), 0);
        cntr.detach(&ep);
        assert_eq!(cntr.read(), 16);
        assert_eq!(Arc::strong_count(&ep), 1);
    }

    #[test]
    fn a_wait_ends_at_the_threshold_an_error_or_the_timeout() {
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
        cntr.attach(&ep).unwrap();
        assert_eq!(cntr.wait(100, None), Ok(()));
        cntr.detach(&ep);
    }

    #[test]
    fn a_new_error_ends_a_wait() {
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
        let failing: Arc<dyn Progress> = Arc::new(Failing(Arc::downgrade(&cntr)));
        cntr.attach(&failing).unwrap();
        assert_eq!(cntr.wait(1, None), Err(Errno::Avail));
    }

    /// Queues work that adds one to `sum` when `gate` has reached `threshold`.
    fn queue(gate: &Arc<Cntr>, threshold: u64, sum: &Arc<Cntr>, ready_work: &Arc<ReadyWork>) {
        let domain = sum.domain.clone();
        let [cntr, sum] = [gate, sum].map(|cntr| Arc::clone(cntr) as Arc<dyn Counter>);
        let (cntr, action) = (&cntr, Action::Add(&sum, 1));
        let work = Work {
            cntr,
            threshold,
            action,
        };
        let item = WorkItem {
            id: ready_work.next_id(),
            threshold,
            cntr_addr: 0,
            action: work::action(&work, &domain, None).unwrap(),
        };
        gate.work.add(item, ready_work);
        gate.release_work();
    }

    #[test]
    fn work_is_released_once_however_counting_and_queueing_race() {
        const COUNT: u64 = 1000;
        let ready_work = Arc::new(ReadyWork::open().unwrap());
        let [gate, sum] = [(); 2].map(|()| open(Events::Comp, wait::Object::None).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|_| gate.add(1)));
            for threshold in 1..=COUNT {
                queue(&gate, threshold, &sum, &ready_work);
            }
        });
        ready_work.run();
        assert_eq!(sum.read(), COUNT);
        assert_eq!(ready_work.run(), 0);
    }

    #[test]
    fn errors_count_towards_the_threshold_of_work_and_lower_numbers_do_not_undo_it() {
        let ready_work = Arc::new(ReadyWork::open().unwrap());
        let [gate, sum] = [(); 2].map(|()| open(Events::Comp, wait::Object::None).unwrap());
        for threshold in [3, 5, u64::MAX] {
            queue(&gate, threshold, &sum, &ready_work);
        }
        gate.add(2);
        assert_eq!(ready_work.run(), 0);
        gate.add_err(1);
        assert_eq!((ready_work.run(), sum.read()), (1, 1));
        gate.set(4);
        gate.set(0);
        gate.set_err(0);
        assert_eq!((ready_work.run(), sum.read()), (1, 2));
        gate.add(u64::MAX);
        assert_eq!((ready_work.run(), sum.read()), (1, 3));
    }

    #[test]
    fn without_a_wait_object_a_wait_polls_until_the_threshold() {
        let cntr = open(Events::Comp, wait::Object::None).unwrap();
        assert_eq!(cntr.wait(0, None), Ok(()));
        assert_eq!(cntr.wait(1, Some(Duration::ZERO)), Err(Errno::TimedOut));
        cntr.add(1);
        assert_eq!(cntr.wait(1, None), Ok(()));
        assert_eq!(cntr.try_wait(), Err(Errno::NoSys));
        assert!(cntr.wait_fd().is_none());
    }
}
