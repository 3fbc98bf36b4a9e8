//! `LocalEndpoint`: an endpoint with its domain, queues and address vector, for a test that drives
//! every endpoint of its process itself.
//!
//! Functions that return no `Result` panic at the caller's line.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    Address, CompletionQueue, Domain, Errno, Error, FiAddr, Hints, Info, MrAccess, Provider,
    Registry, av,
};

use crate::domain::{
    Block, DomainContext, DomainEndpoint, EndpointConfig, Memory, Recv, Rights, Send, WaitMethod,
    WaitStrategy,
};
use crate::run::failure::errno;
use crate::run::timeout::{self, Timeout};

/// The outcome of an operation: its completion entry, or its error entry.
pub type Outcome = Result<Entry, ErrEntry>;

/// Returns the first description that a provider offers for `hints`, under these parameters.
///
/// # Panics
/// When the provider has none.
#[track_caller]
pub fn info(provider: &'static dyn Provider, params: &[(&str, &str)], hints: &Hints) -> Info {
    let registry = Registry::new()
        .with(provider)
        .with_params(params.iter().copied().collect());
    first_info(&registry, hints)
}

/// Returns the first description that the providers of a registry offer for `hints`.
///
/// # Panics
/// When they have none.
#[track_caller]
pub fn first_info(registry: &Registry, hints: &Hints) -> Info {
    match registry.infos(hints) {
        Ok(mut infos) => infos.remove(0),
        Err(error) => panic!("{error}"),
    }
}

/// Repeats an attempt until it returns a value.
///
/// # Panics
/// After the time of [`Timeout`].
#[track_caller]
pub fn until<T>(attempt: impl FnMut() -> Option<T>) -> T {
    await_event("the value of this attempt", attempt)
}

/// As [`until`], with the name of the awaited event.
///
/// # Panics
/// As [`until`]; the text names the event.
#[track_caller]
pub fn await_event<T>(event: &'static str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let mut timeout = Timeout::new(event);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        if let Err(error) = timeout.check() {
            panic!("{error}");
        }
    }
}

/// Drives the endpoints until nothing more is likely to move.
#[track_caller]
pub fn settle(endpoints: &[&LocalEndpoint]) {
    for _ in 0..TURNS {
        endpoints.iter().for_each(|endpoint| endpoint.progress());
    }
}

/// The number of turns of progress after which nothing more is likely to move.
pub const TURNS: usize = 2000;

/// Opens a domain for [`LocalEndpoint`]s.
///
/// # Errors
/// Those of the provider.
pub fn open_domain(info: &Info) -> Result<Arc<DomainContext>, Error> {
    let strategy = WaitStrategy::new(WaitMethod::Spin, timeout::limit());
    DomainContext::open(&*info.fabric()?, info.clone(), strategy, false).map_err(provider_error)
}

/// An endpoint with its domain, queues and address vector.
#[derive(Clone, Debug)]
pub struct LocalEndpoint(DomainEndpoint);

impl Deref for LocalEndpoint {
    type Target = DomainEndpoint;

    fn deref(&self) -> &DomainEndpoint {
        &self.0
    }
}

impl LocalEndpoint {
    /// Opens an endpoint in a domain of its own, with one queue.
    #[track_caller]
    pub fn open(info: &Info) -> Self {
        Self::open_with(info, |_, _| ())
    }

    /// Opens an endpoint with a name, in a domain of its own.
    #[track_caller]
    pub fn open_named(name: &str, info: &Info) -> Self {
        let mut info = info.clone();
        info.src_addr = Some(Address::Str(name.into()));
        Self::open(&info)
    }

