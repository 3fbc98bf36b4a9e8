//! The parts of a connection that it shares with its handles.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::task::Waker;

use selvedge::PeerCredentials;

use crate::End;
use crate::port::Key;

/// The facts of a connection that its handles share with it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) key: Key,
    /// The index of the port in its hub.
    pub(crate) port: usize,
    /// The address of the peer, with its scheme.
    pub(crate) address: String,
    /// The facts about the peer that the kernel or a certificate authority vouches for.
    pub(crate) identity: Option<PeerCredentials>,
    /// The length of the longest message that the peer receives, in bytes.
    pub(crate) remote_limit: u64,
    /// Set when the connection ends.
    pub(crate) end: OnceLock<End>,
}

/// Whether a request was cancelled, and the task that waits for that.
#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Cancellation {
    /// Marks the request as cancelled. Returns the task to wake.
    pub(super) fn set(&self) -> Option<Waker> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = true;
        state.1.take()
    }

    /// Whether the request was cancelled. If not, `waker` is woken when it is.
    pub(crate) fn is_set(&self, waker: Option<&Waker>) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = waker {
            state.1 = Some(waker.clone());
        }
        state.0
    }
}

/// Adds a task to those that an event wakes. A task that is polled again stays in the list once.
pub(super) fn register(wakers: &mut Vec<Waker>, waker: Option<&Waker>) {
    if let Some(waker) = waker
        && !wakers.iter().any(|known| known.will_wake(waker))
    {
        wakers.push(waker.clone());
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_fn;
    use std::task::Poll;

    use super::register;

    #[test]
    fn a_task_that_is_polled_again_is_registered_once() {
        let mut wakers = Vec::new();
        let task = poll_fn(|cx| {
            register(&mut wakers, Some(cx.waker()));
            Poll::Ready(())
        });
        futures::executor::block_on(async {
            let mut task = std::pin::pin!(task);
            for _ in 0..3 {
                task.as_mut().await;
            }
        });
        assert_eq!(wakers.len(), 1);
    }
}
