//! Discovery of the provider, and opening of the endpoints under test.

use std::sync::Arc;

use anyhow::{anyhow, ensure};
use selvedge::eq::Event;
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Domain, Errno, EventQueue, Fabric, Hints, Info, Registry, av, cq, eq, wait,
};
use selvedge_testkit::check;
use selvedge_testkit::endpoint::{
    AsyncTestEndpoint, Connection, EndpointApi, OwnedEndpoint, RawEndpoint, TestEndpoint,
};
use selvedge_testkit::timeout::until;

use super::api::Api;
use super::test::Test;
use super::{Result, Skipped, TestContext, leaks};
use crate::suite::control::{Control, Message};
use crate::suite::defect;
use crate::suite::entry::Set;

/// Options of an endpoint of the raw API.
#[derive(Default)]
pub(crate) struct Setup<'a> {
    /// Size of the completion queue.
    pub(crate) size: usize,
    /// The wait object of the completion queue.
    pub(crate) wait: wait::Object,
    /// Additional bindings.
    pub(crate) bind: Option<&'a Bind<'a>>,
    /// Additional hints.
    pub(crate) hints: Option<fn(Hints) -> Hints>,
}

/// Adds bindings to an endpoint.
type Bind<'a> = dyn Fn(&dyn Domain, &mut Bindings) -> Result + 'a;

/// One process of a test.
pub(crate) struct TestProcess {
    pub(crate) test: &'static Test,
    pub(crate) provider: String,
    pub(crate) ep_type: EpType,
    pub(crate) api: Api,
    pub(crate) set: Set,
    pub(crate) seed: u64,
    /// The number of this process.
    pub(crate) me: usize,
}

impl TestProcess {
    /// Runs one process of the test, and sends its result to the runner.
    ///
    /// # Errors
    /// The result cannot be sent.
    pub(crate) fn run(self, control: Control) -> Result {
        let registry = registry(&self.provider)?;
        let mut ctx = TestContext {
            count: self.test.processes,
            test: self.test,
            provider: self.provider,
            ep_type: self.ep_type,
            api: self.api,
            set: self.set,
            seed: self.seed,
            me: self.me,
            control,
            registry,
            endpoints: Vec::new(),
            memories: Vec::new(),
            next_key: 0x5e1f,
        };
        // Objects that are opened once per process exist before descriptors are counted.
        let warmed_up = ctx.warm_up();
        let before = leaks::Resources::now();
        let result = warmed_up.and_then(|()| (ctx.test.run)(&mut ctx));
        let result = result.and_then(|()| ctx.end());
        let TestContext { control, .. } = ctx;
        control.send(&result_message(result, &before))
    }
}

fn result_message(result: Result, before: &leaks::Resources) -> Message {
    match result {
        Ok(()) => match find_leak(before) {
            Some(object) => Message::Leaked(object),
            None => {
                let (checks, bytes) = check::counts();
                Message::Done { checks, bytes }
            }
        },
        Err(error) => match error.downcast::<Skipped>() {
            Ok(Skipped(reason)) => Message::Skip(reason),
            Err(error) => Message::Failed(format!("{error:#}")),
        },
    }
}

/// Returns a resource that is not released in time. Threads may end after the objects are closed.
fn find_leak(before: &leaks::Resources) -> Option<String> {
    let mut leak = None;
    let released = until("the release of all resources", || {
        leak = leaks::Resources::now().excess_over(before);
        Ok(leak.is_none().then_some(()))
    });
    released.err().and(leak)
}

/// Makes a registry of the provider of the uppermost layer, with a defect if the environment names
/// one.
fn registry(provider: &str) -> Result<Registry> {
    let name = provider.rsplit(';').next().unwrap_or(provider);
    let builtin = selvedge_providers::builtin();
    let found = builtin
        .providers()
        .iter()
        .find(|found| found.name() == name);
    let found = found.ok_or_else(|| anyhow!("there is no provider {provider:?}"))?;
    Ok(Registry::new().with_shared(defect::plant_defect(Arc::clone(found))?))
}

impl TestContext {
    /// Returns the hints with which this test finds its provider.
    pub(crate) fn hints(&self) -> Hints {
        Hints::new()
            .provider(&self.provider)
            .caps(self.test.caps)
            .ep_type(self.ep_type)
    }

