//! Commands that change while they are read: committed, not committed, or of another kind.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use selvedge::Errno;
use selvedge::rma::RmaIov;
use selvedge_shm::smr::PeerRegion;
use selvedge_shm::smr::doorbell::Doorbell;
use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind as Memory, RIGHT_READ};
use selvedge_shm::smr::layout::VERSION;

use super::{HostileConnection, KEYS, SIZES, Scenario, hello, packet};
use crate::atomics::KEY;
use crate::connect::unique;
use crate::endpoint::NumberedEndpoint;
use crate::process::alone;

/// Bytes of a region, and the offset of its first command, in words.
const TOTAL: usize = (COMMANDS + 8 * (SIZES.cmd_count + 32)) * 8 + 4096 + SIZES.inject_size;
const COMMANDS: usize = (512 + 16 * SIZES.resp_count) / 8;

/// A region of which every word may be written at any time.
#[derive(Clone)]
struct RawRegion {
    map: Arc<MmapRaw>,
    fd: Arc<OwnedFd>,
}

impl RawRegion {
    fn create() -> Self {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd = memfd_create(c"flips", flags).unwrap();
        let len = TOTAL / 4096 * 4096;
        fallocate(&fd, FallocateFlags::empty(), 0, len as i64).unwrap();
        let file = File::from(fd);
        let map = MmapOptions::new().len(len).map_raw(&file).unwrap();
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        let region = Self {
            map: Arc::new(map),
            fd: Arc::new(file.into()),
        };
        region.store(0, u64::from_le_bytes(*b"selvedge"));
        region.store(1, VERSION.into());
        region
    }

    #[expect(unsafe_code, reason = "shared memory, reached by a pointer")]
    fn store(&self, word: usize, value: u64) {
        assert!(word < self.map.len() / 8);
        let word = self.map.as_mut_ptr().cast::<u64>().wrapping_add(word);
        // SAFETY: an aligned word of the mapping, which is only touched through atomics.
        let word = unsafe { AtomicU64::from_ptr(word) };
        word.store(value, Ordering::Release);
    }
}

/// A hostile peer whose first command changes continuously.
struct Flipper {
    hostile: HostileConnection,
    target_region: PeerRegion,
    outbox: RawRegion,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flipper {
    fn connect(target: &mut NumberedEndpoint, name: &str, nonce: &u64, chunk: &Chunk) -> Self {
        let (hostile, outbox) = (HostileConnection::connect(target), RawRegion::create());
        let (_, bell) = Doorbell::create().unwrap();
        let mut hello = hello(name, 5, nonce);
        hello[68..72].copy_from_slice(&1_u32.to_le_bytes());
        hostile.send(&hello, &[outbox.fd.as_fd(), bell.fd()]);
        let mut keys = packet(KEYS);
        keys.resize(256, 0);
        hostile.send(&keys, &[chunk.memory().fd()]);
        let mut response = Vec::new();
        target.until(|_| {
            let (bytes, fds) = hostile.receive().expect("the target refuses the hello");
            response = fds;
            !bytes.is_empty()
        });
        let target_region = PeerRegion::attach(response.swap_remove(0), SIZES).unwrap();
        Self {
            hostile,
            target_region,
            outbox,
            is_over: Arc::default(),
            thread: None,
        }
    }

    /// Starts a thread that stores each of `heads` into the command in turn, as fast as it can.
    fn flip(&mut self, words: [u64; 7], heads: Vec<u64>) {
        for (index, word) in (1..).zip(words) {
            self.outbox.store(COMMANDS + index, word);
        }
        let (outbox, is_over) = (self.outbox.clone(), Arc::clone(&self.is_over));
        self.thread = Some(std::thread::spawn(move || {
            for &head in heads.iter().cycle() {
                outbox.store(COMMANDS, head);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        }));
    }
}

impl Drop for Flipper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// The head of a committed first command.
const fn committed(head: u64) -> u64 {
    1 << 32 | head
}

/// Commands of all kinds: messages, a write, a read, atomics, results, a notification.
const HEADS: [u64; 14] = [
    0,
    1 | 8 << 24,
    1 | 1 << 8,
    1 | 2 << 8,
    2 | 8 << 24,
    2 | 1 << 8,
    3,
    4 | 8 << 24,
    5,
    6 | 1 << 8,
    7 | 8 << 24,
    8,
    9 | 8 << 24,
    9 | 1 << 8,
];

/// Incarnations with each kind of command.
const INCARNATIONS: u32 = 40;

fn chunk() -> Chunk {
    let mut chunk = Chunk::create(0).unwrap();
    let entry = KeyEntry {
        key: KEY,
        start: 0,
        len: 4096,
        rights: RIGHT_READ,
        kind: Memory::Plain,
        memory: 1 << 20,
        block: 0,
    };
    chunk.publish(KEY as usize, &entry);
    chunk
}

#[test]
fn commands_that_change_while_they_are_read_cut_off_their_writer_alone() {
    alone(|| {
        let mut scenario = Scenario::with_params(&[("FI_SHM_PROTOCOL", "bounce")]);
        let (name, nonce, chunk) = (unique("flipper"), Box::new(9_u64), chunk());
        let segment = RmaIov {
            addr: 0,
            len: 8,
            key: KEY,
        };
        for (kind, head) in HEADS.into_iter().enumerate() {
            for incarnation in 0..INCARNATIONS {
                let mut flipper = Flipper::connect(&mut scenario.target, &name, &nonce, &chunk);
                let peer_addr = scenario.target.insert(&name);
                // A result carries the number of the read.
                scenario
                    .target
                    .read_from(peer_addr, &[segment], 8, 1)
                    .unwrap();
                let rx = flipper.target_region.cmd_receiver();
                let mut request_id = 0;
                scenario.target.until(|_| {
                    request_id = rx.peek().map_or(0, |slot| slot.word(4));
                    rx.peek().is_some()
                });
                let other = HEADS[(kind + incarnation as usize) % HEADS.len()];
                let heads = match incarnation % 2 {
                    0 => vec![committed(head), 0],
                    _ => vec![committed(head), committed(other)],
                };
                let words = match head & 0xff {
                    // Signed words of eight bytes are added to one.
                    4..=6 => [7 | 2 << 8 | 1 << 16 | 1 << 32, 8 << 32, KEY, 0, 1, 0, 0],
                    _ => [request_id, 8, 8, 0, 0, 0, 0],
                };
                flipper.flip(words, heads);
                (0..200).for_each(|_| scenario.target.drive());
                let is_cut_off = flipper.hostile.receive().is_none();
                drop(flipper);
                if is_cut_off {
                    // The read has completed.
                    scenario.target.drive();
                }
                let event = scenario.target.next();
                assert_eq!(event.context, 1);
                assert!(matches!(
                    event.error.map(|error| error.errno),
                    None | Some(Errno::ConnReset)
                ));
                scenario.target.clear();
            }
            scenario.expect_traffic();
        }
    });
}
