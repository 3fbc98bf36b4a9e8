//! An open domain with memory, endpoints and queues, for programs. Posts name segments of the
//! memory. Posts copy nothing and keep no buffers, so that benchmarks can use them.

mod atomics;
mod deferred;
mod memory;
mod post;
mod wait;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use selvedge::{
    AddressVector, Bindings, Counters, Domain, Endpoint, EventQueue, Fabric, Info, MrAccess,
    ScalableEndpoint, SharedReceives, av, cq,
};

use crate::run::failure::unsupported;

pub use atomics::{AtomicBuffers, AtomicCall};
pub use deferred::Deferred;
pub use memory::{Memory, Remote, Rights};
pub use post::{Access, Recv, Segment, SegmentLists, Send};
pub use wait::{CompletionError, Count, Queue, WaitMethod, WaitStrategy, poll_fd};

/// An open domain, and the memory of its operations. The memory stays mapped until the last
/// endpoint is closed.
#[derive(Debug)]
pub struct DomainContext {
    domain: Arc<dyn Domain>,
    info: Info,
    strategy: WaitStrategy,
    is_special: bool,
    number: u64,
    keys: AtomicU64,
    memories: Mutex<Vec<Memory>>,
}

/// The first key that programs choose; upstream's programs choose the same.
const FIRST_KEY: u64 = 0xC0DE;
/// The default capacity of a queue, in entries.
const QUEUE_CAPACITY: usize = 1024;

/// Access rights of memory for local operations.
pub const LOCAL: MrAccess = MrAccess::SEND
    .union(MrAccess::RECV)
    .union(MrAccess::READ)
    .union(MrAccess::WRITE);
/// Access rights of memory for all operations of peers.
pub const SHARED: MrAccess = LOCAL
    .union(MrAccess::REMOTE_READ)
    .union(MrAccess::REMOTE_WRITE);

impl DomainContext {
    /// Opens a domain. `strategy` is the wait strategy of its queues. If `is_special`, the domain
    /// allocates the memory.
    ///
    /// # Errors
    /// Those of the provider.
    pub fn open(
        fabric: &dyn Fabric,
        info: Info,
        strategy: WaitStrategy,
        is_special: bool,
    ) -> anyhow::Result<Arc<Self>> {
        static OPENED: AtomicU64 = AtomicU64::new(1);
        let domain = fabric.domain(&info).context("cannot open a domain")?;
        Ok(Arc::new(Self {
            domain,
            info,
            strategy,
            is_special,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
            keys: AtomicU64::new(FIRST_KEY),
            memories: Mutex::new(Vec::new()),
        }))
    }

    /// The domain.
    pub fn domain(&self) -> &dyn Domain {
        &*self.domain
    }

    /// A shared handle of the domain.
    pub fn domain_handle(&self) -> &Arc<dyn Domain> {
        &self.domain
    }

    /// The description with which the domain was opened.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Truncates remote data to the size that the provider supports.
    pub fn cut_data(&self, data: u64) -> u64 {
        match self.info.domain_attr.cq_data_size {
            0 => 0,
            8.. => data,
            bytes => data & ((1 << (8 * bytes)) - 1),
        }
    }

    /// The wait strategy of the queues.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    /// Allocates memory for messages.
    ///
    /// # Errors
    /// As [`Self::memory`].
    pub fn buffers(&self, len: usize) -> anyhow::Result<Block> {
        self.memory(len, LOCAL)
    }

    /// Allocates memory and registers it with `access`.
    ///
    /// # Errors
    /// When the memory cannot be allocated or registered.
    pub fn memory(&self, len: usize, access: MrAccess) -> anyhow::Result<Block> {
        if self.is_special {
            return self.special_memory(len, access);
        }
        let memory = self.unregistered(len)?;
        let rights = self.register(&memory, access)?;
        Ok(Block { memory, rights })
    }

