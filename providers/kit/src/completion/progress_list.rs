//! The endpoints that a queue or counter drives when it is read.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::idle_polls::{BRIEF_PARK, IdlePolls};
use crate::completion::progress::{ArmOutcome, Progress};
use crate::cq::Sink;
use crate::lock::{Lock, Mode};
use crate::wait::PollPolicy;

/// A list of the endpoints that a queue or counter drives. Its lock lets only one thread at a time
/// make progress.
pub(crate) struct ProgressList {
    /// Held while progress runs.
    list: Lock<Vec<Attached>>,
    idle: IdlePolls,
}

struct Attached {
    ep: Arc<dyn Progress>,
    /// The value that [`Progress::arm`] keeps for the threads that park at this queue or counter.
    epoch: u64,
}

impl ProgressList {
    /// Makes an empty list, which programs poll with `policy`.
    ///
    /// # Safety
    /// Under [`Mode::Asserted`], no two threads use the list, or its endpoints, at the same time,
    /// and [`Progress::progress`] does not use the list.
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub(crate) unsafe fn new(mode: Mode, policy: PollPolicy) -> Self {
        // SAFETY: passed on from the caller.
        let list = unsafe { Lock::with_mode(mode, Vec::new()) };
        Self {
            list,
            idle: IdlePolls::new(policy.yields),
        }
    }

    /// Makes an empty list that any thread may use at any time. No thread yields at it.
    pub(crate) fn shared() -> Self {
        Self {
            list: Lock::new(Vec::new()),
            idle: IdlePolls::new(false),
        }
    }

    /// Makes threads take the lock from now on ([`Lock::share`]).
    pub(crate) fn share(&self) {
        self.list.share();
    }

    /// Adds an endpoint, unless it is in the list.
    pub(crate) fn attach(&self, ep: Arc<dyn Progress>) {
        let mut list = self.list.lock();
        if !list.iter().any(|other| is_same(&other.ep, &ep)) {
            list.push(Attached { ep, epoch: 0 });
        }
    }

    /// Removes an endpoint. After the return, this list neither runs nor starts a call of the
    /// endpoint's progress.
    pub(crate) fn detach(&self, ep: &Arc<dyn Progress>) {
        let mut list = self.list.lock();
        let index = list.iter().position(|other| is_same(&other.ep, ep));
        // The other endpoints keep their order: a layer comes after the endpoint that it wraps.
        let detached = index.map(|index| list.remove(index));
        drop(list);
        drop(detached);
    }

    /// Makes progress on every endpoint. Returns the sum of what [`Progress::progress`] returned.
    ///
    /// Does nothing while another thread makes progress on the list: the caller also sees the
    /// messages of that pass. Does nothing while a thread waits to attach, detach or park.
    #[inline(always)]
    pub(crate) fn drive(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        if let Some(list) = self.list.try_lock_for_pass() {
            for attached in list.iter() {
                done += attached.ep.progress(budget, sink);
            }
        }
        done
    }

    /// Drives the endpoints for a program that polls. If the program's polls find nothing for long,
    /// yields the processor, or parks briefly ([`IdlePolls`]).
    #[inline(always)]
    pub(crate) fn poll(&self, budget: usize, sink: &mut Sink<'_>) {
        if self.drive(budget, sink) > 0 {
            self.idle.record_found();
        } else if self.idle.record_empty() {
            self.park_for(BRIEF_PARK);
        }
    }

    /// Parks until the next event of an endpoint, for `time` at most. Actions of other threads of
    /// the process end the park no sooner.
    #[cold]
    #[inline(never)]
    fn park_for(&self, time: Duration) {
        let time = match self.arm(true) {
            ArmOutcome::Progressed => Duration::ZERO,
            ArmOutcome::UntilWoken => time,
            ArmOutcome::AtMost(Duration::ZERO) => {
                thread::yield_now();
                Duration::ZERO
            }
            ArmOutcome::AtMost(bound) => time.min(bound),
        };
        if !time.is_zero() {
            // Without the list's lock, which other threads need meanwhile.
            let list: Vec<_> = self.endpoints();
            let fds = list.iter().filter_map(|ep| ep.wait_fd());
            let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            // Every return is a reason to poll again.
            let _ = ppoll(&mut fds, Some(TimeSpec::from_duration(time)), None);
            self.woken();
        }
        self.wake_others();
    }

    fn endpoints(&self) -> Vec<Arc<dyn Progress>> {
        let list = self.list.lock();
        list.iter()
            .map(|attached| Arc::clone(&attached.ep))
            .collect()
    }

