//! Memory that peers read and write, with canaries around it.

#![expect(unsafe_code, reason = "memory that peers change")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use selvedge::{Allocation, Counter, Domain, IovMut, MemoryRegion, MrAccess, MrMode, alloc, mr};

use crate::data::check;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The test's own, registered.
    Test,
    /// The domain's: special where it has such.
    Domain,
}

/// Registered memory. Peers may change it at any time, so it is copied in and out and never lent.
///
/// It stays until the test is over, whoever drops this, unless it is closed before.
#[derive(Clone, Debug)]
pub struct Memory(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    // Before the bytes, so that no peer has rights over them when they go.
    region: Region,
    words: Vec<u64>,
    len: usize,
    addr: u64,
}

#[derive(Debug)]
enum Region {
    Registered(Arc<dyn MemoryRegion>),
    Made(Arc<dyn Allocation>),
}

impl Memory {
    /// `len` bytes, filled with a pattern that says where each is.
    ///
    /// # Errors
    /// The domain's.
    pub fn new(
        domain: &dyn Domain,
        maker: Maker,
        len: usize,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Self> {
        let memory = Self(Rc::new(match maker {
            Maker::Test => Inner::register(domain, len, access, key)?,
            Maker::Domain => Inner::make(domain, len, access, key)?,
        }));
        memory.put(0, &background(0, len));
        Ok(memory)
    }

    /// What peers name it by: the address of its first byte, and its key.
    pub fn name(&self) -> (u64, u64) {
        let key = match &self.0.region {
            Region::Registered(region) => region.key(),
            Region::Made(made) => made.key(),
        };
        (self.0.addr, key)
    }

    /// Has a counter count what peers do with it.
    ///
    /// # Errors
    /// The domain's.
    pub fn bind_counter(&self, cntr: &Arc<dyn Counter>, what: MrAccess) -> anyhow::Result<()> {
        let bound = match &self.0.region {
            Region::Registered(region) => region.bind_counter(cntr, what),
            Region::Made(made) => made.bind_counter(cntr, what),
        };
        Ok(bound?)
    }

    /// Copies bytes in.
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.0.len, "beyond the memory");
        let to = self.0.first().wrapping_add(at);
        // SAFETY: within memory that is this value's.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies bytes out.
    pub fn get(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.0.len, "beyond the memory");
        let mut bytes = vec![0; len];
        let from = self.0.first().wrapping_add(at);
        // SAFETY: as above. Peers may change it meanwhile; the copy is then of some of each.
        unsafe { std::ptr::copy(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    /// The word at an offset, a multiple of 8, in one load.
    pub fn word(&self, at: usize) -> u64 {
        let is_inside = at.is_multiple_of(8) && at + 8 <= self.0.len;
        assert!(is_inside, "a word at {at} of {} bytes", self.0.len);
        // SAFETY: the word lies within memory that is this value's, which begins at a multiple of 8,
        // and is reached by atomics and copies alone.
        let word = unsafe { AtomicU64::from_ptr(self.0.first().wrapping_add(at).cast()) };
        word.load(Ordering::SeqCst)
    }

    /// Makes sure that it is as `expected`, and that nothing around it was touched.
    ///
    /// # Errors
    /// The first byte that is not.
    pub fn verify(&self, what: &str, expected: &[u8]) -> anyhow::Result<()> {
        check::bytes(what, &self.get(0, self.0.len), expected)?;
        self.assert_canaries()
    }

    /// Makes sure that nothing around it was touched.
    ///
    /// # Errors
    /// That it was.
    pub fn assert_canaries(&self) -> anyhow::Result<()> {
        if self.0.words.is_empty() {
            return Ok(());
        }
        let tail = self.0.len.div_ceil(8) + CANARIES;
        let whole = [&self.0.words[..CANARIES], &self.0.words[tail..]].concat();
        let is_whole = whole.iter().all(|&word| word == CANARY);
        ensure!(is_whole, "bytes around registered memory were written");
        check::count(whole.len() * 8);
        Ok(())
    }
}

impl Inner {
    fn register(
        domain: &dyn Domain,
        len: usize,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Self> {
        let mut words = vec![CANARY; len.div_ceil(8) + 2 * CANARIES];
        let first = words.as_mut_ptr().wrapping_add(CANARIES).cast::<u8>();
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (access, key);
        let iov = [IovMut::from_raw(first.cast(), len)];
        // SAFETY: `words` outlives `region` and is never moved out of its heap memory; it is reached
        // by raw pointers alone.
        let region = unsafe { domain.reg(&iov, &attr) }?;
        let is_by_address = domain.mr_mode().contains(MrMode::VIRT_ADDR);
        Ok(Self {
            region: Region::Registered(region),
            addr: if is_by_address {
                first.addr() as u64
            } else {
                0
            },
            words,
            len,
        })
    }

    fn make(domain: &dyn Domain, len: usize, access: MrAccess, key: u64) -> anyhow::Result<Self> {
        let made = domain.alloc(len, &alloc::Attr::new(access).with_key(key))?;
        Ok(Self {
            addr: made.remote_addr(),
            region: Region::Made(made),
            words: Vec::new(),
            len,
        })
    }

    fn first(&self) -> *mut u8 {
        match &self.region {
            Region::Registered(_) => {
                let words = self.words.as_ptr().cast_mut();
                words.wrapping_add(CANARIES).cast()
            }
            Region::Made(made) => made.base(),
        }
    }
}

/// What fresh memory holds from `at` on.
pub fn background(at: usize, len: usize) -> Vec<u8> {
    (at..at + len)
        .map(|at| (at * 167 + at / 256 * 31) as u8)
        .collect()
}

/// Words before and behind memory of the test's.
const CANARIES: usize = 64;
const CANARY: u64 = 0xca4a_ca4a_ca4a_ca4a;
