//! A window that its owner reads and writes while peers' writes, reads and atomics are carried out
//! on it by another thread. The outcomes are checked here; that no two accesses race or differ in
//! size is checked by Miri and the thread sanitizer, under which the same tests run (`cargo xtask
//! miri`, `cargo xtask tsan`).

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
/// The last word of the window is a part of one.
const LEN: usize = 61;
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

/// A domain that has memory and nothing else.
#[derive(Debug)]
struct Memory(Arc<Keys>);

fn no<T: ?Sized>(kind: &str) -> Result<Arc<T>, Error> {
    let what = format!("a domain of memory has no {kind}");
    Err(Error::new(Errno::NoSys, what))
}

// SAFETY: there are no queues and no operations; a dropped region's key is no longer found.
unsafe impl Domain for Memory {
    fn cq(&self, _: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        no("queues")
    }

    fn av(&self, _: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        no("addresses")
    }

    fn endpoint(&self, _: &Info, _: Bindings) -> Result<Arc<dyn Endpoint>, Error> {
        no("endpoints")
    }

    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        self.0.register(region, attr)
    }
}

/// What peers do, as the target carries it out.
struct Peer(Arc<Keys>);

impl Peer {
    fn place(at: usize, len: usize) -> RmaIov {
        RmaIov {
            addr: at as u64,
            len,
            key: KEY,
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let regions = self.0.regions();
        let place = regions.locate(&Self::place(at, bytes.len()), MrAccess::REMOTE_WRITE);
        place.unwrap().write(bytes);
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let regions = self.0.regions();
        let place = regions.locate(&Self::place(at, bytes.len()), MrAccess::REMOTE_READ);
        place.unwrap().read_into(bytes);
    }

    /// Adds one to the element at `at`.
    fn add_one(&self, at: usize, datatype: Datatype) {
        let kernel = query(Family::Base, datatype, Op::Sum).unwrap();
        let regions = self.0.regions();
        let place = Self::place(at, kernel.size());
        let place = regions.locate(&place, MrAccess::REMOTE_WRITE).unwrap();
        let args = Args {
            operand: &1_u64.to_le_bytes()[..kernel.size()],
            compare: &[],
            result: &mut [],
        };
        kernel.apply(place, args).unwrap();
    }
}

/// Runs `owner` with a window, and `peer` beside it in another thread.
fn side_by_side(owner: impl FnOnce(&SharedRegion), peer: impl FnOnce(&Peer) + Send) {
    let keys = Arc::new(Keys::new(MrMode::empty()));
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let window = SharedRegion::new(&Memory(Arc::clone(&keys)), LEN, access, KEY).unwrap();
    let (start, other) = (Barrier::new(2), Peer(keys));
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            peer(&other);
        });
        start.wait();
        owner(&window);
    });
}

#[test]
fn a_peers_write_is_copied_out_while_it_is_carried_out() {
    side_by_side(
        |window| {
            let mut last = 0;
            for _ in 0..ROUNDS {
                let mut bytes = [0; LEN];
                window.copy_to(0, &mut bytes).unwrap();
                let word = window.load_u64(16).unwrap().to_ne_bytes();
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
        |window| {
            for round in 0..ROUNDS {
                window.copy_from(1, &[round as u8; 58]).unwrap();
                window.store_u64(8, u64::MAX).unwrap();
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

/// Elements of 1, 2 and 4 bytes are parts of words that the owner loads and stores; the last ones are
/// not in a whole word of the window.
#[test]
fn narrow_atomics_of_peers_and_words_of_the_owner_lose_nothing() {
    const SUM: u32 = ROUNDS as u32;
    side_by_side(
        |window| {
            for round in 0..ROUNDS {
                // The bytes 20 to 22, beside the element of two bytes of the same word.
                window.copy_from(20, &[round as u8; 2]).unwrap();
                window.load_u64(16).unwrap();
                window.copy_to(56, &mut [0; 5]).unwrap();
            }
            let mut bytes = [0; LEN];
            let is_over =
                |bytes: &[u8]| bytes[60] == SUM as u8 && bytes[56..60] == SUM.to_le_bytes();
            while !is_over(&bytes) {
                window.copy_to(0, &mut bytes).unwrap();
                thread::yield_now();
            }
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
