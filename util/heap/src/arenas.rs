//! `Arenas`: all arenas of the process, and which of them serves a request.
//!
//! The heap reserves no address range in advance: a reservation would count against `RLIMIT_AS`.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::arena::Arena;
use crate::config::Config;
use crate::limits::Budget;
use crate::lock::Lock;
use crate::system::{self, ARENA_ALIGN, PAGE};

/// The maximum number of arenas. Each has a descriptor while it is offered.
const ARENAS: usize = 128;
/// A larger allocation has an arena of its own, whose pages are given back when it is freed.
const SHARED_MAX: usize = 16 << 20;
/// The largest shared arena. The n-th eight arenas are 2^n times as large as the first.
const SHARED_ARENA_MAX: usize = 1 << 30;
/// The longest arena. The shm provider maps no longer file of a peer.
const ARENA_MAX: usize = 4 << 30;
/// The largest alignment. It fits into every arena, which begins at a multiple of [`ARENA_ALIGN`].
const ALIGN_MAX: usize = ARENA_ALIGN / 4;
/// How long an empty arena is kept for reuse, in milliseconds. It is given back by the next
/// operation of the heap after that time.
const DECAY: u64 = 1000;

/// Addresses above are not the heap's.
const ADDRESS_BITS: u32 = 48;
/// For each granule of the address space, the index of its arena plus one; 0 for none.
static ARENA_OF_ADDRESS: [AtomicU8; 1 << (ADDRESS_BITS - ARENA_ALIGN.trailing_zeros())] =
    [const { AtomicU8::new(0) }; _];

/// Incremented when an arena begins or ceases to be offered.
pub(crate) static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The heap of the process. [`crate::fork::check_process`] precedes each access.
pub(crate) static HEAP: Lock<Arenas> = Lock::new(Arenas::EMPTY);

/// Returns the index of the arena that an address is in.
#[inline]
pub(crate) fn index_of(address: usize) -> Option<usize> {
    let index = ARENA_OF_ADDRESS
        .get(address / ARENA_ALIGN)?
        .load(Ordering::Relaxed);
    usize::from(index).checked_sub(1)
}

/// The arenas of the process.
pub(crate) struct Arenas {
    all: [Option<Arena>; ARENAS],
    /// Entries from here on are empty.
    slots: usize,
    largest: usize,
    retained: usize,
    last_serial: u64,
    budget: Budget,
}

impl Arenas {
    const EMPTY: Self = Self {
        all: [const { None }; ARENAS],
        slots: 0,
        largest: 0,
        retained: 0,
        last_serial: 0,
        budget: Budget::EMPTY,
    };

    pub(crate) fn configure(&mut self, config: Config) {
        self.budget.set_limit(config.limit);
        self.retained = config.retained;
        self.largest = config.largest;
    }

    /// Returns the arena with an index.
    pub(crate) fn at(&self, index: usize) -> Option<&Arena> {
        self.all[index].as_ref()
    }

    /// Returns the offered arena with a serial number.
    pub(crate) fn with_serial(&self, serial: u64) -> Option<&Arena> {
        let mut arenas = self.all.iter().flatten();
        arenas.find(|arena| arena.serial == serial && arena.is_offered)
    }

    /// Returns the address, and the number of bytes from there that may not be zero.
    pub(crate) fn allocate(&mut self, size: usize, align: usize) -> Option<(usize, usize)> {
        if size > self.largest || align > ALIGN_MAX {
            return None;
        }
        self.end_expired();
        let request = Request {
            count: size.div_ceil(PAGE),
            align: align.max(PAGE) / PAGE,
        };
        let allocated = if size <= SHARED_MAX {
            self.allocate_shared(request)
        } else {
            self.allocate_single(request)
        };
        if allocated.is_none() {
            // The commit of granted bytes may have failed.
            let arenas = self.all.iter().flatten();
            let committed = arenas.map(Arena::committed_len).sum();
            self.budget.set_committed(committed);
        }
        allocated
    }

    /// Allocates from the first arena with room.
    fn allocate_shared(&mut self, request: Request) -> Option<(usize, usize)> {
        let mut count = 0;
        for arena in self.all[..self.slots].iter_mut().flatten() {
            if !arena.is_offered || arena.is_single && !arena.is_empty() {
                continue;
            }
            if let Some(allocated) = request.take_from(arena, &mut self.budget) {
                arena.is_single = false;
                return Some(allocated);
            }
            count += 1;
        }
        let len = (ARENA_ALIGN << (count / 8).min(4)).min(SHARED_ARENA_MAX);
        self.allocate_from_new(request, len, false)
    }

    /// Allocates an arena, or reuses an empty one that is not much larger.
    fn allocate_single(&mut self, request: Request) -> Option<(usize, usize)> {
        let size = request.count * PAGE;
        for arena in self.all[..self.slots].iter_mut().flatten() {
            let is_near = arena.committed_len() / 2 <= size;
            if !arena.is_offered || !arena.is_empty() || !is_near {
                continue;
            }
            if let Some(allocated) = request.take_from(arena, &mut self.budget) {
                arena.is_single = true;
                return Some(allocated);
            }
        }
        // Room to grow in place by a half. It costs addresses, and no memory.
        let len = size + size / 2 + (request.align + 1) * PAGE;
        let len = len.next_multiple_of(ARENA_ALIGN).min(ARENA_MAX);
        self.allocate_from_new(request, len, true)
    }

