//! Domains and the fabric: what endpoints, queues and address vectors are opened from.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge::atomic::{Attr, Datatype, Family, Op};
use selvedge::info::{Progress, Threading};
use selvedge::{
    AddressVector, Allocation, Bindings, CompletionQueue, Counter, Endpoint, Error, EventQueue,
    Info, IovMut, MemoryRegion, MrMode, Result, alloc, av, cntr, cq, eq,
};
use selvedge_kit::Auto;
use selvedge_kit::atomic;
use selvedge_kit::birth::Birth;
use selvedge_kit::cntr::Cntr;
use selvedge_kit::cq::CqRing;
use selvedge_kit::lock::Mode;

use crate::av::Av;
use crate::config::Config;
use crate::endpoint;
use crate::exports::Exports;
use crate::mr::{self, Keys};
use crate::name::Name;
use crate::special::{self, Special};

/// The memory of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric;

/// A domain of the shm provider.
pub(crate) struct Domain {
    config: Config,
    mode: Mode,
    /// The second part of default endpoint names.
    index: u32,
    next_endpoint: AtomicU32,
    shared: Arc<Shared>,
    birth: Birth,
}

/// What the endpoints of a domain have in common. It has locks of its own, which hold whatever was
/// promised about threads.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) exports: Exports,
    pub(crate) special: Special,
    pub(crate) keys: Keys,
    /// The thread that drives the endpoints, if the application asked for one.
    pub(crate) auto: Option<Auto>,
}

impl Shared {
    pub(crate) fn new(mode: MrMode, auto: Option<Auto>) -> Self {
        Self {
            exports: Exports::default(),
            special: Special::default(),
            keys: Keys::new(mode),
            auto,
        }
    }
}

/// Whether progress is to be made without the application's calls.
fn is_automatic(info: &Info) -> bool {
    let domain = &info.domain_attr;
    [domain.control_progress, domain.data_progress].contains(&Progress::Auto)
}

/// Counts the domains of this process.
static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(0);

impl selvedge::Fabric for Fabric {
    fn domain(&self, info: &Info) -> Result<Arc<dyn selvedge::Domain>, Error> {
        let config = Config::read(info.params())?;
        let auto = match is_automatic(info) {
            true => Some(Auto::start("selvedge-shm", config.spin_time)?),
            false => None,
        };
        Ok(Arc::new(Domain {
            config,
            mode: match info.threading_promise() {
                // The thread of automatic progress has promised nothing.
                _ if auto.is_some() => Mode::Safe,
                Threading::Domain | Threading::Completion => Mode::Asserted,
                _ => Mode::Safe,
            },
            index: NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed),
            next_endpoint: AtomicU32::new(0),
            birth: Birth::here(),
            shared: Arc::new(Shared::new(info.domain_attr.mr_mode, auto)),
        }))
    }

    fn eq(&self, attr: &eq::Attr) -> Result<Arc<dyn EventQueue>, Error> {
        Ok(selvedge_kit::eq::Queue::open(attr)?)
    }
}

#[expect(unsafe_code, reason = "the promise of the domain trait")]
// SAFETY: the queues are rings of the kit that only endpoints push to, whose promise is argued at
// their own `unsafe impl`. Every operation takes its bytes from the addresses that it names. A
// region's memory is used under the lock of `Keys`, or by peers that ask afterwards whether its row
// still counts; dropping its handle withdraws the row under that lock.
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
        Ok(Arc::new(Av::open(attr)))
    }

    fn endpoint(&self, info: &Info, bind: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        self.check_birth()?;
        let name = match &info.src_addr {
            Some(address) => Name::try_from(address)?,
            None => {
                let endpoint = self.next_endpoint.fetch_add(1, Ordering::Relaxed);
                Name::of_endpoint(self.index, endpoint)
            }
        };
        let config = self.config.clone();
        let shared = Arc::clone(&self.shared);
        let endpoint = endpoint::Endpoint::open(info, &bind, name, config, self.mode, shared)?;
        Ok(Arc::new(endpoint))
    }

    fn alloc(&self, len: usize, attr: &alloc::Attr) -> Result<Arc<dyn Allocation>, Error> {
        self.check_birth()?;
        special::Held::create(&self.shared, len, attr)
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
        mr::register(&self.shared, region, attr)
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
        write!(f, "shm domain {}", self.index)
    }
}
