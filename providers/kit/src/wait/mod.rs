//! Waiting: how a thread sleeps until a queue or counter has something for it.
//!
//! A thread that waits first looks for a while, because what it waits for is often under way, and
//! sleeps in the kernel then. Before it does, everything that could move what it waits for has to
//! say that it will wake the thread ([`crate::cq::Progress::rest`]); whoever pushes meanwhile rings
//! (`Waiting::wake`). How endpoints are woken by their peers is their own business.

mod pause;
mod set;
mod spin;
mod waiters;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::wait::Object;
use selvedge::{Errno, Error, Result};

pub use self::pause::Pause;
use self::set::Set;
pub use self::spin::{Spin, Spinning};
pub use self::waiters::Waiters;
use crate::birth::Birth;
use crate::cq::Progress;
use crate::driven::Driven;

/// Whether a thread may sleep, as far as one endpoint is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// No: something has just moved.
    Moved,
    /// Yes, until the endpoint's descriptor is ready.
    UntilWoken,
    /// Yes, but not for longer than this: something needs a look by then. Not at all when it is
    /// zero.
    AtMost(Duration),
}

/// What a thread waits for.
pub(crate) trait Awaited {
    /// What it is given in the end.
    type Found;
    /// Whether the thread goes and does other things once it has found something.
    const LEAVES: bool = true;

    /// Drives progress and takes what is there.
    fn read(&mut self) -> Option<Self::Found>;

    /// Takes what is there.
    fn look(&mut self) -> Option<Self::Found>;

    /// Has whatever comes from now on call [`Waiting::wake`]. Says whether something is there
    /// already.
    fn watch(&mut self) -> bool;

    /// Ends what [`Self::watch`] began.
    fn unwatch(&mut self);
}

/// How threads wait at one queue or counter.
#[derive(Debug)]
pub(crate) struct Waiting {
    object: Object,
    birth: Birth,
    /// What sleepers sleep on, and the descriptor for `poll(2)`.
    set: Option<Set>,
    bed: Mutex<Bed>,
    /// Whether somebody sleeps and was not rung for. While somebody sleeps and this is `false`, the
    /// set is ready.
    asleep: AtomicBool,
    signalled: AtomicBool,
    spin: Spin,
}

/// Who sleeps.
#[derive(Debug, Default)]
struct Bed {
    /// Threads inside [`Waiting::wait`].
    threads: usize,
    /// Since when somebody may be in `poll(2)`.
    polled: Option<Instant>,
}

impl Waiting {
    /// The means to wait at `what` with `object`. Threads look for `spin` at most before they
    /// sleep.
    ///
    /// # Errors
    /// The system's, when descriptors are short; [`Errno::NoSys`] for an object that is not
    /// offered, by name.
    pub(crate) fn open(what: &str, object: Object, spin: Duration) -> Result<Arc<Self>, Error> {
        let set = match object {
            Object::None | Object::Yield => None,
            Object::Unspec | Object::Fd => Some(Set::open(what)?),
            _ => {
                let what = format!("{what}: wait object {object:?} is not offered");
                return Err(Error::new(Errno::NoSys, what));
            }
        };
        Ok(Arc::new(Self {
            object,
            birth: Birth::here(),
            set,
            bed: Mutex::default(),
            asleep: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            spin: Spin::new(spin),
        }))
    }

    /// Has news of an endpoint wake whoever sleeps. The endpoint must be driven from here already:
    /// who sleeps now did not ask it.
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

    /// Ends what [`Self::add`] began.
    pub(crate) fn remove(self: &Arc<Self>, ep: &dyn Progress) {
        if let Some(waiters) = ep.waiters() {
            waiters.remove(self);
        }
        // The set is one for this process and for its forked children.
        if let (Some(set), Some(fd)) = (&self.set, ep.wait_fd())
            && self.birth.is_here()
        {
            set.remove(fd);
        }
    }

