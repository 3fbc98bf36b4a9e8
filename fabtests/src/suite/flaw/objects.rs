//! Address vectors, counters, event queues and passive endpoints with a defect.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use selvedge::eq::{ErrEntry, Event};
use selvedge::{
    Address, AddressVector, Counter, Errno, Error, EventQueue, FiAddr, PassiveEndpoint, Result,
};

use super::Flaw;
use super::known::KNOWN;
use super::provider::unwrapped;
use super::queue::readiness;

#[derive(Debug)]
pub(super) struct FlawedAv {
    inner: Arc<dyn AddressVector>,
    flaw: Flaw,
}

impl FlawedAv {
    pub(super) fn new(inner: Arc<dyn AddressVector>, flaw: Flaw) -> Self {
        Self { inner, flaw }
    }

    pub(super) fn inner(av: Arc<dyn AddressVector>) -> Arc<dyn AddressVector> {
        unwrapped(av, |av| av as &dyn Any, |own: &Self| Arc::clone(&own.inner))
    }
}

impl AddressVector for FlawedAv {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        let count = self.inner.insert(addrs, out)?;
        if self.flaw == Flaw::InsertsAnything {
            for place in out.iter_mut().filter(|place| **place == FiAddr::NOTAVAIL) {
                *place = FiAddr(0);
            }
            return Ok(addrs.len());
        }
        Ok(count)
    }

    fn refusal(&self, addr: &Address) -> Error {
        self.inner.refusal(addr)
    }

    fn insert_service(&self, node: &str, service: &str) -> Result<FiAddr, Error> {
        self.inner.insert_service(node, service)
    }

    fn insert_symmetric(
        &self,
        node: &str,
        nodes: usize,
        service: &str,
        services: usize,
        out: &mut [FiAddr],
    ) -> Result<usize, Error> {
        self.inner
            .insert_symmetric(node, nodes, service, services, out)
    }

    fn remove(&self, addrs: &[FiAddr]) -> Result {
        match self.flaw {
            Flaw::RemovesNothing => Ok(()),
            Flaw::RemovesAnything => self.inner.remove(addrs).or(Ok(())),
            _ => self.inner.remove(addrs),
        }
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result {
        match self.flaw {
            Flaw::ForgetsUserIds => Ok(()),
            _ => self.inner.set_user_id(addr, id),
        }
    }

    fn members(&self) -> Result<Vec<FiAddr>> {
        self.inner.members()
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        match self.flaw {
            Flaw::WrongLookup => self.inner.lookup(FiAddr(0)),
            _ => self.inner.lookup(addr),
        }
    }
}

#[derive(Debug)]
pub(super) struct FlawedCounter {
    inner: Arc<dyn Counter>,
    flaw: Flaw,
    was_ready: AtomicBool,
}

impl FlawedCounter {
    pub(super) fn new(inner: Arc<dyn Counter>, flaw: Flaw) -> Self {
        Self {
            inner,
            flaw,
            was_ready: AtomicBool::new(false),
        }
    }

    pub(super) fn inner(cntr: Arc<dyn Counter>) -> Arc<dyn Counter> {
        unwrapped(
            cntr,
            |cntr| cntr as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }
}

impl Counter for FlawedCounter {
    fn read(&self) -> u64 {
        match self.flaw {
            Flaw::CountsTwice => self.inner.read() * 2,
            _ => self.inner.read(),
        }
    }

    fn read_err(&self) -> u64 {
        let errors = self.inner.read_err();
        match self.flaw {
            Flaw::CountsNoErrors => 0,
            _ => errors,
        }
    }

    fn add(&self, value: u64) {
        self.inner.add(value);
    }

    fn add_err(&self, value: u64) {
        self.inner.add_err(value);
    }

    fn set(&self, value: u64) {
        self.inner.set(value);
    }

    fn set_err(&self, value: u64) {
        self.inner.set_err(value);
    }

    fn is_ready(&self) -> bool {
        readiness(self.flaw, self.inner.is_ready(), &self.was_ready)
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        match self.flaw {
            Flaw::NoCounterWait => Ok(()),
            _ => self.inner.wait(threshold, timeout),
        }
    }

    fn try_wait(&self) -> Result {
        self.inner.try_wait()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

#[derive(Debug)]
pub(super) struct FlawedEq {
    inner: Arc<dyn EventQueue>,
    flaw: Flaw,
}

impl FlawedEq {
    pub(super) fn new(inner: Arc<dyn EventQueue>, flaw: Flaw) -> Self {
        Self { inner, flaw }
    }

    pub(super) fn inner(eq: Arc<dyn EventQueue>) -> Arc<dyn EventQueue> {
        unwrapped(eq, |eq| eq as &dyn Any, |own: &Self| Arc::clone(&own.inner))
    }

    fn spoiled(&self, event: Event) -> Event {
        match (self.flaw, KNOWN.event(event)) {
            (Flaw::LosesCmData, Event::ConnReq { pep, info, .. }) => Event::ConnReq {
                pep,
                info,
                data: Vec::new(),
            },
            (Flaw::LosesCmData, Event::Connected { ep, .. }) => Event::Connected {
                ep,
                data: Vec::new(),
            },
            (_, event) => event,
        }
    }
}

impl EventQueue for FlawedEq {
    fn read(&self) -> Result<Event> {
        match self.inner.read() {
            Err(Errno::Avail) if self.flaw == Flaw::LosesEvents => {
                self.inner.read_err()?;
                Err(Errno::Again)
            }
            other => other.map(|event| self.spoiled(event)),
        }
    }

    fn peek(&self) -> Result<Event> {
        match self.flaw {
            Flaw::PeekTakes => self.inner.read(),
            _ => self.inner.peek(),
        }
        .map(|event| KNOWN.event(event))
    }

    fn read_err(&self) -> Result<ErrEntry> {
        self.inner.read_err().map(|error| KNOWN.error(error))
    }

    fn write(&self, event: Event) -> Result {
        match self.flaw {
            Flaw::LosesEvents => Ok(()),
            _ => self.inner.write(event),
        }
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        match self.flaw {
            Flaw::NeverWakes => {
                std::thread::sleep(timeout.unwrap_or(Duration::from_secs(3)));
                Err(Errno::Again)
            }
            _ => self.inner.wait(timeout).map(|event| self.spoiled(event)),
        }
    }

    fn try_wait(&self) -> Result {
        self.inner.try_wait()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

#[derive(Debug)]
pub(super) struct FlawedPassive {
    inner: Arc<dyn PassiveEndpoint>,
    flaw: Flaw,
}

impl FlawedPassive {
    pub(super) fn new(inner: Arc<dyn PassiveEndpoint>, flaw: Flaw) -> Self {
        Self { inner, flaw }
    }
}

impl PassiveEndpoint for FlawedPassive {
    fn listen(&self) -> Result {
        self.inner.listen()
    }

    fn address(&self) -> Result<Address> {
        self.inner.address()
    }

    fn set_address(&self, addr: &Address) -> Result<(), Error> {
        self.inner.set_address(addr)
    }

    fn handle(&self) -> Result<u64> {
        match self.flaw {
            Flaw::TakesNoPlace => Ok(0),
            _ => self.inner.handle(),
        }
    }

    fn reject(&self, handle: u64, data: &[u8]) -> Result {
        match self.flaw {
            Flaw::RejectsNobody => Ok(()),
            _ => self.inner.reject(handle, data),
        }
    }
}
