//! `Driver`: makes the futures of a listener or a connection work under any executor.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::Error;
use crate::hub::Hub;

/// The descriptor of a listener or a connection, for the loop of an executor.
///
/// While a driver exists, futures rely on it: have the executor wait until the descriptor is
/// readable, and call [`Self::drive`] each time, which wakes the futures that have a result.
///
/// # Examples
///
/// ```no_run
/// use std::os::fd::AsFd;
///
/// use selvedge_service::{Driver, Error};
///
/// fn drive(driver: &Driver, wait_readable: impl Fn(std::os::fd::BorrowedFd<'_>)) -> Result<(), Error> {
///     loop {
///         if driver.drive()? {
///             wait_readable(driver.as_fd());
///         }
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Driver {
    hub: Arc<Hub>,
}

impl Driver {
    pub(crate) fn new(hub: Arc<Hub>) -> Self {
        hub.add_driver();
        Self { hub }
    }

    /// Does what there is to do, and wakes the futures that have a result. Returns whether the
    /// caller may wait for the descriptor; if not, it calls again.
    ///
    /// # Errors
    /// [`Error::Transport`] when nothing can be waited for.
    pub fn drive(&self) -> Result<bool, Error> {
        self.hub.drive()
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.hub.fd()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.hub.remove_driver();
    }
}
