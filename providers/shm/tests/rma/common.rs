//! A pair of endpoints: one registers memory, the other one accesses that memory.

use std::ops::Deref;
use std::sync::Arc;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    Caps, CompletionFlags, Context, Endpoint, FiAddr, Hints, Info, Iov, IovMut, MrAccess, MrMode,
    OpFlags, Result,
};
use selvedge_testkit::domain::{Memory, Rights};
use selvedge_testkit::local::{self, EndpointPair, LocalEndpoint};

pub(crate) const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The protocols of reads and of large writes (`FI_SHM_PROTOCOL`).
pub(crate) const PROTOCOLS: [&str; 2] = ["cma", "bounce"];

pub(crate) fn info(params: &[(&str, &str)], mode: MrMode) -> Info {
    let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::RMA_EVENT);
    local::info(&selvedge_shm::PROVIDER, params, &hints.mr_mode(mode))
}

/// Two endpoints. `b` has registered memory under [`KEY`].
pub(crate) struct RmaPair {
    pub(crate) pair: EndpointPair,
    pub(crate) memory: Memory,
    pub(crate) rights: Rights,
}

pub(crate) const KEY: u64 = 7;

impl Deref for RmaPair {
    type Target = EndpointPair;

    fn deref(&self) -> &EndpointPair {
        &self.pair
    }
}

impl RmaPair {
    pub(crate) fn new(protocol: &str, len: usize) -> Self {
        Self::with_params(&[("FI_SHM_PROTOCOL", protocol)], len)
    }

    pub(crate) fn with_params(params: &[(&str, &str)], len: usize) -> Self {
        Self::open(&info(params, MrMode::empty()), len)
    }

    pub(crate) fn open(info: &Info, len: usize) -> Self {
        Self::connect(LocalEndpoint::open(info), LocalEndpoint::open(info), len)
    }

    pub(crate) fn connect(a: LocalEndpoint, b: LocalEndpoint, len: usize) -> Self {
        let memory = b.memory(len);
        Self {
            rights: b.register(&memory, BOTH, KEY),
            memory,
            pair: EndpointPair::connect(a, b),
        }
    }

    pub(crate) fn segment(&self, addr: u64, len: usize) -> RmaIov {
        let key = self.rights.key();
        RmaIov { addr, len, key }
    }

    /// Posts a write, and retries it while there is no room for it.
    #[track_caller]
    pub(crate) fn post(&self, write: &Write<'_>) {
        self.a
            .post_retrying(&[&self.b], || write.post(&self.a.ep, self.to_b));
    }

    /// Posts a write and waits for its completion.
    #[track_caller]
    pub(crate) fn write(&self, write: &Write<'_>) -> Result<Entry, ErrEntry> {
        self.post(write);
        self.wait_at_a()
    }

    /// Reads remote segments into local buffers of these sizes.
    #[track_caller]
    pub(crate) fn read(&self, remote: &[RmaIov], sizes: &[usize]) -> Result<Vec<u8>, ErrEntry> {
        read(&self.a, &[&self.b], self.to_b, remote, sizes)
    }
}

/// Posts a read of remote segments into local buffers of these sizes, and waits for its completion.
#[track_caller]
pub(crate) fn read(
    ep: &LocalEndpoint,
    others: &[&LocalEndpoint],
    dest: FiAddr,
    remote: &[RmaIov],
    sizes: &[usize],
) -> Result<Vec<u8>, ErrEntry> {
    let mut local: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0xee; size]).collect();
    let iov: Vec<_> = local.iter_mut().map(|bytes| IovMut::new(bytes)).collect();
    let msg = ReadMsg {
        iov: &iov,
        desc: &[],
        src: dest,
        rma_iov: remote,
        context: Context(5),
    };
    // SAFETY: the buffers live until the completion, which is waited for.
    ep.post_retrying(others, || unsafe { ep.ep.readmsg(&msg, OpFlags::DEFAULT) });
    let entry = ep.wait(others)?;
    assert_eq!(entry.context, Context(5));
    assert_eq!(entry.flags, CompletionFlags::RMA | CompletionFlags::READ);
    Ok(local.concat())
}

/// The arguments of a write.
#[derive(Clone)]
pub(crate) struct Write<'a> {
    pub(crate) local: &'a [&'a [u8]],
    pub(crate) remote: &'a [RmaIov],
    pub(crate) data: Option<u64>,
    pub(crate) flags: OpFlags,
    pub(crate) context: u64,
}

impl<'a> Write<'a> {
    pub(crate) fn new(local: &'a [&'a [u8]], remote: &'a [RmaIov]) -> Self {
        Self {
            local,
            remote,
            data: None,
            flags: OpFlags::DEFAULT,
            context: 9,
        }
    }

    /// Replaces the endpoint's flags.
    pub(crate) fn flags(mut self, flags: OpFlags) -> Self {
        self.flags = flags;
        self
    }

    pub(crate) fn data(mut self, data: u64) -> Self {
        self.data = Some(data);
        self
    }

    /// Posts the write. The buffers must stay in place until the completion.
    pub(crate) fn post(&self, ep: &Arc<dyn Endpoint>, dest: FiAddr) -> Result {
        let iov: Vec<_> = self.local.iter().map(|bytes| Iov::new(bytes)).collect();
        let msg = WriteMsg {
            iov: &iov,
            desc: &[],
            dest,
            rma_iov: self.remote,
            context: Context(self.context),
            data: self.data.unwrap_or(0xdead),
        };
        let flags = match self.data {
            Some(_) => self.flags | OpFlags::REMOTE_CQ_DATA,
            None => self.flags,
        };
        // SAFETY: the callers wait for the completion before they release the buffers.
        unsafe { ep.writemsg(&msg, flags) }
    }
}

/// The initiator's completion entry of a write.
pub(crate) fn write_entry(context: u64) -> Entry {
    Entry {
        context: Context(context),
        flags: CompletionFlags::RMA | CompletionFlags::WRITE,
        ..Entry::default()
    }
}

/// The target's completion entry of a write with remote data.
pub(crate) fn remote_write_entry(data: u64, len: usize) -> Entry {
    Entry {
        flags: CompletionFlags::RMA
            | CompletionFlags::REMOTE_WRITE
            | CompletionFlags::REMOTE_CQ_DATA,
        len,
        data,
        ..Entry::default()
    }
}
