//! `Arena`: a memory file of the heap, its mapping, and its extents.
//!
//! The first page is the header. Its first word is [`OFFERED`] for as long as the arena's bytes
//! are the program's memory. A peer that copies memory which the program may be changing (a
//! one-sided read) loads the word after the copy: if it is [`OFFERED`] then, all copied bytes were
//! the program's.
//!
//! The committed part is a prefix that only grows. Nothing can make a hole in it, because the seal
//! that denies writing to other processes denies holes to all.

#![expect(
    unsafe_code,
    reason = "the tables of an arena lie in a mapping of their own"
)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::extents::Extents;
use crate::system::{self, ARENA_ALIGN, MemoryFile, PAGE};

/// The first word of an arena whose bytes are the program's memory.
pub const OFFERED: u64 = 0x1_5e1f_edce;

/// An arena.
#[derive(Debug)]
pub(crate) struct Arena {
    /// A number that no other arena of this process has or had.
    pub(crate) serial: u64,
    pub(crate) base: usize,
    pub(crate) len: usize,
    /// A private mapping of the file at other addresses, which takes the place of the shared one at
    /// a fork. The program may have closed the file's descriptor by then.
    private: usize,
    file: MemoryFile,
    /// Whether peers may have the file: the bytes are the program's memory.
    pub(crate) is_offered: bool,
    /// Whether the arena is for one allocation.
    pub(crate) is_single: bool,
    /// Pages from the start that are committed.
    committed: usize,
    /// Pages from the start that may have been allocated before. The others are zero.
    used: usize,
    /// When the last allocation was freed, in milliseconds.
    pub(crate) empty_since: u64,
    extents: Extents<'static>,
    table: usize,
}

/// Bytes by which the committed part grows at least, so that not every allocation is a system call.
const COMMIT_STEP: usize = 256 << 10;

impl Arena {
    /// Creates an arena of `len` bytes, which is a multiple of [`ARENA_ALIGN`].
    pub(crate) fn create(serial: u64, len: usize, is_single: bool) -> nix::Result<Self> {
        debug_assert_eq!(len % ARENA_ALIGN, 0);
        let (file, base) = MemoryFile::create(len)?;
        let undo = |_: &_| {
            file.close();
            system::unmap(base, len);
        };
        let private = file.commit(0, PAGE).and_then(|()| file.map_private(len));
        let private = private.inspect_err(undo)?;
        let table = system::map_table(table_len(len)).inspect_err(|errno| {
            undo(errno);
            system::unmap(private, len);
        })?;
        let pages = len / PAGE;
        let bitmap_len = pages / 8;
        // SAFETY: `map_table` has mapped zeroed pages for both tables, only this arena uses them,
        // and `end` unmaps them after their last use.
        let words = unsafe { system::table_at(table, pages / 64) };
        // SAFETY: as above; the bitmap before this table has a multiple of four bytes.
        let lens = unsafe { system::table_at(table + bitmap_len, pages) };
        let mut extents = Extents::new(words, lens);
        // The header is the first extent, and is never freed.
        let header = extents.allocate(1, 1);
        debug_assert_eq!(header, Some(0));
        let arena = Self {
            serial,
            base,
            len,
            private,
            file,
            is_offered: true,
            is_single,
            committed: 1,
            used: 1,
            empty_since: 0,
            extents,
            table,
        };
        arena.header().store(OFFERED, Ordering::Release);
        Ok(arena)
    }

    /// The word that peers load after a copy.
    fn header(&self) -> &AtomicU64 {
        // SAFETY: the first page is mapped and committed as long as the arena exists, and never
        // allocated.
        unsafe { system::word_at(self.base) }
    }

