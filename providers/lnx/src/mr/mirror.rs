//! A mirror: a counter of a link's domain whose increments are added to a counter of lnx, because
//! objects of two domains cannot be bound to each other.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Counter, Domain, Error, cntr, wait};
use selvedge_kit::cntr::Cntr;
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::wait::ArmOutcome;

/// A link's counter, which the lnx counter drives.
#[derive(Debug)]
pub(crate) struct Mirror {
    link: Arc<dyn Counter>,
    target: Weak<Cntr>,
    /// Successes and errors that were added to the lnx counter so far.
    added: Mutex<[u64; 2]>,
}

impl Mirror {
    /// Opens a counter of `domain` for the events of `target`.
    ///
    /// # Errors
    /// The link's error.
    pub(crate) fn open(target: &Arc<Cntr>, domain: &dyn Domain) -> Result<Arc<Self>, Error> {
        let mut attr = cntr::Attr::default();
        (attr.events, attr.wait_obj) = (target.events(), wait::Object::Fd);
        Ok(Arc::new(Self {
            link: domain.cntr(&attr)?,
            target: Arc::downgrade(target),
            added: Mutex::default(),
        }))
    }

    /// The counter to bind to objects of the link.
    pub(crate) fn counter(&self) -> &Arc<dyn Counter> {
        &self.link
    }

    /// Adds the increments since the last call. Returns whether there were any.
    fn add(&self) -> bool {
        let Some(target) = self.target.upgrade() else {
            return false;
        };
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let now = [self.link.read(), self.link.read_err()];
        let new = [0, 1].map(|index: usize| now[index].wrapping_sub(added[index]));
        *added = now;
        let [successes, errors] = new;
        if successes > 0 {
            target.add(successes);
        }
        if errors > 0 {
            target.add_err(errors);
        }
        new != [0, 0]
    }
}

impl Progress for Mirror {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        usize::from(self.add())
    }

    fn arm(&self, _seen: &mut u64) -> ArmOutcome {
        if self.add() || self.link.try_wait().is_err() {
            ArmOutcome::Progressed
        } else {
            ArmOutcome::UntilWoken
        }
    }

    fn woken(&self) {
        self.add();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.wait_fd()
    }
}