    /// Returns the first result of discovery.
    ///
    /// # Errors
    /// A [`Skipped`] when discovery finds nothing, or discovery's error.
    pub(crate) fn info_for(&self, hints: &Hints) -> Result<Info> {
        match self.registry.infos(hints) {
            Ok(infos) => Ok(infos.into_iter().next().expect("there is at least one")),
            Err(error) if error.errno() == Errno::NoData => Err(Skipped(error.to_string()).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the registry, which has this provider alone.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Opens an endpoint, and inserts the addresses of all processes' endpoints.
    ///
    /// # Errors
    /// A [`Skipped`] when the provider lacks a capability that the test needs, or the provider's
    /// error.
    pub(crate) fn open_endpoint(&mut self) -> Result<TestEndpoint> {
        self.open_endpoint_with(&Setup::default())
    }

    /// As [`Self::open_endpoint`], with options.
    ///
    /// # Errors
    /// As [`Self::open_endpoint`].
    pub(crate) fn open_endpoint_with(&mut self, setup: &Setup<'_>) -> Result<TestEndpoint> {
        let mut endpoint = match self.ep_type {
            EpType::Msg => self.open_connected(setup)?,
            _ => self.open_unconnected(setup)?,
        };
        self.endpoints.push(endpoint.clone());
        let mut peers = vec![selvedge::FiAddr::UNSPEC; self.count];
        if self.ep_type != EpType::Msg {
            let name = endpoint.address()?.to_string();
            let names: Vec<String> = self.exchange(&name)?;
            for (process, name) in names.iter().enumerate() {
                peers[process] = endpoint.insert(&name.parse()?)?;
            }
        }
        endpoint.set_peers(peers);
        self.endpoints.pop();
        self.endpoints.push(endpoint.clone());
        // No process sends before all have inserted the addresses: an unknown sender has no index.
        self.barrier()?;
        Ok(endpoint)
    }

    /// Opens an endpoint whose address no other process has.
    ///
    /// # Errors
    /// As [`Self::open_endpoint`].
    pub(crate) fn open_unannounced_endpoint(&mut self, setup: &Setup<'_>) -> Result<TestEndpoint> {
        let endpoint = self.open_unconnected(setup)?;
        self.endpoints.push(endpoint.clone());
        Ok(endpoint)
    }

    fn warm_up(&self) -> Result {
        let info = self.info_for(&self.hints())?;
        let domain = info.open()?;
        if self.ep_type != EpType::Msg {
            let cq = domain.cq(&cq::Attr::default())?;
            let av = domain.av(&av::Attr::default())?;
            domain.endpoint(&info, Bindings::new(cq, av))?;
        }
        Ok(())
    }

    fn open_unconnected(&self, setup: &Setup<'_>) -> Result<TestEndpoint> {
        let hints = setup
            .hints
            .map_or_else(|| self.hints(), |edit| edit(self.hints()));
        let info = self.info_for(&hints)?;
        let domain = info.open()?;
        let av = domain.av(&av::Attr::default())?;
        let api: Box<dyn EndpointApi> = match self.api {
            Api::Owned => Box::new(OwnedEndpoint::open(&domain, &info, &av)?),
            Api::Async => Box::new(AsyncTestEndpoint::open(&domain, &info, &av)?),
            Api::Raw => {
                let cq = domain.cq(&setup.cq()).map_err(skip_missing)?;
                let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
                setup.bind(&*domain, &mut bind)?;
                let ep = domain.endpoint(&info, bind)?;
                Box::new(RawEndpoint::new(ep, cq, Some(av)))
            }
        };
        Ok(TestEndpoint::new(api, domain, info, self.me, None))
    }

    /// Opens a connected endpoint: process 0 listens, process 1 connects.
    fn open_connected(&mut self, setup: &Setup<'_>) -> Result<TestEndpoint> {
        ensure!(
            self.count == 2,
            "connected endpoints are between two processes"
        );
        let info = self.info_for(&self.hints())?;
        let fabric = info.fabric()?;
        let domain = fabric.domain(&info)?;
        let eq = fabric.eq(&eq::Attr::default())?;
        match self.me {
            0 => self.accept(setup, &info, &fabric, domain, eq),
            _ => self.connect(setup, info, domain, eq),
        }
    }

    fn accept(
        &mut self,
        setup: &Setup<'_>,
        info: &Info,
        fabric: &Arc<dyn Fabric>,
        domain: Arc<dyn Domain>,
        eq: Arc<dyn EventQueue>,
    ) -> Result<TestEndpoint> {
        let pep = fabric.passive_endpoint(info, Arc::clone(&eq))?;
        pep.listen()?;
        self.exchange(&pep.address()?.to_string())?;
        let request = match wait_for_event(&*eq, "a request to connect")? {
            Event::ConnReq { info, .. } => info,
            other => return Err(anyhow!("{other:?} instead of a request to connect")),
        };
        let raw = setup.open_endpoint(&*domain, &request, &eq)?;
        cm(&raw)?.accept(&[])?;
        wait_for_connection(&*eq)?;
        let connection = Connection { eq, pep: Some(pep) };
        let info = (*request).clone();
        Ok(TestEndpoint::new(
            Box::new(raw),
            domain,
            info,
            self.me,
            Some(connection),
        ))
    }

    fn connect(
        &mut self,
        setup: &Setup<'_>,
        info: Info,
        domain: Arc<dyn Domain>,
        eq: Arc<dyn EventQueue>,
    ) -> Result<TestEndpoint> {
        let names: Vec<String> = self.exchange(&String::new())?;
        let address: Address = names[0].parse()?;
        let raw = setup.open_endpoint(&*domain, &info, &eq)?;
        cm(&raw)?.connect(&address, &[])?;
        wait_for_connection(&*eq)?;
        let connection = Connection { eq, pep: None };
        Ok(TestEndpoint::new(
            Box::new(raw),
            domain,
            info,
            self.me,
            Some(connection),
        ))
    }
}

impl Setup<'_> {
    fn cq(&self) -> cq::Attr {
        let mut attr = cq::Attr::with_size(self.size);
        attr.wait_obj = self.wait;
        attr
    }

    fn bind(&self, domain: &dyn Domain, bind: &mut Bindings) -> Result {
        self.bind.map_or(Ok(()), |add| add(domain, bind))
    }

    fn open_endpoint(
        &self,
        domain: &dyn Domain,
        info: &Info,
        eq: &Arc<dyn EventQueue>,
    ) -> Result<RawEndpoint> {
        let cq = domain.cq(&self.cq())?;
        let av = domain.av(&av::Attr::default())?;
        let mut bind = Bindings::new(Arc::clone(&cq), av);
        bind.av = None;
        bind.eq = Some(Arc::clone(eq));
        self.bind(domain, &mut bind)?;
        Ok(RawEndpoint::new(domain.endpoint(info, bind)?, cq, None))
    }
}

/// Maps the error of a missing capability to [`Skipped`].
pub(crate) fn skip_missing(error: selvedge::Error) -> anyhow::Error {
    match error.errno() {
        Errno::NoSys | Errno::OpNotSupp => Skipped(error.to_string()).into(),
        _ => error.into(),
    }
}

fn cm(raw: &RawEndpoint) -> Result<&dyn selvedge::ConnectionManagement> {
    raw.objects
        .ep
        .cm()
        .ok_or_else(|| anyhow!("a connected endpoint without connection management"))
}

fn wait_for_connection(eq: &dyn EventQueue) -> Result {
    match wait_for_event(eq, "the connection")? {
        Event::Connected { .. } => Ok(()),
        other => Err(anyhow!("{other:?} instead of the connection")),
    }
}

/// Waits for the next event.
///
/// # Errors
/// The event is an error, or does not arrive in time.
fn wait_for_event(eq: &dyn EventQueue, expected: &str) -> Result<Event> {
    until(expected, || try_event(eq, expected))
}

/// Reads the next event, if there is one.
///
/// # Errors
/// The event is an error.
pub(crate) fn try_event(eq: &dyn EventQueue, expected: &str) -> Result<Option<Event>> {
    match eq.read() {
        Ok(event) => Ok(Some(event)),
        Err(Errno::Again) => Ok(None),
        Err(Errno::Avail) => Err(anyhow!("{expected}: {:?}", eq.read_err()?)),
        Err(errno) => Err(anyhow!("reading events: {errno}")),
    }
}
