//! What every domain keeps: the process that it belongs to, what its locks may rely on, and the
//! thread that drives its endpoints, if there is one. What a domain is made of is the provider's.

#![expect(unsafe_code, reason = "passes the application's promise to the locks")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use selvedge::info::{Progress, Threading};
use selvedge::{CompletionQueue, Counter, Error, Info, cntr, cq};

use crate::birth::Birth;
use crate::cntr::Cntr;
use crate::cq::CqRing;
use crate::lock::Mode;
use crate::{Auto, Drivers, Ep};

/// The common part of domains. Its `Debug` is the domain's title.
pub struct Base {
    title: String,
    mode: Mode,
    /// How long threads that wait look before they sleep.
    spin: Duration,
    birth: Birth,
    auto: Option<Arc<Auto>>,
}

impl Base {
    /// A domain that is opened with `info`, called `title` in messages.
    ///
    /// # Errors
    /// The system's, when automatic progress is asked for and there can be no thread.
    pub fn open(info: &Info, title: String, spin: Duration) -> Result<Self, Error> {
        let attr = &info.domain_attr;
        let auto = match [attr.control_progress, attr.data_progress].contains(&Progress::Auto) {
            true => {
                let name = format!("selvedge-{}", info.fabric_attr.prov_name);
                Some(Arc::new(Auto::start(&name, spin)?))
            }
            false => None,
        };
        Ok(Self {
            title,
            mode: match info.threading_promise() {
                // The thread of automatic progress has promised nothing.
                _ if auto.is_some() => Mode::Safe,
                Threading::Domain | Threading::Completion => Mode::Asserted,
                _ => Mode::Safe,
            },
            spin,
            birth: Birth::here(),
            auto,
        })
    }

    /// What locks of the domain's objects may rely on.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// What drives an endpoint of the domain: its queues, its counters, and the thread of automatic
    /// progress, if the application asked for one.
    pub fn drivers(&self, ep: &Ep) -> Drivers {
        let mut drivers = ep.drivers();
        drivers.auto.clone_from(&self.auto);
        drivers
    }

    /// # Errors
    /// [`selvedge::Errno::BadF`] in a forked child, which has to open a domain of its own.
    pub fn check_birth(&self) -> Result<(), Error> {
        self.birth.check().map_err(|errno| {
            let what = format!("{self:?} belongs to the process that this one was forked from");
            Error::new(errno, what)
        })
    }

    /// Opens a completion queue.
    ///
    /// # Errors
    /// As [`CqRing::open_patient`], and [`Self::check_birth`].
    pub fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.check_birth()?;
        // SAFETY: `mode` comes from the promise of `Hints::promise_threading`, which covers the
        // queues of this domain and the endpoints bound to them.
        Ok(unsafe { CqRing::open_patient(attr, self.mode, self.spin) }?)
    }

    /// Opens a counter.
    ///
    /// # Errors
    /// As [`Cntr::open_patient`], and [`Self::check_birth`].
    pub fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.check_birth()?;
        // SAFETY: as for queues; the promise covers the domain's counters too.
        Ok(unsafe { Cntr::open_patient(attr, self.mode, self.spin) }?)
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.title)
    }
}