    /// Opens an endpoint in a domain of its own, with the configuration that `configure` changes.
    /// Queues that are unset are one queue of the provider's default size.
    #[track_caller]
    pub fn open_with(
        info: &Info,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Self {
        let opened = open_domain(info).and_then(|context| Self::try_open(&context, configure));
        succeed(opened)
    }

    /// Opens an endpoint of an open domain, as [`Self::open_with`] does.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn try_open(
        context: &Arc<DomainContext>,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Result<Self, Error> {
        let mut config = EndpointConfig::default();
        configure(context, &mut config);
        Self::open_configured(context, config).map_err(provider_error)
    }

    fn open_configured(
        context: &Arc<DomainContext>,
        mut config: EndpointConfig,
    ) -> anyhow::Result<Self> {
        let rx = match config.rx.take() {
            Some(rx) => rx,
            None => context.queue(0)?,
        };
        config.tx.get_or_insert_with(|| rx.clone());
        config.rx = Some(rx);
        if config.av.is_none() {
            config.av = Some(context.av_with(|attr| *attr = av::Attr::default())?);
        }
        context.endpoint(config).map(Self)
    }

    /// Opens another endpoint of the same domain, as [`Self::open_with`] does.
    #[track_caller]
    pub fn open_sibling(
        &self,
        configure: impl FnOnce(&DomainContext, &mut EndpointConfig),
    ) -> Self {
        succeed(Self::try_open(&self.context, configure))
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<dyn Domain> {
        self.context.domain_handle()
    }

    /// The queue of receives, and of all other operations unless the endpoint has a second queue.
    pub fn cq(&self) -> &Arc<dyn CompletionQueue> {
        self.rx.cq()
    }

    /// The address of the endpoint.
    #[track_caller]
    pub fn address(&self) -> Address {
        match self.ep.address() {
            Ok(address) => address,
            Err(errno) => panic!("the endpoint has no address: {errno}"),
        }
    }

    /// Inserts the address of a peer into the address vector, and returns its index.
    #[track_caller]
    pub fn insert(&self, address: &Address) -> FiAddr {
        match self.av.insert_one(address) {
            Ok(index) => index,
            Err(error) => panic!("cannot insert the address {address}: {error}"),
        }
    }

    /// Inserts the address of another endpoint, and returns its index.
    #[track_caller]
    pub fn insert_endpoint(&self, peer: &Self) -> FiAddr {
        self.insert(&peer.address())
    }

    /// Drives progress without reading completions.
    #[track_caller]
    pub fn progress(&self) {
        // A pending error entry does not matter for progress.
        if let Err(errno) = self.cq().read(&mut [])
            && errno != Errno::Avail
        {
            panic!("progress fails: {errno}");
        }
    }

    /// Reads a completion, if there is one.
    #[track_caller]
    pub fn poll(&self) -> Option<Outcome> {
        let mut entry = [Entry::default()];
        match self.cq().read(&mut entry) {
            Ok(0) => None,
            Ok(_) => Some(Ok(entry[0])),
            Err(errno) => Some(Err(self.error_entry(errno))),
        }
    }

    /// Reads a completion and its source, if there is one.
    #[track_caller]
    pub fn poll_from(&self) -> Option<(Outcome, FiAddr)> {
        let (mut entry, mut src) = ([Entry::default()], [NO_SOURCE]);
        match self.cq().read_from(&mut entry, &mut src) {
            Ok(0) => None,
            Ok(_) => Some((Ok(entry[0]), src[0])),
            Err(errno) => {
                let error = self.error_entry(errno);
                let src = error.src;
                Some((Err(error), src))
            }
        }
    }

    #[track_caller]
    fn error_entry(&self, errno: Errno) -> ErrEntry {
        assert!(errno == Errno::Avail, "cannot read completions: {errno}");
        match self.cq().read_err() {
            Ok(error) => error,
            Err(errno) => panic!("cannot read the error of an operation: {errno}"),
        }
    }

    /// Waits for a completion, and drives `others` meanwhile.
    #[track_caller]
    pub fn wait(&self, others: &[&Self]) -> Outcome {
        PolledEndpoint::wait(self, others)
    }

    /// Calls `post` until it succeeds, and drives this endpoint and `others` while it returns
    /// [`Errno::Again`].
    #[track_caller]
    pub fn post_retrying(&self, others: &[&Self], mut post: impl FnMut() -> Result<(), Errno>) {
        until(|| match post() {
            Ok(()) => Some(()),
            Err(Errno::Again) => {
                self.progress();
                others.iter().for_each(|other| other.progress());
                None
            }
            Err(errno) => panic!("a post fails: {errno}"),
        });
    }

    /// Allocates memory that the domain keeps, without a registration.
    #[track_caller]
    pub fn memory(&self, len: usize) -> Memory {
        succeed(self.context.unregistered(len))
    }

    /// Copies bytes to memory for messages that the domain keeps.
    #[track_caller]
    pub fn copy(&self, bytes: &[u8]) -> Block {
        let block = succeed(self.context.buffers(bytes.len()));
        block.memory.put(0, bytes);
        block
    }

    /// Posts a send of a copy of `bytes`.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn send_copy(&self, bytes: &[u8], send: &Send) -> Result<(), Errno> {
        self.send(&[self.copy(bytes).whole()], send)
    }

    /// Posts a receive into new memory, and returns the memory.
    #[track_caller]
    pub fn recv_new(&self, len: usize, recv: &Recv) -> Memory {
        let block = succeed(self.context.buffers(len));
        succeed(self.recv(&[block.whole()], recv));
        block.memory
    }

    /// Registers memory that a domain keeps.
    #[track_caller]
    pub fn register(&self, memory: &Memory, access: MrAccess, key: u64) -> Rights {
        succeed(memory.register(&**self.domain(), access, key))
    }
}

/// An endpoint that a test polls: a [`LocalEndpoint`], or a type around one that interprets its
/// completions.
pub trait PolledEndpoint {
    /// An interpreted completion.
    type Completion;

