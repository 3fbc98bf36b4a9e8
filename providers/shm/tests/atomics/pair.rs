//! A pair of endpoints: one registers memory, the other one posts atomics on that memory.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::atomic::{AtomicMsg, Attr, Datatype, Family, Ioc, IocMut, Op, RmaIoc, Target};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Context, Domain, Endpoint, FiAddr,
    Hints, Info, IovMut, MemoryRegion, MrAccess, OpFlags, Registry, Result, alloc, av, cq, mr,
};

/// Far above the duration of any wait in these tests.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A completion: an entry or an error.
pub(crate) type Completed = Result<Entry, ErrEntry>;

/// The kind of the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Registered memory of its process.
    Plain,
    /// Memory that the domain allocates.
    Special,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Plain, Self::Special];
}

/// An endpoint with its domain, queue and address vector.
pub(crate) struct Side {
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    pub(crate) domain: Arc<dyn Domain>,
}

pub(crate) fn info(params: &[(&str, &str)]) -> Info {
    let registry = Registry::new()
        .with(&selvedge_shm::PROVIDER)
        .with_params(params.iter().copied().collect());
    let hints = Hints::new().caps(Caps::MSG | Caps::ATOMIC).provider("shm");
    registry.infos(&hints).unwrap().remove(0)
}

impl Side {
    pub(crate) fn new() -> Self {
        Self::with_params(&[], |_, _| {})
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut info = info(&[]);
        info.src_addr = Some(Address::Str(name.into()));
        Self::open(&info, |_, _| {})
    }

    pub(crate) fn with_params(
        params: &[(&str, &str)],
        bind: impl FnOnce(&Arc<dyn Domain>, &mut Bindings),
    ) -> Self {
        Self::open(&info(params), bind)
    }

    fn open(info: &Info, bind: impl FnOnce(&Arc<dyn Domain>, &mut Bindings)) -> Self {
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        bind(&domain, &mut bindings);
        let ep = domain.endpoint(info, bindings).unwrap();
        Self { ep, cq, av, domain }
    }

    pub(crate) fn insert_endpoint(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }

    pub(crate) fn poll(&self) -> Option<Completed> {
        let mut entry = [Entry::default()];
        match self.cq.read(&mut entry) {
            Ok(0) => None,
            Ok(_) => Some(Ok(entry[0])),
            Err(_) => Some(Err(self.cq.read_err().unwrap())),
        }
    }

    pub(crate) fn progress(&self) {
        self.cq.read(&mut []).unwrap();
    }

    /// Waits for a completion, and progresses `other` meanwhile.
    pub(crate) fn wait(&self, other: &Self) -> Completed {
        let start = Instant::now();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            other.progress();
            assert!(start.elapsed() < TIMEOUT, "timed out without a completion");
        }
    }

    pub(crate) fn query_atomic(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        self.domain.query_atomic(family, datatype, op)
    }
}

/// Registered memory of a target, in 16-byte words.
pub(crate) struct Memory {
    region: Arc<dyn MemoryRegion>,
    base: *mut u8,
    len: usize,
    // Declared after the region, so that the region is dropped first.
    _storage: Option<Box<[u128]>>,
}

pub(crate) const RIGHTS: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);

impl Memory {
    pub(crate) fn new(side: &Side, kind: Kind, len: usize, access: MrAccess, key: u64) -> Self {
        match kind {
            Kind::Plain => {
                let mut storage = vec![0_u128; len.div_ceil(16)].into_boxed_slice();
                let base = storage.as_mut_ptr().cast::<u8>();
                let mut attr = mr::Attr::default();
                attr.access = access;
                attr.requested_key = key;
                let iov = [IovMut::from_raw(base.cast(), len)];
                // SAFETY: the memory lives as long as the region, and is accessed by pointers
                // alone.
                let region = unsafe { side.domain.reg(&iov, &attr) }.unwrap();
                let _storage = Some(storage);
                Self {
                    region,
                    base,
                    len,
                    _storage,
                }
            }
            Kind::Special => {
                let attr = alloc::Attr::new(access).with_key(key);
                let allocation = side.domain.alloc(len, &attr).unwrap();
                let (base, len) = (allocation.base(), allocation.len());
                Self {
                    region: allocation,
                    base,
                    len,
                    _storage: None,
                }
            }
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.region.key()
    }

    pub(crate) fn fill(&self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: the range is inside the memory, and no peer accesses it meanwhile.
        unsafe {
            self.base
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: the range is inside the memory, and no peer accesses it meanwhile.
        unsafe {
            bytes
                .as_mut_ptr()
                .copy_from_nonoverlapping(self.base, self.len)
        };
        bytes
    }

    pub(crate) fn word(&self, index: usize) -> u64 {
        u64::from_ne_bytes(self.bytes().as_chunks().0[index])
    }
}

/// One atomic with all its arguments: lists of operands and of targets (address, elements).
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) family: Family,
    pub(crate) datatype: Datatype,
    pub(crate) op: Op,
    pub(crate) operand: &'a [&'a [u8]],
    pub(crate) compare: &'a [&'a [u8]],
    /// The lengths of the result buffers, in elements.
    pub(crate) result: &'a [usize],
    pub(crate) targets: &'a [(u64, usize)],
    pub(crate) key: u64,
    pub(crate) dest: FiAddr,
    pub(crate) flags: OpFlags,
    pub(crate) data: u64,
}

