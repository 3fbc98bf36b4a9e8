//! Domains and the fabric: what endpoints, queues and address vectors are opened from.

use std::fmt;
use std::sync::Arc;

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::info::{Progress, Threading};
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Counter, Endpoint, Error, EventQueue, Info, IovMut,
    MemoryRegion, MrMode, PassiveEndpoint, Result, av, cntr, cq, eq,
};
use selvedge_kit::Auto;
use selvedge_kit::atomic;
use selvedge_kit::birth::Birth;
use selvedge_kit::cntr::Cntr;
use selvedge_kit::cq::CqRing;
use selvedge_kit::lock::Mode;
use selvedge_kit::mr::Keys;

use crate::config::Config;
use crate::pep::Passive;
use crate::{av as own_av, endpoint};

/// The networks of this host.
#[derive(Clone, Debug)]
pub(crate) struct Fabric {
    pub(crate) config: Config,
}

/// A domain of the tcp provider.
pub(crate) struct Domain {
    name: String,
    config: Config,
    mode: Mode,
    shared: Arc<Shared>,
    birth: Birth,
}

/// What the endpoints of a domain have in common. It has locks of its own, which hold whatever was
/// promised about threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Arc<Keys>,
    /// The thread that drives the endpoints, if the application asked for one.
    pub(crate) auto: Option<Auto>,
}

/// Whether progress is to be made without the application's calls.
fn is_automatic(info: &Info) -> bool {
    let domain = &info.domain_attr;
    [domain.control_progress, domain.data_progress].contains(&Progress::Auto)
}

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let auto = match is_automatic(info) {
            true => Some(Auto::start("selvedge-tcp", config.spin_time)?),
            false => None,
        };
        Ok(Arc::new(Domain {
            name: info.domain_attr.name.clone(),
            config,
            mode: match info.threading_promise() {
                // The thread of automatic progress has promised nothing.
                _ if auto.is_some() => Mode::Safe,
                Threading::Domain | Threading::Completion => Mode::Asserted,
                _ => Mode::Safe,
            },
            birth: Birth::here(),
            shared: Arc::new(Shared {
                keys: Arc::new(Keys::new(info.domain_attr.mr_mode)),
                auto,
            }),
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr)?)
    }

    fn passive_endpoint(
        &self,
        info: &Info,
        eq: Arc<dyn EventQueue>,
    ) -> Result<Arc<dyn PassiveEndpoint>, Error> {
        Ok(Passive::open(
            info,
            self.config.clone(),
            &endpoint::queue(&eq)?,
        )?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit that only endpoints push to, whose promise is argued at
// their own `unsafe impl`. Every operation takes its bytes from the addresses that it names. A
// region's memory is used under the lock of `Keys`, and dropping its handle withdraws it under that
// lock.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        self.check_birth()?;
        #[expect(unsafe_code, reason = "passes the application's promise to the queue")]
        // SAFETY: `mode` comes from the promise of `Hints::promise_threading`, which covers the
        // queues of this domain and the endpoints bound to them.
        let ring = unsafe { CqRing::open_patient(attr, self.mode, self.config.spin_time) };
        Ok(ring?)
    }

    fn cntr(&self, attr: &cntr::Attr) -> Result<Arc<dyn Counter>, Error> {
        self.check_birth()?;
        #[expect(
            unsafe_code,
            reason = "passes the application's promise to the counter"
        )]
        // SAFETY: as for queues; the promise covers the domain's counters too.
        let cntr = unsafe { Cntr::open_patient(attr, self.mode, self.config.spin_time) };
        Ok(cntr?)
    }

    fn av(&self, attr: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        self.check_birth()?;
        Ok(Arc::new(own_av::Av::open(attr)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.check_birth()?;
        let (config, shared) = (self.config.clone(), Arc::clone(&self.shared));
        Ok(endpoint::Endpoint::open(
            info, &bind, config, self.mode, shared,
        )?)
    }

    fn query_atomic(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        atomic::attr(self.config.inject_size, family, datatype, op)
    }

    fn mr_mode(&self) -> MrMode {
        self.shared.keys.mode()
    }

    #[expect(unsafe_code, reason = "the caller's promise about the memory")]
    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &selvedge::mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.check_birth()?;
        self.shared.keys.register(region, attr)
    }
}

impl Domain {
    /// # Errors
    /// [`selvedge::Errno::BadF`] in a forked child, which has to open a domain of its own.
    fn check_birth(&self) -> Result<(), Error> {
        self.birth.check().map_err(|errno| {
            let what = format!("{self:?} belongs to the process that this one was forked from");
            Error::new(errno, what)
        })
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp domain {}", self.name)
    }
}
