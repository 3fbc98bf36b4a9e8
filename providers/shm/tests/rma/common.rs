//! A pair of endpoints: one registers memory, the other one accesses that memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::param::Params;
use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionFlags, CompletionQueue, Context, Domain,
    Endpoint, Errno, FiAddr, Hints, Info, Iov, IovMut, MemoryRegion, MrAccess, MrMode, OpFlags,
    Registry, Result, av, cq, mr,
};

/// A test that hangs fails after this time.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const BOTH: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

/// The protocols of reads and of large writes (`FI_SHM_PROTOCOL`).
pub(crate) const PROTOCOLS: [&str; 2] = ["cma", "bounce"];

pub(crate) fn info(params: &[(&str, &str)], mode: MrMode) -> Info {
    let params: Params = params.iter().copied().collect();
    let registry = Registry::new()
        .with(&selvedge_shm::PROVIDER)
        .with_params(params);
    let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::RMA | Caps::RMA_EVENT);
    registry.infos(&hints.mr_mode(mode)).unwrap().remove(0)
}

/// An endpoint with its domain, queue and address vector.
pub(crate) struct Side {
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    pub(crate) domain: Arc<dyn Domain>,
}

impl Side {
    pub(crate) fn open(info: &Info, bind: impl FnOnce(&dyn Domain, &mut Bindings)) -> Self {
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bind(&*domain, &mut bindings);
        Self {
            ep: domain.endpoint(info, bindings).unwrap(),
            cq,
            av,
            domain,
        }
    }

    pub(crate) fn insert_endpoint(&self, other: &Self) -> FiAddr {
        self.insert(&other.ep.address().unwrap().to_string())
    }

    pub(crate) fn insert(&self, name: &str) -> FiAddr {
        self.av.insert_one(&Address::Str(name.into())).unwrap()
    }

    pub(crate) fn progress(&self) {
        let (Ok(_) | Err(Errno::Avail)) = self.cq.read(&mut []) else {
            panic!("progress failed");
        };
    }

    /// Returns the next completion, if there is one.
    pub(crate) fn poll(&self) -> Option<Result<Entry, ErrEntry>> {
        let mut out = [Entry::default()];
        match self.cq.read(&mut out) {
            Ok(0) => None,
            Ok(_) => Some(Ok(out[0])),
            Err(Errno::Avail) => Some(Err(self.cq.read_err().unwrap())),
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Progresses this side and another until this one has a completion.
    #[track_caller]
    pub(crate) fn wait(&self, other: &Self) -> Result<Entry, ErrEntry> {
        wait_until(|| {
            other.progress();
            self.poll()
        })
    }

    /// Registers memory under a key.
    pub(crate) fn reg(&self, memory: &Memory, access: MrAccess, key: u64) -> Arc<dyn MemoryRegion> {
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (access, key);
        // SAFETY: the memory is never freed, and reached by raw pointers alone.
        unsafe { self.domain.reg(&[memory.iov()], &attr) }.unwrap()
    }
}

/// Repeats an attempt until it returns a value.
#[track_caller]
pub(crate) fn wait_until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "timed out");
        std::thread::yield_now();
    }
}

/// Memory for registration, which is never freed.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    first: *mut u8,
    pub(crate) len: usize,
}

impl Memory {
    pub(crate) fn new(len: usize) -> Self {
        let words = vec![0_u64; len.div_ceil(8)].leak();
        Self {
            first: words.as_mut_ptr().cast(),
            len,
        }
    }

    pub(crate) fn filled(bytes: &[u8]) -> Self {
        let memory = Self::new(bytes.len());
        memory.put(0, bytes);
        memory
    }

    pub(crate) fn iov(&self) -> IovMut {
        IovMut::from_raw(self.first.cast(), self.len)
    }

    pub(crate) fn addr(&self) -> u64 {
        self.first.expose_provenance() as u64
    }

