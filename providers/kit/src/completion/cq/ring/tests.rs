//! Tests of the completion queue.

use std::thread;

use selvedge::wait;

use super::*;
use crate::wait::ArmOutcome;

#[expect(
    unsafe_code,
    reason = "calls an unsafe constructor, with thread-safe locks"
)]
fn open(attr: &Attr) -> Result<Arc<CqRing>, Error> {
    // SAFETY: the safe mode requires nothing.
    unsafe { CqRing::open(attr, Mode::Safe) }
}

fn entry(number: u64) -> Entry {
    Entry {
        context: Context(number),
        ..Entry::default()
    }
}

fn waiting_cq(object: wait::Object) -> Arc<CqRing> {
    let mut attr = Attr::default();
    attr.wait_obj = object;
    open(&attr).unwrap()
}

/// An endpoint that pushes as many completions as the budget allows.
#[derive(Debug)]
struct Source(Arc<CqRing>);

impl Progress for Source {
    fn progress(&self, budget: usize, _: &mut Sink<'_>) -> usize {
        for number in 0..budget {
            self.0.push(entry(number as u64), FiAddr(3));
        }
        budget
    }
}

#[test]
fn a_read_drives_each_attached_endpoint_once_and_up_to_its_budget() {
    let cq = open(&Attr::default()).unwrap();
    let ep: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
    cq.attach(&ep).unwrap();
    cq.attach(&ep).unwrap();
    let mut out = [Entry::default(); 3];
    assert_eq!(cq.read(&mut out), Ok(3));
    assert_eq!(cq.room(), 1024);
    cq.detach(&ep);
    assert_eq!(cq.read(&mut out), Ok(0));
    assert_eq!(Arc::strong_count(&ep), 1);
}

#[test]
fn reads_that_find_nothing_count_as_polls_in_vain() {
    let cq = open(&Attr::default()).unwrap();
    for polls in 1..4 {
        assert_eq!(cq.read(&mut [Entry::default()]), Ok(0));
        assert_eq!(cq.endpoints.polls_in_vain(), Some(polls));
    }
    let ep: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
    cq.attach(&ep).unwrap();
    assert_eq!(cq.read(&mut [Entry::default()]), Ok(1));
    assert_eq!(cq.endpoints.polls_in_vain(), Some(0));
}

/// An endpoint that completes an operation when it is armed.
#[derive(Debug)]
struct CompletesWhenArmed(Arc<CqRing>);

impl Progress for CompletesWhenArmed {
    fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
        0
    }

    fn arm(&self, _: &mut u64) -> ArmOutcome {
        self.0.push(entry(1), FiAddr::UNSPEC);
        ArmOutcome::Progressed
    }
}

#[test]
fn a_read_beside_threads_that_compute_parks_and_takes_the_entry_that_ends_the_park() {
    let cq = open(&Attr::default()).unwrap();
    let ep: Arc<dyn Progress> = Arc::new(CompletesWhenArmed(Arc::clone(&cq)));
    cq.attach(&ep).unwrap();
    cq.endpoints.park_from_now_on();
    let mut out = [Entry::default()];
    assert!(
        (0..1_000_000).any(|_| cq.read(&mut out) == Ok(1)),
        "no read parks"
    );
    assert_eq!(out, [entry(1)]);
}

#[test]
#[expect(unsafe_code, reason = "calls an unsafe constructor")]
fn a_policy_can_forbid_yields() {
    let (attr, policy) = (Attr::default(), PollPolicy::new(Duration::ZERO, false));
    // SAFETY: the safe mode requires nothing.
    let cq = unsafe { CqRing::open_in_domain(&attr, &DomainId::unnamed(), Mode::Safe, policy) };
    assert_eq!(cq.unwrap().endpoints.polls_in_vain(), None);
}

#[test]
fn reads_of_a_queue_that_is_never_empty_still_drive_its_endpoints() {
    let cq = open(&Attr::default()).unwrap();
    let ep: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
    cq.attach(&ep).unwrap();
    let mut out = [Entry::default(); 1];
    for number in 0..4 * DRIVE_INTERVAL as u64 {
        cq.push(entry(number), FiAddr::UNSPEC);
        assert_eq!(cq.read(&mut out), Ok(1));
    }
    let unread = 1024 - cq.room();
    let read = 4 * DRIVE_INTERVAL;
    assert_eq!(unread, read, "the source pushed as many as were read");
}

#[test]
fn a_read_into_an_empty_array_only_drives_the_endpoints() {
    let cq = open(&Attr::default()).unwrap();
    let source: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
    cq.attach(&source).unwrap();
    assert_eq!(cq.read(&mut []), Ok(0));
    assert_eq!(cq.room(), 1024 - BUDGET);
    assert_eq!(cq.read(&mut []), Ok(0));
    assert_eq!(cq.room(), 1024 - 2 * BUDGET);
}

#[test]
fn read_from_returns_the_source_of_each_entry() {
    let cq = open(&Attr::default()).unwrap();
    cq.push(entry(1), FiAddr(7));
    cq.push(entry(2), FiAddr::UNSPEC);
    let mut out = [Entry::default(); 4];
    let mut src = [FiAddr(0); 4];
    assert_eq!(cq.read_from(&mut out, &mut src[..3]), Err(Errno::Inval));
    assert_eq!(cq.read_from(&mut out, &mut src), Ok(2));
    assert_eq!(src[..2], [FiAddr(7), FiAddr::UNSPEC]);
    assert_eq!(out[1].context, Context(2));
}

