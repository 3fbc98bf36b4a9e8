//! How contexts wait that have nothing to do: look for a while, then sleep.

#![expect(
    unsafe_code,
    reason = "poll(2) over the descriptors of several fabrics"
)]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::CompletionQueue;

/// What is known of somebody who polls.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Polls since something came.
    vain: u32,
    calls: u32,
    since: Option<Instant>,
    spins: bool,
}

/// Polls between two looks at the clock.
const ROUND: u32 = 256;
/// A program that polls this often in a row has nothing else to do: 256 polls of about 50 ns, and as
/// much again between them.
const TIGHT: Duration = Duration::from_micros(40);
/// How long one vain poll may then take. Whatever comes ends it.
const NAP: Duration = Duration::from_millis(1);

impl Patience {
    /// Something came.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.vain = 0;
        self.since = None;
        self.spins = false;
    }

    /// Nothing came; how long to sleep, if it is clear that the caller only waits.
    #[inline]
    pub(super) fn in_vain(&mut self) -> Option<Duration> {
        self.vain = self.vain.wrapping_add(1);
        if !self.vain.is_multiple_of(ROUND) && !self.spins {
            return None;
        }
        self.look()
    }

    #[cold]
    fn look(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let last = self.since.replace(now);
        let since = last.map_or(Duration::MAX, |last| now - last);
        // Naps are long; what counts is the time between them.
        self.spins = since < if self.spins { NAP * 2 } else { TIGHT };
        if self.spins {
            return Some(NAP);
        }
        None
    }

    /// Whether this is one of every `count` calls.
    #[inline]
    pub(super) fn every(&mut self, count: u32) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(count)
    }
}

/// Sleeps until one of several fabrics has something.
pub(super) fn sleep_on_queues(queues: &[Arc<dyn CompletionQueue>], time: Duration) {
    let mut fds = Vec::new();
    for queue in queues {
        if queue.try_wait().is_err() {
            return;
        }
        fds.extend(queue.wait_fd().map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }));
    }
    let millis = time.as_millis().clamp(1, 1000) as i32;
    // SAFETY: the list is as long as it says, and the queues keep their descriptors open.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, millis) };
}
