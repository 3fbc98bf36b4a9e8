//! Forged one-sided operations: the peer's memory table, and responses to the target's requests.

use std::sync::Arc;

use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    BLOCK, KEYS, PACKET_SIZE, RELEASE, RawMemory, doorbell_seals, outbox_seals,
};

use super::dictionary::{mutate, number};
use super::packet;
use super::raw_peer::RawPeer;

/// Words of an entry of the table.
const ENTRY_WORDS: usize = 8;
/// Entries that the target may look up: the keys of the memory that campaigns access, and others.
const ENTRIES: u64 = 5;
/// Bytes of a block of special memory.
const BLOCK_LEN: usize = 65_536;

/// The table of a hostile peer's memory, and the blocks that it has announced.
#[derive(Debug)]
pub(super) struct ForgedMemory {
    table: Arc<RawMemory>,
    block: Arc<RawMemory>,
    blocks: u64,
}

impl ForgedMemory {
    /// Makes a valid table of memory that exists.
    ///
    /// # Errors
    /// Its memory cannot be created.
    pub(super) fn new(memory: &[u8]) -> anyhow::Result<Self> {
        let forged = Self {
            table: Arc::new(RawMemory::create(4096, outbox_seals())?),
            block: Arc::new(RawMemory::create(BLOCK_LEN, doorbell_seals())?),
            blocks: 0,
        };
        for key in 0..ENTRIES {
            forged.publish(key, memory);
        }
        Ok(forged)
    }

    /// Returns the table's memory, which the target reads.
    pub(super) fn table(&self) -> Arc<RawMemory> {
        Arc::clone(&self.table)
    }

    /// Publishes a valid entry. Key 2 is special memory, key 3 the whole address space.
    fn publish(&self, key: u64, memory: &[u8]) {
        let addr = memory.as_ptr().expose_provenance() as u64;
        let words = match key {
            2 => [key, 0, BLOCK_LEN as u64, 3 | 1 << 32, addr, 1],
            3 => [key, 0, u64::MAX, 3 | 2 << 32, 0, 0],
            _ => [key, 0, memory.len() as u64, 3, addr, 0],
        };
        let entry = key as usize * ENTRY_WORDS;
        for (index, word) in words.into_iter().enumerate() {
            self.table.store(entry + 1 + index, word);
        }
        let generation = self.table.load(entry);
        self.table.store(entry, generation.wrapping_add(1) | 1);
    }
}

impl RawPeer {
    /// Sends the chunk of the table that the hello message has promised.
    pub(super) fn send_table(&mut self) {
        let mut bytes = packet(KEYS);
        bytes.extend(0_u32.to_le_bytes());
        bytes.resize(PACKET_SIZE, 0);
        self.socket.send(&bytes, &[self.forged.table.fd()]);
    }

    /// Changes the table, or sends a packet about it.
    pub(super) fn corrupt(&mut self, random: &mut Random) {
        // A malformed packet ends most connections, so packets are rare.
        match random.below(400) {
            0..4 => self.send_block(random),
            4 => self.send_chunk(random),
            5..8 => self.send_release(random),
            8..200 => self.forged.publish(random.below(ENTRIES), &self.memory),
            _ => {
                let entry = random.below(ENTRIES) as usize * ENTRY_WORDS;
                let word = entry + random.below(ENTRY_WORDS as u64) as usize;
                let value = mutate(random, self.forged.table.load(word));
                self.forged.table.store(word, value);
            }
        }
    }

    fn send_block(&mut self, random: &mut Random) {
        self.forged.blocks += 1;
        // `base` is the address in the table's entries. The block may be read-only although the
        // entries permit writes.
        let base = self.memory.as_ptr().expose_provenance() as u64;
        let is_writable = u64::from(random.flip());
        let mut fields = [self.forged.blocks, base, BLOCK_LEN as u64, is_writable];
        if random.once_in(3) {
            let field = random.below(4) as usize;
            fields[field] = mutate(random, fields[field]);
        }
        let mut bytes = packet(BLOCK);
        for field in fields {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(PACKET_SIZE, 0);
        let fd = match random.once_in(6) {
            true => self.forged.table.fd(),
            false => self.forged.block.fd(),
        };
        self.socket.send(&bytes, &[fd]);
    }

    fn send_release(&mut self, random: &mut Random) {
        let mut bytes = packet(RELEASE);
        let block = match random.once_in(8) {
            true => number(random),
            false => self.forged.blocks,
        };
        bytes.extend(block.to_le_bytes());
        bytes.resize(PACKET_SIZE, 0);
        self.socket.send(&bytes, &[]);
    }

    /// Sends a chunk of the table that the target already has, or one that does not exist.
    fn send_chunk(&mut self, random: &mut Random) {
        let mut bytes = packet(KEYS);
        bytes.extend((random.below(16) as u32).to_le_bytes());
        bytes.resize(PACKET_SIZE, 0);
        self.socket.send(&bytes, &[self.forged.table.fd()]);
    }

    /// Commits the result of a read, or the response to an atomic. The target may not have
    /// requested the operation.
    pub(super) fn commit_result(&mut self, random: &mut Random) {
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
}
