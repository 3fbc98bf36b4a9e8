//! Waiting at a wait object: a thread polls for a while, then parks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use selvedge::{Errno, Error, Result};

use super::epoll_set::EpollSet;
use super::wait_object::{Parking, WaitObject};
use crate::completion::progress::{ArmOutcome, Progress};
use crate::completion::progress_list::ProgressList;

/// The condition that a thread waits for.
pub(crate) trait WaitCondition {
    /// The value that ends the wait.
    type Found;
    /// Whether the thread returns to its caller once the condition holds.
    const RETURNS_TO_CALLER: bool = true;

    /// Makes progress, and takes the value if it is available.
    fn poll(&mut self) -> Option<Self::Found>;

    /// Takes the value if it is available, without making progress.
    fn check(&mut self) -> Option<Self::Found>;

    /// Requests a call of [`WaitObject::wake`] for every value that becomes available from now on.
    /// Returns whether a value is available already.
    fn arm(&mut self) -> bool;

    /// Withdraws the request of [`Self::arm`].
    fn disarm(&mut self);
}

impl WaitObject {
    /// Makes events of an endpoint wake the parked threads. The endpoint must be in the list of
    /// attached endpoints already: threads that are parked now have not armed it, and are woken to
    /// do so.
    pub(crate) fn add(self: &Arc<Self>, ep: &dyn Progress) -> Result<(), Error> {
        if let Some(waiters) = ep.waiters() {
            waiters.add(self);
        }
        if let (Some(set), Some(fd)) = (&self.set, ep.wait_fd()) {
            set.add(fd)?;
        }
        self.wake();
        Ok(())
    }

    /// Reverts [`Self::add`].
    pub(crate) fn remove(self: &Arc<Self>, ep: &dyn Progress) {
        if let Some(waiters) = ep.waiters() {
            waiters.remove(self);
        }
        // The process and its forked children share the kernel's set.
        if let (Some(set), Some(fd)) = (&self.set, ep.wait_fd())
            && self.fork_guard.is_owner()
        {
            set.remove(fd);
        }
    }

    /// Polls for a while, then arms the descriptor, which becomes ready with the next event.
    /// `condition` takes no value.
    ///
    /// # Errors
    /// [`Errno::Again`] if the condition holds or may hold; [`Errno::NoSys`] without a descriptor.
    pub(crate) fn try_wait(
        &self,
        endpoints: &ProgressList,
        condition: &mut impl WaitCondition,
    ) -> Result {
        let set = self.fd_set().ok_or(Errno::NoSys)?;
        self.fork_guard.check()?;
        self.record_fd_wait();
        let PollOutcome::BudgetSpent = self.spin_poll(Instant::now(), None, condition) else {
            return Err(Errno::Again);
        };
        let is_ready = {
            let mut parking = self.parking();
            parking.fd_armed_at = Some(Instant::now());
            self.arm(set, &parking, condition)
        };
        if is_ready || self.signalled.swap(false, Ordering::SeqCst) {
            return Err(Errno::Again);
        }
        let bound = match endpoints.arm(true) {
            ArmOutcome::Progressed | ArmOutcome::AtMost(Duration::ZERO) => {
                endpoints.wake_others();
                return Err(Errno::Again);
            }
            ArmOutcome::UntilWoken => None,
            ArmOutcome::AtMost(bound) => Some(bound),
        };
        set.set_timer(bound)
    }

    /// Records the time of a `poll(2)` that an event has ended. A thread that returned for another
    /// reason is not a measurement of the time between events.
    fn record_fd_wait(&self) {
        let parked_at = self.parking().fd_armed_at;
        if let Some(parked_at) = parked_at
            && !self.is_armed.load(Ordering::SeqCst)
        {
            self.spin.parked_for(parked_at.elapsed());
        }
    }

