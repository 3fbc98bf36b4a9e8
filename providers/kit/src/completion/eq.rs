//! The event queue.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selvedge::eq::{Attr, ErrEntry, Event};
use selvedge::{Errno, Error, EventQueue, Result};

use crate::completion::progress::{BUDGET, Progress};
use crate::completion::progress_list::ProgressList;
use crate::cq::Sink;
use crate::domain::identity::FabricId;
use crate::wait::{SPIN, WaitCondition, WaitObject};

/// A queue of events and errors, in the order in which they were added.
///
/// The size limits the events that the application writes. Events that a provider pushes are stored
/// beyond it: no event is lost. Events are rare, so the lock is always real, even if the
/// application promises to serialize its calls.
pub struct Queue {
    fabric: FabricId,
    events: Mutex<VecDeque<Result<Event, ErrEntry>>>,
    size: usize,
    endpoints: ProgressList,
    wait_object: Arc<WaitObject>,
}

impl Queue {
    /// Opens a queue of a fabric (fi_eq_open(3)).
    ///
    /// # Errors
    /// [`Errno::NoSys`] for a wait object that is not supported, which the text names; the system's
    /// error, if no descriptor is left.
    pub fn open(attr: &Attr, fabric: &FabricId) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            fabric: fabric.clone(),
            events: Mutex::default(),
            size: match attr.size {
                0 => DEFAULT_SIZE,
                size => size,
            },
            endpoints: ProgressList::shared(),
            wait_object: WaitObject::open("event queue", attr.wait_obj, SPIN)?,
        }))
    }

    /// The fabric that opened the queue.
    pub const fn fabric(&self) -> &FabricId {
        &self.fabric
    }

    /// Makes reads drive `object` from now on. Attaching an attached object has no effect.
    ///
    /// # Errors
    /// The system's error, if there is no memory to wait for the object. The object is then not
    /// attached.
    pub fn attach(&self, object: &Arc<dyn Progress>) -> Result<(), Error> {
        self.endpoints.attach(Arc::clone(object));
        self.wait_object
            .add(&**object)
            .inspect_err(|_| self.endpoints.detach(object))
    }

    /// Reverts [`Self::attach`]. After the return, this queue neither runs nor calls the progress
    /// of `object`.
    pub fn detach(&self, object: &Arc<dyn Progress>) {
        self.wait_object.remove(&**object);
        self.endpoints.detach(object);
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        self.push_entry(Ok(event));
    }

    /// Adds an error.
    pub fn push_err(&self, error: ErrEntry) {
        self.push_entry(Err(error));
    }

    /// Wakes the parked threads, which then poll again.
    pub fn wake(&self) {
        self.wait_object.wake();
    }

    fn push_entry(&self, event: Result<Event, ErrEntry>) {
        self.lock_events().push_back(event);
        // A thread that is about to park arms the queue before it checks the events a last time.
        self.wake();
    }

    fn drive(&self) {
        self.endpoints.drive(BUDGET, &mut Sink::none());
    }

    fn take(&self) -> Result<Event> {
        let mut events = self.lock_events();
        match events.front() {
            None => Err(Errno::Again),
            Some(Err(_)) => Err(Errno::Avail),
            Some(Ok(_)) => events.pop_front().and_then(Result::ok).ok_or(Errno::Again),
        }
    }

    fn lock_events(&self) -> MutexGuard<'_, VecDeque<Result<Event, ErrEntry>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventQueue for Queue {
    fn read(&self) -> Result<Event> {
        self.drive();
        self.take()
    }

    fn peek(&self) -> Result<Event> {
        self.drive();
        match self.lock_events().front() {
            None => Err(Errno::Again),
            Some(Err(_)) => Err(Errno::Avail),
            Some(Ok(event)) => Ok(event.clone()),
        }
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let mut events = self.lock_events();
        match events.pop_front() {
            Some(Err(error)) => Ok(error),
            Some(event) => {
                events.push_front(event);
                Err(Errno::Again)
            }
            None => Err(Errno::Again),
        }
    }

    fn write(&self, event: Event) -> Result {
        {
            let mut events = self.lock_events();
            if events.len() >= self.size {
                return Err(Errno::Again);
            }
            events.push_back(Ok(event));
        }
        self.wake();
        Ok(())
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        let found = self
            .wait_object
            .wait(&self.endpoints, timeout, &mut Reader(self))?;
        found.unwrap_or(Err(Errno::Again))
    }

    fn try_wait(&self) -> Result {
        self.wait_object
            .try_wait(&self.endpoints, &mut Pending(self))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.wait_object.fd()
    }
}

/// The condition of a thread that waits for an event.
struct Reader<'a>(&'a Queue);

