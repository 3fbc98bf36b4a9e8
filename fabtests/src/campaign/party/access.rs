//! One-sided operations of a party: memory that it lets others at, and accesses to that of others.
//!
//! Every party that offers memory offers the same: [`Place::Plain`] and [`Place::Special`], under
//! fixed keys, so that nobody has to be told.

#![expect(unsafe_code, reason = "campaigns attack the raw layer")]

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::atomic::{Datatype, Ioc, IocMut, Op, Target};
use selvedge::{
    Allocation, AtomicExt, Context, Desc, Domain, Errno, Error, FiAddr, Iov, IovMut, MemoryRegion,
    MrAccess, RmaExt, alloc, mr,
};

use super::{Lent, Party, Stamp, blank};

/// What is done to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Bytes are written.
    Write,
    /// Bytes are read.
    Read,
    /// One is added to its first word, whose earlier value comes back.
    Add,
}

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Ordinary memory of the process.
    Plain,
    /// Memory that its peers map.
    Special,
}

impl Place {
    /// The key of this memory, whosever it is.
    pub(crate) const fn key(self) -> u64 {
        match self {
            Self::Plain => 1,
            Self::Special => 2,
        }
    }
}

/// Memory that others may read and write.
#[derive(Debug)]
pub(crate) struct Memory {
    // The region ends before what it lies in.
    _region: Arc<dyn MemoryRegion>,
    plain: Box<[AtomicU64]>,
    special: Arc<dyn Allocation>,
}

/// Words of each memory.
const WORDS: usize = 8192;

impl Memory {
    fn offer(domain: &dyn Domain) -> Result<Self, Error> {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let plain: Box<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (access, Place::Plain.key());
        let iov = IovMut::from_raw(plain.as_ptr().cast_mut().cast(), WORDS * 8);
        // SAFETY: the words are freed after the region, and reached as atomics alone.
        let region = unsafe { domain.reg(&[iov], &attr) }?;
        let attr = alloc::Attr::new(access).with_key(Place::Special.key());
        Ok(Self {
            _region: region,
            plain,
            special: domain.alloc(WORDS * 8, &attr)?,
        })
    }

    fn words(&self, place: Place) -> &[AtomicU64] {
        match place {
            Place::Plain => &self.plain,
            Place::Special => {
                let first = self.special.base().cast::<AtomicU64>();
                // SAFETY: so many bytes were asked for; they live as long as `self`, begin at a
                // page, and this process reaches them as atomics alone.
                unsafe { slice::from_raw_parts(first, WORDS) }
            }
        }
    }

    /// Puts bytes at the beginning of a memory, and nothing that anybody writes behind them.
    pub(crate) fn set(&self, place: Place, bytes: &[u8]) {
        let mut bytes = bytes.chunks(8);
        for word in self.words(place) {
            let mut value = *blank(8).first_chunk().expect("as long as a word");
            if let Some(bytes) = bytes.next() {
                value[..bytes.len()].copy_from_slice(bytes);
            }
            word.store(u64::from_ne_bytes(value), Ordering::SeqCst);
        }
    }

    /// The stamp that a memory begins with.
    pub(crate) fn stamp(&self, place: Place) -> Stamp {
        Stamp::from_word(u64::from_le(self.words(place)[0].load(Ordering::SeqCst)))
    }

    /// All bytes of a memory.
    pub(crate) fn bytes(&self, place: Place) -> Vec<u8> {
        let words = self.words(place).iter();
        words
            .flat_map(|word| word.load(Ordering::SeqCst).to_ne_bytes())
            .collect()
    }
}

impl Party {
    /// Lets everybody at memory of this party.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn offer_memory(&mut self) -> Result<(), Error> {
        self.memory = Some(Memory::offer(&*self.domain)?);
        Ok(())
    }

    /// The memory that others are let at.
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("it was offered")
    }

    /// Posts an access to the beginning of a peer's memory: the bytes are what is written, or room
    /// for what is read, or nothing that counts. Its context.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn access(
        &mut self,
        access: Access,
        key: u64,
        peer: FiAddr,
        mut bytes: Box<[u8]>,
    ) -> Result<u64, Errno> {
        let number = self.next;
        let context = Context(number);
        let lent = match access {
            Access::Write => {
                let iov = Iov::new(&bytes);
                // SAFETY: the bytes are kept in `lent` and left alone there until their completion
                // or the end of the endpoint.
                unsafe { self.ep.write(iov, Desc::NONE, peer, 0, key, context) }?;
                Lent::Sent(bytes)
            }
            Access::Read => {
                let room = IovMut::new(&mut bytes);
                // SAFETY: as above.
                unsafe { self.ep.read(room, Desc::NONE, peer, 0, key, context) }?;
                Lent::Asked(bytes)
            }
            Access::Add => {
                let mut earlier = blank(8);
                let target = Target {
                    dest: peer,
                    addr: 0,
                    key,
                    datatype: Datatype::Uint64,
                    op: Op::Sum,
                };
                let operand = Ioc::from_raw((&raw const ONE).cast(), 1);
                let result = IocMut::from_raw(earlier.as_mut_ptr().cast(), 1);
                // SAFETY: as above for the result; the operand is there for ever.
                unsafe {
                    self.ep.fetch_atomic(
                        (operand, Desc::NONE),
                        (result, Desc::NONE),
                        &target,
                        context,
                    )
                }?;
                Lent::Asked(earlier)
            }
        };
        self.next += 1;
        self.lent.insert(number, lent);
        Ok(number)
    }
}

/// What is added.
static ONE: u64 = 1;