    /// Waits until the condition holds. `None` after the timeout, and after a signal.
    ///
    /// # Errors
    /// [`Errno::NoSys`] without a wait object; [`Errno::BadF`] in a forked child.
    pub(crate) fn wait<A: WaitCondition>(
        &self,
        endpoints: &ProgressList,
        timeout: Option<Duration>,
        condition: &mut A,
    ) -> Result<Option<A::Found>> {
        if !self.has_object() {
            return Err(Errno::NoSys);
        }
        self.fork_guard.check()?;
        let start = Instant::now();
        // A timeout beyond the range of the clock counts as none.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        let Some(set) = &self.set else {
            return Ok(self.poll_until(deadline, condition));
        };
        match self.spin_poll(start, deadline, condition) {
            PollOutcome::Found(found) => Ok(Some(found)),
            PollOutcome::Ended => Ok(None),
            PollOutcome::BudgetSpent => Ok(self.park(set, endpoints, deadline, condition)),
        }
    }

    /// As [`Self::wait`], without a set to park on.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a forked child.
    pub(crate) fn poll_for<A: WaitCondition>(
        &self,
        timeout: Option<Duration>,
        condition: &mut A,
    ) -> Result<Option<A::Found>> {
        self.fork_guard.check()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(self.poll_until(deadline, condition))
    }

    /// Polls until the condition holds or the wait has ended, and yields the processor between two
    /// polls.
    fn poll_until<A: WaitCondition>(
        &self,
        deadline: Option<Instant>,
        condition: &mut A,
    ) -> Option<A::Found> {
        loop {
            if let Some(found) = condition.poll() {
                return Some(found);
            }
            if self.has_ended(deadline) {
                return None;
            }
            thread::yield_now();
        }
    }

    fn spin_poll<A: WaitCondition>(
        &self,
        start: Instant,
        deadline: Option<Instant>,
        condition: &mut A,
    ) -> PollOutcome<A::Found> {
        let mut spinning = self.spin.begin(start);
        loop {
            if let Some(found) = condition.poll() {
                self.spin.succeeded(&spinning);
                return PollOutcome::Found(found);
            }
            if self.has_ended(deadline) {
                return PollOutcome::Ended;
            }
            if !self.spin.should_continue(&mut spinning) {
                return PollOutcome::BudgetSpent;
            }
        }
    }

    fn park<A: WaitCondition>(
        &self,
        set: &EpollSet,
        endpoints: &ProgressList,
        deadline: Option<Instant>,
        condition: &mut A,
    ) -> Option<A::Found> {
        let mut futile = 0;
        let mut is_first = true;
        loop {
            let parked_at = Instant::now();
            if let Some(bound) = self.prepare_park(set, endpoints, deadline, is_first, condition) {
                set.park(bound);
                self.disarm(condition);
                // Before the thread arms again: the progress made here needs no wake-up.
                endpoints.woken();
                self.spin.parked_for(parked_at.elapsed());
            } else {
                self.disarm(condition);
            }
            let found = condition.check();
            if found.is_some() || self.has_ended(deadline) {
                if A::RETURNS_TO_CALLER {
                    endpoints.wake_others();
                }
                return found;
            }
            is_first = false;
            futile = if parked_at.elapsed() < SHORT_PARK {
                futile + 1
            } else {
                0
            };
            if futile > MAX_FUTILE {
                thread::sleep(FUTILE_PAUSE);
            }
        }
    }

    /// Arms everything that could end the wait, and checks the condition a last time. Returns the
    /// time to park for, or `None` if the thread must not park.
    fn prepare_park(
        &self,
        set: &EpollSet,
        endpoints: &ProgressList,
        deadline: Option<Instant>,
        is_first: bool,
        condition: &mut impl WaitCondition,
    ) -> Option<Option<Duration>> {
        let is_ready = {
            let mut parking = self.parking();
            let is_ready = self.arm(set, &parking, condition);
            parking.threads += 1;
            is_ready
        };
        if is_ready || self.signalled.load(Ordering::SeqCst) {
            return None;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match endpoints.arm(is_first) {
            ArmOutcome::Progressed => None,
            ArmOutcome::UntilWoken => Some(left),
            ArmOutcome::AtMost(Duration::ZERO) => {
                thread::yield_now();
                None
            }
            ArmOutcome::AtMost(bound) => Some(Some(left.map_or(bound, |left| left.min(bound)))),
        }
    }

    /// Arms the set, which becomes ready with the next push. Returns whether the condition holds
    /// already.
    fn arm(&self, set: &EpollSet, parking: &Parking, condition: &mut impl WaitCondition) -> bool {
        // A wake-up that is meant for other parked threads stays pending until they return; it
        // wakes this thread, too.
        if parking.threads == 0 {
            set.clear();
        }
        self.is_armed.store(true, Ordering::SeqCst);
        condition.arm()
    }

    fn disarm(&self, condition: &mut impl WaitCondition) {
        let mut parking = self.parking();
        parking.threads -= 1;
        if parking.threads == 0 && parking.fd_armed_at.is_none() {
            self.is_armed.store(false, Ordering::SeqCst);
            condition.disarm();
        }
    }

    fn has_ended(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || (self.signalled.load(Ordering::Relaxed)
                && self.signalled.swap(false, Ordering::SeqCst))
    }
}

/// The outcome of polling for a while.
enum PollOutcome<T> {
    Found(T),
    /// The timeout has passed, or a signal has arrived.
    Ended,
    /// The spin budget is used up.
    BudgetSpent,
}

/// A park that ends sooner than this counts as futile if it ends the wait of no thread.
const SHORT_PARK: Duration = Duration::from_micros(100);
/// The number of futile parks in a row after which a thread pauses for [`FUTILE_PAUSE`]: a
/// descriptor is ready that no endpoint reads.
const MAX_FUTILE: u32 = 1000;
const FUTILE_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use selvedge::wait::Object;

    use super::*;

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

    /// A wait object at which polling has failed so often that its budget is small.
    fn with_small_budget() -> (Arc<WaitObject>, ProgressList) {
        let max_spin = Duration::from_millis(50);
        let wait_object = WaitObject::open("a test", Object::Fd, max_spin).unwrap();
        let endpoints = ProgressList::shared();
        while wait_object.spin.budget() > Duration::from_millis(1) {
            assert_eq!(wait_object.try_wait(&endpoints, &mut Never), Ok(()));
        }
        (wait_object, endpoints)
    }

    /// The next spin budget after a `poll(2)` and a failed poll, as a fraction of the previous
    /// budget.
    fn budget_after_poll(wait_object: &WaitObject, endpoints: &ProgressList) -> f64 {
        let previous = wait_object.spin.budget();
        assert_eq!(wait_object.try_wait(endpoints, &mut Never), Ok(()));
        wait_object.spin.budget().div_duration_f64(previous)
    }

    #[test]
    fn an_fd_wait_that_an_event_ended_soon_raises_the_spin_budget() {
        let (wait_object, endpoints) = with_small_budget();
        let raises_budget = |_| {
            wait_object.wake();
            budget_after_poll(&wait_object, &endpoints) > 0.9
        };
        // The event is not soon if the machine was suspended meanwhile.
        assert!((0..5).any(raises_budget), "{:?}", wait_object.spin.budget());
    }

    #[test]
    fn an_fd_wait_that_ended_for_another_reason_leaves_the_spin_budget() {
        let (wait_object, endpoints) = with_small_budget();
        assert!(budget_after_poll(&wait_object, &endpoints) < 0.6);
    }
}
