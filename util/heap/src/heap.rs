//! The heap of this process: its segments, and the functions that the allocators call.
//!
//! Whether an address is the heap's is one load from a table ([`owns`]), because every call of
//! `free` asks. All else happens behind one lock. The heap reserves no address range in advance: a
//! reservation would count against `RLIMIT_AS`.

#![expect(unsafe_code, reason = "the caller's promise about a pointer")]

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::config::Config;
use crate::fork;
use crate::lock::Lock;
use crate::segment::Segment;
use crate::system::{self, GRANULE, PAGE};

/// The maximum number of segments. Each has a descriptor while it is offered.
const SEGMENTS: usize = 128;
/// A larger allocation has a segment of its own, whose pages are given back when it is freed.
const SHARED_MAX: usize = 16 << 20;
/// The largest shared segment. The n-th eight segments are 2^n times as large as the first.
const SHARED_SEGMENT_MAX: usize = 1 << 30;
/// The longest segment. The shm provider maps no longer file of a peer.
const SEGMENT_MAX: usize = 4 << 30;
/// The largest alignment. It fits into every segment, which begins at a multiple of [`GRANULE`].
const ALIGN_MAX: usize = GRANULE / 4;
/// How long an empty segment is kept for reuse, in milliseconds. It is given back by the next
/// operation of the heap after that time.
const DECAY: u64 = 1000;
/// Committed bytes after which the heap asks the system for the available memory again.
const CHECK_INTERVAL: usize = 32 << 20;

/// An allocation of the heap.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// The number of bytes from there that may not be zero. All other bytes are.
    pub dirty: usize,
}

/// Addresses above are not the heap's.
const ADDRESS_BITS: u32 = 48;
/// For each granule of the address space, the index of its segment plus one; 0 for none.
static GRANULES: [AtomicU8; 1 << (ADDRESS_BITS - GRANULE.trailing_zeros())] =
    [const { AtomicU8::new(0) }; _];

static HEAP: Lock<State> = Lock::new(State::EMPTY);

/// The smallest allocation of the heap. Before the parameters are read, it is the smallest
/// permitted value.
static THRESHOLD: AtomicUsize = AtomicUsize::new(PAGE);

/// The progress of the preparation, which the first large allocation makes.
static PREPARED: AtomicU8 = AtomicU8::new(UNPREPARED);
const UNPREPARED: u8 = 0;
const PREPARING: u8 = 1;
const READY: u8 = 2;

/// Incremented when a segment begins or ceases to be offered.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Allocates at least `size` bytes, aligned to a page and to `align`. Returns `None` if another
/// allocator should do that: the size is below the threshold or above the limit, there is no
/// memory, or this thread is inside the heap already.
pub fn allocate(size: usize, align: usize) -> Option<Allocated> {
    if size < THRESHOLD.load(Ordering::Relaxed) || !is_ready() || size < threshold() {
        return None;
    }
    let (address, dirty) = with(|heap| heap.allocate(size, align))??;
    let ptr = NonNull::new(ptr::with_exposed_provenance_mut(address))?;
    Some(Allocated { ptr, dirty })
}

/// Whether an address is in a segment of the heap.
#[inline]
pub fn owns(ptr: *const u8) -> bool {
    index_of(ptr.addr()).is_some()
}

#[inline]
fn index_of(address: usize) -> Option<usize> {
    let index = GRANULES.get(address / GRANULE)?.load(Ordering::Relaxed);
    usize::from(index).checked_sub(1)
}

/// Frees an allocation.
///
/// # Safety
/// - [`allocate`] has returned the pointer, and it was not freed since.
/// - Nothing accesses the memory any more.
pub unsafe fn free(ptr: *mut u8) {
    let address = ptr.addr();
    // A thread that is inside the heap already cannot free: the memory stays allocated.
    if with(|heap| heap.free(address)) == Some(false) {
        system::abort_invalid_pointer();
    }
}

