//! How contexts wait that have nothing to do: they poll for a while, then sleep.

#![expect(
    unsafe_code,
    reason = "ppoll(2) over the descriptors of several fabrics"
)]

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use selvedge::CompletionQueue;

/// What is known of somebody who polls.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Polls since something came.
    vain: u32,
    calls: u32,
}

/// Polls in vain until the processor is offered to others, each time.
const ROUND: u32 = 256;
/// How long a context that waits polls before it sleeps, at most and at first. More than it takes to
/// wake a sleeper: two that answer each other would otherwise wake each other every time.
pub(super) const AWAKE: Duration = Duration::from_micros(200);

impl Patience {
    /// Something came.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.vain = 0;
    }

    /// Nothing came: whoever polls and polls lets others run in between.
    #[inline]
    pub(super) fn in_vain(&mut self) {
        self.vain = self.vain.wrapping_add(1);
        if self.vain.is_multiple_of(ROUND) {
            std::thread::yield_now();
        }
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
    let time = time.min(Duration::from_secs(1));
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos() as i32),
    };
    let (count, no_mask) = (fds.len() as libc::nfds_t, std::ptr::null());
    // SAFETY: the list is as long as it says, and the queues keep their descriptors open.
    unsafe { libc::ppoll(fds.as_mut_ptr(), count, &raw const time, no_mask) };
}