    /// Whether the arena has no allocation.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.live() == 1
    }

    /// The number of committed bytes.
    pub(crate) fn committed_len(&self) -> usize {
        self.committed * PAGE
    }

    /// Allocates `count` pages. `grant` is asked before the committed part grows by a number of
    /// bytes. Returns the address, and the number of bytes from there that may not be zero.
    pub(crate) fn allocate(
        &mut self,
        count: usize,
        align: usize,
        grant: &mut dyn FnMut(usize) -> bool,
    ) -> Option<(usize, usize)> {
        let first = self.extents.allocate(count, align)?;
        if !self.commit(first + count, grant) {
            self.extents.free(first);
            return None;
        }
        let dirty = self.used.saturating_sub(first).min(count);
        self.used = self.used.max(first + count);
        Some((self.base + first * PAGE, dirty * PAGE))
    }

    /// The length in bytes of the allocation at an address; `None` if none begins there.
    pub(crate) fn len_of(&self, address: usize) -> Option<usize> {
        self.extents
            .len_of(self.page_of(address)?)
            .map(|pages| pages * PAGE)
    }

    /// Frees the allocation at an address. Returns `false` if none begins there.
    pub(crate) fn free(&mut self, address: usize) -> bool {
        let page = self.page_of(address);
        page.and_then(|page| self.extents.free(page)).is_some()
    }

    /// Changes the length of the allocation at an address to `count` pages, in place.
    pub(crate) fn resize(
        &mut self,
        address: usize,
        count: usize,
        grant: &mut dyn FnMut(usize) -> bool,
    ) -> bool {
        let Some(page) = self.page_of(address) else {
            return false;
        };
        let Some(old) = self.extents.len_of(page) else {
            return false;
        };
        // An arena that has left the file behind has no pages to grow into.
        if count > old && !self.is_offered || !self.extents.resize(page, count) {
            return false;
        }
        if !self.commit(page + count, grant) {
            let restored = self.extents.resize(page, old);
            debug_assert!(restored);
            return false;
        }
        self.used = self.used.max(page + count);
        true
    }

    fn page_of(&self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.base)?;
        // The header is no allocation of the program.
        (offset.is_multiple_of(PAGE) && offset > 0).then_some(offset / PAGE)
    }

    /// Commits the pages before `end`.
    fn commit(&mut self, end: usize, grant: &mut dyn FnMut(usize) -> bool) -> bool {
        if end <= self.committed {
            return true;
        }
        let step_end = self.committed + COMMIT_STEP / PAGE;
        let end = end.max(step_end).min(self.len / PAGE);
        let (offset, len) = (self.committed * PAGE, (end - self.committed) * PAGE);
        if !grant(len) || self.file.commit(offset, len).is_err() {
            return false;
        }
        // 1 MB that is written costs 0.70 ms with its faults, and 0.53 ms without, as from the C
        // library. Programs often touch only a part of the largest allocations.
        if !self.is_single {
            system::populate(self.base + offset, len);
        }
        self.committed = end;
        true
    }

    /// Returns a descriptor of the file for a peer.
    pub(crate) fn descriptor(&self) -> Option<std::os::fd::OwnedFd> {
        self.is_offered.then(|| self.file.duplicate()).flatten()
    }

    /// Separates the program's memory from the file: from now on the writes of this process are its
    /// own, and peers keep the bytes that the file has. Returns `false` if there is no memory for
    /// that; the later children of this process do not have the arena then.
    pub(crate) fn separate(&mut self) -> bool {
        self.is_offered = false;
        // Release: a peer that loads the former value after a copy has copied before this store.
        self.header().store(0, Ordering::Release);
        // No later write of the program may become visible before the header.
        fence(Ordering::SeqCst);
        self.make_private()
    }

    /// As [`Self::separate`], in a child that runs beside a parent which still offers the file.
    pub(crate) fn separate_from_parent(&mut self) -> bool {
        self.is_offered = false;
        self.make_private()
    }

    fn make_private(&self) -> bool {
        let result = self.replace_mapping();
        self.file.close();
        result.is_ok() || {
            system::unmap(self.private, self.len);
            system::exclude_from_fork(self.base, self.len);
            false
        }
    }

    /// Puts the private mapping in the place of the shared one. Its pages count as promised memory
    /// from then on, therefore only those that the program uses become accessible.
    fn replace_mapping(&self) -> nix::Result<()> {
        let (base, private, len) = (self.base, self.private, self.committed_len());
        system::permit_access(private, len)?;
        system::replace_mapping(base, private, len)?;
        let rest = self.len - len;
        if rest > 0 {
            // The rest is not used any more. It stays mapped, for these are addresses of the heap.
            system::replace_mapping(base + len, private + len, rest)
                .unwrap_or_else(|_| system::unmap(private + len, rest));
        }
        Ok(())
    }

    /// Unmaps the memory and closes the file. The arena must be empty.
    pub(crate) fn end(self) {
        if self.is_offered {
            self.header().store(0, Ordering::Release);
            self.file.close();
            system::unmap(self.private, self.len);
        }
        system::unmap(self.base, self.len);
        // The extents, which use the table, are not accessed any more.
        system::unmap(self.table, table_len(self.len));
    }
}

/// Bytes of the tables of an arena: one bit and one length of four bytes for each page.
fn table_len(len: usize) -> usize {
    let pages = len / PAGE;
    (pages / 8 + pages * 4).next_multiple_of(PAGE)
}
