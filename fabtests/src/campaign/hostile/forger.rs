//! What a peer can forge about one-sided operations: the table of its memory, and answers to what
//! was asked of it.

use std::sync::Arc;

use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    BLOCK, KEYS, PACKET, RELEASE, RawMemory, doorbell_seals, outbox_seals,
};

use super::dictionary::{mutate, number};
use super::intruder::Intruder;
use super::packet;

/// Words of a row of the table.
const ROW: usize = 8;
/// Rows that the victim may look for: the keys of the memory that campaigns access, and others.
const ROWS: u64 = 5;
/// Bytes of a block of special memory.
const BLOCK_LEN: usize = 65_536;

/// The table of an intruder's memory, and the blocks that it has announced.
#[derive(Debug)]
pub(super) struct Forgery {
    table: Arc<RawMemory>,
    block: Arc<RawMemory>,
    blocks: u64,
}

impl Forgery {
    /// A table that is in order, of memory that is there.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(memory: &[u8]) -> anyhow::Result<Self> {
        let forgery = Self {
            table: Arc::new(RawMemory::create(4096, outbox_seals())?),
            block: Arc::new(RawMemory::create(BLOCK_LEN, doorbell_seals())?),
            blocks: 0,
        };
        for key in 0..ROWS {
            forgery.publish(key, memory);
        }
        Ok(forgery)
    }

    /// Memory that the victim reads.
    pub(super) fn table(&self) -> Arc<RawMemory> {
        Arc::clone(&self.table)
    }

    /// A row that is in order: memory under key 2 is special, under key 3 everything there is.
    fn publish(&self, key: u64, memory: &[u8]) {
        let addr = memory.as_ptr().expose_provenance() as u64;
        let words = match key {
            2 => [key, 0, BLOCK_LEN as u64, 3 | 1 << 32, addr, 1],
            3 => [key, 0, u64::MAX, 3 | 2 << 32, 0, 0],
            _ => [key, 0, memory.len() as u64, 3, addr, 0],
        };
        let row = key as usize * ROW;
        for (at, word) in words.into_iter().enumerate() {
            self.table.store(row + 1 + at, word);
        }
        let generation = self.table.load(row);
        self.table.store(row, generation.wrapping_add(1) | 1);
    }
}

impl Intruder {
    /// Says what its memory is: the chunk of its table that its hello has promised.
    pub(super) fn show_table(&mut self) {
        let mut bytes = packet(KEYS);
        bytes.extend(0_u32.to_le_bytes());
        bytes.resize(PACKET, 0);
        self.line.send(&bytes, &[self.forgery.table.fd()]);
    }

    /// Changes its table, or what it says of it.
    pub(super) fn forge(&mut self, random: &mut Random) {
        // What is said over the socket is the end of most contacts, and so it is seldom.
        match random.below(400) {
            0..4 => self.announce_block(random),
            4 => self.show_chunk(random),
            5..8 => self.release(random),
            8..200 => self.forgery.publish(random.below(ROWS), &self.memory),
            _ => {
                let row = random.below(ROWS) as usize * ROW;
                let word = row + random.below(ROW as u64) as usize;
                let value = mutate(random, self.forgery.table.load(word));
                self.forgery.table.store(word, value);
            }
        }
    }

    fn announce_block(&mut self, random: &mut Random) {
        self.forgery.blocks += 1;
        // Where the rows of the table say that it is; now and then not to be written, whatever they
        // say of that.
        let base = self.memory.as_ptr().expose_provenance() as u64;
        let is_writable = u64::from(random.flip());
        let mut fields = [self.forgery.blocks, base, BLOCK_LEN as u64, is_writable];
        if random.once_in(3) {
            let field = random.below(4) as usize;
            fields[field] = mutate(random, fields[field]);
        }
        let mut bytes = packet(BLOCK);
        for field in fields {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(PACKET, 0);
        let fd = match random.once_in(6) {
            true => self.forgery.table.fd(),
            false => self.forgery.block.fd(),
        };
        self.line.send(&bytes, &[fd]);
    }

    fn release(&mut self, random: &mut Random) {
        let mut bytes = packet(RELEASE);
        let block = match random.once_in(8) {
            true => number(random),
            false => self.forgery.blocks,
        };
        bytes.extend(block.to_le_bytes());
        bytes.resize(PACKET, 0);
        self.line.send(&bytes, &[]);
    }

    /// A chunk of the table that the victim has, or that does not exist.
    fn show_chunk(&mut self, random: &mut Random) {
        let mut bytes = packet(KEYS);
        bytes.extend((random.below(16) as u32).to_le_bytes());
        bytes.resize(PACKET, 0);
        self.line.send(&bytes, &[self.forgery.table.fd()]);
    }

    /// A result of a read, or the answer to an atomic, that was asked for or was not.
    pub(super) fn result(&mut self, random: &mut Random) {
        let id = self.some_id(random);
        let op = *random.pick(&[7, 7, 9]);
        let source = *random.pick(&[0, 0, 0, 1, 2]);
        let odd = number(random);
        let errno = *random.pick(&[0, 0, 0, 5, 14, odd & 0xffff_ffff]);
        let len = match source {
            0 => *random.pick(&[8, 8, 0, 48, odd & 63]),
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
                words[3] = *random.pick(&[8, 16, 4096, odd]);
                words[4] = self.walk(words[3].min(4096) as usize) as u64;
            }
            (7, 2) => {
                words[2] = *random.pick(&[5000, 30_000, odd]);
                words[3] = self.id(random);
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