    /// [`IdlePolls::in_vain`].
    #[cfg(test)]
    pub(crate) fn polls_in_vain(&self) -> Option<u32> {
        self.idle.in_vain()
    }

    /// [`IdlePolls::park_from_now_on`].
    #[cfg(test)]
    pub(crate) fn park_from_now_on(&self) {
        self.idle.park_from_now_on();
    }

    /// Arms every endpoint. Returns whether, and for how long, a thread may park. `is_first` is set
    /// in the first call of a wait.
    pub(crate) fn arm(&self, is_first: bool) -> ArmOutcome {
        let mut bound: Option<Duration> = None;
        for attached in self.list.lock().iter_mut() {
            if is_first {
                attached.epoch = 0;
            }
            match attached.ep.arm(&mut attached.epoch) {
                ArmOutcome::Progressed => return ArmOutcome::Progressed,
                ArmOutcome::UntilWoken => {}
                ArmOutcome::AtMost(limit) => {
                    bound = Some(bound.map_or(limit, |bound| bound.min(limit)))
                }
            }
        }
        bound.map_or(ArmOutcome::UntilWoken, ArmOutcome::AtMost)
    }

    /// Wakes the other parked threads, which arm again.
    ///
    /// A thread calls this before it returns from a wait in which it was woken or could not park.
    /// The wake-up may have been meant for the others, too, and the thread may have consumed the
    /// event that would have woken them.
    pub(crate) fn wake_others(&self) {
        for attached in self.list.lock().iter() {
            if let Some(waiters) = attached.ep.waiters() {
                waiters.wake();
            }
        }
    }

    /// Makes progress on every endpoint after a wake-up ([`Progress::woken`]).
    pub(crate) fn woken(&self) {
        for attached in self.list.lock().iter() {
            attached.ep.woken();
        }
    }
}

impl fmt::Debug for ProgressList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgressList").finish_non_exhaustive()
    }
}

/// Compares addresses alone: one type may have several vtables.
fn is_same(a: &Arc<dyn Progress>, b: &Arc<dyn Progress>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, BorrowedFd};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use nix::sys::eventfd::EventFd;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    /// An endpoint with a descriptor, which counts how often it is armed and woken.
    #[derive(Debug)]
    struct Endpoint {
        outcome: ArmOutcome,
        fd: EventFd,
        calls: [AtomicUsize; 2],
    }

    impl Endpoint {
        fn new(outcome: ArmOutcome, is_ready: bool) -> Arc<Self> {
            Arc::new(Self {
                outcome,
                fd: EventFd::from_value(is_ready.into()).unwrap(),
                calls: Default::default(),
            })
        }

        fn calls(&self) -> [usize; 2] {
            self.calls
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed))
        }
    }

    impl Progress for Endpoint {
        fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
            0
        }

        fn arm(&self, _: &mut u64) -> ArmOutcome {
            self.calls[0].fetch_add(1, Ordering::Relaxed);
            self.outcome
        }

        fn woken(&self) {
            self.calls[1].fetch_add(1, Ordering::Relaxed);
        }

        fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.fd.as_fd())
        }
    }

    fn list_of(endpoints: &[&Arc<Endpoint>]) -> ProgressList {
        let list = ProgressList::shared();
        for &ep in endpoints {
            list.attach(Arc::clone(ep) as Arc<dyn Progress>);
        }
        list
    }

    #[test]
    fn a_brief_park_ends_with_the_first_event_of_an_endpoint() {
        let [idle, ready] =
            [false, true].map(|is_ready| Endpoint::new(ArmOutcome::UntilWoken, is_ready));
        list_of(&[&idle, &ready]).park_for(DAY);
        assert_eq!([idle.calls(), ready.calls()], [[1, 1], [1, 1]]);
    }

    #[test]
    fn a_brief_park_ends_with_its_time_or_the_endpoints() {
        list_of(&[]).park_for(Duration::from_micros(1));
        let ep = Endpoint::new(ArmOutcome::UntilWoken, false);
        list_of(&[&ep]).park_for(Duration::from_micros(1));
        let ep = Endpoint::new(ArmOutcome::AtMost(Duration::from_micros(1)), false);
        list_of(&[&ep]).park_for(DAY);
    }

    #[test]
    fn a_thread_does_not_park_if_an_endpoint_has_made_progress_or_has_to_be_polled() {
        for outcome in [ArmOutcome::Progressed, ArmOutcome::AtMost(Duration::ZERO)] {
            let ep = Endpoint::new(outcome, false);
            list_of(&[&ep]).park_for(DAY);
            assert_eq!(ep.calls(), [1, 0]);
        }
    }
}