impl WaitCondition for Reader<'_> {
    type Found = Result<Event>;

    fn poll(&mut self) -> Option<Result<Event>> {
        self.0.drive();
        self.check()
    }

    fn check(&mut self) -> Option<Result<Event>> {
        match self.0.take() {
            Err(Errno::Again) => None,
            found => Some(found),
        }
    }

    fn arm(&mut self) -> bool {
        !self.0.lock_events().is_empty()
    }

    fn disarm(&mut self) {}
}

/// The condition that there is an event, which stays in the queue.
struct Pending<'a>(&'a Queue);

impl WaitCondition for Pending<'_> {
    type Found = ();

    fn poll(&mut self) -> Option<()> {
        self.0.drive();
        self.check()
    }

    fn check(&mut self) -> Option<()> {
        (!self.0.lock_events().is_empty()).then_some(())
    }

    fn arm(&mut self) -> bool {
        self.check().is_some()
    }

    fn disarm(&mut self) {}
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("fabric", &self.fabric)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

const DEFAULT_SIZE: usize = 1024;

#[cfg(test)]
mod tests {
    use std::thread;

    use selvedge::{Context, wait};

    use super::*;

    fn open(wait_obj: wait::Object, size: usize) -> Arc<Queue> {
        let mut attr = Attr::default();
        attr.wait_obj = wait_obj;
        attr.size = size;
        Queue::open(&attr, &FabricId::of(&selvedge::Info::default())).unwrap()
    }

    fn event(number: u64) -> Event {
        let context = Context(number);
        Event::Notify {
            context,
            data: 0,
            handle: 0,
        }
    }

    fn number(event: &Event) -> u64 {
        match event {
            Event::Notify { context, .. } => context.0,
            other => panic!("{other:?}"),
        }
    }

    fn error(number: u64) -> ErrEntry {
        ErrEntry::new(Context(number), Errno::ConnRefused, "planted")
    }

    #[test]
    fn events_and_errors_are_read_in_order_and_can_be_peeked() {
        let eq = open(wait::Object::None, 0);
        assert_eq!(eq.read().unwrap_err(), Errno::Again);
        assert_eq!(eq.peek().unwrap_err(), Errno::Again);
        eq.write(event(1)).unwrap();
        eq.push_err(error(2));
        eq.push(event(3));
        assert_eq!(number(&eq.peek().unwrap()), 1);
        assert_eq!(eq.read_err().unwrap_err(), Errno::Again);
        assert_eq!(number(&eq.read().unwrap()), 1);
        assert_eq!(eq.read().unwrap_err(), Errno::Avail);
        assert_eq!(eq.peek().unwrap_err(), Errno::Avail);
        assert_eq!(eq.read_err().unwrap().context, Context(2));
        assert_eq!(number(&eq.read().unwrap()), 3);
        assert_eq!(eq.read().unwrap_err(), Errno::Again);
    }

    #[test]
    fn the_size_limits_writes_by_the_application_and_not_by_the_provider() {
        let eq = open(wait::Object::None, 2);
        eq.write(event(1)).unwrap();
        eq.push(event(2));
        assert_eq!(eq.write(event(3)), Err(Errno::Again));
        eq.push(event(3));
        for expected in 1..=3 {
            assert_eq!(number(&eq.read().unwrap()), expected);
        }
        eq.write(event(4)).unwrap();
    }

    #[test]
    fn try_wait_leaves_events_in_the_queue() {
        let eq = open(wait::Object::Fd, 0);
        assert_eq!(eq.try_wait(), Ok(()));
        eq.push(event(1));
        eq.push_err(error(2));
        assert_eq!(eq.try_wait(), Err(Errno::Again));
        assert_eq!(number(&eq.read().unwrap()), 1);
        assert_eq!(eq.try_wait(), Err(Errno::Again));
        assert_eq!(eq.read_err().unwrap().context, Context(2));
        assert_eq!(eq.try_wait(), Ok(()));
    }

    #[test]
    fn a_wait_ends_with_an_event_an_error_or_the_timeout() {
        for object in [wait::Object::Unspec, wait::Object::Fd, wait::Object::Yield] {
            let eq = open(object, 0);
            assert_eq!(eq.wait(Some(Duration::ZERO)).unwrap_err(), Errno::Again);
            let waiter = {
                let eq = Arc::clone(&eq);
                thread::spawn(move || (eq.wait(None), eq.wait(None)))
            };
            eq.write(event(7)).unwrap();
            thread::yield_now();
            eq.push_err(error(8));
            let (event, error) = waiter.join().unwrap();
            assert_eq!(number(&event.unwrap()), 7);
            assert_eq!(error.unwrap_err(), Errno::Avail);
        }
        let eq = open(wait::Object::None, 0);
        assert_eq!(eq.wait(None).unwrap_err(), Errno::NoSys);
    }
}
