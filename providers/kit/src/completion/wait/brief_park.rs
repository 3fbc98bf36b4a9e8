//! Brief parks of a program that polls in vain beside threads that compute.

use std::time::{Duration, Instant};

use super::epoll_set::EpollSet;
use super::wait_object::WaitObject;
use super::waiting::WaitCondition;
use crate::completion::progress_list::ProgressList;

impl WaitObject {
    /// Parks the thread until the next event of an endpoint, for `time` at most. `condition` takes
    /// no value. A thread that cannot park returns at once.
    #[cold]
    pub(crate) fn park_briefly(
        &self,
        endpoints: &ProgressList,
        time: Duration,
        condition: &mut impl WaitCondition,
    ) {
        if !self.fork_guard.is_owner() {
            return;
        }
        let Some(set) = self.open_brief_set(endpoints) else {
            return;
        };
        let deadline = Instant::now().checked_add(time);
        let bound = self.prepare_park(set, endpoints, deadline, true, condition);
        if let Some(bound) = bound {
            set.park(bound);
        }
        self.disarm(condition);
        if bound.is_some() {
            endpoints.woken();
        }
        endpoints.wake_others();
    }

    /// The set to park on. `None` if the system has no descriptor left.
    fn open_brief_set(&self, endpoints: &ProgressList) -> Option<&EpollSet> {
        if let Some(set) = self.any_set() {
            return Some(set);
        }
        let opened = EpollSet::open("a brief park").ok()?;
        if self.brief_set.set(opened).is_ok() {
            // Endpoints that are attached from now on are added by `Self::add`.
            endpoints.for_each(|ep| {
                if let (Some(set), Some(fd)) = (self.brief_set.get(), ep.wait_fd()) {
                    // Without the descriptor, a park ends with its time.
                    let _ = set.add(fd);
                }
            });
        }
        self.any_set()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use nix::sys::eventfd::EventFd;
    use selvedge::wait::Object;

    use super::*;
    use crate::completion::progress::{ArmOutcome, Progress};
    use crate::cq::Sink;
    use crate::wait::Waiters;

    const DAY: Duration = Duration::from_hours(24);

    /// An endpoint with a descriptor, which counts how often it is armed.
    #[derive(Debug)]
    struct Endpoint {
        waiters: Waiters,
        arm_count: AtomicUsize,
        fd: EventFd,
    }

    impl Endpoint {
        /// Makes an endpoint whose descriptor is ready, or not.
        fn new(is_ready: bool) -> Arc<Self> {
            Arc::new(Self {
                waiters: Waiters::default(),
                arm_count: AtomicUsize::new(0),
                fd: EventFd::from_value(is_ready.into()).unwrap(),
            })
        }
    }

    impl Progress for Endpoint {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn arm(&self, _: &mut u64) -> ArmOutcome {
            self.arm_count.fetch_add(1, Ordering::SeqCst);
            ArmOutcome::UntilWoken
        }

        fn waiters(&self) -> Option<&Waiters> {
            Some(&self.waiters)
        }

        fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.fd.as_fd())
        }
    }

    /// A condition that never holds.
    struct Never;

    impl WaitCondition for Never {
        type Found = ();

        fn poll(&mut self) -> Option<()> {
            None
        }

        fn check(&mut self) -> Option<()> {
            None
        }

        fn arm(&mut self) -> bool {
            false
        }

        fn disarm(&mut self) {}
    }

    /// A queue's wait object and its list of endpoints. The queue was opened without a wait object.
    fn polled_queue() -> (Arc<WaitObject>, ProgressList) {
        let opened = WaitObject::open("a test", Object::None, Duration::ZERO);
        (opened.unwrap(), ProgressList::shared())
    }

    fn attach(queue: &(Arc<WaitObject>, ProgressList), ep: &Arc<Endpoint>) {
        queue.1.attach(Arc::clone(ep) as Arc<dyn Progress>);
        queue.0.add(&**ep).unwrap();
    }

    #[test]
    fn a_brief_park_ends_when_an_endpoint_wakes_its_waiters() {
        let queue = polled_queue();
        let ep = Endpoint::new(false);
        attach(&queue, &ep);
        thread::scope(|scope| {
            scope.spawn(|| queue.0.park_briefly(&queue.1, DAY, &mut Never));
            while ep.arm_count.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            ep.waiters.wake();
        });
        assert_eq!(ep.arm_count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_brief_park_ends_with_the_descriptor_of_an_endpoint_attached_before_or_after_the_first_one()
    {
        let queue = polled_queue();
        let [idle, ready] = [false, true].map(Endpoint::new);
        attach(&queue, &ready);
        queue.0.park_briefly(&queue.1, DAY, &mut Never);
        queue.0.remove(&*ready);
        attach(&queue, &idle);
        queue
            .0
            .park_briefly(&queue.1, Duration::from_micros(1), &mut Never);
        attach(&queue, &ready);
        queue.0.park_briefly(&queue.1, DAY, &mut Never);
    }

    #[test]
    fn a_brief_park_of_a_queue_without_endpoints_ends_with_its_time() {
        let queue = polled_queue();
        queue
            .0
            .park_briefly(&queue.1, Duration::from_micros(1), &mut Never);
    }
}
