//! Messages, writes and reads of two processes whose buffers lie in their shared heaps. The heap is
//! the allocator of this test binary.

#![expect(unsafe_code, reason = "tests of the raw API, and forks")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use selvedge::param::Params;
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionQueue, Context, Desc, Domain, Endpoint,
    Errno, FiAddr, Hints, Iov, IovMut, MemoryRegion, MrAccess, MsgExt, Registry, RmaExt, av, cq,
    mr,
};
use selvedge_heap::{SharedHeap, heap};
use selvedge_kit::telemetry::layout::WORDS;
use selvedge_kit::telemetry::{ProtocolCounter, Stats};

#[global_allocator]
static HEAP: SharedHeap = SharedHeap::new();

/// A test that hangs fails after this time.
const TIMEOUT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;
/// The length of every buffer.
const LEN: usize = 4 * MIB;
/// The environment variable of a child: its protocol.
const CHILD: &str = "SHM_HEAP_CHILD";

/// Excludes the other tests, which map arenas in this process as well.
fn exclusively() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint, and a buffer in the heap.
struct Side {
    // Declared before the buffer, which peers access until the endpoint is closed.
    ep: Arc<dyn Endpoint>,
    region: Option<Arc<dyn MemoryRegion>>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    domain: Arc<dyn Domain>,
    buffer: Vec<u8>,
}

impl Side {
    fn open(protocol: &str) -> Self {
        let params: Params = [("FI_SHM_PROTOCOL", protocol)].into_iter().collect();
        let registry = Registry::new()
            .with(&selvedge_shm::PROVIDER)
            .with_params(params);
        let hints = Hints::new().caps(Caps::MSG | Caps::RMA);
        let info = registry.infos(&hints).unwrap().remove(0);
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let mut side = Self {
            ep: domain.endpoint(&info, bindings).unwrap(),
            region: None,
            cq,
            av,
            domain,
            buffer: Vec::new(),
        };
        side.allocate();
        side
    }

    /// Replaces the buffer by a new one, and registers it.
    fn allocate(&mut self) {
        self.region = None;
        self.buffer = vec![0; LEN];
        assert!(heap::owns(self.buffer.as_ptr()));
        let mut attr = mr::Attr::default();
        attr.access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let iov = IovMut::new(&mut self.buffer);
        // SAFETY: the region ends before the buffer, and the program does not use the buffer while
        // a peer accesses it.
        self.region = Some(unsafe { self.domain.reg(&[iov], &attr) }.unwrap());
    }

    fn key(&self) -> u64 {
        self.region.as_ref().unwrap().key()
    }

    fn insert(&self, name: &str) -> FiAddr {
        self.av.insert_one(&Address::Str(name.into())).unwrap()
    }

    fn name(&self) -> String {
        self.ep.address().unwrap().to_string()
    }

    /// Posts an operation, and waits for its completion.
    fn complete(&self, post: impl FnMut(&Self) -> selvedge::Result) {
        self.post(post);
        self.wait();
    }

    /// Posts until the post is accepted.
    fn post(&self, mut post: impl FnMut(&Self) -> selvedge::Result) {
        let start = Instant::now();
        while let Err(errno) = post(self) {
            assert_eq!(errno, Errno::Again);
            assert!(start.elapsed() < TIMEOUT, "timed out");
            let _ = self.cq.read(&mut []);
        }
    }

    /// Waits for a completion.
    fn wait(&self) {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < TIMEOUT, "timed out");
            let mut out = [cq::Entry::default()];
            match self.cq.read(&mut out) {
                Ok(0) => std::thread::yield_now(),
                Ok(_) => return,
                Err(Errno::Avail) => panic!("{:?}", self.cq.read_err()),
                Err(errno) => panic!("{errno}"),
            }
        }
    }

    fn fill(&mut self, seed: u64) {
        for (index, word) in self.buffer.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&word_at(seed, index).to_ne_bytes());
        }
    }

    /// Checks the first `len` bytes of the buffer.
    fn check(&self, seed: u64, len: usize) {
        for (index, word) in self.buffer[..len].chunks_exact(8).enumerate() {
            assert_eq!(word, word_at(seed, index).to_ne_bytes(), "word {index}");
        }
    }

    fn send(&self, to: FiAddr, len: usize) {
        self.post_send(to, len);
        self.wait();
    }

    fn post_send(&self, to: FiAddr, len: usize) {
        self.post(|side| {
            let iov = Iov::new(&side.buffer[..len]);
            // SAFETY: the buffer stays as it is until the completion, for which the caller waits.
            unsafe { side.ep.send(iov, Desc::NONE, to, Context(1)) }
        });
    }

    fn receive(&mut self, len: usize) {
        let first = self.buffer.as_mut_ptr();
        self.complete(|side| {
            let iov = IovMut::from_raw(first.cast(), len);
            // SAFETY: the buffer is not used until the completion, for which this function waits.
            unsafe { side.ep.recv(iov, Desc::NONE, FiAddr::UNSPEC, Context(2)) }
        });
    }

    /// Reads the peer's region.
    fn read(&mut self, from: FiAddr, key: u64, len: usize) {
        let first = self.buffer.as_mut_ptr();
        self.complete(|side| {
            let iov = IovMut::from_raw(first.cast(), len);
            // SAFETY: the buffer is not used until the completion, for which this function waits.
            unsafe { side.ep.read(iov, Desc::NONE, from, 0, key, Context(4)) }
        });
    }

    /// The number of messages that a protocol carried.
    fn count(&self, counter: ProtocolCounter) -> u64 {
        let name = self.name();
        let stats = own_pages()
            .into_iter()
            .find(|stats| name.contains(&stats.name));
        stats.unwrap().protocol_counter(counter).0
    }
}

