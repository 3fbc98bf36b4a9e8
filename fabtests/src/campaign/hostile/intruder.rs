//! A peer that was let in: it owns an outbox that the victim reads, and does what it likes.
//!
//! Most of what it does is in order, so that it gets far; now and then a field has a value that it
//! must not have, at the end of some range or anywhere.

use std::sync::Arc;

use anyhow::bail;
use selvedge_shm::smr::layout::VERSION;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    BOUNCE, Hello, PACKET, PeerSocket, RawMemory, Received, Sizes, doorbell_seals, outbox_seals,
};
use selvedge_testkit::timeout::Timeout;

use super::dictionary::{mutate, number};
use super::forger::Forgery;
use super::packet;

/// Words of an outbox.
const CREDIT: usize = 16;
const ATTENTIVE: usize = 17;
const CLOSED: usize = 32;

/// What an intruder may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trick {
    /// Commands whose fields are at the ends of ranges.
    Commands,
    /// Credits, answers and announcements that are not true.
    Cursors,
    /// Commands without end, and without regard to what was consumed.
    Endless,
    /// Packets behind the hello.
    Packets,
    /// Answers to everything that was asked, and to what was not.
    Answers,
    /// A table of memory that is not true.
    Tables,
    /// Commands that are taken back.
    Retractions,
    /// Everything.
    All,
}

/// The peer.
#[derive(Debug)]
pub(super) struct Intruder {
    pub(super) line: PeerSocket,
    sizes: Sizes,
    outbox: Arc<RawMemory>,
    /// The victim's memory for us: its credit and its commands.
    theirs: Option<RawMemory>,
    bell: Option<RawMemory>,
    bounce: Option<Arc<RawMemory>>,
    announced: u64,
    sent: u64,
    answered: u64,
    pool: usize,
    next_id: u64,
    /// Numbers of the victim's operations.
    seen: Vec<u64>,
    read: u64,
    /// Where offered messages are, and what the victim accesses.
    pub(super) memory: Box<[u8]>,
    pub(super) forgery: Forgery,
}

/// Sizes that an outbox may have.
const COMMANDS: [usize; 4] = [1, 2, 16, 256];
const POOLS: [usize; 3] = [64, 4096, 65_536];
/// How often a command changes before it stays.
const WAVERS: usize = 20_000;
/// Segments of the bounce memory, and bytes of each.
const SEGMENTS: usize = 16;
const SEGMENT: usize = 4096;

impl Intruder {
    /// Says hello and waits for the answer, while `meanwhile` is done.
    ///
    /// # Errors
    /// When it is not let in.
    pub(super) fn enter(
        victim: &str,
        name: &str,
        nonce: &u64,
        random: &mut Random,
        mut meanwhile: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let sizes = match random.once_in(4) {
            true => Sizes {
                commands: *random.pick(&COMMANDS),
                responses: 512,
                pool: *random.pick(&POOLS),
            },
            false => Sizes::DEFAULT,
        };
        let outbox = RawMemory::create(sizes.total(), outbox_seals())?;
        describe(&outbox, sizes);
        let own_bell = RawMemory::create(4096, doorbell_seals())?;
        let line = PeerSocket::connect(victim)?;
        let incarnation = u128::from(random.word()) << 64 | u128::from(random.word());
        let chunks = u32::from(random.flip());
        let hello = Hello {
            name,
            incarnation,
            nonce,
            sizes,
            chunks,
        };
        line.send(&hello.packet(VERSION), &[outbox.fd(), own_bell.fd()]);
        let mut timeout = Timeout::new("the answer to a hello");
        let mut fds = loop {
            timeout.check()?;
            meanwhile()?;
            match line.receive() {
                Received::Packet(_, fds) => break fds,
                Received::Nothing => {}
                Received::End => bail!("not let in"),
            }
        };
        let bell = fds.pop().and_then(|fd| RawMemory::map(fd, true).ok());
        let theirs = fds.pop().and_then(|fd| RawMemory::map(fd, false).ok());
        let memory: Box<[u8]> = vec![7; 1 << 17].into();
        let mut intruder = Self {
            forgery: Forgery::new(&memory)?,
            memory,
            line,
            sizes,
            outbox: Arc::new(outbox),
            theirs,
            bell,
            bounce: None,
            announced: 0,
            sent: 0,
            answered: 0,
            pool: 0,
            next_id: 0,
            seen: Vec::new(),
            read: 0,
        };
        // Whoever has promised a table and does not show it holds up its own operations alone.
        if chunks > 0 && !random.once_in(8) {
            intruder.show_table();
        }
        Ok(intruder)
    }

    /// Everything that the victim reads.
    pub(super) fn memories(&self) -> Vec<Arc<RawMemory>> {
        let bounce = self.bounce.iter().cloned();
        let table = self.forgery.table();
        bounce.chain([table, Arc::clone(&self.outbox)]).collect()
    }

    /// Whether the victim has given it memory, and has not refused it.
    pub(super) fn is_met(&self) -> bool {
        self.theirs.is_some()
    }

