//! The process that attacks: one life after the other, each a peer of the victim that does its
//! worst until it is cut off or has had its turns.

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
    Hello, PACKET, PeerSocket, RawMemory, Received, Sizes, doorbell_seals, outbox_seals,
};
use serde::{Deserialize, Serialize};

use super::dictionary::number;
use super::intruder::{Intruder, Trick};
use super::{files, hoard, talk};

/// How to attack.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The address of the victim.
    pub(crate) victim: String,
    /// The name to go by.
    pub(crate) name: String,
}

/// One life.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Life {
    /// What is done in it.
    pub(crate) attack: Attack,
    /// Where its random numbers begin.
    pub(crate) seed: u64,
}

/// What came of one life.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Harm {
    /// Commands, answers, packets and other things that were done to the victim.
    pub(crate) inputs: u64,
    /// Words that were turned over while they could be read.
    pub(crate) flips: u64,
    /// Whether the victim ended the contact.
    pub(crate) is_cut_off: bool,
}

/// The kinds of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attack {
    /// Commands with numbers at the ends of ranges.
    Commands,
    /// Untrue credits, answers and segments.
    Cursors,
    /// Commands without end.
    Endless,
    /// Packets of all kinds behind the hello.
    Packets,
    /// Forged answers to everything that the victim asks.
    Answers,
    /// A forged table of memory, which the victim accesses.
    Tables,
    /// Everything, while a second thread turns bits over in all that the victim reads.
    Flips,
    /// Greetings that are wrong, garbled, half, or with other descriptors.
    Greetings,
    /// Connections in hundreds, most of them silent.
    Connections,
    /// Commands that are there, are not there, and are others, while the victim reads them.
    Retractions,
    /// Blocks of memory without end, under several names.
    Blocks,
    /// Packets without end, of which each is in order.
    Talk,
    /// The victim's memory files, found through its descriptors and cut short.
    Files,
}

impl Attack {
    /// Every kind, with its name in reports.
    pub(crate) const ALL: [(&'static str, Self); 13] = [
        ("commands", Self::Commands),
        ("cursors", Self::Cursors),
        ("endless", Self::Endless),
        ("packets", Self::Packets),
        ("answers", Self::Answers),
        ("tables", Self::Tables),
        ("flips", Self::Flips),
        ("greetings", Self::Greetings),
        ("connections", Self::Connections),
        ("retractions", Self::Retractions),
        ("blocks", Self::Blocks),
        ("talk", Self::Talk),
        ("files", Self::Files),
    ];

    fn trick(self) -> Option<Trick> {
        match self {
            Self::Commands => Some(Trick::Commands),
            Self::Cursors => Some(Trick::Cursors),
            Self::Endless => Some(Trick::Endless),
            Self::Packets => Some(Trick::Packets),
            Self::Answers => Some(Trick::Answers),
            Self::Tables => Some(Trick::Tables),
            Self::Flips => Some(Trick::All),
            Self::Retractions => Some(Trick::Retractions),
            Self::Greetings | Self::Connections | Self::Blocks | Self::Talk | Self::Files => None,
        }
    }
}

/// Things that are done in one life at most.
const TURNS: u64 = 20_000;
/// Things that are done between two looks whether the victim has had enough.
const LOOK: u64 = 64;
/// Greetings, or connections, of one life.
const GREETINGS: u64 = 200;
const CONNECTIONS: u64 = 300;

/// Lives as often as it is told to.
pub(crate) fn play(order: &Order) -> anyhow::Result<()> {
    loop {
        let life: Life = process::next_request()?;
        let pause = || {
            std::thread::yield_now();
            Ok(())
        };
        process::reply(&live(order, life, pause)?)?;
    }
}

/// One life, while `meanwhile` is done again and again.
///
/// # Errors
/// When the victim cannot be reached.
pub(crate) fn live(
    order: &Order,
    life: Life,
    meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let mut random = Random::new(life.seed);
    match (life.attack.trick(), life.attack) {
        (Some(trick), attack) => intrude(order, attack, trick, &mut random, meanwhile),
        (None, Attack::Greetings) => greet(order, &mut random, meanwhile),
        (None, Attack::Blocks) => hoard::blocks(order, &mut random, meanwhile),
        (None, Attack::Talk) => talk::packets(order, &mut random, meanwhile),
        (None, Attack::Files) => files::cut_short(order, meanwhile),
        (None, _) => crowd(order, &mut random, meanwhile),
    }
}

fn intrude(
    order: &Order,
    attack: Attack,
    trick: Trick,
    random: &mut Random,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let nonce = Box::new(random.word());
    let entered = Intruder::enter(&order.victim, &order.name, &nonce, random, &mut meanwhile);
    let Ok(mut intruder) = entered else {
        // The end of the life before has not been noticed yet.
        meanwhile()?;
        return Ok(Harm::default());
    };
    let mut flipper = (attack == Attack::Flips).then(|| Flipper::new(&intruder, random.word()));
    let mut harm = Harm::default();
    for turn in 0..random.below(TURNS) {
        intruder.act(trick, random);
        harm.inputs += 1;
        if turn % LOOK == 0 {
            meanwhile()?;
            if let Some(flipper) = &mut flipper {
                flipper.turn_to(&intruder);
            }
            if intruder.is_cut_off() {
                harm.is_cut_off = true;
                break;
            }
        }
    }
    harm.flips = flipper.map_or(0, |flipper| flipper.end());
    Ok(harm)
}

/// A thread that turns bits over as fast as it can.
#[derive(Debug)]
struct Flipper {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<()>>,
    memories: usize,
    /// Whether payloads alone are turned over: then the contact lasts.
    is_mild: bool,
    random: Random,
}

impl Flipper {
    fn new(intruder: &Intruder, seed: u64) -> Self {
        let mut flipper = Self {
            is_over: Arc::default(),
            count: Arc::default(),
            threads: Vec::new(),
            memories: 0,
            is_mild: seed & 1 == 0,
            random: Random::new(seed),
        };
        flipper.turn_to(intruder);
        flipper
    }

