//! The wait objects at which threads may be parked for one endpoint.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::wait_object::WaitObject;

/// The wait objects of the queues, counters and automatic progress threads that drive one endpoint.
/// Attaching the endpoint registers them, so that a wake-up reaches every one of them.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Weak<WaitObject>>>);

impl Waiters {
    /// Adds a wait object. Adding a registered one has no effect.
    pub(super) fn add(&self, wait_object: &Arc<WaitObject>) {
        let mut list = self.lock();
        list.retain(|other| other.strong_count() > 0);
        if !list.iter().any(|other| is_same(other, wait_object)) {
            list.push(Arc::downgrade(wait_object));
        }
    }

    /// Removes a wait object.
    pub(super) fn remove(&self, wait_object: &Arc<WaitObject>) {
        self.lock().retain(|other| !is_same(other, wait_object));
    }

    /// Wakes every parked thread, which then arms the endpoint again before it parks.
    #[cold]
    pub fn wake(&self) {
        for wait_object in self.lock().iter().filter_map(Weak::upgrade) {
            wait_object.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<WaitObject>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_same(weak: &Weak<WaitObject>, wait_object: &Arc<WaitObject>) -> bool {
    weak.as_ptr() == Arc::as_ptr(wait_object)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use selvedge::wait::Object;

    use super::super::{ArmOutcome, WaitCondition};
    use super::*;
    use crate::completion::auto_progress::AutoProgress;
    use crate::completion::progress_list::ProgressList;
    use crate::cq::{Progress, Sink};

    /// An endpoint that lets threads park without a limit, and counts how often it is armed.
    #[derive(Debug, Default)]
    struct Endpoint {
        waiters: Waiters,
        arm_count: Mutex<usize>,
    }

    impl Endpoint {
        fn arm_count(&self) -> usize {
            *self.arm_count.lock().unwrap()
        }
    }

    impl Progress for Endpoint {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn arm(&self, _: &mut u64) -> ArmOutcome {
            *self.arm_count.lock().unwrap() += 1;
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
        let wait_object = WaitObject::open("a test", Object::Unspec, Duration::ZERO).unwrap();
        let endpoints = ProgressList::shared();
        endpoints.attach(Arc::clone(ep) as Arc<dyn Progress>);
        wait_object.add(&**ep).unwrap();
        (wait_object, endpoints)
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
            // The first thread parks once, and only the end of the other wait makes it check.
            scope.spawn(|| first.wait(&first_endpoints, None, &mut NthCheck(2)));
            wait_until(|| ep.arm_count() == 1);
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
            let before = ep.arm_count();
            ep.waiters.wake();
            wait_until(|| ep.arm_count() > before);
        }
        auto.detach(&progress);
        assert_eq!(ep.waiters.lock().len(), 0);
    }
}