/// Changes the length of an allocation in place. Returns `false` without effect if the memory
/// behind it is not free.
///
/// # Safety
/// - [`allocate`] has returned the pointer, and it was not freed since.
/// - Nothing accesses the memory beyond the new length any more.
pub unsafe fn resize(ptr: *mut u8, size: usize) -> bool {
    let address = ptr.addr();
    with(|heap| heap.resize(address, size)) == Some(true)
}

/// Returns the number of bytes that an allocation can hold. The process is aborted if there is no
/// allocation at the address; `None` if this thread is inside the heap already.
pub fn usable_size(ptr: *const u8) -> Option<usize> {
    let address = ptr.addr();
    match with(|heap| heap.usable_size(address))? {
        Some(len) => Some(len),
        None => system::abort_invalid_pointer(),
    }
}

/// Returns the smallest allocation that the heap serves, in bytes.
pub fn threshold() -> usize {
    match PREPARED.load(Ordering::Acquire) {
        READY => THRESHOLD.load(Ordering::Relaxed),
        _ => Config::DEFAULT_THRESHOLD,
    }
}

/// Whether this process has used the heap.
pub(crate) fn is_used() -> bool {
    PREPARED.load(Ordering::Acquire) == READY
}

/// Returns how often a segment began or ceased to be offered.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Acquire)
}

/// Runs `action` with the segment in which all of the `len` bytes at `address` lie, if it is
/// offered.
pub(crate) fn find<R>(address: usize, len: usize, action: impl FnOnce(&Segment) -> R) -> Option<R> {
    let index = index_of(address)?;
    with(|heap| {
        let segment = heap.segments[index]
            .as_ref()
            .filter(|segment| segment.is_offered)?;
        let offset = address.checked_sub(segment.base)?;
        let end = offset.checked_add(len)?;
        (offset >= PAGE && end <= segment.committed_len()).then(|| action(segment))
    })?
}

/// Runs `action` with the offered segment that has a serial number.
pub(crate) fn find_serial<R>(serial: u64, action: impl FnOnce(&Segment) -> R) -> Option<R> {
    with(|heap| {
        let mut segments = heap.segments.iter().flatten();
        segments
            .find(|segment| segment.serial == serial && segment.is_offered)
            .map(action)
    })?
}

/// Runs `action` with the heap. Returns `None` if this thread is inside the heap already.
fn with<R>(action: impl FnOnce(&mut State) -> R) -> Option<R> {
    fork::check_process();
    HEAP.with(action)
}

/// Prepares the heap if no thread has begun to. Returns whether it is ready.
fn is_ready() -> bool {
    match PREPARED.load(Ordering::Acquire) {
        READY => true,
        PREPARING => false,
        _ => prepare(),
    }
}

/// Reads the parameters and installs the fork handlers. Both may allocate small memory: the lock is
/// not held, and other threads use the other allocator meanwhile.
#[cold]
fn prepare() -> bool {
    let order = Ordering::Acquire;
    if PREPARED
        .compare_exchange(UNPREPARED, PREPARING, order, order)
        .is_err()
    {
        return false;
    }
    let config = Config::read();
    if !fork::install() {
        // Without its handlers the heap would let parent and child share memory.
        return false;
    }
    let is_set = HEAP.with(|heap| heap.configure(config)).is_some();
    if is_set {
        THRESHOLD.store(config.threshold, Ordering::Relaxed);
        PREPARED.store(READY, Ordering::Release);
    }
    is_set
}

/// Ends the sharing of all segments, and keeps the lock until [`after_fork`]. Returns `false` if
/// this thread has the lock already.
pub(crate) fn before_fork() -> bool {
    HEAP.hold(State::end_offers).is_some()
}

/// Frees the lock in the parent.
pub(crate) fn after_fork() {
    HEAP.release();
}

/// Frees the lock in a child, and separates the child from segments that the parent still offers.
/// Returns whether there were any.
///
/// # Safety
/// The calling thread is the only thread of the process.
pub(crate) unsafe fn enter_child() -> bool {
    // SAFETY: the condition of this function.
    unsafe { HEAP.reset() };
    HEAP.with(State::abandon_offers).unwrap_or(false)
}

