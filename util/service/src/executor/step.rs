//! `Step`: an operation that is tried until it has a result, by a blocked thread or as a future.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::run::is_driven;
use crate::Error;
use crate::hub::{Access, Hub};

/// An operation on a hub that lives for `'a`.
pub(crate) trait Step<'a> {
    type Output;

    /// The hub.
    fn hub(&self) -> &'a Arc<Hub>;

    /// Tries to complete, under the hub's lock. If there is no result yet, `waker` is woken when
    /// there may be one.
    fn step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<Self::Output, Error>>;

    /// The operation as a future.
    fn poll_step(&mut self, cx: &Context<'_>) -> Poll<Result<Self::Output, Error>> {
        poll_operation(self.hub(), cx, |access, waker| {
            self.step(access, Some(waker))
        })
    }

    /// The operation as a blocking call.
    #[inline]
    fn wait_step(&mut self, timeout: Option<Duration>) -> Result<Self::Output, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let hub = self.hub();
        match hub.wait(deadline, |access| self.step(access, None))? {
            Some(result) => result,
            None => Err(Error::Timeout(timeout.unwrap_or_default())),
        }
    }
}

/// Polls an operation on a hub, which takes the waker of the task.
pub(crate) fn poll_operation<T>(
    hub: &Arc<Hub>,
    cx: &Context<'_>,
    operation: impl FnOnce(&mut Access<'_>, &Waker) -> Option<Result<T, Error>>,
) -> Poll<Result<T, Error>> {
    match hub.with(|access| operation(access, cx.waker())) {
        Some(result) => Poll::Ready(result),
        None if is_driven(hub) => Poll::Pending,
        None => Poll::Ready(Err(Error::NoDriver)),
    }
}

/// Blocks the thread until an operation on a hub has a result.
pub(crate) fn wait_operation<T>(
    hub: &Hub,
    operation: impl FnMut(&mut Access<'_>) -> Option<Result<T, Error>>,
) -> Result<T, Error> {
    hub.wait(None, operation)?.unwrap_or(Err(Error::NoDriver))
}

/// Implements `Future` and the blocking calls of an operation.
macro_rules! operation {
    ($name:ident $(<$lifetime:lifetime>)?, $output:ty) => {
        impl $(<$lifetime>)? $name $(<$lifetime>)? {
            /// Blocks the thread until there is a result.
            ///
            /// # Errors
            /// As the future.
            pub fn wait(mut self) -> Result<$output, crate::Error> {
                $crate::executor::Step::wait_step(&mut self, None)
            }

            /// Blocks the thread until there is a result or the time is over.
            ///
            /// # Errors
            /// As the future; [`crate::Error::Timeout`] when the time is over.
            pub fn wait_timeout(mut self, timeout: std::time::Duration) -> Result<$output, crate::Error> {
                $crate::executor::Step::wait_step(&mut self, Some(timeout))
            }
        }

        impl $(<$lifetime>)? std::future::Future for $name $(<$lifetime>)? {
            type Output = Result<$output, crate::Error>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                $crate::executor::Step::poll_step(self.get_mut(), cx)
            }
        }
    };
}

pub(crate) use operation;