    /// Whether the victim has had enough of it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.line.is_closed()
    }

    /// Does one thing.
    pub(super) fn act(&mut self, trick: Trick, random: &mut Random) {
        self.look();
        match (trick, random.below(100)) {
            (Trick::Endless, _) => self.small(random),
            (Trick::Retractions, 0..80) => self.waver(random),
            (Trick::Commands, 0..90) | (Trick::All, 0..45) => self.command(random),
            (Trick::Packets, 0..30) | (Trick::All, 50..53) => self.speak(random),
            (Trick::Answers, 0..10) => self.result(random),
            (Trick::Answers, 10..30) => self.answer(random),
            (Trick::Answers, 30..34) => self.announce(random),
            (Trick::Tables, 0..60) | (Trick::All, 45..50) => self.forge(random),
            (Trick::Cursors, 0..30) | (Trick::All, 53..70) => self.answer(random),
            (Trick::Cursors, 30..60) | (Trick::All, 70..85) => self.announce(random),
            (Trick::Cursors, 60..62) | (Trick::All, 85) => self.misstate(random),
            (Trick::All, 86) => self.scribble(random),
            (_, 90..93) => self.ring(random),
            _ => self.small(random),
        }
    }

    /// Reads the victim's commands, to have numbers of operations that exist.
    fn look(&mut self) {
        let Some(theirs) = &self.theirs else { return };
        let sizes = Sizes::DEFAULT;
        if theirs.words() * 8 != sizes.total() {
            return;
        }
        let slot = sizes.commands_at() / 8 + (self.read as usize % sizes.commands) * 8;
        let head = theirs.load(slot);
        if head >> 32 != (self.read + 1) & 0xffff_ffff {
            return;
        }
        self.read += 1;
        self.outbox.store(CREDIT, self.read);
        let word = match (head & 0xff, head >> 8 & 0xff) {
            (4..=6, _) => 2,
            (2, _) => 6,
            (0 | 1, 1) => 5,
            _ => 4,
        };
        self.seen.push(theirs.load(slot + word) & 0xffff_ffff);
        if self.seen.len() > 64 {
            self.seen.remove(0);
        }
    }

    /// Whether the victim has room for another command, as it says.
    fn has_room(&self) -> bool {
        let Some(theirs) = &self.theirs else {
            return true;
        };
        // It gives slots back a quarter at a time.
        self.sent.wrapping_sub(theirs.load(CREDIT)) < self.sizes.commands as u64
    }

    /// A command, most often in order.
    fn command(&mut self, random: &mut Random) {
        if !self.has_room() && !random.once_in(1000) {
            return;
        }
        let (op, flags) = (random.below(2), *random.pick(&[0, 1, 2, 3]));
        let source = *random.pick(&[0, 0, 0, 1, 1, 2]);
        let mut words = [0_u64; 8];
        words[1] = random.below(4) | 1 << 40;
        words[2] = random.word();
        let mut len = random.below(41);
        match source {
            1 => {
                let bytes = random.below(1 + self.sizes.pool.min(5000) as u64);
                words[3] = bytes;
                words[4] = self.walk(bytes as usize) as u64;
                words[5] = self.id(random);
                len = 0;
            }
            2 => {
                words[3] = random.below(1 << 17);
                words[4] = self.id(random) | 1 << 32;
                words[5] = self.memory.as_ptr().expose_provenance() as u64;
                words[6] = random.below(10).saturating_sub(7);
                len = 0;
            }
            _ => {}
        }
        words[0] = op | source << 8 | flags << 16 | len << 24;
        if random.once_in(60) {
            let word = random.below(8) as usize;
            words[word] = mutate(random, words[word]);
        }
        if random.once_in(400) {
            words[0] = words[0] & !0xff | random.below(12);
            words[1..].fill_with(|| number(random));
        }
        self.commit(words);
    }

    /// A message inside a command, whether there is room or not.
    fn small(&mut self, random: &mut Random) {
        let len = random.below(49);
        self.commit([1 | len << 24, 1 << 40, 5, 6, 7, 8, 9, 10]);
    }

    /// A command that is there, is not there and is another one, before it is there.
    fn waver(&mut self, random: &mut Random) {
        if !self.has_room() {
            return;
        }
        let op = *random.pick(&[2, 4, 5, 6, 7, 9]);
        let source = *random.pick(&[0, 0, 1]);
        let mut words = [0; 8];
        words[0] = op | source << 8 | 8 << 24;
        // A sum of one element of eight bytes, where it is an atomic; where not, any numbers.
        words[1] = 7 | 2 << 8 | 1 << 16 | 1 << 32;
        words[2] = self.some_id(random) | 8 << 32;
        let stamp = (self.sent + 1) << 32;
        let other = match random.flip() {
            true => 0,
            false => stamp | random.below(10),
        };
        self.fill(words);
        for _ in 0..WAVERS {
            self.outbox.store(self.slot(), stamp | words[0]);
            self.outbox.store(self.slot(), other);
        }
        self.commit(words);
    }

    /// Where the next command goes.
    fn slot(&self) -> usize {
        self.sizes.commands_at() / 8 + (self.sent as usize % self.sizes.commands) * 8
    }

    /// Writes a command but for its first word.
    fn fill(&self, words: [u64; 8]) {
        for (at, &word) in words.iter().enumerate().skip(1) {
            self.outbox.store(self.slot() + at, word);
        }
    }

    pub(super) fn commit(&mut self, words: [u64; 8]) {
        self.fill(words);
        let slot = self.slot();
        self.sent += 1;
        let stamp = self.sent << 32;
        self.outbox.store(slot, stamp | words[0] & 0xffff_ffff);
    }

    /// Where the next payload of this length has to be.
    pub(super) fn walk(&mut self, len: usize) -> usize {
        let lines = len.next_multiple_of(64);
        if self.pool + lines > self.sizes.pool {
            self.pool = 0;
        }
        let place = self.pool;
        self.pool += lines;
        place
    }

    pub(super) fn id(&mut self, random: &mut Random) -> u64 {
        self.next_id += u64::from(!random.once_in(20));
        self.next_id & 0xffff | (self.next_id >> 16 & 0xffff) << 16
    }

    /// An answer to one of the victim's operations, or to none.
    fn answer(&mut self, random: &mut Random) {
        let id = self.some_id(random);
        let status = match random.once_in(6) {
            true => number(random) & 0xffff_ffff,
            false => *random.pick(&[0, 1, 2, 2, 2, 3, 4, 4 | 12 << 8]),
        };
        let entry =
            self.sizes.responses_at() / 8 + (self.answered as usize % self.sizes.responses) * 2;
        self.outbox.store(entry + 1, id | status << 32);
        self.answered += 1;
        self.outbox.store(entry, self.answered);
    }

    /// The number of an operation of the victim's, or any number.
    pub(super) fn some_id(&self, random: &mut Random) -> u64 {
        match self.seen.is_empty() || random.once_in(4) {
            true => number(random) & 0xffff_ffff,
            false => *random.pick(&self.seen),
        }
    }

    /// A segment of some message.
    fn announce(&mut self, random: &mut Random) {
        let Some(bounce) = &self.bounce else {
            return self.make_bounce();
        };
        let len = match random.once_in(10) {
            true => number(random) & 0xffff_ffff,
            false => random.below(SEGMENT as u64 + 1),
        };
        let segment = match random.once_in(10) {
            true => number(random) & 0xffff_ffff,
            false => random.below(SEGMENTS as u64),
        };
        let id = self.next_id.saturating_sub(random.below(4)) & 0xffff_ffff;
        let entry = (self.announced as usize % SEGMENTS) * 2;
        bounce.store(entry + 1, id | segment << 32);
        self.announced += 1;
        bounce.store(entry, (self.announced & 0xffff_ffff) << 32 | len);
    }

    fn make_bounce(&mut self) {
        let Ok(bounce) = RawMemory::create(4096 + SEGMENTS * SEGMENT, outbox_seals()) else {
            return;
        };
        let mut bytes = packet(BOUNCE);
        bytes.extend((SEGMENTS as u32).to_le_bytes());
        bytes.extend((SEGMENT as u32).to_le_bytes());
        bytes.resize(PACKET, 0);
        self.line.send(&bytes, &[bounce.fd()]);
        self.bounce = Some(Arc::new(bounce));
    }

    /// A credit or a state that is not true.
    fn misstate(&mut self, random: &mut Random) {
        let word = *random.pick(&[CREDIT, ATTENTIVE, CLOSED, 40]);
        self.outbox.store(word, number(random));
    }

    /// Any word of anything.
    fn scribble(&mut self, random: &mut Random) {
        let memories = self.memories();
        let memory = random.pick(&memories);
        let word = random.below(memory.words() as u64) as usize;
        memory.store(word, number(random));
    }

    /// Rings for itself and for others.
    fn ring(&mut self, random: &mut Random) {
        if let Some(bell) = &self.bell {
            let word = random.below(bell.words() as u64) as usize;
            bell.store(word * usize::from(random.flip()), number(random));
        }
    }

    /// A packet of any kind, with descriptors or without.
    fn speak(&mut self, random: &mut Random) {
        let mut bytes = packet(random.below(12) as u32);
        while bytes.len() < PACKET {
            bytes.extend((number(random) as u32).to_le_bytes());
        }
        let fds = [self.outbox.fd(), self.outbox.fd(), self.outbox.fd()];
        self.line.send(&bytes, &fds[..random.below(4) as usize]);
    }
}

/// The header of an outbox.
fn describe(outbox: &RawMemory, sizes: Sizes) {
    let pid = u64::from(std::process::id());
    let words = [
        u64::from_le_bytes(*b"selvedge"),
        u64::from(VERSION) | pid << 32,
        sizes.total() as u64,
        sizes.responses_at() as u64,
        sizes.responses as u64,
        sizes.commands_at() as u64,
        sizes.commands as u64,
        sizes.pool_at() as u64,
        sizes.pool as u64,
    ];
    for (at, word) in words.into_iter().enumerate() {
        outbox.store(at, word);
    }
}
