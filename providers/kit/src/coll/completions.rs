//! The completions of the collective layer's own sends and receives, which the endpoint below the
//! layer reports to it.

use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge::{Context, Errno};

use super::tag::Purpose;
use crate::eq::Queue;
use crate::lock::{Lock, Mode};

/// The completion of one of the layer's operations, which it posts with
/// [`selvedge::OpFlags::PEER_TRANSFER`].
#[derive(Debug)]
pub(crate) struct LayerCompletion {
    pub(crate) context: Context,
    /// The number of bytes in the message, or the error.
    pub(crate) outcome: Result<usize, (Errno, String)>,
}

/// The completions that the layer has not handled yet. Their lock is innermost: the endpoint below
/// takes it while it holds its own lock.
#[derive(Debug)]
pub struct LayerCompletions {
    completions: Lock<Vec<LayerCompletion>>,
    count: AtomicUsize,
    /// The event queue that reports joins. A thread that is parked at this queue must wake for the
    /// completion of a join's message, in order to handle it.
    eq: Weak<Queue>,
}

impl LayerCompletions {
    #[expect(unsafe_code, reason = "passes the promise about threads to the lock")]
    pub(crate) fn new(mode: Mode, eq: Weak<Queue>) -> Self {
        // SAFETY: the domain derives `mode` from the application's promise about threads, which
        // covers the endpoint; the lock is held only to push or take completions, and no other code
        // runs meanwhile.
        let completions = unsafe { Lock::with_mode(mode, Vec::new()) };
        Self {
            completions,
            count: AtomicUsize::new(0),
            eq,
        }
    }

    pub(crate) fn put(&self, context: Context, outcome: Result<usize, (Errno, String)>) {
        let mut completions = self.completions.lock();
        completions.push(LayerCompletion { context, outcome });
        self.count.store(completions.len(), Ordering::Release);
        drop(completions);
        if Purpose::from_context(context).0.is_join()
            && let Some(eq) = self.eq.upgrade()
        {
            eq.wake();
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Moves the stored completions to `empty`. Its allocation is reused for the next completions.
    pub(crate) fn take(&self, empty: &mut Vec<LayerCompletion>) {
        // A completion that is put behind these must not be hidden by their count.
        let mut completions = self.completions.lock();
        std::mem::swap(&mut *completions, empty);
        self.count.store(completions.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Rounds in which a completion is put while another one may be taken.
    const ROUNDS: usize = 50_000;

    #[test]
    fn a_completion_that_is_put_during_a_take_is_found() {
        let completions = LayerCompletions::new(Mode::Safe, Weak::new());
        let (found, deadline) = (
            AtomicUsize::new(0),
            Instant::now() + Duration::from_secs(60),
        );
        let put_and_wait = || {
            for round in 1..=ROUNDS {
                completions.put(Context(0), Ok(8));
                completions.put(Context(0), Ok(8));
                while found.load(Ordering::Acquire) < 2 * round {
                    assert!(
                        Instant::now() < deadline,
                        "round {round}: a completion is hidden"
                    );
                    std::hint::spin_loop();
                }
            }
        };
        let take_all = || {
            let mut taken = Vec::new();
            while found.load(Ordering::Relaxed) < 2 * ROUNDS && Instant::now() < deadline {
                if !completions.is_empty() {
                    completions.take(&mut taken);
                    found.fetch_add(taken.drain(..).count(), Ordering::Release);
                }
            }
        };
        thread::scope(|scope| {
            scope.spawn(take_all);
            put_and_wait();
        });
    }
}
