//! Connected endpoints (FI_EP_MSG): the server listens, the client comes.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Caps, Errno, EventQueue, FiAddr, Hints, Info, PassiveEndpoint, wait};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig};
use selvedge_testkit::failure::{errno, failure};

use super::channel::{Channel, Manners};
use super::discover::{discover, hints};
use super::ground;
use super::oob::OutOfBandChannel;
use super::options::Options;

/// What takes connections: a passive endpoint and its queue; and what makes them, where there is no
/// passive endpoint.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) eq: Arc<dyn EventQueue>,
    pub(super) pep: Option<Arc<dyn PassiveEndpoint>>,
    pub(super) info: Info,
    options: Options,
}

impl Door {
    /// Opens the event queue, and on the server listens.
    ///
    /// # Errors
    /// When discovery finds nothing, or something does not open.
    pub(super) fn open(options: &Options, caps: Caps) -> anyhow::Result<Self> {
        let hints = hints(options, caps, EpType::Msg)?;
        Self::with(options, &hints)
    }

    /// The same with other hints.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn with(options: &Options, hints: &Hints) -> anyhow::Result<Self> {
        Self::of(options, discover(options, hints)?)
    }

    /// The same with what discovery has answered.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn of(options: &Options, info: Info) -> anyhow::Result<Self> {
        Self::waiting(options, info, wait::Object::Unspec)
    }

    /// The same with another way to wait for events.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn waiting(
        options: &Options,
        info: Info,
        wait_obj: wait::Object,
    ) -> anyhow::Result<Self> {
        let fabric = info.fabric()?;
        let mut attr = eq::Attr::default();
        attr.wait_obj = wait_obj;
        let eq = fabric.eq(&attr)?;
        let pep = match options.is_client() {
            true => None,
            false => {
                let pep = fabric.passive_endpoint(&info, Arc::clone(&eq))?;
                pep.listen().context("cannot listen")?;
                Some(pep)
            }
        };
        Ok(Self::at(options, info, eq, pep))
    }

    /// With what is open already.
    pub(super) fn at(
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

    /// The next event. Requests are waited for as long as it takes.
    ///
    /// # Errors
    /// That none comes; the error that it is, by its number.
    pub(super) fn event(&self) -> anyhow::Result<Event> {
        self.event_within(Some(ground::timeout(&self.options)))
    }

    fn event_within(&self, most: Option<Duration>) -> anyhow::Result<Event> {
        loop {
            match self.next(most) {
                Ok(event) => return Ok(event),
                Err(Errno::Intr) => {}
                Err(Errno::Again) if most.is_none() => {}
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

    fn next(&self, most: Option<Duration>) -> Result<Event, Errno> {
        match self.eq.wait(most) {
            // A queue without a wait object is read again and again.
            Err(Errno::NoSys) => self.look(most),
            answer => answer,
        }
    }

    fn look(&self, most: Option<Duration>) -> Result<Event, Errno> {
        let start = Instant::now();
        loop {
            match self.eq.read() {
                Err(Errno::Again) if most.is_none_or(|most| start.elapsed() < most) => {
                    std::thread::yield_now();
                }
                answer => return answer,
            }
        }
    }

    /// The next request for a connection, with the client's data.
    ///
    /// # Errors
    /// When something else happens.
    pub(super) fn request(&self) -> anyhow::Result<(Info, Vec<u8>)> {
        match self.event_within(None)? {
            Event::ConnReq { info, data, .. } => Ok((*info, data)),
            other => bail!("no request for a connection, but {other:?}"),
        }
    }

    /// Waits until an endpoint is connected, and answers the peer's data.
    ///
    /// # Errors
    /// When something else happens.
    pub(super) fn connected(&self, end: &DomainEndpoint) -> anyhow::Result<Vec<u8>> {
        match self.event()? {
            Event::Connected { ep, data } if Arc::ptr_eq(&ep, &end.ep) => Ok(data),
            other => bail!("no connection of this endpoint, but {other:?}"),
        }
    }

    /// A domain for the next connection, and the description of its endpoint: of a request, or of
    /// the server.
    ///
    /// # Errors
    /// When none comes, or the domain does not open.
    pub(super) fn ground(&self) -> anyhow::Result<Arc<DomainContext>> {
        let info = match self.pep {
            Some(_) => self.request()?.0,
            None => self.info.clone(),
        };
        ground::open(&self.options, info)
    }

    /// What an endpoint of a connection is opened with.
    pub(super) fn plan(&self, info: Info) -> EndpointConfig {
        EndpointConfig {
            eq: Some(Arc::clone(&self.eq)),
            info: Some(info),
            ..EndpointConfig::default()
        }
    }

    /// Connects an endpoint: the server accepts what it was opened with.
    ///
    /// # Errors
    /// The provider's.
    pub(super) fn connect(&self, end: &DomainEndpoint, data: &[u8]) -> anyhow::Result<()> {
        let cm = end.ep.cm().context("the endpoint cannot be connected")?;
        if self.pep.is_some() {
            return cm.accept(data).context("fi_accept");
        }
        let server = self.info.dest_addr.as_ref();
        let server = server.context("the server's address is not known")?;
        cm.connect(server, data).context("fi_connect")
    }
}

/// A channel over connected endpoints.
///
/// # Errors
/// When something does not open or connect.
pub(super) fn channel(options: &Options, caps: Caps, manners: Manners) -> anyhow::Result<Channel> {
    Door::open(options, caps)?.channel(manners)
}

impl Door {
    /// The channel of the next connection.
    ///
    /// # Errors
    /// When something does not open or connect.
    pub(super) fn channel(self, manners: Manners) -> anyhow::Result<Channel> {
        let ground = self.ground()?;
        let mut channel = self.patiently(|| {
            let eq = Some(Arc::clone(&self.eq));
            let mut channel = Channel::deaf(&self.options, &ground, manners, None, eq)?;
            channel.peer = FiAddr(0);
            channel.post_rest()?;
            self.connect(&channel.end, &[])?;
            self.connected(&channel.end)?;
            Ok(channel)
        })?;
        if self.options.out_of_band.is_some_and(|oob| oob.sync) {
            channel.oob = Some(OutOfBandChannel::meet(&self.options)?);
        }
        channel.door = Some(self);
        Ok(channel)
    }

    /// Connects an endpoint; a client tries again while nobody listens yet.
    ///
    /// # Errors
    /// Those of the last try.
    pub(super) fn patiently<T>(
        &self,
        attempt: impl Fn() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            match attempt() {
                Err(error)
                    if self.pep.is_none()
                        && errno(&error) == Errno::ConnRefused
                        && start.elapsed() < PATIENCE =>
                {
                    sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }
}

/// How long a client tries to reach a server that does not listen yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
