//! A connected hostile peer: it owns an outbox that the target reads, and writes malformed data
//! into it.
//!
//! Most of its inputs are valid, so that they reach deep into the parsers. Now and then, a field
//! has an invalid value: one at the end of a range, or an arbitrary number.

use std::sync::Arc;

use anyhow::bail;
use selvedge_shm::smr::layout::VERSION;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    self, BOUNCE, Hello, PACKET_SIZE, PeerSocket, RawMemory, Received, Sizes, doorbell_seals,
    outbox_seals,
};
use selvedge_testkit::timeout::Timeout;

use super::attack::PeerAttack;
use super::dictionary::{mutate, number, packet};
use super::forged_memory::ForgedMemory;

/// Indices of words in the header of an outbox.
const CREDIT: usize = 16;
const POLLED: usize = 17;
const CLOSED: usize = 32;

/// The connected peer.
#[derive(Debug)]
pub(super) struct RawPeer {
    pub(super) socket: PeerSocket,
    sizes: Sizes,
    outbox: Arc<RawMemory>,
    /// The target's outbox for this peer: its credit and its commands.
    inbox: Option<RawMemory>,
    /// The target's doorbell, which all its peers can write.
    doorbell: Option<RawMemory>,
    bounce: Option<Arc<RawMemory>>,
    /// Number of announced segments.
    announced: u64,
    /// Number of committed commands.
    sent: u64,
    /// Number of responses.
    answered: u64,
    /// Offset of the first free byte of the pool.
    pool: usize,
    next_id: u64,
    /// Identifiers of the target's operations.
    received_ids: Vec<u64>,
    /// Number of the target's commands that this peer has read.
    read: u64,
    /// The payloads of rendezvous messages, and the memory that the target accesses.
    memory: Box<[u8]>,
    forged: ForgedMemory,
}

/// Numbers of commands, and sizes of the pool in bytes, that an outbox may have.
const COMMANDS: [usize; 4] = [1, 2, 16, 256];
const POOLS: [usize; 3] = [64, 4096, 65_536];
/// How often a command changes before it stays.
const RETRACTIONS: usize = 20_000;
/// Number of segments of the bounce memory.
const SEGMENTS: usize = 16;
/// Bytes of a segment.
const SEGMENT: usize = 4096;

impl RawPeer {
    /// Sends a hello message and waits for the response, while calling `progress`.
    ///
    /// # Errors
    /// The target refuses the connection.
    pub(super) fn connect(
        target: &str,
        name: &str,
        nonce: &u64,
        random: &mut Random,
        mut progress: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let sizes = if random.once_in(4) {
            Sizes {
                commands: *random.pick(&COMMANDS),
                responses: 512,
                pool: *random.pick(&POOLS),
            }
        } else {
            Sizes::DEFAULT
        };
        let outbox = RawMemory::create(sizes.total(), outbox_seals())?;
        write_header(&outbox, sizes);
        let own_doorbell = RawMemory::create(4096, doorbell_seals())?;
        let socket = PeerSocket::connect(target)?;
        let incarnation = u128::from(random.word()) << 64 | u128::from(random.word());
        let chunks = u32::from(random.flip());
        let hello = Hello {
            name,
            incarnation,
            nonce,
            sizes,
            chunks,
        };
        socket.send(&hello.packet(VERSION), &[outbox.fd(), own_doorbell.fd()]);
        let mut timeout = Timeout::new("the response to a hello message");
        let mut fds = loop {
            timeout.check()?;
            progress()?;
            match socket.receive() {
                Received::Packet(_, fds) => break fds,
                Received::Nothing => {}
                Received::End => bail!("the target refused the connection"),
            }
        };
        let doorbell = fds.pop().and_then(|fd| RawMemory::map(fd, true).ok());
        let inbox = fds.pop().and_then(|fd| RawMemory::map(fd, false).ok());
        let memory: Box<[u8]> = vec![7; 1 << 17].into();
        let peer = Self {
            forged: ForgedMemory::new(&memory)?,
            memory,
            socket,
            sizes,
            outbox: Arc::new(outbox),
            inbox,
            doorbell,
            bounce: None,
            announced: 0,
            sent: 0,
            answered: 0,
            pool: 0,
            next_id: 0,
            received_ids: Vec::new(),
            read: 0,
        };
        // Sometimes the peer promises a table and never sends it. That delays only its own
        // operations.
        if chunks > 0 && !random.once_in(8) {
            peer.forged.send_table(&peer.socket);
        }
        Ok(peer)
    }

