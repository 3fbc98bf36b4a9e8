//! Tests of completion queues in C, over a queue whose entries the test sets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use selvedge::wait::Object as Kind;

use super::*;

/// A queue with a number of entries, numbered by their tags. Its reads check that the memory that
/// they borrow is initialised.
#[derive(Debug)]
struct TestQueue {
    entries_left: AtomicUsize,
    /// Whether borrowed memory held a value other than an entry's default.
    was_uninitialised: AtomicBool,
    ends_without_error: AtomicBool,
}

impl CompletionQueue for TestQueue {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        let mut src = vec![FiAddr::UNSPEC; out.len()];
        self.read_from(out, &mut src)
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let is_default = |entry: &Entry| *entry == Entry::default();
        if !out.iter().all(is_default) || !src.iter().all(|src| *src == FiAddr::UNSPEC) {
            self.was_uninitialised.store(true, Ordering::Relaxed);
        }
        let mut entries_left = self.entries_left.load(Ordering::Relaxed);
        if entries_left == 0 && !out.is_empty() && !self.ends_without_error.load(Ordering::Relaxed)
        {
            return Err(Errno::Avail);
        }
        let count = entries_left.min(out.len());
        for (entry, src) in out.iter_mut().zip(src).take(count) {
            (entry.tag, *src) = (entries_left as u64, FiAddr(entries_left as u64));
            entries_left -= 1;
        }
        self.entries_left.store(entries_left, Ordering::Relaxed);
        Ok(count)
    }

    fn read_err(&self) -> Result<ErrEntry> {
        Err(Errno::Again)
    }
}

fn open_queue(entries: usize, is_followed_by_error: bool) -> (Arc<TestQueue>, Cq) {
    let queue = Arc::new(TestQueue {
        entries_left: entries.into(),
        was_uninitialised: false.into(),
        ends_without_error: (!is_followed_by_error).into(),
    });
    let member = Member::Cq(Arc::<TestQueue>::clone(&queue));
    let cq = Cq {
        inner: Arc::<TestQueue>::clone(&queue),
        format: Format::Tagged,
        wait_obj: WaitObject::new(Kind::None, None, member).unwrap(),
        version: Version::new(1, 18),
        policy: ReadPolicy::new(),
        last: LastError::default(),
    };
    (queue, cq)
}

/// An entry in a program's memory before the read.
const GARBAGE: [u64; size_of::<Entry>() / 8] = [0xa5a5_a5a5_a5a5_a5a5; _];

#[test]
fn memory_of_a_program_is_initialised_before_it_is_borrowed() {
    const ROOM: usize = 70;
    for entries in [0, 1, 4, 5, 36, 37, 70, 90] {
        for wants_sources in [false, true] {
            let (queue, cq) = open_queue(entries, false);
            let (mut out, mut src) = ([GARBAGE; ROOM], [7; ROOM]);
            let buf = out.as_mut_ptr().cast();
            let read_count = if wants_sources {
                // SAFETY: room for as many entries and sources.
                unsafe { cq.readfrom_tagged(buf, ROOM, src.as_mut_ptr()) }
            } else {
                // SAFETY: as above.
                unsafe { cq.read_tagged(buf, ROOM) }
            };
            let expected = entries.min(ROOM);
            match expected {
                0 => assert_eq!(read_count, count_status(Err(Errno::Again))),
                _ => assert_eq!(read_count.cast_unsigned(), expected),
            }
            for (index, words) in out[..expected].iter().enumerate() {
                // SAFETY: `expected` entries were written.
                let entry = unsafe { words.as_ptr().cast::<Entry>().read() };
                assert_eq!(entry.tag, (entries - index) as u64);
                assert!(!wants_sources || src[index] == entry.tag);
            }
            assert!(!queue.was_uninitialised.load(Ordering::Relaxed));
        }
    }
}

/// The queue has had entries before, so that the first step has room for more than one.
#[test]
fn a_single_entry_is_read_with_and_without_a_second_poll() {
    let (queue, cq) = open_queue(2, false);
    let mut out = [GARBAGE; 40];
    // SAFETY: room for as many entries.
    let mut read = || unsafe { cq.read_tagged(out.as_mut_ptr().cast(), 40) };
    assert_eq!(read(), 2);
    for _ in 0..200 {
        queue.entries_left.store(1, Ordering::Relaxed);
        assert_eq!(read(), 1);
        queue.entries_left.store(3, Ordering::Relaxed);
        assert_eq!(read(), 3);
    }
    assert!(!queue.was_uninitialised.load(Ordering::Relaxed));
}

#[test]
fn entries_before_an_error_are_read_first() {
    let (_queue, cq) = open_queue(6, true);
    let mut out = [GARBAGE; 40];
    // SAFETY: room for as many entries.
    let mut read = || unsafe { cq.read_tagged(out.as_mut_ptr().cast(), 40) };
    assert_eq!((read(), read()), (6, count_status(Err(Errno::Avail))));
}
