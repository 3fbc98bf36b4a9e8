//! A process (SHMEM's *processing element*): its domain, the endpoint that peers address, and the
//! memory that they access.

#![expect(unsafe_code, reason = "memory that peers change")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use selvedge::info::Progress;
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Counter, Domain, Endpoint, Errno,
    FiAddr, Hints, Info, IovMut, MemoryRegion, MrAccess, MrMode, OpFlags, alloc, av, cntr, cq, mr,
    wait,
};

use super::Config;
use super::heap::Heap;

/// A process's objects.
pub(super) struct Pe {
    pub(super) info: Info,
    pub(super) domain: Arc<dyn Domain>,
    pub(super) av: Arc<dyn AddressVector>,
    pub(super) heap: Heap,
    memory: Memory,
    region: Arc<dyn MemoryRegion>,
    /// Counts what peers write.
    incoming: Arc<dyn Counter>,
    target: Arc<dyn Endpoint>,
    /// Where the target endpoint would report; nothing is ever read from it.
    _cq: Arc<dyn CompletionQueue>,
    /// The processes in their order, this one among them.
    pub(super) peers: Vec<Peer>,
    timeout: Duration,
}

/// A process as another one addresses it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) addr: FiAddr,
    pub(super) key: u64,
    /// The remote address of offset 0 of its memory.
    pub(super) base: u64,
}

impl Pe {
    pub(super) fn open(config: &Config) -> anyhow::Result<Self> {
        let info = discover(config)?;
        let domain = info.open()?;
        let av = domain.av(&av::Attr::default())?;
        let cq = domain.cq(&cq::Attr::default())?;
        let heap = Heap::new(config);
        let (memory, region) = register(&*domain, heap.len(), config.special)?;
        let incoming = counter(&*domain)?;
        region.bind_counter(&incoming, MrAccess::REMOTE_WRITE)?;
        let target = domain.endpoint(&info, Bindings::new(Arc::clone(&cq), Arc::clone(&av)))?;
        Ok(Self {
            info,
            av,
            heap,
            memory,
            region,
            incoming,
            target,
            _cq: cq,
            peers: Vec::new(),
            timeout: Duration::from_secs(config.timeout),
            domain,
        })
    }

    /// How peers address this process: endpoint, key and base, in one word.
    pub(super) fn name(&self) -> anyhow::Result<String> {
        let base = match self.domain.mr_mode().contains(MrMode::VIRT_ADDR) {
            true => self.memory.first.expose_provenance() as u64,
            false => 0,
        };
        let address = self.target.address()?;
        Ok(format!("{address},{},{base}", self.region.key()))
    }

    /// Learns the names of all processes, in the order of their numbers.
    pub(super) fn insert(&mut self, names: &str) -> anyhow::Result<()> {
        for name in names.split_whitespace() {
            let mut parts = name.rsplitn(3, ',');
            let mut next = || parts.next().with_context(|| format!("a name: {name}"));
            let (base, key, address) = (next()?.parse()?, next()?.parse()?, next()?);
            let address: Address = address.parse()?;
            let addr = self.av.insert_one(&address)?;
            self.peers.push(Peer { addr, key, base });
        }
        Ok(())
    }

    /// A word of this process's own memory.
    pub(super) fn word(&self, at: usize) -> u64 {
        self.memory.word(at).load(Ordering::Acquire)
    }

    /// Whether `len` bytes from `at` on are what `expected` says.
    pub(super) fn holds(&self, at: usize, expected: &[u8]) -> bool {
        let mut all = expected.iter().enumerate();
        all.all(|(index, &byte)| self.memory.byte(at + index) == byte)
    }

    /// Sleeps until a word of this process's memory is at least `least`.
    ///
    /// # Errors
    /// When that takes longer than the configuration allows.
    pub(super) fn wait_until(&self, at: usize, least: u64) -> anyhow::Result<()> {
        loop {
            let seen = self.incoming.read();
            let word = self.word(at);
            if word >= least {
                return Ok(());
            }
            wait_for(&*self.incoming, seen + 1, self.timeout)
                .with_context(|| format!("the word at {at} is {word}, and shall become {least}"))?;
        }
    }

    /// Sleeps until a counter has reached `threshold`.
    ///
    /// # Errors
    /// When that takes longer than the configuration allows, or an operation has failed.
    pub(super) fn wait_for(&self, cntr: &dyn Counter, threshold: u64) -> anyhow::Result<()> {
        wait_for(cntr, threshold, self.timeout)
    }

    /// How long a wait may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A counter that can be slept at.
    pub(super) fn counter(&self) -> anyhow::Result<Arc<dyn Counter>> {
        counter(&*self.domain)
    }
}

fn discover(config: &Config) -> anyhow::Result<Info> {
    let hints = Hints::new()
        .provider(&config.provider)
        .caps(Caps::RMA | Caps::ATOMIC | Caps::RMA_EVENT)
        .edit(|info| {
            info.domain_attr.data_progress = Progress::Auto;
            info.tx_attr.op_flags = OpFlags::DELIVERY_COMPLETE;
        });
    Ok(selvedge_providers::builtin().infos(&hints)?.remove(0))
}

fn counter(domain: &dyn Domain) -> anyhow::Result<Arc<dyn Counter>> {
    let mut attr = cntr::Attr::default();
    attr.wait_obj = wait::Object::Unspec;
    Ok(domain.cntr(&attr)?)
}

fn wait_for(cntr: &dyn Counter, threshold: u64, timeout: Duration) -> anyhow::Result<()> {
    match cntr.wait(threshold, Some(timeout)) {
        Err(Errno::TimedOut) => {
            let before = cntr.read();
            let later = (0..100).map(|_| cntr.read()).max().unwrap_or(before);
            anyhow::bail!(
                "a counter did not reach {threshold} in {timeout:?}: it was {before}, and {later} \
                 when progress was made"
            )
        }
        other => {
            let failed = cntr.read_err();
            ensure!(failed == 0, "{failed} operations have failed");
            Ok(other?)
        }
    }
}

fn register(
    domain: &dyn Domain,
    len: usize,
    special: bool,
) -> anyhow::Result<(Memory, Arc<dyn MemoryRegion>)> {
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    if special {
        let block = domain.alloc(len, &alloc::Attr::new(access).with_key(1))?;
        let memory = Memory {
            first: block.base(),
        };
        return Ok((memory, block));
    }
    let words = vec![0_u64; len.div_ceil(8)].leak();
    let memory = Memory {
        first: words.as_mut_ptr().cast(),
    };
    let mut attr = mr::Attr::default();
    (attr.access, attr.requested_key) = (access, 1);
    let region = [IovMut::from_raw(memory.first.cast(), len)];
    // SAFETY: the memory is never freed, and this process touches it by `Memory` alone.
    let region = unsafe { domain.reg(&region, &attr) }?;
    Ok((memory, region))
}

/// Memory that peers change. It lives as long as the process or as the region beside it in [`Pe`].
#[derive(Clone, Copy)]
struct Memory {
    first: *mut u8,
}

// SAFETY: the memory is read by atomics and volatile loads alone, from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8));
        // SAFETY: `at` is an offset of `Heap` into memory of `Heap::len` bytes, and aligned.
        unsafe { AtomicU64::from_ptr(self.first.wrapping_add(at).cast()) }
    }

    fn byte(&self, at: usize) -> u8 {
        // SAFETY: as above; the byte may change at any time, which a volatile load allows for.
        unsafe { self.first.wrapping_add(at).read_volatile() }
    }
}