#[test]
fn read_ready_drives_no_endpoint() {
    let cq = open(&Attr::default()).unwrap();
    let source: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
    cq.attach(&source).unwrap();
    let (mut out, mut src) = ([Entry::default(); 4], [FiAddr(0); 4]);
    assert_eq!(cq.read_ready(&mut out, &mut src), Ok(0));
    cq.push(entry(9), FiAddr(7));
    assert_eq!(cq.read_ready(&mut out, &mut src[..3]), Err(Errno::Inval));
    assert_eq!(cq.read_ready(&mut out, &mut src), Ok(1));
    assert_eq!((out[0].context, src[0]), (Context(9), FiAddr(7)));
    assert_eq!(cq.room(), 1024);
}

#[test]
fn nothing_is_lost_beyond_the_size() {
    let cq = open(&Attr::with_size(2)).unwrap();
    for number in 0..100 {
        cq.push(entry(number), FiAddr::UNSPEC);
    }
    cq.push_err(ErrEntry::new(entry(100), Errno::Io, "planted"));
    assert_eq!(cq.room(), 0);
    let mut out = [Entry::default(); 200];
    assert_eq!(cq.read(&mut out), Ok(100));
    assert_eq!(cq.read(&mut out), Err(Errno::Avail));
    assert_eq!(cq.read_err().unwrap().entry, entry(100));
    assert_eq!(cq.read_err().unwrap_err(), Errno::Again);
    assert_eq!(cq.room(), 2);
}

#[test]
fn the_error_of_an_excessive_size_contains_the_size() {
    let error = open(&Attr::with_size(usize::MAX)).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    assert!(error.message().contains(&usize::MAX.to_string()), "{error}");
}

#[test]
fn waits_without_a_wait_object_fail() {
    let cq = open(&Attr::default()).unwrap();
    assert_eq!(cq.wait(&mut [], None), Err(Errno::NoSys));
    assert_eq!(cq.signal(), Err(Errno::NoSys));
    assert_eq!(cq.try_wait(), Err(Errno::NoSys));
    assert!(cq.wait_fd().is_none());
}

/// An endpoint that completes an operation at its third progress call, and lets threads park.
#[derive(Debug)]
struct Late {
    cq: Arc<CqRing>,
    calls: AtomicUsize,
}

impl Progress for Late {
    fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
        let is_third = self.calls.fetch_add(1, Ordering::Relaxed) == 2;
        if is_third {
            self.cq.push(entry(3), FiAddr::UNSPEC);
        }
        usize::from(is_third)
    }

    fn arm(&self, _: &mut u64) -> ArmOutcome {
        ArmOutcome::UntilWoken
    }
}

fn cq_of_late_endpoint(spin_time: Duration) -> Arc<CqRing> {
    let mut attr = Attr::default();
    attr.wait_obj = wait::Object::Fd;
    attr.spin_time = Some(spin_time);
    let cq = open(&attr).unwrap();
    let calls = AtomicUsize::new(0);
    let late: Arc<dyn Progress> = Arc::new(Late {
        cq: Arc::clone(&cq),
        calls,
    });
    cq.attach(&late).unwrap();
    cq
}

#[test]
fn try_wait_polls_for_the_spin_time() {
    // `try_wait` stops polling early if its thread loses the processor between two polls. The
    // test then repeats the attempt.
    let found = || {
        let cq = cq_of_late_endpoint(Duration::from_hours(1));
        (cq.try_wait() == Err(Errno::Again)).then_some(cq)
    };
    let cq = (0..100).find_map(|_| found()).unwrap();
    assert_eq!(cq.try_wait(), Err(Errno::Again), "the entry stays");
    let mut out = [Entry::default(); 2];
    assert_eq!(cq.read(&mut out), Ok(1));
    assert_eq!(out[0], entry(3));
}

#[test]
fn without_spin_time_try_wait_does_not_poll() {
    let cq = cq_of_late_endpoint(Duration::ZERO);
    assert_eq!(cq.try_wait(), Ok(()));
}

#[test]
fn a_wait_ends_with_an_entry_a_signal_or_the_timeout() {
    for object in [wait::Object::Yield, wait::Object::Unspec, wait::Object::Fd] {
        let cq = waiting_cq(object);
        let mut out = [Entry::default(); 1];
        assert_eq!(cq.wait(&mut out, Some(Duration::ZERO)), Err(Errno::Again));
        let waiter = {
            let cq = Arc::clone(&cq);
            thread::spawn(move || cq.wait(&mut [Entry::default()], None))
        };
        cq.signal().unwrap();
        assert_eq!(waiter.join().unwrap(), Err(Errno::Again));
        cq.push(entry(5), FiAddr::UNSPEC);
        assert_eq!(cq.wait(&mut [], None), Ok(0));
        assert_eq!(cq.wait(&mut out, None), Ok(1));
    }
}

#[test]
fn no_progress_of_an_endpoint_runs_after_its_detachment() {
    let cq = open(&Attr::default()).unwrap();
    let reader = {
        let cq = Arc::clone(&cq);
        thread::spawn(
            move || {
                while cq.read(&mut [Entry::default()]) != Err(Errno::Avail) {}
            },
        )
    };
    for _ in 0..200 {
        let ep: Arc<dyn Progress> = Arc::new(Source(Arc::clone(&cq)));
        cq.attach(&ep).unwrap();
        thread::yield_now();
        cq.detach(&ep);
        assert_eq!(Arc::strong_count(&ep), 1);
    }
    cq.push_err(ErrEntry::new(entry(0), Errno::Canceled, "end"));
    reader.join().unwrap();
}
