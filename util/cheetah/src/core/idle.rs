//! Idle strategy of contexts: poll for a while, then park.

#![expect(
    unsafe_code,
    reason = "ppoll(2) over the descriptors of several fabrics"
)]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::CompletionQueue;

/// Counters of polls and calls.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// Polls without an event since the last event.
    idle_polls: u32,
    calls: u32,
}

/// Number of idle polls between two yields of the processor.
const YIELD_INTERVAL: u32 = 256;
/// Maximum and initial time that a waiting context polls before it parks. The time is longer than a
/// wake-up takes: otherwise two contexts that respond to each other would park for every response.
pub(super) const SPIN_TIME: Duration = Duration::from_micros(200);

impl Backoff {
    /// Records an event.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.idle_polls = 0;
    }

    /// Records a poll without events. Yields the processor every [`YIELD_INTERVAL`] idle polls.
    #[inline]
    pub(super) fn idle_poll(&mut self) {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if self.idle_polls.is_multiple_of(YIELD_INTERVAL) {
            std::thread::yield_now();
        }
    }

    /// Returns whether this call is one of every `count` calls.
    #[inline]
    pub(super) fn every(&mut self, count: u32) -> bool {
        self.calls = self.calls.wrapping_add(1);
        self.calls.is_multiple_of(count)
    }
}

/// Parks until an event on one of several fabrics.
pub(super) fn park_on_queues(queues: &[Arc<dyn CompletionQueue>], time: Duration) {
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
    let time = time.min(Duration::from_secs(1));
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    };
    let (count, no_mask) = (fds.len() as libc::nfds_t, std::ptr::null());
    // SAFETY: the length is that of the list, and the queues keep their descriptors open.
    unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const time, no_mask) };
}