    /// Allocates memory without a registration.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub fn unregistered(&self, len: usize) -> anyhow::Result<Memory> {
        let memory = Memory::private(self.number, len)?;
        self.keep(&memory);
        Ok(memory)
    }

    /// Allocates memory of the domain with `access`.
    ///
    /// # Errors
    /// As [`Self::memory`].
    pub fn special_memory(&self, len: usize, access: MrAccess) -> anyhow::Result<Block> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let memory = Memory::special(self.number, self.domain(), len, access, key)?;
        let rights = memory.register(self.domain(), access, key)?;
        self.keep(&memory);
        Ok(Block { memory, rights })
    }

    /// Keeps memory until the last endpoint is closed.
    fn keep(&self, memory: &Memory) {
        let memories = self.memories.lock();
        let mut memories = memories.unwrap_or_else(PoisonError::into_inner);
        memories.push(memory.clone());
    }

    /// Registers memory again, with another key.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn register(&self, memory: &Memory, access: MrAccess) -> anyhow::Result<Rights> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        memory.register(self.domain(), access, key)
    }

    /// Opens a completion queue.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn queue(&self, size: usize) -> anyhow::Result<Queue> {
        Queue::open(self.domain(), self.strategy, size)
    }

    /// Opens a completion queue with other attributes.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn queue_with(&self, attr: &cq::Attr) -> anyhow::Result<Queue> {
        Queue::open_with(self.domain(), self.strategy, attr)
    }

    /// Opens a counter. If the domain has no counters, the error has the exit code for "not run".
    ///
    /// # Errors
    /// Those of the domain.
    pub fn count(&self) -> anyhow::Result<Count> {
        if self.info.domain_attr.cntr_cnt == 0 {
            let name = &self.info.fabric_attr.prov_name;
            return Err(unsupported(format!("{name} has no counters")));
        }
        Count::open(self.domain(), self.strategy)
    }

    /// Opens an address vector.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn av(&self) -> anyhow::Result<Arc<dyn AddressVector>> {
        self.av_with(|_| {})
    }

    /// Opens an address vector with other attributes.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn av_with(
        &self,
        change: impl FnOnce(&mut av::Attr),
    ) -> anyhow::Result<Arc<dyn AddressVector>> {
        let mut attr = av::Attr::default();
        attr.count = 1;
        change(&mut attr);
        let av = self.domain.av(&attr);
        av.context("cannot open an address vector")
    }

    /// Opens an endpoint.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn endpoint(self: &Arc<Self>, config: EndpointConfig) -> anyhow::Result<DomainEndpoint> {
        let open = |queue: Option<Queue>| match queue {
            Some(queue) => Ok(queue),
            None => self.queue(QUEUE_CAPACITY),
        };
        let (tx, rx) = (open(config.tx)?, open(config.rx)?);
        let av = match config.av {
            Some(av) => av,
            None => self.av()?,
        };
        let mut bindings = Bindings::new(Arc::clone(tx.cq()), Arc::clone(&av));
        bindings.rx_cq = Arc::clone(rx.cq());
        bindings.tx_selective = config.tx_selective;
        bindings.rx_selective = config.rx_selective;
        bindings.cntrs = config.counters;
        bindings.eq = config.eq;
        bindings.srx = config.srx;
        if config.without_av {
            bindings.av = None;
        }
        let info = config.info.as_ref().unwrap_or(&self.info);
        let ep = match config.context {
            Some((sep, index)) => sep.context(index, info, bindings),
            None => self.domain.endpoint(info, bindings),
        };
        Ok(DomainEndpoint {
            ep: ep.context("cannot open an endpoint")?,
            tx,
            rx,
            av,
            context: Arc::clone(self),
        })
    }

    /// The number of the domain, which is unique in this process.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Memory and its registration.
#[derive(Clone, Debug)]
pub struct Block {
    pub memory: Memory,
    pub rights: Rights,
}

impl Block {
    /// Returns the segment of the `len` bytes at the offset `at`.
    #[inline]
    pub fn segment(&self, at: usize, len: usize) -> Segment<'_> {
        Segment {
            memory: &self.memory,
            rights: &self.rights,
            at,
            len,
        }
    }

    /// Returns the segment of the whole memory.
    pub fn whole(&self) -> Segment<'_> {
        self.segment(0, self.memory.len())
    }
}

/// The configuration of an endpoint. Queues and an address vector that are unset are opened with
/// the endpoint.
#[derive(Debug, Default)]
pub struct EndpointConfig {
    /// The completion queue of sends and all other operations except receives.
    pub tx: Option<Queue>,
    /// The completion queue of receives.
    pub rx: Option<Queue>,
    /// The address vector.
    pub av: Option<Arc<dyn AddressVector>>,
    /// Whether the queue `tx` is bound with `FI_SELECTIVE_COMPLETION`.
    pub tx_selective: bool,
    /// Whether the queue `rx` is bound with `FI_SELECTIVE_COMPLETION`.
    pub rx_selective: bool,
    /// The counters.
    pub counters: Counters,
    /// The queue for connection events.
    pub eq: Option<Arc<dyn EventQueue>>,
    /// A shared receive context.
    pub srx: Option<Arc<dyn SharedReceives>>,
    /// The scalable endpoint and the index, for a context of a scalable endpoint.
    pub context: Option<(Arc<dyn ScalableEndpoint>, usize)>,
    /// The description, if it differs from that of the domain.
    pub info: Option<Info>,
    /// Whether no address vector is bound.
    pub without_av: bool,
}

/// An endpoint with its queues. It is closed before the memory of its domain is freed.
#[derive(Clone, Debug)]
pub struct DomainEndpoint {
    pub ep: Arc<dyn Endpoint>,
    pub tx: Queue,
    pub rx: Queue,
    pub av: Arc<dyn AddressVector>,
    pub context: Arc<DomainContext>,
}

impl DomainEndpoint {
    /// Drives progress without reading completions.
    ///
    /// # Errors
    /// Those of the queues.
    pub fn progress(&self) -> anyhow::Result<()> {
        self.tx.progress()?;
        self.rx.progress()
    }
}