fn word_at(seed: u64, index: usize) -> u64 {
    (seed << 32) | index as u64
}

/// The telemetry pages of this process.
fn own_pages() -> Vec<Stats> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let pages = paths.filter(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().contains("memfd:")
    });
    pages.filter_map(|path| parse_page(&path)).collect()
}

fn parse_page(path: &std::path::Path) -> Option<Stats> {
    let file = std::fs::File::open(path).ok()?;
    if file.metadata().ok()?.len() > 1 << 20 {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    Stats::parse(words.first_chunk::<WORDS>()?)
}

/// The number of arenas of other processes that this process has mapped.
fn mapped_arenas() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = |line: &&str| line.contains("memfd:selvedge-heap") && line.contains(" r--s ");
    maps.lines().filter(mapped).count()
}

/// Another process with a side. Dropping it kills the process.
struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(protocol: &str, side: &Side) -> (Self, FiAddr) {
        let mut child = Command::new("/proc/self/exe")
            .args(["child_process", "--exact", "--ignored", "--nocapture"])
            .env(CHILD, protocol)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut peer = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        };
        let to = side.insert(&peer.response());
        peer.request(&format!("insert {}", side.name()));
        (peer, to)
    }

    fn post(&mut self, request: &str) {
        writeln!(self.input, "{request}").unwrap();
    }

    fn response(&mut self) -> String {
        loop {
            let line = self.output.next().expect("the child responds").unwrap();
            if let Some(response) = line.strip_prefix('@') {
                return response.to_owned();
            }
        }
    }

    fn request(&mut self, request: &str) -> String {
        self.post(request);
        self.response()
    }

    /// Receives a message of the peer.
    fn receive(&mut self, side: &mut Side, len: usize) {
        self.post(&format!("send {len}"));
        side.receive(len);
        // The sender's completion needs no progress of this side.
        assert_eq!(self.response(), "done");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "run by the other tests"]
fn child_process() {
    prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    nix::unistd::alarm::set(120);
    let mut side = Side::open(&std::env::var(CHILD).unwrap());
    let mut to = FiAddr::UNSPEC;
    println!("\n@{}", side.name());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let number = words.get(1).and_then(|word| word.parse::<u64>().ok());
        match (words[0], number) {
            ("insert", _) => to = side.insert(words[1]),
            ("fill", Some(seed)) => side.fill(seed),
            ("send", Some(len)) => side.send(to, len as usize),
            ("allocate", _) => side.allocate(),
            ("fork", _) => fork(),
            ("key", _) => {
                println!("@{}", side.key());
                continue;
            }
            ("sent", _) => {
                println!("@{}", side.count(ProtocolCounter::SentDirect));
                continue;
            }
            ("post", Some(len)) => side.post_send(to, len as usize),
            ("wait", _) => side.wait(),
            ("receive", Some(len)) => side.receive(len as usize),
            ("write", Some(key)) => side.complete(|side| {
                let iov = Iov::new(&side.buffer);
                // SAFETY: the buffer stays as it is until the completion.
                unsafe { side.ep.write(iov, Desc::NONE, to, 0, key, Context(3)) }
            }),
            _ => panic!("unknown request {line}"),
        }
        println!("@done");
    }
}

/// Forks a child that exits at once.
fn fork() {
    // SAFETY: the child makes no call but the exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
}

