//! A process (SHMEM's *processing element*): its domain, the endpoint that peers address, and the
//! memory that they access.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use selvedge::info::Progress;
use selvedge::{Address, Caps, Counter, Errno, FiAddr, Hints, Info, MrAccess, OpFlags};
use selvedge_testkit::domain::{
    Block, Count, DomainContext, DomainEndpoint, EndpointConfig, Remote, WaitMethod, WaitStrategy,
};

use super::Config;
use super::heap::Heap;

/// A process's objects.
pub(super) struct Pe {
    pub(super) context: Arc<DomainContext>,
    pub(super) heap: Heap,
    memory: Block,
    /// Counts the peers' writes.
    incoming: Count,
    /// The endpoint that peers address; its queue is never read.
    pub(super) target: DomainEndpoint,
    /// All processes in the order of their numbers, this one included.
    pub(super) peers: Vec<Peer>,
    timeout: Duration,
}

/// The address of a process and of its memory, for operations of other processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) addr: FiAddr,
    /// The beginning of the process's memory.
    pub(super) remote: Remote,
}

impl Pe {
    pub(super) fn open(config: &Config) -> anyhow::Result<Self> {
        let info = discover(config)?;
        let timeout = Duration::from_secs(config.timeout);
        let strategy = WaitStrategy::new(WaitMethod::Sread, timeout);
        let context = DomainContext::open(&*info.fabric()?, info, strategy, false)?;
        let (heap, access) = (
            Heap::new(config),
            MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
        );
        let memory = if config.special {
            context.special_memory(heap.len(), access)?
        } else {
            context.memory(heap.len(), access)?
        };
        let incoming = context.count()?;
        memory.rights.count_writes(&incoming)?;
        Ok(Self {
            target: context.endpoint(EndpointConfig::default())?,
            context,
            heap,
            memory,
            incoming,
            peers: Vec::new(),
            timeout,
        })
    }

    /// Returns the address for peers: endpoint, key and base, in one word.
    pub(super) fn name(&self) -> anyhow::Result<String> {
        let Remote { addr, key } = self.memory.rights.remote()?;
        Ok(format!("{},{key},{addr}", self.target.ep.address()?))
    }

    /// Inserts the addresses of all processes, in the order of their numbers.
    pub(super) fn insert_peers(&mut self, names: &str) -> anyhow::Result<()> {
        for name in names.split_whitespace() {
            let mut parts = name.rsplitn(3, ',');
            let mut next = || {
                parts
                    .next()
                    .with_context(|| format!("the address {name} of a process has too few parts"))
            };
            let (addr, key, address) = (next()?.parse()?, next()?.parse()?, next()?);
            let address: Address = address.parse()?;
            let remote = Remote { addr, key };
            let addr = self.target.av.insert_one(&address)?;
            self.peers.push(Peer { addr, remote });
        }
        Ok(())
    }

    /// Returns a word of this process's memory.
    pub(super) fn word(&self, offset: usize) -> u64 {
        self.memory.memory.word(offset)
    }

    /// Returns whether the memory from `offset` on contains the bytes `expected`.
    pub(super) fn has_bytes(&self, offset: usize, expected: &[u8]) -> bool {
        let mut bytes = expected.iter().enumerate();
        bytes.all(|(index, &byte)| self.memory.memory.byte(offset + index) == byte)
    }

    /// Parks until a word of this process's memory is at least `least`.
    ///
    /// # Errors
    /// The wait takes longer than the configuration allows.
    pub(super) fn wait_until(&self, offset: usize, least: u64) -> anyhow::Result<()> {
        loop {
            let writes = self.incoming.read();
            let word = self.word(offset);
            if word >= least {
                return Ok(());
            }
            self.wait_for(&self.incoming, writes + 1).with_context(|| {
                format!("the word at offset {offset} is {word} instead of {least} or more")
            })?;
        }
    }

    /// Parks until a counter has reached `threshold`.
    ///
    /// # Errors
    /// The wait takes longer than the configuration allows, or an operation has failed.
    pub(super) fn wait_for(&self, count: &Count, threshold: u64) -> anyhow::Result<()> {
        wait_for(&**count.cntr(), threshold, self.timeout)
    }

    /// Returns the maximum duration of a wait.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
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

fn wait_for(cntr: &dyn Counter, threshold: u64, timeout: Duration) -> anyhow::Result<()> {
    match cntr.wait(threshold, Some(timeout)) {
        Err(Errno::TimedOut) => {
            let before = cntr.read();
            let after_progress = (0..100).map(|_| cntr.read()).max().unwrap_or(before);
            anyhow::bail!(
                "a counter did not reach {threshold} in {timeout:?}: it was {before}, and {after_progress} \
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