    /// Takes on memory that is new.
    fn turn_to(&mut self, intruder: &Intruder) {
        let memories = intruder.memories();
        while self.memories < memories.len() {
            // The newest is the first.
            let memory = Arc::clone(&memories[memories.len() - 1 - self.memories]);
            self.memories += 1;
            let (is_over, count) = (Arc::clone(&self.is_over), Arc::clone(&self.count));
            let mut random = Random::new(self.random.word());
            let first = if self.is_mild { memory.words() / 2 } else { 0 };
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

    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // It has done nothing that could have failed.
            let _ = thread.join();
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// Hellos with wrong bytes, too few or too many, and descriptors of all kinds.
fn greet(
    order: &Order,
    random: &mut Random,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let fds = descriptors()?;
    let mut harm = Harm::default();
    let mut lines = Vec::new();
    let nonce = Box::new(random.word());
    for _ in 0..GREETINGS {
        let Ok(line) = PeerSocket::connect(&order.victim) else {
            meanwhile()?;
            continue;
        };
        let hello = Hello {
            name: &order.name,
            incarnation: random.word().into(),
            nonce: &nonce,
            sizes: Sizes::DEFAULT,
            chunks: 0,
        };
        let mut bytes = hello.packet(VERSION);
        for _ in 0..random.below(4) {
            let place = 4 * random.below(26) as usize;
            let value = number(random) as u32;
            bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        match random.below(8) {
            0 => bytes.truncate(random.below(PACKET as u64) as usize),
            1 => bytes.resize(5000, 0xff),
            2 => bytes
                .iter_mut()
                .for_each(|byte| *byte = random.word() as u8),
            _ => {}
        }
        let most = if random.once_in(20) { 60 } else { 4 };
        let count = random.below(most);
        let chosen: Vec<_> = (0..count).map(|_| random.pick(&fds).as_fd()).collect();
        line.send(&bytes, &chosen);
        if random.once_in(4) {
            line.send(&bytes, &chosen);
        }
        harm.inputs += 1;
        lines.push(line);
        if random.once_in(8) {
            lines.clear();
        }
        meanwhile()?;
    }
    harm.is_cut_off = lines
        .iter()
        .all(|line| matches!(line.receive(), Received::End));
    Ok(harm)
}

/// Descriptors that are memory as it has to be, nearly, or not at all.
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

/// Many connections at once, which say nothing or the beginning of something.
fn crowd(
    order: &Order,
    random: &mut Random,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let mut harm = Harm::default();
    let mut lines = Vec::new();
    for _ in 0..CONNECTIONS {
        if let Ok(line) = PeerSocket::connect(&order.victim) {
            if random.once_in(4) {
                let bytes = vec![0x73; random.below(300) as usize];
                line.send(&bytes, &[]);
            }
            harm.inputs += 1;
            lines.push(line);
        }
        meanwhile()?;
    }
    std::thread::sleep(Duration::from_millis(random.below(20)));
    meanwhile()?;
    harm.is_cut_off = lines
        .iter()
        .any(|line| matches!(line.receive(), Received::End));
    Ok(harm)
}
