//! Tests of completion queues in C, over a queue whose entries the test sets.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use selvedge::wait::Object as Kind;

use super::*;

/// A queue with a number of entries, numbered by their tags. It reads the memory that it borrows,
/// as any code with a slice may.
#[derive(Debug)]
struct Stocked {
    left: AtomicUsize,
    /// Whether the memory held a value other than an entry's default.
    has_seen_other: AtomicBool,
    lacks_an_error: AtomicBool,
}

impl CompletionQueue for Stocked {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        let mut src = vec![FiAddr::UNSPEC; out.len()];
        self.read_from(out, &mut src)
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let is_default = |entry: &Entry| *entry == Entry::default();
        if !out.iter().all(is_default) || !src.iter().all(|src| *src == FiAddr::UNSPEC) {
            self.has_seen_other.store(true, Ordering::Relaxed);
        }
        let mut left = self.left.load(Ordering::Relaxed);
        if left == 0 && !out.is_empty() && !self.lacks_an_error.load(Ordering::Relaxed) {
            return Err(Errno::Avail);
        }
        let count = left.min(out.len());
        for (entry, src) in out.iter_mut().zip(src).take(count) {
            (entry.tag, *src) = (left as u64, FiAddr(left as u64));
            left -= 1;
        }
        self.left.store(left, Ordering::Relaxed);
        Ok(count)
    }

    fn read_err(&self) -> Result<ErrEntry> {
        Err(Errno::Again)
    }
}

fn opened(entries: usize, is_followed_by_error: bool) -> (Arc<Stocked>, Cq) {
    let stock = Arc::new(Stocked {
        left: entries.into(),
        has_seen_other: false.into(),
        lacks_an_error: (!is_followed_by_error).into(),
    });
    let member = Member::Cq(Arc::<Stocked>::clone(&stock));
    let cq = Cq {
        inner: Arc::<Stocked>::clone(&stock),
        format: Format::Tagged,
        wait_obj: WaitObject::new(Kind::None, None, member).unwrap(),
        version: Version::new(1, 18),
        last: LastError::default(),
    };
    (stock, cq)
}

/// An entry in a program's memory that holds other values.
const OTHER: [u64; size_of::<Entry>() / 8] = [0xa5a5_a5a5_a5a5_a5a5; _];

#[test]
fn memory_of_a_program_is_initialised_before_it_is_borrowed() {
    const ROOM: usize = 70;
    for entries in [0, 1, 4, 5, 36, 37, 70, 90] {
        for wants_sources in [false, true] {
            let (stock, cq) = opened(entries, false);
            let (mut out, mut src) = ([OTHER; ROOM], [7; ROOM]);
            let buf = out.as_mut_ptr().cast();
            let taken = match wants_sources {
                // SAFETY: room for as many entries and sources.
                true => unsafe { cq.readfrom_whole(buf, ROOM, src.as_mut_ptr()) },
                // SAFETY: as above.
                false => unsafe { cq.read_whole(buf, ROOM) },
            };
            let expected = entries.min(ROOM);
            match expected {
                0 => assert_eq!(taken, count_status(Err(Errno::Again))),
                _ => assert_eq!(taken.cast_unsigned(), expected),
            }
            for (at, words) in out[..expected].iter().enumerate() {
                // SAFETY: `expected` entries were written.
                let entry = unsafe { words.as_ptr().cast::<Entry>().read() };
                assert_eq!(entry.tag, (entries - at) as u64);
                assert!(!wants_sources || src[at] == entry.tag);
            }
            assert!(!stock.has_seen_other.load(Ordering::Relaxed));
        }
    }
}

#[test]
fn entries_before_an_error_are_read_first() {
    let (_stock, cq) = opened(6, true);
    let mut out = [OTHER; 40];
    // SAFETY: room for as many entries.
    let mut read = || unsafe { cq.read_whole(out.as_mut_ptr().cast(), 40) };
    assert_eq!((read(), read()), (6, count_status(Err(Errno::Avail))));
}
