//! The wait objects at which threads may be parked for one endpoint.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::WaitObject;

/// The wait objects of the queues, counters and automatic progress threads that drive one endpoint.
/// Attaching the endpoint registers them, so that every one of them is part of a wake-up.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Weak<WaitObject>>>);

impl Waiters {
    /// Adds a wait object. Adding twice is adding once.
    pub(super) fn add(&self, waiting: &Arc<WaitObject>) {
        let mut list = self.lock();
        list.retain(|other| other.strong_count() > 0);
        if !list.iter().any(|other| is_same(other, waiting)) {
            list.push(Arc::downgrade(waiting));
        }
    }

    /// Removes a wait object.
    pub(super) fn remove(&self, waiting: &Arc<WaitObject>) {
        self.lock().retain(|other| !is_same(other, waiting));
    }

    /// Wakes every parked thread, which then arms the endpoint again before it parks.
    #[cold]
    pub fn wake(&self) {
        for waiting in self.lock().iter().filter_map(Weak::upgrade) {
            waiting.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<WaitObject>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(weak: &Weak<WaitObject>, waiting: &Arc<WaitObject>) -> bool {
    weak.as_ptr() == Arc::as_ptr(waiting)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use selvedge::wait::Object;

    use super::super::{ArmOutcome, WaitCondition};
    use super::*;
    use crate::auto_progress::AutoProgress;
    use crate::cq::{Progress, Sink};
    use crate::progress_list::ProgressList;

    /// An endpoint that lets threads park without a limit, and counts how often it is armed.
    #[derive(Debug, Default)]
    struct Endpoint {
        waiters: Waiters,
        armed: Mutex<usize>,
    }

    impl Endpoint {
        fn armed(&self) -> usize {
            *self.armed.lock().unwrap()
        }
    }

    impl Progress for Endpoint {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn arm(&self, _: &mut u64) -> ArmOutcome {
            *self.armed.lock().unwrap() += 1;
            ArmOutcome::UntilWoken
        }

        fn waiters(&self) -> Option<&Waiters> {
            Some(&self.waiters)
        }
    }

    /// A condition that holds at the nth check.
    struct NthCheck(usize);

    impl WaitCondition for NthCheck {
        type Found = ();

        fn poll(&mut self) -> Option<()> {
            None
        }

        fn check(&mut self) -> Option<()> {
            self.0 -= 1;
            (self.0 == 0).then_some(())
        }

        fn arm(&mut self) -> bool {
            self.0 == 1
        }

        fn disarm(&mut self) {}
    }

    fn wait_object(ep: &Arc<Endpoint>) -> (Arc<WaitObject>, ProgressList) {
        let waiting = WaitObject::open("a test", Object::Unspec, Duration::ZERO).unwrap();
        let endpoints = ProgressList::shared();
        endpoints.attach(Arc::clone(ep) as Arc<dyn Progress>);
        waiting.add(&**ep).unwrap();
        (waiting, endpoints)
    }

    fn wait_until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            thread::yield_now();
        }
    }

    #[test]
    fn a_thread_that_returns_from_its_wait_makes_the_others_arm_again() {
        let ep = Arc::new(Endpoint::default());
        let [(first, first_endpoints), (second, second_endpoints)] =
            [wait_object(&ep), wait_object(&ep)];
        thread::scope(|scope| {
            // It parks once, and only the end of the other wait makes it check.
            scope.spawn(|| first.wait(&first_endpoints, None, &mut NthCheck(2)));
            wait_until(|| ep.armed() == 1);
            second.wait(&second_endpoints, None, &mut NthCheck(1))
        })
        .unwrap();
    }

    #[test]
    fn the_automatic_progress_thread_is_woken_with_the_others() {
        let ep = Arc::new(Endpoint::default());
        let auto = AutoProgress::start("a test", Duration::ZERO).unwrap();
        let progress = Arc::clone(&ep) as Arc<dyn Progress>;
        auto.attach(&progress).unwrap();
        for _ in 0..3 {
            let before = ep.armed();
            ep.waiters.wake();
            wait_until(|| ep.armed() > before);
        }
        auto.detach(&progress);
        assert_eq!(ep.waiters.lock().len(), 0);
    }
}
