//! `Memory`: registered memory of a test, with canaries around it.

#![expect(unsafe_code, reason = "memory that peers change")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::ensure;
use selvedge::{Allocation, Counter, Domain, IovMut, MemoryRegion, MrAccess, MrMode, alloc, mr};

use crate::data::check;

/// The code that allocates memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The test allocates and registers the memory.
    Test,
    /// The domain allocates the memory: special memory, if the domain supports it.
    Domain,
}

/// Registered memory. Peers may change it at any time, so it is copied in and out and never
/// borrowed.
///
/// Clones share the memory, and the test framework keeps it until the test ends, unless it is
/// closed earlier.
#[derive(Clone, Debug)]
pub struct Memory(Rc<RegisteredBytes>);

#[derive(Debug)]
struct RegisteredBytes {
    // Declared before `words`: fields are dropped in order, so the rights of peers are revoked
    // before the memory is freed.
    region: Region,
    words: Vec<u64>,
    len: usize,
    addr: u64,
}

#[derive(Debug)]
enum Region {
    Registered(Arc<dyn MemoryRegion>),
    Allocated(Arc<dyn Allocation>),
}

impl Memory {
    /// Allocates and registers `len` bytes, filled with the pattern of [`background`].
    ///
    /// # Errors
    /// Those of the domain.
    pub fn new(
        domain: &dyn Domain,
        maker: Maker,
        len: usize,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Self> {
        let memory = Self(Rc::new(match maker {
            Maker::Test => RegisteredBytes::register(domain, len, access, key)?,
            Maker::Domain => RegisteredBytes::allocate(domain, len, access, key)?,
        }));
        memory.put(0, &background(0, len));
        Ok(memory)
    }

    /// The remote address of the first byte, and the key.
    pub fn remote(&self) -> (u64, u64) {
        let key = match &self.0.region {
            Region::Registered(region) => region.key(),
            Region::Allocated(allocation) => allocation.key(),
        };
        (self.0.addr, key)
    }

    /// Binds a counter that counts accesses of peers.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn bind_counter(&self, cntr: &Arc<dyn Counter>, events: MrAccess) -> anyhow::Result<()> {
        let bound = match &self.0.region {
            Region::Registered(region) => region.bind_counter(cntr, events),
            Region::Allocated(allocation) => allocation.bind_counter(cntr, events),
        };
        Ok(bound?)
    }

    /// Copies `bytes` into the memory, to `offset`.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.0.len,
            "the bytes exceed the memory"
        );
        let to = self.0.base().wrapping_add(offset);
        // SAFETY: the bytes are within memory of this value.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Returns a copy of the `len` bytes at `offset`.
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.0.len, "the bytes exceed the memory");
        let mut bytes = vec![0; len];
        let from = self.0.base().wrapping_add(offset);
        // SAFETY: as above. Peers may change the memory during the copy, which then mixes old and
        // new bytes.
        unsafe { std::ptr::copy(from, bytes.as_mut_ptr(), len) };
        bytes
    }

    /// Loads the word at an offset that is a multiple of 8, atomically.
    pub fn word(&self, offset: usize) -> u64 {
        let is_inside = offset.is_multiple_of(8) && offset + 8 <= self.0.len;
        assert!(is_inside, "a word at {offset} of {} bytes", self.0.len);
        // SAFETY: the word is within memory of this value, which begins at a multiple of 8, and is
        // accessed by atomics and copies alone.
        let word = unsafe { AtomicU64::from_ptr(self.0.base().wrapping_add(offset).cast()) };
        word.load(Ordering::SeqCst)
    }

    /// Checks that the memory equals `expected`, and that the canaries are unchanged.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn verify(&self, subject: &str, expected: &[u8]) -> anyhow::Result<()> {
        check::bytes(subject, &self.get(0, self.0.len), expected)?;
        self.assert_canaries()
    }

    /// Checks that the canaries are unchanged.
    ///
    /// # Errors
    /// When a byte around the memory has changed.
    pub fn assert_canaries(&self) -> anyhow::Result<()> {
        if self.0.words.is_empty() {
            return Ok(());
        }
        let tail = self.0.len.div_ceil(8) + CANARIES;
        let canaries = [&self.0.words[..CANARIES], &self.0.words[tail..]].concat();
        let is_unchanged = canaries.iter().all(|&word| word == CANARY);
        ensure!(is_unchanged, "bytes around registered memory were written");
        check::count(canaries.len() * 8);
        Ok(())
    }
}

impl RegisteredBytes {
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
        // SAFETY: `words` outlives `region`, its heap memory does not move, and it is accessed by
        // raw pointers alone.
        let region = unsafe { domain.reg(&iov, &attr) }?;
        let has_virtual_addresses = domain.mr_mode().contains(MrMode::VIRT_ADDR);
        Ok(Self {
            region: Region::Registered(region),
            addr: if has_virtual_addresses {
                first.addr() as u64
            } else {
                0
            },
            words,
            len,
        })
    }

    fn allocate(
        domain: &dyn Domain,
        len: usize,
        access: MrAccess,
        key: u64,
    ) -> anyhow::Result<Self> {
        let allocation = domain.alloc(len, &alloc::Attr::new(access).with_key(key))?;
        Ok(Self {
            addr: allocation.remote_addr(),
            region: Region::Allocated(allocation),
            words: Vec::new(),
            len,
        })
    }

    fn base(&self) -> *mut u8 {
        match &self.region {
            Region::Registered(_) => {
                let words = self.words.as_ptr().cast_mut();
                words.wrapping_add(CANARIES).cast()
            }
            Region::Allocated(allocation) => allocation.base(),
        }
    }
}

/// The initial content of memory from `offset` on.
pub fn background(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len)
        .map(|offset| (offset * 167 + offset / 256 * 31) as u8)
        .collect()
}

/// The number of canary words before and behind memory that the test allocates.
const CANARIES: usize = 64;
/// The value of a canary word.
const CANARY: u64 = 0xca4a_ca4a_ca4a_ca4a;