    pub(crate) fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        let dest = self.first.wrapping_add(offset);
        // SAFETY: the range is inside of memory that is never freed.
        unsafe { std::ptr::copy(bytes.as_ptr(), dest, bytes.len()) };
    }

    pub(crate) fn get(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: as above.
        unsafe { std::ptr::copy(self.first, bytes.as_mut_ptr(), self.len) };
        bytes
    }
}

/// Two sides. `b` has registered memory under [`KEY`].
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// The address of `b` in `a`'s address vector.
    pub(crate) to_b: FiAddr,
    pub(crate) memory: Memory,
    pub(crate) region: Arc<dyn MemoryRegion>,
}

pub(crate) const KEY: u64 = 7;

impl Pair {
    pub(crate) fn new(protocol: &str, len: usize) -> Self {
        Self::with_params(&[("FI_SHM_PROTOCOL", protocol)], len)
    }

    pub(crate) fn with_params(params: &[(&str, &str)], len: usize) -> Self {
        let info = info(params, MrMode::empty());
        let (a, b) = (Side::open(&info, |_, _| ()), Side::open(&info, |_, _| ()));
        Self::connect(a, b, len)
    }

    pub(crate) fn connect(a: Side, b: Side, len: usize) -> Self {
        let to_b = a.insert_endpoint(&b);
        b.insert_endpoint(&a);
        let memory = Memory::new(len);
        let region = b.reg(&memory, BOTH, KEY);
        Self {
            a,
            b,
            to_b,
            memory,
            region,
        }
    }

    pub(crate) fn segment(&self, addr: u64, len: usize) -> RmaIov {
        let key = self.region.key();
        RmaIov { addr, len, key }
    }

    /// Posts a write and waits for its completion.
    #[track_caller]
    pub(crate) fn write(&self, write: &Write<'_>) -> Result<Entry, ErrEntry> {
        post_until_accepted(&self.b, || write.post(&self.a.ep, self.to_b));
        self.a.wait(&self.b)
    }

    /// Reads remote segments into local buffers of these sizes.
    #[track_caller]
    pub(crate) fn read(&self, remote: &[RmaIov], sizes: &[usize]) -> Result<Vec<u8>, ErrEntry> {
        read(&self.a, &self.b, self.to_b, remote, sizes)
    }

    /// Progresses both sides often enough that every outstanding command is executed.
    pub(crate) fn settle(&self) {
        for _ in 0..2000 {
            self.a.progress();
            self.b.progress();
        }
    }
}

/// Posts a read of remote segments into local buffers of these sizes, and waits for its completion.
#[track_caller]
pub(crate) fn read(
    a: &Side,
    b: &Side,
    to_b: FiAddr,
    remote: &[RmaIov],
    sizes: &[usize],
) -> Result<Vec<u8>, ErrEntry> {
    let mut local: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0xee; size]).collect();
    let iov: Vec<_> = local.iter_mut().map(|bytes| IovMut::new(bytes)).collect();
    let msg = ReadMsg {
        iov: &iov,
        desc: &[],
        src: to_b,
        rma_iov: remote,
        context: Context(5),
    };
    // SAFETY: the buffers live until the completion, which is waited for.
    post_until_accepted(b, || unsafe { a.ep.readmsg(&msg, OpFlags::DEFAULT) });
    let entry = a.wait(b)?;
    assert_eq!(entry.context, Context(5));
    assert_eq!(entry.flags, CompletionFlags::RMA | CompletionFlags::READ);
    Ok(local.concat())
}

/// Repeats a post while it fails with `Again`, and progresses the other side meanwhile.
#[track_caller]
pub(crate) fn post_until_accepted(other: &Side, mut post: impl FnMut() -> Result) {
    wait_until(|| match post() {
        Ok(()) => Some(()),
        Err(Errno::Again) => {
            other.progress();
            None
        }
        Err(errno) => panic!("{errno}"),
    });
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

/// Random numbers that are the same in each run.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8))
            .flat_map(|_| self.next().to_le_bytes())
            .collect();
        bytes.truncate(len);
        bytes
    }
}
