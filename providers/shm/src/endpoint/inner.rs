//! `Inner`: an endpoint as the queues, counters and shared receives see it that it is bound to.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::epoll::Epoll;
use selvedge_kit::birth::Native;
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::srx::{Member, Posted, Receiver};
use selvedge_kit::wait::{Rest, Waiters};

use crate::endpoint::state::State;
use crate::progress;

/// What queues and counters drive.
#[derive(Debug)]
pub(crate) struct Inner {
    /// Out of reach for children that are forked from this process.
    pub(crate) state: Native<State>,
    /// What becomes ready with news while a thread is parked.
    pub(crate) epoll: Arc<Epoll>,
    pub(crate) waiters: Arc<Waiters>,
}

impl Progress for Inner {
    #[inline]
    fn progress(&self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.state
            .lock_for_pass()
            .map_or(0, |mut state| progress::progress(&mut state, budget, sink))
    }

    fn rest(&self, seen: &mut u64) -> Rest {
        // A child that is forked from this process never gets here: its queues do not wait.
        let state = self.state.lock();
        state.map_or(Rest::AtMost(Duration::ZERO), |mut state| {
            progress::rest(&mut state, seen)
        })
    }

    fn woken(&self) {
        if let Ok(mut state) = self.state.lock() {
            progress::woken(&mut state);
        }
    }

    fn waiters(&self) -> Option<&Waiters> {
        Some(&self.waiters)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }
}

impl Member for Inner {
    fn meet_shared(&self) {
        if let Ok(mut state) = self.state.lock() {
            Receiver::meet_shared(&mut *state);
        }
    }

    fn cancelled(&self, posted: Posted) {
        if let Ok(state) = self.state.lock() {
            state.setup.ep.rx_cancelled(posted);
        }
    }
}