    fn allocate_from_new(
        &mut self,
        request: Request,
        len: usize,
        is_single: bool,
    ) -> Option<(usize, usize)> {
        let index = self.all.iter().position(Option::is_none)?;
        let mapped = |arena: &Arena| 2 * arena.len;
        let all_mapped: usize = self.all.iter().flatten().map(mapped).sum();
        if !self.budget.is_positive() || !system::permits_file(len, all_mapped + 2 * len) {
            return None;
        }
        let mut arena = Arena::create(self.last_serial + 1, len, is_single).ok()?;
        if (arena.base + len) >> ADDRESS_BITS != 0 {
            arena.end();
            return None;
        }
        self.budget.add(arena.committed_len());
        let Some(allocated) = request.take_from(&mut arena, &mut self.budget) else {
            arena.end();
            return None;
        };
        self.last_serial += 1;
        for granule in granules(&arena) {
            granule.store(index as u8 + 1, Ordering::Relaxed);
        }
        self.all[index] = Some(arena);
        self.slots = self.slots.max(index + 1);
        CHANGES.fetch_add(1, Ordering::Release);
        Some(allocated)
    }

    /// Frees the allocation at an address. Returns `false` if none begins there.
    pub(crate) fn free(&mut self, address: usize) -> bool {
        let Some(index) = index_of(address) else {
            return false;
        };
        let Some(arena) = &mut self.all[index] else {
            return false;
        };
        if !arena.free(address) {
            return false;
        }
        if arena.is_empty() {
            arena.empty_since = system::milliseconds();
            let is_offered = arena.is_offered;
            if !is_offered || self.retained_len() > self.retained {
                self.end(index);
            }
        }
        self.end_expired();
        true
    }

    pub(crate) fn resize(&mut self, address: usize, size: usize) -> bool {
        let arena = index_of(address).and_then(|index| self.all[index].as_mut());
        let Some(arena) = arena else { return false };
        if size > self.largest {
            return false;
        }
        let budget = &mut self.budget;
        arena.resize(address, size.div_ceil(PAGE), &mut |len| budget.grant(len))
    }

    pub(crate) fn usable_size(&self, address: usize) -> Option<usize> {
        self.all[index_of(address)?].as_ref()?.len_of(address)
    }

    /// The number of committed bytes of empty arenas.
    fn retained_len(&self) -> usize {
        let arenas = self.all[..self.slots].iter().flatten();
        let empty = arenas.filter(|arena| arena.is_empty());
        empty.map(Arena::committed_len).sum()
    }

    /// Ends all empty arenas. Returns whether there were any.
    pub(crate) fn end_empty(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.slots {
            if self.all[index].as_ref().is_some_and(Arena::is_empty) {
                self.end(index);
                found = true;
            }
        }
        found
    }

    /// Ends the arenas that have been empty for longer than [`DECAY`].
    fn end_expired(&mut self) {
        let mut now = 0;
        for index in 0..self.slots {
            let Some(arena) = self.all[index].as_ref().filter(|s| s.is_empty()) else {
                continue;
            };
            if now == 0 {
                now = system::milliseconds();
            }
            if now.saturating_sub(arena.empty_since) > DECAY {
                self.end(index);
            }
        }
    }

    fn end(&mut self, index: usize) {
        let Some(arena) = self.all[index].take() else {
            return;
        };
        while self.slots > 0 && self.all[self.slots - 1].is_none() {
            self.slots -= 1;
        }
        for granule in granules(&arena) {
            granule.store(0, Ordering::Relaxed);
        }
        self.budget.subtract(arena.committed_len());
        arena.end();
        CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Separates the program's memory from the files of all arenas.
    pub(crate) fn separate_all(&mut self) {
        for index in 0..self.slots {
            match &mut self.all[index] {
                Some(arena) if arena.is_empty() => self.end(index),
                Some(arena) if arena.is_offered => {
                    if !arena.separate() {
                        system::print_error(&[
                            b"no memory to separate an arena before a fork: the child does not have it",
                        ]);
                    }
                    CHANGES.fetch_add(1, Ordering::Release);
                }
                _ => {}
            }
        }
    }

    /// [`Self::separate_all`] in a child whose parent still offers the files. Returns whether there
    /// were any.
    pub(crate) fn separate_from_parent(&mut self) -> bool {
        let mut found = false;
        let offered = self.all.iter_mut().flatten();
        for arena in offered.filter(|arena| arena.is_offered) {
            found = true;
            if !arena.separate_from_parent() {
                system::print_error(&[b"no memory to separate a child from its parent"]);
            }
        }
        found
    }
}

/// A number of pages, and their alignment in pages.
#[derive(Clone, Copy)]
struct Request {
    count: usize,
    align: usize,
}

impl Request {
    fn take_from(self, arena: &mut Arena, budget: &mut Budget) -> Option<(usize, usize)> {
        arena.allocate(self.count, self.align, &mut |len| budget.grant(len))
    }
}

fn granules(arena: &Arena) -> &'static [AtomicU8] {
    let first = arena.base / ARENA_ALIGN;
    &ARENA_OF_ADDRESS[first..first + arena.len / ARENA_ALIGN]
}
