//! The attacking process. Each run is a peer of the target that attacks it until the target
//! disconnects or the run has done its number of steps.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::SealFlag;
use selvedge_shm::smr::layout::VERSION;
use selvedge_testkit::process;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    Hello, PACKET_SIZE, PeerSocket, RawMemory, Received, Sizes, doorbell_seals, outbox_seals,
};

use super::attack::{Attack, AttackRun, AttackStats, Config, PeerAttack};
use super::dictionary::number;
use super::raw_peer::RawPeer;
use super::{blocks, files};
use crate::campaign::role::Role;

/// Maximum number of steps of one run.
const STEPS: u64 = 20_000;
/// Steps between two checks whether the target has disconnected.
const CHECK_INTERVAL: u64 = 64;
/// Hello messages, or connections, of one run.
const HELLOS: u64 = 200;
const CONNECTIONS: u64 = 300;

impl Role for Config {
    const NAME: &'static str = "adversary";

    /// Runs attacks as often as the parent requests.
    fn execute(&self) -> anyhow::Result<()> {
        loop {
            let run: AttackRun = process::next_request()?;
            let pause = || {
                std::thread::yield_now();
                Ok(())
            };
            process::reply(&run_attack(self, run, pause)?)?;
        }
    }
}

/// Runs one attack and calls `progress` repeatedly.
///
/// # Errors
/// The target cannot be reached.
pub(crate) fn run_attack(
    config: &Config,
    run: AttackRun,
    progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let mut random = Random::new(run.seed);
    match (run.attack.peer_attack(), run.attack) {
        (Some(peer_attack), attack) => {
            attack_as_peer(config, attack, peer_attack, &mut random, progress)
        }
        (None, Attack::Hellos) => send_hellos(config, &mut random, progress),
        (None, Attack::Blocks) => blocks::exhaust_mappings(config, &mut random, progress),
        (None, Attack::Announcements) => {
            blocks::announce_and_release(config, &mut random, progress)
        }
        (None, Attack::Files) => files::resize_files(config, progress),
        (None, _) => open_connections(config, &mut random, progress),
    }
}

fn attack_as_peer(
    config: &Config,
    attack: Attack,
    peer_attack: PeerAttack,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let nonce = Box::new(random.word());
    let connected = RawPeer::connect(&config.target, &config.name, &nonce, random, &mut progress);
    let Ok(mut peer) = connected else {
        // The target has not detected the end of the last run yet.
        progress()?;
        return Ok(AttackStats::default());
    };
    let mut flipper = (attack == Attack::Flips).then(|| Flipper::new(&peer, random.word()));
    let mut stats = AttackStats::default();
    for step in 0..random.below(STEPS) {
        peer.step(peer_attack, random);
        stats.inputs += 1;
        if step % CHECK_INTERVAL == 0 {
            progress()?;
            if let Some(flipper) = &mut flipper {
                flipper.add_new_memories(&peer);
            }
            if peer.is_cut_off() {
                stats.is_cut_off = true;
                break;
            }
        }
    }
    stats.flips = flipper.map_or(0, |flipper| flipper.stop());
    Ok(stats)
}

/// Threads that flip bits as fast as they can.
#[derive(Debug)]
struct Flipper {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Number of memories that have a thread.
    memories: usize,
    /// Whether only payloads are flipped, so that the connection lasts.
    is_payload_only: bool,
    random: Random,
}

impl Flipper {
    fn new(peer: &RawPeer, seed: u64) -> Self {
        let mut flipper = Self {
            is_over: Arc::default(),
            count: Arc::default(),
            threads: Vec::new(),
            memories: 0,
            is_payload_only: seed & 1 == 0,
            random: Random::new(seed),
        };
        flipper.add_new_memories(peer);
        flipper
    }

