//! An open domain as programs use it: memory that stays as long as the domain, endpoints with their
//! queues, and posts that name segments of that memory. Nothing is copied and no buffer is kept for a
//! post, so that programs that measure stand on it.

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
    ScalableEndpoint, SharedReceives, av,
};

use crate::run::failure::unsupported;

pub use atomics::{AtomicBuffers, AtomicCall};
pub use deferred::Deferred;
pub use memory::{Memory, Remote, Rights};
pub use post::{Access, Lists, Recv, Segment, Send};
pub use wait::{CompletionError, Count, Queue, WaitMethod, WaitStrategy, poll_fd};

/// An open domain, and the memory that operations use: it stays until the last endpoint is closed.
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

/// The first key that programs choose, as upstream's do.
const FIRST_KEY: u64 = 0xC0DE;
/// Entries of a queue whose program does not say how many.
const QUEUE: usize = 1024;

/// What messages are sent from and received into.
pub const LOCAL: MrAccess = MrAccess::SEND
    .union(MrAccess::RECV)
    .union(MrAccess::READ)
    .union(MrAccess::WRITE);
/// Memory that peers may do everything with.
pub const SHARED: MrAccess = LOCAL
    .union(MrAccess::REMOTE_READ)
    .union(MrAccess::REMOTE_WRITE);

impl DomainContext {
    /// Opens a domain. Its queues are waited for by a strategy; its memory is the domain's own if it
    /// `is_special`.
    ///
    /// # Errors
    /// The provider's.
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

    /// What it was opened with.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Remote data as wide as the provider carries it.
    pub fn cut_data(&self, data: u64) -> u64 {
        match self.info.domain_attr.cq_data_size {
            0 => 0,
            8.. => data,
            bytes => data & ((1 << (8 * bytes)) - 1),
        }
    }

    /// How its queues are waited for.
    pub fn strategy(&self) -> WaitStrategy {
        self.strategy
    }

    /// Memory for messages.
    ///
    /// # Errors
    /// When there is none.
    pub fn buffers(&self, len: usize) -> anyhow::Result<Block> {
        self.memory(len, LOCAL)
    }

    /// Memory that is registered with some rights.
    ///
    /// # Errors
    /// When there is none, or the domain refuses.
    pub fn memory(&self, len: usize, access: MrAccess) -> anyhow::Result<Block> {
        if self.is_special {
            return self.special_memory(len, access);
        }
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        self.keep(Memory::private(self.number, len)?, access, key)
    }

    /// Memory that the domain makes, with some rights.
    ///
    /// # Errors
    /// As [`Self::memory`].
    pub fn special_memory(&self, len: usize, access: MrAccess) -> anyhow::Result<Block> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let memory = Memory::special(self.number, self.domain(), len, access, key)?;
        self.keep(memory, access, key)
    }

    fn keep(&self, memory: Memory, access: MrAccess, key: u64) -> anyhow::Result<Block> {
        let rights = memory.register(self.domain(), access, key)?;
        let memories = self.memories.lock();
        let mut memories = memories.unwrap_or_else(PoisonError::into_inner);
        memories.push(memory.clone());
        Ok(Block { memory, rights })
    }

    /// Registers memory again, under another key.
    ///
    /// # Errors
    /// The domain's.
    pub fn register(&self, memory: &Memory, access: MrAccess) -> anyhow::Result<Rights> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        memory.register(self.domain(), access, key)
    }

    /// A completion queue.
    ///
    /// # Errors
    /// The domain's.
    pub fn queue(&self, size: usize) -> anyhow::Result<Queue> {
        Queue::open(self.domain(), self.strategy, size)
    }

    /// A counter; without counters the program does not run.
    ///
    /// # Errors
    /// The domain's.
    pub fn count(&self) -> anyhow::Result<Count> {
        if self.info.domain_attr.cntr_cnt == 0 {
            let name = &self.info.fabric_attr.prov_name;
            return Err(unsupported(format!("{name} has no counters")));
        }
        Count::open(self.domain(), self.strategy)
    }

    /// An address vector.
    ///
    /// # Errors
    /// The domain's.
    pub fn av(&self) -> anyhow::Result<Arc<dyn AddressVector>> {
        self.av_with(|_| {})
    }

    /// An address vector with other attributes.
    ///
    /// # Errors
    /// The domain's.
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

    /// An endpoint.
    ///
    /// # Errors
    /// The domain's.
    pub fn endpoint(self: &Arc<Self>, plan: EndpointConfig) -> anyhow::Result<DomainEndpoint> {
        let open = |queue: Option<Queue>| match queue {
            Some(queue) => Ok(queue),
            None => self.queue(QUEUE),
        };
        let (tx, rx) = (open(plan.tx)?, open(plan.rx)?);
        let av = match plan.av {
            Some(av) => av,
            None => self.av()?,
        };
        let mut bindings = Bindings::new(Arc::clone(tx.cq()), Arc::clone(&av));
        bindings.rx_cq = Arc::clone(rx.cq());
        bindings.tx_selective = plan.tx_selective;
        bindings.rx_selective = plan.rx_selective;
        bindings.cntrs = plan.counters;
        bindings.eq = plan.eq;
        bindings.srx = plan.srx;
        let info = plan.info.as_ref().unwrap_or(&self.info);
        let ep = match plan.context {
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

    /// A number that no other domain of this process has.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Some memory and the rights over it.
#[derive(Clone, Debug)]
pub struct Block {
    pub memory: Memory,
    pub rights: Rights,
}

impl Block {
    /// A part of it.
    #[inline]
    pub fn segment(&self, at: usize, len: usize) -> Segment<'_> {
        Segment {
            memory: &self.memory,
            rights: &self.rights,
            at,
            len,
        }
    }

    /// All of it.
    pub fn whole(&self) -> Segment<'_> {
        self.segment(0, self.memory.len())
    }
}

/// What an endpoint is opened with, where it is not all of its own.
#[derive(Debug, Default)]
pub struct EndpointConfig {
    /// The queue of its sends and other operations.
    pub tx: Option<Queue>,
    /// The queue of its receives.
    pub rx: Option<Queue>,
    /// Its peers.
    pub av: Option<Arc<dyn AddressVector>>,
    /// The queue of sends and other operations reports only what asks for it.
    pub tx_selective: bool,
    /// The queue of receives reports only what asks for it.
    pub rx_selective: bool,
    /// Its counters.
    pub counters: Counters,
    /// Where connections are reported.
    pub eq: Option<Arc<dyn EventQueue>>,
    /// Receives that it shares.
    pub srx: Option<Arc<dyn SharedReceives>>,
    /// Which context of a scalable endpoint it is.
    pub context: Option<(Arc<dyn ScalableEndpoint>, usize)>,
    /// What it is opened with, if not what the domain was.
    pub info: Option<Info>,
}

/// An endpoint with its queues. Closed before the memory of its domain goes.
#[derive(Clone, Debug)]
pub struct DomainEndpoint {
    pub ep: Arc<dyn Endpoint>,
    pub tx: Queue,
    pub rx: Queue,
    pub av: Arc<dyn AddressVector>,
    pub context: Arc<DomainContext>,
}

impl DomainEndpoint {
    /// Makes progress, and takes nothing.
    ///
    /// # Errors
    /// The queues'.
    pub fn progress(&self) -> anyhow::Result<()> {
        self.tx.progress()?;
        self.rx.progress()
    }
}
