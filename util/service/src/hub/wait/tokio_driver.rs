//! The task that drives a hub in a tokio runtime. It is a task, not a thread.

#![expect(unsafe_code, reason = "tokio registers a descriptor")]

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};

use crate::Error;

/// The hub, as its task sees it.
pub(super) trait Drive: Send + Sync + 'static {
    /// The descriptor that is readable when [`Self::drive`] has something to do.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Does what there is to do. Returns whether the caller may wait for the descriptor.
    ///
    /// # Errors
    /// [`Error::Transport`] when nothing can be waited for.
    fn drive(&self) -> Result<bool, Error>;

    /// Whether the descriptor is readable.
    fn is_readable(&self) -> bool;

    /// Counts a task that drives the hub.
    fn add_driver(&self);

    /// Takes a task out of the count.
    fn remove_driver(&self);
}

/// Starts the task of a hub in the current runtime. Returns `None` without a runtime.
pub(super) fn start<H: Drive>(hub: &Arc<H>) -> Option<JoinHandle<()>> {
    let runtime = Handle::try_current().ok()?;
    let fd = hub.fd().try_clone_to_owned();
    let fd = fd
        .inspect_err(|error| log::warn!("no task drives a hub: {error}"))
        .ok()?;
    hub.add_driver();
    Some(runtime.spawn(run(Registered(Arc::downgrade(hub)), fd)))
}

/// Counts as a driver of the hub until the task ends, also when the runtime drops it.
struct Registered<H: Drive>(Weak<H>);

impl<H: Drive> Drop for Registered<H> {
    fn drop(&mut self) {
        if let Some(hub) = self.0.upgrade() {
            hub.remove_driver();
        }
    }
}

async fn run<H: Drive>(hub: Registered<H>, fd: OwnedFd) {
    if let Err(error) = drive(&hub.0, fd).await {
        log::warn!("no task drives a hub any more: {error}");
    }
}

/// Drives the hub until it is dropped.
async fn drive<H: Drive>(hub: &Weak<H>, fd: OwnedFd) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Transport(format!("a hub cannot wait: {error}"));
    // SAFETY: the `AsyncFd` owns the `OwnedFd`, which stays open until the `AsyncFd` is dropped; no
    // code takes it out or replaces it.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    let fd = fd.map_err(|error| failed(error.into()))?;
    loop {
        // The reference is dropped before the task waits, so that the hub can be dropped meanwhile.
        match hub.upgrade() {
            None => return Ok(()),
            Some(hub) if hub.drive()? && !hub.is_readable() => {}
            Some(_) => {
                yield_now().await;
                continue;
            }
        }
        // The runtime reports each change to readable once: it is cleared before the hub is driven.
        fd.readable().await.map_err(failed)?.clear_ready();
    }
}