    /// All memory that the target reads.
    pub(super) fn memories(&self) -> Vec<Arc<RawMemory>> {
        let bounce = self.bounce.iter().cloned();
        let table = self.forged.table();
        bounce.chain([table, Arc::clone(&self.outbox)]).collect()
    }

    /// Returns whether the target has accepted the connection and sent its memory.
    pub(super) fn is_connected(&self) -> bool {
        self.inbox.is_some()
    }

    /// Returns whether the target has disconnected this peer.
    pub(super) fn is_cut_off(&self) -> bool {
        self.socket.is_closed()
    }

    /// Makes one input.
    pub(super) fn step(&mut self, peer_attack: PeerAttack, random: &mut Random) {
        self.read_commands();
        match (peer_attack, random.below(100)) {
            (PeerAttack::Endless, _) => self.commit_small(random),
            (PeerAttack::Retractions, 0..80) => self.retract(random),
            (PeerAttack::Commands, 0..90) | (PeerAttack::All, 0..45) => self.commit_command(random),
            (PeerAttack::Packets, 0..30) | (PeerAttack::All, 50..53) => self.send_packet(random),
            (PeerAttack::Responses, 0..10) => self.commit_result(random),
            (PeerAttack::Responses, 10..30) => self.respond(random),
            (PeerAttack::Responses, 30..34) => self.announce_segment(random),
            (PeerAttack::Tables, 0..60) | (PeerAttack::All, 45..50) => {
                self.forged.corrupt(&self.socket, &self.memory, random);
            }
            (PeerAttack::Cursors, 0..30) | (PeerAttack::All, 53..70) => self.respond(random),
            (PeerAttack::Cursors, 30..60) | (PeerAttack::All, 70..85) => {
                self.announce_segment(random)
            }
            (PeerAttack::Cursors, 60..62) | (PeerAttack::All, 85) => self.corrupt_cursor(random),
            (PeerAttack::All, 86) => self.write_random_word(random),
            (_, 90..93) => self.ring_doorbells(random),
            _ => self.commit_small(random),
        }
    }

    /// Reads the target's next command, if there is one, to obtain the identifier of an operation.
    fn read_commands(&mut self) {
        let Some(inbox) = &self.inbox else { return };
        let sizes = Sizes::DEFAULT;
        if inbox.words() * 8 != sizes.total() {
            return;
        }
        let slot = sizes.commands_offset() / 8 + (self.read as usize % sizes.commands) * 8;
        let head = inbox.load(slot);
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
        self.received_ids
            .push(inbox.load(slot + word) & 0xffff_ffff);
        if self.received_ids.len() > 64 {
            self.received_ids.remove(0);
        }
    }

    /// Returns whether the target's credit leaves room for another command.
    fn has_room(&self) -> bool {
        let Some(inbox) = &self.inbox else {
            return true;
        };
        // The target's credit grows by a quarter of the slots at a time.
        self.sent.wrapping_sub(inbox.load(CREDIT)) < self.sizes.commands as u64
    }

