//! A counter of a link's domain whose numbers are added to one of ours: objects of two domains are not
//! bound to each other.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use selvedge::{Counter, Domain, Error, cntr, wait};
use selvedge_kit::cntr::Cntr;
use selvedge_kit::cq::{Progress, Sink};
use selvedge_kit::wait::ArmOutcome;

/// A link's counter, which ours drives.
#[derive(Debug)]
pub(crate) struct Mirror {
    link: Arc<dyn Counter>,
    own: Weak<Cntr>,
    /// Successes and errors that were added.
    added: Mutex<[u64; 2]>,
}

impl Mirror {
    /// A counter of `domain` that counts what `own` does.
    ///
    /// # Errors
    /// The link's.
    pub(crate) fn open(own: &Arc<Cntr>, domain: &dyn Domain) -> Result<Arc<Self>, Error> {
        let mut attr = cntr::Attr::default();
        (attr.events, attr.wait_obj) = (own.events(), wait::Object::Fd);
        Ok(Arc::new(Self {
            link: domain.cntr(&attr)?,
            own: Arc::downgrade(own),
            added: Mutex::default(),
        }))
    }

    /// What is bound to objects of the link.
    pub(crate) fn counter(&self) -> &Arc<dyn Counter> {
        &self.link
    }

    /// Adds what is new. Says whether anything was.
    fn add(&self) -> bool {
        let Some(own) = self.own.upgrade() else {
            return false;
        };
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let now = [self.link.read(), self.link.read_err()];
        let new = [0, 1].map(|place: usize| now[place].wrapping_sub(added[place]));
        *added = now;
        let [good, bad] = new;
        if good > 0 {
            own.add(good);
        }
        if bad > 0 {
            own.add_err(bad);
        }
        new != [0, 0]
    }
}

impl Progress for Mirror {
    fn progress(&self, _budget: usize, _sink: &mut Sink<'_>) -> usize {
        usize::from(self.add())
    }

    fn arm(&self, _seen: &mut u64) -> ArmOutcome {
        match self.add() || self.link.try_wait().is_err() {
            true => ArmOutcome::Progressed,
            false => ArmOutcome::UntilWoken,
        }
    }

    fn woken(&self) {
        self.add();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.wait_fd()
    }
}