    /// Starts a thread for each new memory.
    fn add_new_memories(&mut self, peer: &RawPeer) {
        let memories = peer.memories();
        while self.memories < memories.len() {
            // The peer lists its newest memory first.
            let memory = Arc::clone(&memories[memories.len() - 1 - self.memories]);
            self.memories += 1;
            let (is_over, count) = (Arc::clone(&self.is_over), Arc::clone(&self.count));
            let mut random = Random::new(self.random.word());
            let first = if self.is_payload_only {
                memory.words() / 2
            } else {
                0
            };
            let words = (memory.words() - first) as u64;
            self.threads.push(std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let word = first + random.below(words) as usize;
                    memory.flip(word, 1 << random.below(64));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }

    /// Stops the threads and returns the number of flipped bits.
    fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // The thread cannot fail.
            let _ = thread.join();
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// Sends hello messages with wrong bytes, a wrong length, or any descriptors.
fn send_hellos(
    config: &Config,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let fds = descriptors()?;
    let mut stats = AttackStats::default();
    let mut sockets = Vec::new();
    let nonce = Box::new(random.word());
    for _ in 0..HELLOS {
        let Ok(socket) = PeerSocket::connect(&config.target) else {
            progress()?;
            continue;
        };
        let hello = Hello {
            name: &config.name,
            incarnation: random.word().into(),
            nonce: &nonce,
            sizes: Sizes::DEFAULT,
            chunks: 0,
        };
        let mut bytes = hello.packet(VERSION);
        for _ in 0..random.below(4) {
            let offset = 4 * random.below(26) as usize;
            let value = number(random) as u32;
            bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        match random.below(8) {
            0 => bytes.truncate(random.below(PACKET_SIZE as u64) as usize),
            1 => bytes.resize(5000, 0xff),
            2 => bytes
                .iter_mut()
                .for_each(|byte| *byte = random.word() as u8),
            _ => {}
        }
        let limit = if random.once_in(20) { 60 } else { 4 };
        let count = random.below(limit);
        let chosen: Vec<_> = (0..count).map(|_| random.pick(&fds).as_fd()).collect();
        socket.send(&bytes, &chosen);
        if random.once_in(4) {
            socket.send(&bytes, &chosen);
        }
        stats.inputs += 1;
        sockets.push(socket);
        if random.once_in(8) {
            sockets.clear();
        }
        progress()?;
    }
    stats.is_cut_off = sockets
        .iter()
        .all(|socket| matches!(socket.receive(), Received::End));
    Ok(stats)
}

/// Descriptors of valid, nearly valid and invalid memory.
fn descriptors() -> anyhow::Result<Vec<OwnedFd>> {
    let memory = |len: usize, seals| -> anyhow::Result<OwnedFd> {
        Ok(RawMemory::create(len, seals)?.fd().try_clone_to_owned()?)
    };
    let total = Sizes::DEFAULT.total();
    let (pipe, _writer) = nix::unistd::pipe()?;
    Ok(vec![
        memory(total, outbox_seals())?,
        memory(total, doorbell_seals())?,
        memory(total, SealFlag::F_SEAL_GROW)?,
        memory(total, SealFlag::empty())?,
        memory(total + 4096, outbox_seals())?,
        memory(4096, doorbell_seals())?,
        memory(4096, SealFlag::empty())?,
        pipe,
        File::open("/")?.into(),
        File::open("/dev/zero")?.into(),
        File::open("/proc/self/exe")?.into(),
    ])
}

/// Opens many connections at once, which send nothing or a partial message.
fn open_connections(
    config: &Config,
    random: &mut Random,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let mut stats = AttackStats::default();
    let mut sockets = Vec::new();
    for _ in 0..CONNECTIONS {
        if let Ok(socket) = PeerSocket::connect(&config.target) {
            if random.once_in(4) {
                let bytes = vec![0x73; random.below(300) as usize];
                socket.send(&bytes, &[]);
            }
            stats.inputs += 1;
            sockets.push(socket);
        }
        progress()?;
    }
    std::thread::sleep(Duration::from_millis(random.below(20)));
    progress()?;
    stats.is_cut_off = sockets
        .iter()
        .any(|socket| matches!(socket.receive(), Received::End));
    Ok(stats)
}
