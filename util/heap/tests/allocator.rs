//! The heap as the allocator of a program: contents, sizes, alignment, forks.

#![expect(unsafe_code, reason = "tests of an allocator, with forks and mappings")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::resource::{UsageWho, getrusage};
use selvedge_heap::table::{Client, Location, OFFERED};
use selvedge_heap::{SharedHeap, heap};

#[global_allocator]
static HEAP: SharedHeap = SharedHeap::new();

/// A fork ends the sharing of all arenas, so tests that look at them do not overlap with it.
fn exclusively() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the arena of the whole of a buffer.
fn find(bytes: &[u8]) -> Option<Location> {
    Client::new().find(bytes.as_ptr().addr() as u64, bytes.len() as u64)
}

/// The file of an arena, mapped as a peer maps it.
struct Peer {
    location: Location,
    base: *const u8,
    _fd: OwnedFd,
}

impl Peer {
    fn map(location: Location) -> Self {
        let fd = Client::new().descriptor(location.serial).unwrap();
        let len = location.len as usize;
        // SAFETY: a new mapping at an address of the system's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self {
            location,
            base: base.cast(),
            _fd: fd,
        }
    }

    fn header(&self) -> u64 {
        // SAFETY: the first page is committed, and its first word is atomic.
        let word = unsafe { AtomicU64::from_ptr(self.base.cast::<u64>().cast_mut()) };
        word.load(Ordering::Acquire)
    }

    /// The bytes at the owner's address of `bytes`.
    fn copy_of(&self, bytes: &[u8]) -> Vec<u8> {
        let offset = bytes.as_ptr().addr() - self.location.base as usize;
        let copied = self.base.wrapping_add(offset);
        // SAFETY: the bytes are committed, and no thread writes them meanwhile.
        unsafe { std::slice::from_raw_parts(copied, bytes.len()) }.to_vec()
    }
}

/// Runs `child` in a forked process, and returns whether it returned `true`.
fn succeeds_in_child(child: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child accesses memory and exits.
    match unsafe { libc::fork() } {
        // SAFETY: ends the process without running other code of the test.
        0 => unsafe { libc::_exit(i32::from(!child())) },
        pid => has_succeeded(pid),
    }
}

fn has_succeeded(pid: i32) -> bool {
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid);
    status == 0
}

#[test]
fn large_allocations_are_in_arenas_and_small_ones_are_not() {
    let _exclusive = exclusively();
    let small = vec![1_u8; (64 << 10) - 1];
    let large = vec![2_u8; 64 << 10];
    let single = vec![3_u8; 40 << 20];
    let oversized: Vec<u8> = Vec::with_capacity((256 << 20) + 1);
    assert!(!heap::owns(small.as_ptr()) && !heap::owns(oversized.as_ptr()));
    let (first, second) = (find(&large).unwrap(), find(&single).unwrap());
    assert_ne!(first.serial, second.serial);
    for (bytes, location) in [(&large, first), (&single, second)] {
        let peer = Peer::map(location);
        assert_eq!(peer.header(), OFFERED);
        assert_eq!(&peer.copy_of(bytes), bytes);
    }
    assert_eq!(heap::usable_size(large.as_ptr()), Some(64 << 10));
}

#[test]
fn an_arena_ends_with_its_last_allocation() {
    let _exclusive = exclusively();
    let large = vec![1_u8; 100 << 20];
    let location = find(&large).unwrap();
    let peer = Peer::map(location);
    let changes = Client::new().changes();
    drop(large);
    assert!(!Client::new().is_offered(location.serial));
    assert!(Client::new().changes() > changes);
    assert_eq!(peer.header(), 0);
}

#[test]
fn the_first_accesses_to_an_allocation_cause_few_page_faults() {
    let _exclusive = exclusively();
    // SAFETY: the range is empty.
    let result = unsafe { libc::madvise(ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) };
    if result != 0 {
        // Before Linux 5.14.
        return;
    }
    let page_faults = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        usage.minor_page_faults()
    };
    let mut large: Vec<u8> = Vec::with_capacity(12 << 20);
    assert!(heap::owns(large.as_ptr()));
    let before = page_faults();
    large.resize(12 << 20, 1);
    assert!(page_faults() - before < 100);
}

#[test]
fn zeroed_memory_is_zero_when_pages_are_reused() {
    let _exclusive = exclusively();
    for len in [70_000, 1 << 20, 20 << 20, 70_000] {
        let mut bytes = vec![0_u8; len];
        assert!(heap::owns(bytes.as_ptr()));
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(0xff);
    }
}