#[test]
fn large_messages_from_the_heap_are_copied_from_its_mapping() {
    let _exclusive = exclusively();
    for protocol in ["auto", "cma", "bounce"] {
        let mut side = Side::open(protocol);
        let (mut peer, _) = Peer::start(protocol, &side);
        peer.request("fill 1");
        for (number, len) in [5000, 65536, 65544, MIB, LEN, 8192].into_iter().enumerate() {
            side.buffer.fill(0);
            peer.receive(&mut side, len);
            side.check(1, len);
            let received = side.count(ProtocolCounter::ReceivedDirect);
            assert_eq!(received, number as u64 + 1, "{protocol} {len}");
        }
        assert_eq!(peer.request("sent"), "6");
        assert_eq!(mapped_arenas(), 1);
    }
}

#[test]
fn bytes_that_were_never_written_arrive_as_zeros() {
    let _exclusive = exclusively();
    let mut side = Side::open("auto");
    let (mut peer, _) = Peer::start("auto", &side);
    side.buffer.fill(7);
    peer.receive(&mut side, MIB);
    assert!(side.buffer[..MIB].iter().all(|&byte| byte == 0));
    // Without the advice, which the kernel knows from Linux 5.14 on, the pages are no data of the
    // file, and the bytes arrive by another protocol.
    // SAFETY: the range is empty.
    let result = unsafe { libc::madvise(std::ptr::null_mut(), 0, libc::MADV_POPULATE_WRITE) };
    let direct = u64::from(result == 0);
    assert_eq!(side.count(ProtocolCounter::ReceivedDirect), direct);
}

#[test]
fn messages_after_a_fork_have_the_sender_s_bytes_and_new_buffers_are_mapped() {
    let _exclusive = exclusively();
    let mut side = Side::open("auto");
    let (mut peer, _) = Peer::start("auto", &side);
    peer.request("fill 1");
    peer.receive(&mut side, LEN);
    assert_eq!(side.count(ProtocolCounter::ReceivedDirect), 1);
    peer.request("fork");
    peer.request("fill 2");
    for _ in 0..3 {
        side.buffer.fill(0);
        peer.receive(&mut side, LEN);
        side.check(2, LEN);
    }
    assert_eq!(side.count(ProtocolCounter::ReceivedDirect), 1);
    peer.request("allocate");
    peer.request("fill 3");
    side.buffer.fill(0);
    peer.receive(&mut side, LEN);
    side.check(3, LEN);
    assert_eq!(side.count(ProtocolCounter::ReceivedDirect), 2);
    assert_eq!(mapped_arenas(), 1, "the old arena was withdrawn");
}

#[test]
fn a_message_that_was_sent_before_a_fork_arrives_after_it() {
    let _exclusive = exclusively();
    let mut side = Side::open("auto");
    let (mut peer, _) = Peer::start("auto", &side);
    peer.request("fill 5");
    peer.receive(&mut side, MIB);
    peer.request(&format!("post {LEN}"));
    peer.request("fork");
    side.buffer.fill(0);
    peer.post("wait");
    side.receive(LEN);
    side.check(5, LEN);
    assert_eq!(peer.response(), "done");
}

#[test]
fn writes_from_the_heap_are_copied_by_the_target() {
    let _exclusive = exclusively();
    let side = Side::open("bounce");
    let (mut peer, _) = Peer::start("bounce", &side);
    peer.request("fill 4");
    peer.post(&format!("write {}", side.key()));
    std::thread::scope(|scope| {
        let response = scope.spawn(|| peer.response());
        while !response.is_finished() {
            let _ = side.cq.read(&mut []);
        }
    });
    side.check(4, LEN);
    assert_eq!(mapped_arenas(), 1);
}

#[test]
fn reads_of_the_heap_need_no_call_of_the_target_and_see_its_memory_after_a_fork() {
    let _exclusive = exclusively();
    // Without cross-memory attach, only the mapping serves a read without the target.
    let mut side = Side::open("bounce");
    let (mut peer, target) = Peer::start("bounce", &side);
    peer.request("fill 1");
    peer.receive(&mut side, MIB);
    let key = peer.request("key").parse().unwrap();
    for seed in [8, 9] {
        peer.request(&format!("fill {seed}"));
        for len in [8, 4096, MIB, LEN] {
            side.buffer.fill(0);
            side.read(target, key, len);
            side.check(seed, len);
        }
    }
    peer.request("fork");
    peer.request("fill 10");
    // The target makes progress, because it waits for a message.
    peer.post("receive 8");
    side.buffer.fill(0);
    side.read(target, key, LEN);
    side.check(10, LEN);
    side.send(target, 8);
    assert_eq!(peer.response(), "done");
}