/// The segments, behind the lock.
struct State {
    segments: [Option<Segment>; SEGMENTS],
    largest: usize,
    retained: usize,
    last_serial: u64,
    budget: Budget,
}

/// The memory that the heap may commit.
struct Budget {
    limit: usize,
    committed: usize,
    /// Bytes committed since the available memory was read.
    unchecked: usize,
}

impl Budget {
    /// Whether `len` more bytes may be committed. Counts them then.
    fn grant(&mut self, len: usize) -> bool {
        let committed = self.committed.saturating_add(len);
        if committed > self.limit {
            return false;
        }
        let unchecked = self.unchecked.saturating_add(len);
        self.unchecked = unchecked;
        if unchecked >= CHECK_INTERVAL {
            // Committing more than is available would make the kernel kill a process.
            if system::available_memory().is_some_and(|available| available < unchecked) {
                return false;
            }
            self.unchecked = 0;
        }
        self.committed = committed;
        true
    }
}

impl State {
    const EMPTY: Self = Self {
        segments: [const { None }; SEGMENTS],
        largest: 0,
        retained: 0,
        last_serial: 0,
        budget: Budget {
            limit: 0,
            committed: 0,
            unchecked: CHECK_INTERVAL,
        },
    };

    fn configure(&mut self, config: Config) {
        self.budget.limit = config.limit;
        self.retained = config.retained;
        self.largest = config.largest;
    }

    /// Returns the address, and the number of bytes from there that may not be zero.
    fn allocate(&mut self, size: usize, align: usize) -> Option<(usize, usize)> {
        if size > self.largest || align > ALIGN_MAX {
            return None;
        }
        self.end_expired();
        let request = Request {
            count: size.div_ceil(PAGE),
            align: align.max(PAGE) / PAGE,
        };
        let allocated = match size <= SHARED_MAX {
            true => self.allocate_shared(request),
            false => self.allocate_single(request),
        };
        if allocated.is_none() {
            // The commit of granted bytes may have failed.
            let segments = self.segments.iter().flatten();
            self.budget.committed = segments.map(Segment::committed_len).sum();
        }
        allocated
    }

    /// Allocates from the first segment with room.
    fn allocate_shared(&mut self, request: Request) -> Option<(usize, usize)> {
        let mut count = 0;
        for segment in self.segments.iter_mut().flatten() {
            if !segment.is_offered || segment.is_single && !segment.is_empty() {
                continue;
            }
            if let Some(allocated) = request.take_from(segment, &mut self.budget) {
                segment.is_single = false;
                return Some(allocated);
            }
            count += 1;
        }
        let len = (GRANULE << (count / 8).min(4)).min(SHARED_SEGMENT_MAX);
        self.allocate_from_new(request, len, false)
    }

    /// Allocates a segment, or reuses an empty one that is not much larger.
    fn allocate_single(&mut self, request: Request) -> Option<(usize, usize)> {
        let size = request.count * PAGE;
        for segment in self.segments.iter_mut().flatten() {
            let is_near = segment.committed_len() / 2 <= size;
            if !segment.is_offered || !segment.is_empty() || !is_near {
                continue;
            }
            if let Some(allocated) = request.take_from(segment, &mut self.budget) {
                segment.is_single = true;
                return Some(allocated);
            }
        }
        // Room to grow in place by a half. It costs addresses, and no memory.
        let len = size + size / 2 + (request.align + 1) * PAGE;
        let len = len.next_multiple_of(GRANULE).min(SEGMENT_MAX);
        self.allocate_from_new(request, len, true)
    }