#[test]
fn allocations_have_the_requested_alignment() {
    for shift in 0..26 {
        let layout = Layout::from_size_align(100_000, 1 << shift).unwrap();
        // SAFETY: the size is not zero.
        let ptr = unsafe { HEAP.alloc(layout) };
        assert!(
            !ptr.is_null() && ptr.addr().is_multiple_of(1 << shift),
            "{shift}"
        );
        assert_eq!(heap::owns(ptr), shift <= 24, "{shift}");
        // SAFETY: allocated above with this layout.
        unsafe { HEAP.dealloc(ptr, layout) };
    }
}

/// An allocation of the model. Some of its words are `first` plus their offset.
struct Filled {
    layout: Layout,
    first: u64,
}

/// Calls `each` with some words of the first `len` bytes of an allocation, and their values.
fn for_each_word(ptr: *mut u8, len: usize, first: u64, each: &mut dyn FnMut(*mut u64, u64)) {
    for offset in (0..len - 7).step_by(512) {
        each(ptr.wrapping_add(offset).cast(), first + offset as u64);
    }
}

fn fill(ptr: *mut u8, len: usize, first: u64) {
    // SAFETY: the words are in an allocation of this test.
    for_each_word(ptr, len, first, &mut |word, value| unsafe {
        word.write(value)
    });
}

fn check(ptr: *mut u8, len: usize, first: u64) {
    for_each_word(ptr, len, first, &mut |word, value| {
        // SAFETY: the words are in an allocation of this test.
        assert_eq!(unsafe { word.read() }, value);
    });
}

#[test]
fn random_allocations_keep_their_contents_and_do_not_overlap() {
    let _exclusive = exclusively();
    let mut random = fastrand::Rng::with_seed(7);
    let mut live: BTreeMap<usize, Filled> = BTreeMap::new();
    for step in 0..4000_u64 {
        let size = 1 << random.u32(10..25);
        let size = random.usize(size / 2..size) + 8;
        let chosen = live.keys().nth(random.usize(0..40)).copied();
        match (random.u8(0..3), chosen) {
            (0, Some(address)) => {
                let Filled { layout, first } = live.remove(&address).unwrap();
                let ptr = ptr::with_exposed_provenance_mut(address);
                check(ptr, layout.size(), first);
                // SAFETY: allocated with this layout.
                unsafe { HEAP.dealloc(ptr, layout) };
            }
            (1, Some(address)) => {
                let Filled { layout, first } = live.remove(&address).unwrap();
                let ptr = ptr::with_exposed_provenance_mut(address);
                // SAFETY: allocated with this layout; the new size is not zero.
                let ptr = unsafe { HEAP.realloc(ptr, layout, size) };
                check(ptr, layout.size().min(size), first);
                fill(ptr, size, step << 32);
                let layout = Layout::from_size_align(size, layout.align()).unwrap();
                let first = step << 32;
                live.insert(ptr.expose_provenance(), Filled { layout, first });
            }
            _ if live.len() < 40 => {
                let layout = Layout::from_size_align(size, 8 << random.u32(0..12)).unwrap();
                // SAFETY: the size is not zero.
                let ptr = unsafe { HEAP.alloc(layout) };
                assert!(!ptr.is_null());
                let first = step << 32;
                fill(ptr, size, first);
                live.insert(ptr.expose_provenance(), Filled { layout, first });
            }
            _ => {}
        }
    }
    for (address, Filled { layout, first }) in live {
        let ptr = ptr::with_exposed_provenance_mut(address);
        check(ptr, layout.size(), first);
        // SAFETY: allocated with this layout.
        unsafe { HEAP.dealloc(ptr, layout) };
    }
}

#[test]
fn vectors_that_grow_or_shrink_keep_their_contents() {
    let _exclusive = exclusively();
    let mut numbers: Vec<u64> = Vec::new();
    for number in 0..4_000_000 {
        numbers.push(number);
    }
    assert!(heap::owns(numbers.as_ptr().cast()));
    assert!(
        numbers
            .iter()
            .enumerate()
            .all(|(at, &number)| number == at as u64)
    );
    numbers.truncate(10);
    numbers.shrink_to_fit();
    assert!(!heap::owns(numbers.as_ptr().cast()));
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
}