    /// Commits a command, most often a valid one.
    fn commit_command(&mut self, random: &mut Random) {
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
                words[4] = self.alloc(bytes as usize) as u64;
                words[5] = self.next_operation_id(random);
                len = 0;
            }
            2 => {
                words[3] = random.below(1 << 17);
                words[4] = self.next_operation_id(random) | 1 << 32;
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

    /// Commits a command that contains its message, whether there is room or not.
    fn commit_small(&mut self, random: &mut Random) {
        let len = random.below(49);
        self.commit([1 | len << 24, 1 << 40, 5, 6, 7, 8, 9, 10]);
    }

    /// Commits a command after making it appear, disappear and change many times.
    fn retract(&mut self, random: &mut Random) {
        if !self.has_room() {
            return;
        }
        let op = *random.pick(&[2, 4, 5, 6, 7, 9]);
        let source = *random.pick(&[0, 0, 1]);
        let mut words = [0; 8];
        words[0] = op | source << 8 | 8 << 24;
        // If the command is an atomic, the words describe a sum of one element of eight bytes. For
        // other operations, they are arbitrary.
        words[1] = 7 | 2 << 8 | 1 << 16 | 1 << 32;
        words[2] = self.pick_id(random) | 8 << 32;
        let stamp = (self.sent + 1) << 32;
        let other = if random.flip() {
            0
        } else {
            stamp | random.below(10)
        };
        self.fill(words);
        for _ in 0..RETRACTIONS {
            self.outbox.store(self.slot(), stamp | words[0]);
            self.outbox.store(self.slot(), other);
        }
        self.commit(words);
    }

    /// The index of the next command's first word.
    fn slot(&self) -> usize {
        self.sizes.commands_offset() / 8 + (self.sent as usize % self.sizes.commands) * 8
    }

    /// Writes a command except for its first word.
    fn fill(&self, words: [u64; 8]) {
        for (at, &word) in words.iter().enumerate().skip(1) {
            self.outbox.store(self.slot() + at, word);
        }
    }

    fn commit(&mut self, words: [u64; 8]) {
        self.fill(words);
        let slot = self.slot();
        self.sent += 1;
        let stamp = self.sent << 32;
        self.outbox.store(slot, stamp | words[0] & 0xffff_ffff);
    }

    /// Allocates `len` bytes of the pool and returns their offset.
    fn alloc(&mut self, len: usize) -> usize {
        let lines = len.next_multiple_of(64);
        if self.pool + lines > self.sizes.pool {
            self.pool = 0;
        }
        let offset = self.pool;
        self.pool += lines;
        offset
    }

    fn next_operation_id(&mut self, random: &mut Random) -> u64 {
        self.next_id += u64::from(!random.once_in(20));
        self.next_id & 0xffff | (self.next_id >> 16 & 0xffff) << 16
    }

    /// Commits a response to one of the target's operations, or to none.
    fn respond(&mut self, random: &mut Random) {
        let next_operation_id = self.pick_id(random);
        let status = if random.once_in(6) {
            number(random) & 0xffff_ffff
        } else {
            *random.pick(&[0, 1, 2, 2, 2, 3, 4, 4 | 12 << 8])
        };
        let entry =
            self.sizes.responses_offset() / 8 + (self.answered as usize % self.sizes.responses) * 2;
        self.outbox
            .store(entry + 1, next_operation_id | status << 32);
        self.answered += 1;
        self.outbox.store(entry, self.answered);
    }

    /// The identifier of one of the target's operations, or any number.
    fn pick_id(&self, random: &mut Random) -> u64 {
        if self.received_ids.is_empty() || random.once_in(4) {
            number(random) & 0xffff_ffff
        } else {
            *random.pick(&self.received_ids)
        }
    }

    /// Announces a segment of one of the last messages. The first call creates the bounce memory
    /// instead.
    fn announce_segment(&mut self, random: &mut Random) {
        let Some(bounce) = &self.bounce else {
            return self.make_bounce();
        };
        let len = if random.once_in(10) {
            number(random) & 0xffff_ffff
        } else {
            random.below(SEGMENT as u64 + 1)
        };
        let segment = if random.once_in(10) {
            number(random) & 0xffff_ffff
        } else {
            random.below(SEGMENTS as u64)
        };
        let next_operation_id = self.next_id.saturating_sub(random.below(4)) & 0xffff_ffff;
        let entry = (self.announced as usize % SEGMENTS) * 2;
        bounce.store(entry + 1, next_operation_id | segment << 32);
        self.announced += 1;
        bounce.store(entry, (self.announced & 0xffff_ffff) << 32 | len);
    }

    fn make_bounce(&mut self) {
        let Ok(bounce) = RawMemory::create(4096 + SEGMENTS * SEGMENT, outbox_seals()) else {
            return;
        };
        let sizes = SEGMENTS as u64 | (SEGMENT as u64) << 32;
        self.socket.send(&packet(BOUNCE, &[sizes]), &[bounce.fd()]);
        self.bounce = Some(Arc::new(bounce));
    }

    /// Commits the result of a read, or the response to an atomic. The target may not have
    /// requested the operation.
    fn commit_result(&mut self, random: &mut Random) {
        let id = self.pick_id(random);
        let op = *random.pick(&[7, 7, 9]);
        let source = *random.pick(&[0, 0, 0, 1, 2]);
        let arbitrary = number(random);
        let errno = *random.pick(&[0, 0, 0, 5, 14, arbitrary & 0xffff_ffff]);
        let len = match source {
            0 => *random.pick(&[8, 8, 0, 48, arbitrary & 63]),
            _ => 0,
        };
        let mut words = [
            op | source << 8 | len << 24,
            id | errno << 32,
            1,
            2,
            3,
            4,
            5,
            6,
        ];
        match (op, source) {
            (9, 1) => {
                words[3] = *random.pick(&[8, 16, 4096, arbitrary]);
                words[4] = self.alloc(words[3].min(4096) as usize) as u64;
            }
            (7, 2) => {
                words[2] = *random.pick(&[5000, 30_000, arbitrary]);
                words[3] = self.next_operation_id(random);
            }
            _ => {}
        }
        if random.once_in(20) {
            let word = random.below(8) as usize;
            words[word] = mutate(random, words[word]);
        }
        self.commit(words);
    }

    /// Overwrites the credit, the poll state, the closed state or the peer's index.
    fn corrupt_cursor(&mut self, random: &mut Random) {
        let word = *random.pick(&[CREDIT, POLLED, CLOSED, 40]);
        self.outbox.store(word, number(random));
    }

    /// Writes a random word into one of [`Self::memories`].
    fn write_random_word(&mut self, random: &mut Random) {
        let memories = self.memories();
        let memory = random.pick(&memories);
        let word = random.below(memory.words() as u64) as usize;
        memory.store(word, number(random));
    }

    /// Overwrites a word of the target's doorbell: bits of this peer and of other peers.
    fn ring_doorbells(&mut self, random: &mut Random) {
        if let Some(doorbell) = &self.doorbell {
            let word = random.below(doorbell.words() as u64) as usize;
            doorbell.store(word * usize::from(random.flip()), number(random));
        }
    }

    /// Sends a packet of any kind, with or without descriptors.
    fn send_packet(&mut self, random: &mut Random) {
        let mut bytes = shm_peer::packet(VERSION, random.below(12) as u32);
        while bytes.len() < PACKET_SIZE {
            bytes.extend((number(random) as u32).to_le_bytes());
        }
        let fds = [self.outbox.fd(), self.outbox.fd(), self.outbox.fd()];
        self.socket.send(&bytes, &fds[..random.below(4) as usize]);
    }
}

/// Writes the header of an outbox.
fn write_header(outbox: &RawMemory, sizes: Sizes) {
    let pid = u64::from(std::process::id());
    let words = [
        u64::from_le_bytes(*b"selvedge"),
        u64::from(VERSION) | pid << 32,
        sizes.total() as u64,
        sizes.responses_offset() as u64,
        sizes.responses as u64,
        sizes.commands_offset() as u64,
        sizes.commands as u64,
        sizes.pool_offset() as u64,
        sizes.pool as u64,
    ];
    for (at, word) in words.into_iter().enumerate() {
        outbox.store(at, word);
    }
}
