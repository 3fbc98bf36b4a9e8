//! A shared region that its owner reads and writes while another thread carries out peers' writes,
//! reads and atomics on it. These tests check the outcomes; Miri and the thread sanitizer, under
//! which the same tests run (`cargo xtask miri`, `cargo xtask tsan`), check that no two accesses
//! race or differ in size.

#![expect(
    clippy::unwrap_used,
    unsafe_code,
    reason = "tests fail by panicking, and a provider implements the raw layer"
)]

use std::sync::{Arc, Barrier};
use std::thread;

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::owned::SharedRegion;
use selvedge::rma::RmaIov;
use selvedge::{
    AddressVector, Bindings, CompletionQueue, Domain, Endpoint, Errno, Error, Info, IovMut,
    MemoryRegion, MrAccess, MrMode, av, cq, mr,
};
use selvedge_kit::atomic::{Args, query};
use selvedge_kit::mr::Keys;

const KEY: u64 = 7;
/// The length of the region, which ends inside a word.
const LEN: usize = 61;
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// A domain that supports registration only.
#[derive(Debug)]
struct Memory(Arc<Keys>);

fn unsupported<T: ?Sized>(kind: &str) -> Result<Arc<T>, Error> {
    let message = format!("a domain of memory has no {kind}");
    Err(Error::new(Errno::NoSys, message))
}

// SAFETY: there are no queues and no operations; a dropped region's key is no longer found.
unsafe impl Domain for Memory {
    fn cq(&self, _: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        unsupported("queues")
    }

    fn av(&self, _: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        unsupported("addresses")
    }

    fn endpoint(&self, _: &Info, _: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        unsupported("endpoints")
    }

    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.0.register(region, attr)
    }
}

/// Accesses by peers, as the target carries them out.
struct Peer(Arc<Keys>);

impl Peer {
    fn segment(offset: usize, len: usize) -> RmaIov {
        RmaIov {
            addr: offset as u64,
            len,
            key: KEY,
        }
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        let regions = self.0.regions();
        let segment = regions.locate(&Self::segment(offset, bytes.len()), MrAccess::REMOTE_WRITE);
        segment.unwrap().write(bytes);
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) {
        let regions = self.0.regions();
        let segment = regions.locate(&Self::segment(offset, bytes.len()), MrAccess::REMOTE_READ);
        segment.unwrap().read_into(bytes);
    }

    /// Adds one to the element at `offset`.
    fn add_one(&self, offset: usize, datatype: Datatype) {
        let kernel = query(Family::Base, datatype, Op::Sum).unwrap();
        let regions = self.0.regions();
        let segment = Self::segment(offset, kernel.size());
        let segment = regions.locate(&segment, MrAccess::REMOTE_WRITE).unwrap();
        let args = Args {
            operand: &1_u64.to_le_bytes()[..kernel.size()],
            compare: &[],
            result: &mut [],
        };
        kernel.apply(segment, args).unwrap();
    }
}

/// Runs `owner` with a region, and `peer` at the same time in another thread.
fn side_by_side(owner: impl FnOnce(&SharedRegion), peer: impl FnOnce(&Peer) + Send) {
    let keys = Arc::new(Keys::new(MrMode::empty()));
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let region = SharedRegion::new(&Memory(Arc::clone(&keys)), LEN, access, KEY).unwrap();
    let (start, remote) = (Barrier::new(2), Peer(keys));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            peer(&remote);
        });
        start.wait();
        owner(&region);
    });
}

#[test]
fn the_owner_copies_out_while_a_peer_writes() {
    side_by_side(
        |region| {
            let mut last = 0;
            for _ in 0..ROUNDS {
                let mut bytes = [0; LEN];
                region.copy_to(0, &mut bytes).unwrap();
                let word = region.load_u64(16).unwrap().to_ne_bytes();
                assert_eq!(word, [word[0]; 8], "a word of one write");
                assert!(word[0] >= last, "an older write than before");
                last = word[0];
            }
        },
        |peer| {
            for round in 0..ROUNDS {
                let byte = (round * 250 / ROUNDS) as u8;
                peer.write(0, &[byte; LEN]);
                // A write that begins and ends within words.
                peer.write(3, &[byte; 50]);
                peer.write(16, &[byte; 8]);
            }
        },
    );
}

#[test]
fn the_owner_copies_in_while_a_peer_reads() {
    side_by_side(
        |region| {
            for round in 0..ROUNDS {
                region.copy_from(1, &[round as u8; 58]).unwrap();
                region.store_u64(8, u64::MAX).unwrap();
            }
        },
        |peer| {
            for _ in 0..ROUNDS {
                peer.read(0, &mut [0; LEN]);
                peer.read(8, &mut [0; 8]);
                peer.read(30, &mut [0; 3]);
            }
        },
    );
}

/// Elements of 1, 2 and 4 bytes are parts of words that the owner loads and stores; the last ones
/// are not in a whole word of the region.
#[test]
fn narrow_atomics_of_peers_and_words_of_the_owner_lose_no_change() {
    const SUM: u32 = ROUNDS as u32;
    side_by_side(
        |region| {
            for round in 0..ROUNDS {
                // The bytes 20 and 21, beside the element of two bytes of the same word.
                region.copy_from(20, &[round as u8; 2]).unwrap();
                region.load_u64(16).unwrap();
                region.copy_to(56, &mut [0; 5]).unwrap();
            }
            let mut bytes = [0; LEN];
            let is_over =
                |bytes: &[u8]| bytes[60] == SUM as u8 && bytes[56..60] == SUM.to_le_bytes();
            while !is_over(&bytes) {
                region.copy_to(0, &mut bytes).unwrap();
                thread::yield_now();
            }
            // That copy has read the lower words first, maybe before the peer's last changes.
            region.copy_to(0, &mut bytes).unwrap();
            assert_eq!(bytes[16..20], SUM.to_le_bytes());
            assert_eq!(bytes[20..22], [(ROUNDS - 1) as u8; 2]);
            assert_eq!(bytes[22..24], (SUM as u16).to_le_bytes());
        },
        |peer| {
            for _ in 0..ROUNDS {
                peer.add_one(16, Datatype::Uint32);
                peer.add_one(22, Datatype::Uint16);
                peer.add_one(56, Datatype::Uint32);
                peer.add_one(60, Datatype::Uint8);
            }
        },
    );
}