    /// The endpoint itself.
    fn local(&self) -> &LocalEndpoint;

    /// Reads a completion, if there is one.
    fn poll(&self) -> Option<Self::Completion>;

    /// Waits for a completion, and drives `others` meanwhile.
    #[track_caller]
    fn wait(&self, others: &[&LocalEndpoint]) -> Self::Completion {
        until(|| {
            others.iter().for_each(|other| other.progress());
            self.poll()
        })
    }
}

impl PolledEndpoint for LocalEndpoint {
    type Completion = Outcome;

    fn local(&self) -> &LocalEndpoint {
        self
    }

    fn poll(&self) -> Option<Outcome> {
        self.poll()
    }
}

/// Two endpoints with each other's addresses, at different indices.
#[derive(Debug)]
pub struct EndpointPair<E = LocalEndpoint> {
    pub a: E,
    pub b: E,
    /// The index of `b` in `a`'s address vector.
    pub to_b: FiAddr,
    /// The index of `a` in `b`'s address vector.
    pub to_a: FiAddr,
}

impl EndpointPair {
    /// Opens both endpoints, each in a domain of its own.
    #[track_caller]
    pub fn open(info: &Info) -> Self {
        Self::connect(LocalEndpoint::open(info), LocalEndpoint::open(info))
    }
}

impl<E: PolledEndpoint> EndpointPair<E> {
    /// Inserts the addresses of both endpoints.
    #[track_caller]
    pub fn connect(a: E, b: E) -> Self {
        let to_b = a.local().insert_endpoint(b.local());
        b.local().insert_endpoint(b.local());
        let to_a = b.local().insert_endpoint(a.local());
        Self { a, b, to_b, to_a }
    }

    /// Waits for a completion of `a`.
    #[track_caller]
    pub fn wait_at_a(&self) -> E::Completion {
        self.a.wait(&[self.b.local()])
    }

    /// Waits for a completion of `b`.
    #[track_caller]
    pub fn wait_at_b(&self) -> E::Completion {
        self.b.wait(&[self.a.local()])
    }

    /// Drives both endpoints until nothing more is likely to move.
    #[track_caller]
    pub fn settle(&self) {
        settle(&[self.a.local(), self.b.local()]);
    }

    /// Asserts that no further operation completes.
    #[track_caller]
    pub fn assert_no_completion(&self) {
        self.settle();
        for endpoint in [&self.a, &self.b] {
            assert!(endpoint.poll().is_none(), "an unexpected completion");
        }
    }
}

/// Returns the error of the provider, without the context that the kit has added.
fn provider_error(error: anyhow::Error) -> Error {
    let error = error.downcast::<Error>();
    error.unwrap_or_else(|other| Error::new(errno(&other), format!("{other:#}")))
}

#[track_caller]
fn succeed<T>(result: Result<T, impl Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{error:#}"),
    }
}

/// The source of an entry before the queue stores one: an index that no test uses.
const NO_SOURCE: FiAddr = FiAddr(4711);
