//! `Connector`: connects endpoints of type FI_EP_MSG. The server listens, the client connects.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, EventQueue, Hints, Info, PassiveEndpoint, wait};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig};
use selvedge_testkit::failure::{errno, failure};

use super::discover::{discover, hints};
use super::domain;
use crate::upstream::options::Options;

/// The objects of connections: an event queue, and at the server a passive endpoint.
#[derive(Debug)]
pub(in crate::upstream) struct Connector {
    pub(in crate::upstream) eq: Arc<dyn EventQueue>,
    pub(in crate::upstream) pep: Option<Arc<dyn PassiveEndpoint>>,
    pub(in crate::upstream) info: Info,
    pub(in crate::upstream) options: Options,
}

impl Connector {
    /// Opens the event queue, and at the server listens.
    ///
    /// # Errors
    /// Discovery finds nothing, or an object cannot be opened.
    pub(in crate::upstream) fn open(options: &Options, caps: Caps) -> anyhow::Result<Self> {
        let hints = hints(options, caps, EpType::Msg)?;
        Self::with_hints(options, &hints)
    }

    /// As [`Self::open`], with these hints.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(in crate::upstream) fn with_hints(
        options: &Options,
        hints: &Hints,
    ) -> anyhow::Result<Self> {
        Self::for_info(options, discover(options, hints)?)
    }

    /// As [`Self::open`], with a result of discovery.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(in crate::upstream) fn for_info(options: &Options, info: Info) -> anyhow::Result<Self> {
        Self::with_wait_object(options, info, wait::Object::Unspec)
    }

    /// As [`Self::for_info`], with this wait object of the event queue.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(in crate::upstream) fn with_wait_object(
        options: &Options,
        info: Info,
        wait_obj: wait::Object,
    ) -> anyhow::Result<Self> {
        let fabric = info.fabric()?;
        let mut attr = eq::Attr::default();
        attr.wait_obj = wait_obj;
        let eq = fabric.eq(&attr)?;
        let pep = if options.is_client() {
            None
        } else {
            let pep = fabric.passive_endpoint(&info, Arc::clone(&eq))?;
            pep.listen().context("cannot listen")?;
            Some(pep)
        };
        Ok(Self::from_objects(options, info, eq, pep))
    }

    /// Makes a connector of open objects.
    pub(in crate::upstream) fn from_objects(
        options: &Options,
        info: Info,
        eq: Arc<dyn EventQueue>,
        pep: Option<Arc<dyn PassiveEndpoint>>,
    ) -> Self {
        Self {
            eq,
            pep,
            info,
            options: options.clone(),
        }
    }

    /// Waits for the next event, up to the timeout of the options.
    ///
    /// # Errors
    /// The wait times out, or the event is an error, with its number.
    pub(in crate::upstream) fn next_event(&self) -> anyhow::Result<Event> {
        self.wait_for_event(Some(domain::timeout(&self.options)))
    }

    fn wait_for_event(&self, timeout: Option<Duration>) -> anyhow::Result<Event> {
        loop {
            match self.wait_or_poll(timeout) {
                Ok(event) => return Ok(event),
                Err(Errno::Intr) => {}
                Err(Errno::Again) if timeout.is_none() => {}
                Err(Errno::Again) => {
                    return Err(failure(Errno::TimedOut, "waiting for an event"));
                }
                Err(Errno::Avail) => {
                    let error = self.eq.read_err()?;
                    return Err(failure(error.errno, error.detail));
                }
                Err(errno) => return Err(failure(errno, "cannot read events")),
            }
        }
    }

    fn wait_or_poll(&self, timeout: Option<Duration>) -> Result<Event, Errno> {
        match self.eq.wait(timeout) {
            // A queue without a wait object is polled.
            Err(Errno::NoSys) => self.poll_event(timeout),
            result => result,
        }
    }

    fn poll_event(&self, timeout: Option<Duration>) -> Result<Event, Errno> {
        let start = Instant::now();
        loop {
            match self.eq.read() {
                Err(Errno::Again) if timeout.is_none_or(|timeout| start.elapsed() < timeout) => {
                    std::thread::yield_now();
                }
                result => return result,
            }
        }
    }

    /// Waits for the next connection request without a time limit. Returns the request with the
    /// client's data.
    ///
    /// # Errors
    /// Another event arrives.
    pub(in crate::upstream) fn wait_for_request(&self) -> anyhow::Result<(Info, Vec<u8>)> {
        match self.wait_for_event(None)? {
            Event::ConnReq { info, data, .. } => Ok((*info, data)),
            other => bail!("{other:?} instead of a connection request"),
        }
    }

    /// Waits until an endpoint is connected, and returns the peer's data.
    ///
    /// # Errors
    /// Another event arrives.
    pub(in crate::upstream) fn wait_for_connection(
        &self,
        endpoint: &DomainEndpoint,
    ) -> anyhow::Result<Vec<u8>> {
        match self.next_event()? {
            Event::Connected { ep, data } if Arc::ptr_eq(&ep, &endpoint.ep) => Ok(data),
            other => bail!("{other:?} instead of the connection of this endpoint"),
        }
    }

    /// Opens a domain for the next connection: at the server the domain of a request, at the client
    /// the domain of the server's address.
    ///
    /// # Errors
    /// No request arrives, or the domain cannot be opened.
    pub(in crate::upstream) fn open_domain(&self) -> anyhow::Result<Arc<DomainContext>> {
        let info = match self.pep {
            Some(_) => self.wait_for_request()?.0,
            None => self.info.clone(),
        };
        domain::open(&self.options, info)
    }

    /// Returns the configuration of an endpoint of a connection.
    pub(in crate::upstream) fn endpoint_config(&self, info: Info) -> EndpointConfig {
        EndpointConfig {
            eq: Some(Arc::clone(&self.eq)),
            info: Some(info),
            ..EndpointConfig::default()
        }
    }

    /// Connects an endpoint. The server accepts the request with which the endpoint was opened.
    ///
    /// # Errors
    /// The error of the provider.
    pub(in crate::upstream) fn connect(
        &self,
        endpoint: &DomainEndpoint,
        data: &[u8],
    ) -> anyhow::Result<()> {
        let cm = endpoint
            .ep
            .cm()
            .context("the endpoint cannot be connected")?;
        if self.pep.is_some() {
            return cm.accept(data).context("fi_accept");
        }
        let server = self.info.dest_addr.as_ref();
        let server = server.context("the server's address is not known")?;
        cm.connect(server, data).context("fi_connect")
    }

    /// Calls `attempt`, which connects an endpoint; a client repeats the call while no server
    /// listens.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub(in crate::upstream) fn retry_until_listening<T>(
        &self,
        attempt: impl Fn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            match attempt() {
                Err(error)
                    if self.pep.is_none()
                        && errno(&error) == Errno::ConnRefused
                        && start.elapsed() < CONNECT_TIMEOUT =>
                {
                    sleep(PAUSE);
                }
                result => return result,
            }
        }
    }
}

/// Time for which a client retries while no server listens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
