//! Waiters: the places at which threads may be parked for one endpoint.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::Waiting;

/// The queues, counters and threads of automatic progress that drive one endpoint, each of which
/// threads may be parked at. Attaching the endpoint registers them: none can be left out of a
/// wake-up.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Weak<Waiting>>>);

impl Waiters {
    /// Adds a place. Adding twice is adding once.
    pub(super) fn add(&self, waiting: &Arc<Waiting>) {
        let mut list = self.lock();
        list.retain(|other| other.strong_count() > 0);
        if !list.iter().any(|other| is_same(other, waiting)) {
            list.push(Arc::downgrade(waiting));
        }
    }

    /// Removes a place.
    pub(super) fn remove(&self, waiting: &Arc<Waiting>) {
        self.lock().retain(|other| !is_same(other, waiting));
    }

    /// Wakes every parked thread, which then asks again whether it may park.
    #[cold]
    pub fn wake(&self) {
        for waiting in self.lock().iter().filter_map(Weak::upgrade) {
            waiting.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Waiting>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(weak: &Weak<Waiting>, waiting: &Arc<Waiting>) -> bool {
    weak.as_ptr() == Arc::as_ptr(waiting)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use selvedge::wait::Object;

    use super::super::{Awaited, Rest};
    use super::*;
    use crate::auto::Auto;
    use crate::cq::{Progress, Sink};
    use crate::driven::Driven;

    /// An endpoint that lets threads park without a bound, and counts how often they ask.
    #[derive(Debug, Default)]
    struct Endpoint {
        waiters: Waiters,
        asked: Mutex<usize>,
    }

    impl Endpoint {
        fn asked(&self) -> usize {
            *self.asked.lock().unwrap()
        }
    }

    impl Progress for Endpoint {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn rest(&self, _: &mut u64) -> Rest {
            *self.asked.lock().unwrap() += 1;
            Rest::UntilWoken
        }

        fn waiters(&self) -> Option<&Waiters> {
            Some(&self.waiters)
        }
    }

    /// A condition that holds at the nth look.
    struct Looks(usize);

    impl Awaited for Looks {
        type Found = ();

        fn read(&mut self) -> Option<()> {
            None
        }

        fn look(&mut self) -> Option<()> {
            self.0 -= 1;
            (self.0 == 0).then_some(())
        }

        fn watch(&mut self) -> bool {
            self.0 == 1
        }

        fn unwatch(&mut self) {}
    }

    fn place(ep: &Arc<Endpoint>) -> (Arc<Waiting>, Driven) {
        let waiting = Waiting::open("a test", Object::Unspec, Duration::ZERO).unwrap();
        let driven = Driven::shared();
        driven.attach(Arc::clone(ep) as Arc<dyn Progress>);
        waiting.add(&**ep).unwrap();
        (waiting, driven)
    }

    fn until(mut is_so: impl FnMut() -> bool) {
        while !is_so() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_leaves_its_wait_has_the_others_ask_again() {
        let ep = Arc::new(Endpoint::default());
        let [(first, first_driven), (second, second_driven)] = [place(&ep), place(&ep)];
        thread::scope(|scope| {
            // It parks once, and nothing but the other one's end makes it look.
            scope.spawn(|| first.wait(&first_driven, None, &mut Looks(2)));
            until(|| ep.asked() == 1);
            second.wait(&second_driven, None, &mut Looks(1))
        })
        .unwrap();
    }

    #[test]
    fn the_thread_of_automatic_progress_is_woken_with_the_others() {
        let ep = Arc::new(Endpoint::default());
        let auto = Auto::start("a test", Duration::ZERO).unwrap();
        let progress = Arc::clone(&ep) as Arc<dyn Progress>;
        auto.attach(&progress).unwrap();
        for _ in 0..3 {
            let before = ep.asked();
            ep.waiters.wake();
            until(|| ep.asked() > before);
        }
        auto.detach(&progress);
        assert_eq!(ep.waiters.lock().len(), 0);
    }
}