#[test]
fn threads_allocate_and_free_each_other_s_memory() {
    let _exclusive = exclusively();
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    thread::scope(|scope| {
        for thread in 0..3_u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..200 {
                    sender.send(vec![thread; 70_000 + 4096 * round]).unwrap();
                }
            });
        }
        drop(sender);
        for bytes in receiver {
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        }
    });
}

#[test]
fn parent_child_and_peer_keep_their_own_bytes_after_a_fork() {
    let _exclusive = exclusively();
    let mut bytes = vec![b'a'; 1 << 20];
    let location = find(&bytes).unwrap();
    let peer = Peer::map(location);
    let changes = Client::new().changes();
    let is_right = succeeds_in_child(|| {
        let inherited = bytes.iter().all(|&byte| byte == b'a');
        bytes.fill(b'c');
        let new = vec![b'n'; 1 << 20];
        let is_offered = find(&new).is_some_and(|new| new.serial != location.serial);
        inherited && is_offered && find(&bytes).is_none() && peer.copy_of(&bytes)[0] == b'a'
    });
    assert!(is_right);
    assert!(bytes.iter().all(|&byte| byte == b'a'));
    bytes.fill(b'p');
    assert_eq!(peer.copy_of(&bytes), vec![b'a'; 1 << 20]);
    assert_eq!(peer.header(), 0);
    assert_eq!(find(&bytes), None);
    assert!(Client::new().changes() > changes);
    let new = vec![b'n'; 1 << 20];
    assert_ne!(find(&new).unwrap().serial, location.serial);
    bytes.extend_from_slice(&new);
    assert!(bytes[..1 << 20].iter().all(|&byte| byte == b'p'));
    assert!(
        find(&bytes).is_some(),
        "a vector that grows moves to a new arena"
    );
}

#[test]
fn threads_that_write_during_forks_lose_nothing() {
    let _exclusive = exclusively();
    for _ in 0..15 {
        let mut words = vec![0_u64; 256 << 10];
        let peer = {
            let bytes: &[u64] = &words;
            let len = size_of_val(bytes) as u64;
            let location = Client::new().find(bytes.as_ptr().addr() as u64, len);
            Peer::map(location.unwrap())
        };
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for part in words.chunks_mut(128 << 10) {
                let is_over = &is_over;
                scope.spawn(move || {
                    for round in 0.. {
                        for word in &mut *part {
                            assert_eq!(*word, round);
                            *word = round + 1;
                        }
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                });
            }
            thread::sleep(std::time::Duration::from_millis(3));
            assert!(succeeds_in_child(|| true));
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(peer.header(), 0);
        drop(words);
    }
}

#[test]
fn memory_of_before_a_fork_is_freed_and_resized_after_it() {
    let _exclusive = exclusively();
    let kept = vec![1_u8; 1 << 20];
    let mut changed = vec![2_u8; 1 << 20];
    assert!(succeeds_in_child(|| true));
    changed.truncate(100_000);
    changed.shrink_to_fit();
    assert!(changed.iter().all(|&byte| byte == 2));
    drop(changed);
    assert!(succeeds_in_child(|| kept.iter().all(|&byte| byte == 1)));
    drop(kept);
}

#[test]
fn a_child_of_a_raw_clone_is_separated_when_it_enters_the_heap() {
    let _exclusive = exclusively();
    let mut bytes = vec![b'a'; 1 << 20];
    let location = find(&bytes).unwrap();
    // SAFETY: as fork(2), without the handlers of the C library. The child accesses memory of its
    // own and exits.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
    if pid == 0 {
        let layout = Layout::from_size_align(1 << 20, 4096).unwrap();
        // SAFETY: the size is not zero.
        let new = unsafe { HEAP.alloc(layout) };
        bytes.fill(b'c');
        let is_right = !new.is_null() && find(&bytes).is_none();
        // SAFETY: ends the process without running other code of the test.
        unsafe { libc::_exit(i32::from(!is_right)) };
    }
    assert!(has_succeeded(pid));
    assert!(bytes.iter().all(|&byte| byte == b'a'));
    assert_eq!(
        find(&bytes),
        Some(location),
        "the parent still offers its memory"
    );
}

#[test]
fn a_program_started_with_posix_spawn_leaves_the_memory_shared() {
    let _exclusive = exclusively();
    let bytes = vec![1_u8; 1 << 20];
    let location = find(&bytes).unwrap();
    let status = std::process::Command::new("true").status().unwrap();
    assert!(status.success());
    assert_eq!(find(&bytes), Some(location));
}