    /// Wakes whoever sleeps, to look again.
    #[cold]
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst)
            && self.birth.is_here()
            && self.asleep.swap(false, Ordering::SeqCst)
            && let Some(set) = &self.set
        {
            set.ring();
        }
    }

    /// Whether threads have a wait object to sleep at or to look at.
    pub(crate) fn has_object(&self) -> bool {
        self.object != Object::None
    }

    /// Ends one thread's wait, the current or the next one.
    pub(crate) fn signal(&self) -> Result {
        if !self.has_object() {
            return Err(Errno::NoSys);
        }
        self.birth.check()?;
        self.signalled.store(true, Ordering::SeqCst);
        self.wake();
        Ok(())
    }

    /// The descriptor for `poll(2)`.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let set = self.set.as_ref().filter(|_| self.object == Object::Fd)?;
        Some(set.fd())
    }

    /// Looks for a while, and makes sure then that the descriptor becomes ready with the next news.
    /// `awaited` takes nothing.
    ///
    /// # Errors
    /// [`Errno::Again`] when there may be news already; [`Errno::NoSys`] without a descriptor.
    pub(crate) fn try_wait(&self, driven: &Driven, awaited: &mut impl Awaited) -> Result {
        let set = self.set.as_ref().filter(|_| self.object == Object::Fd);
        let set = set.ok_or(Errno::NoSys)?;
        self.birth.check()?;
        self.has_polled();
        let Look::Nothing = self.look_for_a_while(Instant::now(), None, awaited) else {
            return Err(Errno::Again);
        };
        let is_there = {
            let mut bed = self.bed();
            bed.polled = Some(Instant::now());
            self.lie_down(set, &bed, awaited)
        };
        if is_there || self.signalled.swap(false, Ordering::SeqCst) {
            return Err(Errno::Again);
        }
        let bound = match driven.rest(true) {
            Rest::Moved | Rest::AtMost(Duration::ZERO) => {
                driven.leave();
                return Err(Errno::Again);
            }
            Rest::UntilWoken => None,
            Rest::AtMost(bound) => Some(bound),
        };
        set.expire(bound)
    }

    /// Whoever may have been in `poll(2)` is back: something has come, or somebody has other things
    /// to do as well.
    fn has_polled(&self) {
        let lay_down = self.bed().polled;
        if let Some(lay_down) = lay_down
            && !self.asleep.load(Ordering::SeqCst)
        {
            self.spin.slept(lay_down.elapsed());
        }
    }

    /// Waits until there is something. `None` after the time, and after a signal.
    ///
    /// # Errors
    /// [`Errno::NoSys`] without a wait object; [`Errno::BadF`] in a forked child.
    pub(crate) fn wait<A: Awaited>(
        &self,
        driven: &Driven,
        timeout: Option<Duration>,
        awaited: &mut A,
    ) -> Result<Option<A::Found>> {
        if !self.has_object() {
            return Err(Errno::NoSys);
        }
        self.birth.check()?;
        let start = Instant::now();
        // A time beyond what clocks count to is no end.
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        let Some(set) = &self.set else {
            return Ok(self.poll(deadline, awaited));
        };
        match self.look_for_a_while(start, deadline, awaited) {
            Look::Found(found) => Ok(Some(found)),
            Look::Over => Ok(None),
            Look::Nothing => Ok(self.sleep(set, driven, deadline, awaited)),
        }
    }

    /// As [`Self::wait`], of an object without anything to sleep on.
    ///
    /// # Errors
    /// [`Errno::BadF`] in a forked child.
    pub(crate) fn poll_for<A: Awaited>(
        &self,
        timeout: Option<Duration>,
        awaited: &mut A,
    ) -> Result<Option<A::Found>> {
        self.birth.check()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Ok(self.poll(deadline, awaited))
    }

    /// Looks and lets others run in between.
    fn poll<A: Awaited>(&self, deadline: Option<Instant>, awaited: &mut A) -> Option<A::Found> {
        loop {
            if let Some(found) = awaited.read() {
                return Some(found);
            }
            if self.is_over(deadline) {
                return None;
            }
            thread::yield_now();
        }
    }

    fn look_for_a_while<A: Awaited>(
        &self,
        start: Instant,
        deadline: Option<Instant>,
        awaited: &mut A,
    ) -> Look<A::Found> {
        let mut spinning = self.spin.begin(start);
        loop {
            if let Some(found) = awaited.read() {
                self.spin.paid(&spinning);
                return Look::Found(found);
            }
            if self.is_over(deadline) {
                return Look::Over;
            }
            if !self.spin.goes_on(&mut spinning) {
                return Look::Nothing;
            }
        }
    }

    fn sleep<A: Awaited>(
        &self,
        set: &Set,
        driven: &Driven,
        deadline: Option<Instant>,
        awaited: &mut A,
    ) -> Option<A::Found> {
        let mut futile = 0;
        let mut is_first = true;
        loop {
            let lay_down = Instant::now();
            if let Some(bound) = self.go_to_bed(set, driven, deadline, is_first, awaited) {
                set.sleep(bound);
                self.rise(awaited);
                // Before it lies down again: nobody has to ring for what this finds.
                driven.woken();
                self.spin.slept(lay_down.elapsed());
            } else {
                self.rise(awaited);
            }
            let found = awaited.look();
            if found.is_some() || self.is_over(deadline) {
                if A::LEAVES {
                    driven.leave();
                }
                return found;
            }
            is_first = false;
            futile = if lay_down.elapsed() < SHORT {
                futile + 1
            } else {
                0
            };
            if futile > FUTILE {
                thread::sleep(NAP);
            }
        }
    }

    /// Gets everything ready for a sleep, and looks a last time. For how long it may be, or `None`
    /// when there is no reason for one.
    fn go_to_bed(
        &self,
        set: &Set,
        driven: &Driven,
        deadline: Option<Instant>,
        is_first: bool,
        awaited: &mut impl Awaited,
    ) -> Option<Option<Duration>> {
        let is_there = {
            let mut bed = self.bed();
            let is_there = self.lie_down(set, &bed, awaited);
            bed.threads += 1;
            is_there
        };
        if is_there || self.signalled.load(Ordering::SeqCst) {
            return None;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match driven.rest(is_first) {
            Rest::Moved => None,
            Rest::UntilWoken => Some(left),
            Rest::AtMost(Duration::ZERO) => {
                thread::yield_now();
                None
            }
            Rest::AtMost(bound) => Some(Some(left.map_or(bound, |left| left.min(bound)))),
        }
    }

    /// From here on the set becomes ready with the next push. Says whether there is something
    /// already.
    fn lie_down(&self, set: &Set, bed: &Bed, awaited: &mut impl Awaited) -> bool {
        // What has rung for others is theirs to find, and wakes this thread too.
        if bed.threads == 0 {
            set.quiet();
        }
        self.asleep.store(true, Ordering::SeqCst);
        awaited.watch()
    }

    fn rise(&self, awaited: &mut impl Awaited) {
        let mut bed = self.bed();
        bed.threads -= 1;
        if bed.threads == 0 && bed.polled.is_none() {
            self.asleep.store(false, Ordering::SeqCst);
            awaited.unwatch();
        }
    }

    fn is_over(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || (self.signalled.load(Ordering::Relaxed)
                && self.signalled.swap(false, Ordering::SeqCst))
    }

    fn bed(&self) -> MutexGuard<'_, Bed> {
        self.bed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of looking for a while.
enum Look<T> {
    Found(T),
    /// The time has passed, or a signal came.
    Over,
    Nothing,
}

/// How long threads look before they sleep, at most, unless somebody says otherwise: more than it
/// takes for one to be woken that answers at once, so that two that talk find out.
pub const SPIN: Duration = Duration::from_micros(100);

/// A sleep that ends sooner than this ended at once.
const SHORT: Duration = Duration::from_micros(100);
/// Sleeps that end at once, one after the other and for nothing, after which a thread stays away for
/// a [`NAP`]: something is ready that nobody takes.
const FUTILE: u32 = 1000;
const NAP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for what does not come.
    struct Nothing;

    impl Awaited for Nothing {
        type Found = ();

        fn read(&mut self) -> Option<()> {
            None
        }

        fn look(&mut self) -> Option<()> {
            None
        }

        fn watch(&mut self) -> bool {
            false
        }

        fn unwatch(&mut self) {}
    }

    /// A place where looking was in vain for so long that it is hardly done any more.
    fn discouraged() -> (Arc<Waiting>, Driven) {
        let most = Duration::from_millis(50);
        let waiting = Waiting::open("a test", Object::Fd, most).unwrap();
        let driven = Driven::shared();
        while waiting.spin.budget() > Duration::from_millis(1) {
            assert_eq!(waiting.try_wait(&driven, &mut Nothing), Ok(()));
        }
        (waiting, driven)
    }

    /// How long the next look is after one in vain that a poll went before, in parts of that one.
    fn after_a_poll(waiting: &Waiting, driven: &Driven) -> f64 {
        let before = waiting.spin.budget();
        assert_eq!(waiting.try_wait(driven, &mut Nothing), Ok(()));
        waiting.spin.budget().div_duration_f64(before)
    }

    #[test]
    fn a_poll_that_news_ended_soon_was_worth_a_look() {
        let (waiting, driven) = discouraged();
        let is_worth_it = |_| {
            waiting.wake();
            after_a_poll(&waiting, &driven) > 0.9
        };
        // Not soon, where the machine stood still meanwhile.
        assert!((0..5).any(is_worth_it), "{:?}", waiting.spin.budget());
    }

    #[test]
    fn a_poll_that_ended_for_another_reason_says_nothing_about_looking() {
        let (waiting, driven) = discouraged();
        assert!(after_a_poll(&waiting, &driven) < 0.6);
    }
}
