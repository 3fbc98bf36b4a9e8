//! `ForgedMemory`: the forged table of a hostile peer's memory.

use std::sync::Arc;

use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{
    BLOCK, KEYS, PeerSocket, RELEASE, RawMemory, doorbell_seals, outbox_seals,
};

use super::dictionary::{mutate, number, packet};

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

    /// Sends the chunk of the table that the hello message has promised.
    pub(super) fn send_table(&self, socket: &PeerSocket) {
        self.send_chunk(socket, 0);
    }

    /// Changes the table of `memory`, or sends a packet about it.
    pub(super) fn corrupt(&mut self, socket: &PeerSocket, memory: &[u8], random: &mut Random) {
        // A malformed packet ends most connections, so packets are rare.
        match random.below(400) {
            0..4 => self.send_block(socket, memory, random),
            // The target already has the first chunk, and the others do not exist.
            4 => self.send_chunk(socket, random.below(16)),
            5..8 => self.send_release(socket, random),
            8..200 => self.publish(random.below(ENTRIES), memory),
            _ => {
                let entry = random.below(ENTRIES) as usize * ENTRY_WORDS;
                let word = entry + random.below(ENTRY_WORDS as u64) as usize;
                let value = mutate(random, self.table.load(word));
                self.table.store(word, value);
            }
        }
    }

    fn send_block(&mut self, socket: &PeerSocket, memory: &[u8], random: &mut Random) {
        self.blocks += 1;
        // `base` is the address in the table's entries. The block may be read-only although the
        // entries permit writes.
        let base = memory.as_ptr().expose_provenance() as u64;
        let is_writable = u64::from(random.flip());
        let mut fields = [self.blocks, base, BLOCK_LEN as u64, is_writable];
        if random.once_in(3) {
            let field = random.below(4) as usize;
            fields[field] = mutate(random, fields[field]);
        }
        let fd = if random.once_in(6) {
            self.table.fd()
        } else {
            self.block.fd()
        };
        socket.send(&packet(BLOCK, &fields), &[fd]);
    }

    fn send_release(&self, socket: &PeerSocket, random: &mut Random) {
        let block = if random.once_in(8) {
            number(random)
        } else {
            self.blocks
        };
        socket.send(&packet(RELEASE, &[block]), &[]);
    }

    fn send_chunk(&self, socket: &PeerSocket, index: u64) {
        socket.send(&packet(KEYS, &[index]), &[self.table.fd()]);
    }
}