impl Call<'_> {
    /// Posts the atomic under a context, with leaked result buffers. Returns the buffers.
    pub(crate) fn post(&self, side: &Side, context: u64) -> Result<Vec<&'static [u8]>> {
        let size = self.datatype.size();
        let ioc = |bytes: &&[u8]| Ioc::from_raw(bytes.as_ptr().cast(), bytes.len() / size);
        let operand: Vec<_> = self.operand.iter().map(ioc).collect();
        let compare: Vec<_> = self.compare.iter().map(ioc).collect();
        let buffers: Vec<&'static mut [u8]> = self
            .result
            .iter()
            .map(|count| vec![0xee; count * size].leak())
            .collect();
        let result: Vec<_> = buffers
            .iter()
            .map(|buffer| IocMut::from_raw(buffer.as_ptr().cast_mut().cast(), buffer.len() / size))
            .collect();
        let rma_iov: Vec<_> = self
            .targets
            .iter()
            .map(|&(addr, count)| RmaIoc {
                addr,
                count,
                key: self.key,
            })
            .collect();
        let msg = AtomicMsg {
            iov: &operand,
            desc: &[],
            dest: self.dest,
            rma_iov: &rma_iov,
            datatype: self.datatype,
            op: self.op,
            context: Context(context),
            data: self.data,
        };
        // Operands are injected, or outlive the wait for the completion. Result buffers are leaked,
        // and read after the completion.
        match self.family {
            // SAFETY: as said above.
            Family::Base => unsafe { side.ep.atomicmsg(&msg, self.flags) },
            // SAFETY: as above.
            Family::Fetch => unsafe { side.ep.fetch_atomicmsg(&msg, &result, &[], self.flags) },
            // SAFETY: as above.
            Family::Compare => unsafe {
                side.ep
                    .compare_atomicmsg(&msg, &compare, &[], &result, &[], self.flags)
            },
        }?;
        Ok(buffers.into_iter().map(|buffer| &*buffer).collect())
    }
}

/// An initiator and a target with each other's addresses.
pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    pub(crate) to_b: FiAddr,
    pub(crate) to_a: FiAddr,
}

impl Pair {
    pub(crate) fn new() -> Self {
        Self::connect(Side::new(), Side::new())
    }

    pub(crate) fn connect(a: Side, b: Side) -> Self {
        let (to_b, to_a) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
        Self { a, b, to_b, to_a }
    }

    /// Describes a sum on the 64-bit words of `memory` that `targets` selects. `operand` has the
    /// same number of words.
    pub(crate) fn sum<'a>(
        &self,
        family: Family,
        memory: &Memory,
        operand: &'a [&'a [u8]],
        result: &'a [usize],
        targets: &'a [(u64, usize)],
    ) -> Call<'a> {
        Call {
            family,
            datatype: Datatype::Uint64,
            op: Op::Sum,
            operand,
            compare: &[],
            result,
            targets,
            key: memory.key(),
            dest: self.to_b,
            flags: OpFlags::DEFAULT,
            data: 0,
        }
    }

    pub(crate) fn wait_at_a(&self) -> Completed {
        self.a.wait(&self.b)
    }

    pub(crate) fn wait_at_b(&self) -> Completed {
        self.b.wait(&self.a)
    }

    /// Progresses both sides often enough that every outstanding command is executed.
    pub(crate) fn settle(&self) {
        for _ in 0..2000 {
            self.a.progress();
            self.b.progress();
        }
    }

    pub(crate) fn target(&self, memory: &Memory, addr: u64) -> Target {
        Target {
            dest: self.to_b,
            addr,
            key: memory.key(),
            datatype: Datatype::Uint64,
            op: Op::Sum,
        }
    }
}