    fn allocate_from_new(
        &mut self,
        request: Request,
        len: usize,
        is_single: bool,
    ) -> Option<(usize, usize)> {
        let index = self.segments.iter().position(Option::is_none)?;
        if self.budget.limit == 0 {
            return None;
        }
        let mut segment = Segment::create(self.last_serial + 1, len, is_single).ok()?;
        if (segment.base + len) >> ADDRESS_BITS != 0 {
            segment.end();
            return None;
        }
        self.budget.committed += segment.committed_len();
        let Some(allocated) = request.take_from(&mut segment, &mut self.budget) else {
            segment.end();
            return None;
        };
        self.last_serial += 1;
        for granule in granules(&segment) {
            granule.store(index as u8 + 1, Ordering::Relaxed);
        }
        self.segments[index] = Some(segment);
        CHANGES.fetch_add(1, Ordering::Release);
        Some(allocated)
    }

    /// Frees the allocation at an address. Returns `false` if none begins there.
    fn free(&mut self, address: usize) -> bool {
        let Some(index) = index_of(address) else {
            return false;
        };
        let Some(segment) = &mut self.segments[index] else {
            return false;
        };
        if !segment.free(address) {
            return false;
        }
        if segment.is_empty() {
            segment.empty_since = system::milliseconds();
            let is_offered = segment.is_offered;
            if !is_offered || self.retained_len() > self.retained {
                self.end(index);
            }
        }
        self.end_expired();
        true
    }

    fn resize(&mut self, address: usize, size: usize) -> bool {
        let segment = index_of(address).and_then(|index| self.segments[index].as_mut());
        let Some(segment) = segment else { return false };
        if size > self.largest {
            return false;
        }
        let budget = &mut self.budget;
        segment.resize(address, size.div_ceil(PAGE), &mut |len| budget.grant(len))
    }

    fn usable_size(&self, address: usize) -> Option<usize> {
        self.segments[index_of(address)?].as_ref()?.len_of(address)
    }

    /// The number of committed bytes of empty segments.
    fn retained_len(&self) -> usize {
        let segments = self.segments.iter().flatten();
        let empty = segments.filter(|segment| segment.is_empty());
        empty.map(Segment::committed_len).sum()
    }

    /// Ends the segments that have been empty for longer than [`DECAY`].
    fn end_expired(&mut self) {
        let mut now = 0;
        for index in 0..SEGMENTS {
            let Some(segment) = self.segments[index].as_ref().filter(|s| s.is_empty()) else {
                continue;
            };
            if now == 0 {
                now = system::milliseconds();
            }
            if now.saturating_sub(segment.empty_since) > DECAY {
                self.end(index);
            }
        }
    }

    fn end(&mut self, index: usize) {
        let Some(segment) = self.segments[index].take() else {
            return;
        };
        for granule in granules(&segment) {
            granule.store(0, Ordering::Relaxed);
        }
        self.budget.committed -= segment.committed_len().min(self.budget.committed);
        segment.end();
        CHANGES.fetch_add(1, Ordering::Release);
    }

    /// Separates the program's memory from the files of all segments.
    fn end_offers(&mut self) {
        for index in 0..SEGMENTS {
            match &mut self.segments[index] {
                Some(segment) if segment.is_empty() => self.end(index),
                Some(segment) if segment.is_offered => {
                    if !segment.end_offer() {
                        system::print_error(&[
                            b"no memory to separate a segment before a fork: the child does not have it",
                        ]);
                    }
                    CHANGES.fetch_add(1, Ordering::Release);
                }
                _ => {}
            }
        }
    }

    /// [`Self::end_offers`] in a child whose parent still offers the files. Returns whether there
    /// were any.
    fn abandon_offers(&mut self) -> bool {
        let mut found = false;
        let offered = self.segments.iter_mut().flatten();
        for segment in offered.filter(|segment| segment.is_offered) {
            found = true;
            if !segment.abandon() {
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
    fn take_from(self, segment: &mut Segment, budget: &mut Budget) -> Option<(usize, usize)> {
        segment.allocate(self.count, self.align, &mut |len| budget.grant(len))
    }
}

fn granules(segment: &Segment) -> &'static [AtomicU8] {
    let first = segment.base / GRANULE;
    &GRANULES[first..first + segment.len / GRANULE]
}
