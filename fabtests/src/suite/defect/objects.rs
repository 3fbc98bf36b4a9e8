//! Address vectors, counters, event queues, passive endpoints and shared receives with a defect.

#![expect(unsafe_code, reason = "receives around receives")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use selvedge::eq::Event;
use selvedge::{
    Address, AddressVector, Context, Counter, Errno, EventQueue, FiAddr, Op, OpFlags,
    PassiveEndpoint, Result, SharedReceives,
};
use selvedge_kit::layer::{AvLayer, CntrLayer, EqLayer, ObjectLayer, PassiveLayer, SrxLayer};

use super::kind::Defect;
use super::queue::report_readiness;

impl AvLayer for Defect {
    fn insert(
        &self,
        below: &dyn AddressVector,
        addrs: &[Address],
        out: &mut [FiAddr],
    ) -> Result<usize> {
        let count = below.insert(addrs, out)?;
        if *self == Self::InsertsAnything {
            for slot in out.iter_mut().filter(|slot| **slot == FiAddr::NOTAVAIL) {
                *slot = FiAddr(0);
            }
            return Ok(addrs.len());
        }
        Ok(count)
    }

    fn remove(&self, below: &dyn AddressVector, addrs: &[FiAddr]) -> Result {
        match self {
            Self::RemovesNothing => Ok(()),
            Self::RemovesAnything => below.remove(addrs).or(Ok(())),
            _ => below.remove(addrs),
        }
    }

    fn set_user_id(&self, below: &dyn AddressVector, addr: FiAddr, id: FiAddr) -> Result {
        match self {
            Self::IgnoresUserIds => Ok(()),
            _ => below.set_user_id(addr, id),
        }
    }

    fn lookup(&self, below: &dyn AddressVector, addr: FiAddr) -> Result<Address> {
        match self {
            Self::WrongLookup => below.lookup(FiAddr(0)),
            _ => below.lookup(addr),
        }
    }
}

pub(crate) struct DefectiveCounter {
    defect: Defect,
    was_ready: AtomicBool,
}

impl DefectiveCounter {
    pub(super) fn new(defect: Defect) -> Self {
        Self {
            defect,
            was_ready: AtomicBool::new(false),
        }
    }
}

impl ObjectLayer for DefectiveCounter {
    type Layers = Defect;
}

impl CntrLayer for DefectiveCounter {
    fn read(&self, below: &dyn Counter) -> u64 {
        match self.defect {
            Defect::CountsTwice => below.read() * 2,
            _ => below.read(),
        }
    }

    fn read_err(&self, below: &dyn Counter) -> u64 {
        let errors = below.read_err();
        match self.defect {
            Defect::CountsNoErrors => 0,
            _ => errors,
        }
    }

    fn is_ready(&self, below: &dyn Counter) -> bool {
        report_readiness(self.defect, below.is_ready(), &self.was_ready)
    }

    fn wait(&self, below: &dyn Counter, threshold: u64, timeout: Option<Duration>) -> Result {
        match self.defect {
            Defect::NoCounterWait => Ok(()),
            _ => below.wait(threshold, timeout),
        }
    }
}

impl Defect {
    /// Removes the peer's private data from an event if the defect loses the data.
    fn drop_private_data(self, event: Event) -> Event {
        let data = Vec::new();
        match (self, event) {
            (Self::LosesCmData, Event::ConnReq { pep, info, .. }) => {
                Event::ConnReq { pep, info, data }
            }
            (Self::LosesCmData, Event::Connected { ep, .. }) => Event::Connected { ep, data },
            (_, event) => event,
        }
    }
}

impl EqLayer for Defect {
    fn read(&self, below: &dyn EventQueue) -> Result<Event> {
        match below.read() {
            Err(Errno::Avail) if *self == Self::LosesEvents => {
                below.read_err()?;
                Err(Errno::Again)
            }
            other => other.map(|event| self.drop_private_data(event)),
        }
    }

    fn peek(&self, below: &dyn EventQueue) -> Result<Event> {
        match self {
            Self::EventPeekConsumes => below.read(),
            _ => below.peek(),
        }
    }

    fn write(&self, below: &dyn EventQueue, event: Event) -> Result {
        match self {
            Self::LosesEvents => Ok(()),
            _ => below.write(event),
        }
    }

    fn wait(&self, below: &dyn EventQueue, timeout: Option<Duration>) -> Result<Event> {
        match self {
            Self::NeverWakes => {
                std::thread::sleep(timeout.unwrap_or(Duration::from_secs(3)));
                Err(Errno::Again)
            }
            _ => below
                .wait(timeout)
                .map(|event| self.drop_private_data(event)),
        }
    }
}

impl PassiveLayer for Defect {
    fn handle(&self, below: &dyn PassiveEndpoint) -> Result<u64> {
        match self {
            Self::IgnoresPassiveHandle => Ok(0),
            _ => below.handle(),
        }
    }

    fn reject(&self, below: &dyn PassiveEndpoint, handle: u64, data: &[u8]) -> Result {
        match self {
            Self::NeverRejects => Ok(()),
            _ => below.reject(handle, data),
        }
    }
}

impl SrxLayer for Defect {
    unsafe fn post(&self, below: &dyn SharedReceives, op: &Op<'_>, flags: OpFlags) -> Result {
        let flags = match self {
            Self::DropsSharedReceives => return Ok(()),
            Self::AcceptsAnyFlag => flags - OpFlags::MULTI_RECV - OpFlags::PEEK,
            _ => flags,
        };
        // SAFETY: passed on from the caller.
        let op = unsafe { self.changed(*op) };
        // SAFETY: as above.
        unsafe { op.post_shared(below, flags) }
    }

    fn cancel(&self, below: &dyn SharedReceives, context: Context) -> Result {
        match self {
            Self::CancelsNothing => Ok(()),
            Self::DeniesCancel => below.cancel(context).and(Err(Errno::NoEnt)),
            _ => below.cancel(context),
        }
    }
}
