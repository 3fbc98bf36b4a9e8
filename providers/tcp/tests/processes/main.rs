//! Real processes that die, and threads that sleep.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/side.rs"]
mod side;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{self, Entry};
use selvedge::info::{EpType, Progress};
use selvedge::{Bindings, Context, Errno, FiAddr, av, wait};

use side::{Side, exchange, info, pattern, until};

/// What every endpoint is opened with, besides what its test asks for.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// Set in the process that is to die.
const VICTIM: &str = "SELVEDGE_TCP_TEST_VICTIM";

#[test]
fn everything_posted_to_a_process_that_is_killed_ends_with_its_name() {
    if std::env::var_os(VICTIM).is_some() {
        let victim = Side::new();
        println!("at {}", victim.addr());
        loop {
            victim.drive();
        }
    }
    let name = "everything_posted_to_a_process_that_is_killed_ends_with_its_name";
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let addr = lines.find_map(|line| {
        line.split_once("at 127")
            .map(|(_, rest)| format!("127{rest}"))
    });
    let addr = addr.unwrap();
    let (a, other) = (Side::new(), Side::new());
    let to = a.insert(addr.parse().unwrap());
    a.tsend(to, 1, b"first", 1).unwrap();
    a.wait_for(1, &[]);
    a.trecv(to, 2, 8, 2);
    // More than all sockets of the two hold.
    a.tsend(to, 3, &vec![7; 64 << 20], 3).unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let mut contexts = [0; 2].map(|_| {
        let error = a.wait(&[]).unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnReset, to));
        assert!(error.detail.contains(&addr), "{}", error.detail);
        error.entry.context.0
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [2, 3]);
    exchange(&a, &other);
    exchange(&other, &a);
}

fn waiting(object: wait::Object, progress: Progress) -> Side {
    let mut info = info(EpType::Rdm, &[]);
    info.domain_attr.data_progress = progress;
    let domain = info.open().unwrap();
    let mut attr = cq::Attr::default();
    attr.wait_obj = object;
    let cq = domain.cq(&attr).unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
    let ep = domain.endpoint(&info, bindings).unwrap();
    Side::around(ep, cq, av, domain)
}

#[test]
fn a_sleeper_is_woken_by_messages_of_every_size() {
    for object in [wait::Object::Unspec, wait::Object::Fd, wait::Object::Yield] {
        let (a, b) = (Side::new(), waiting(object, Progress::Manual));
        let to_b = a.knows(&b);
        for len in [0, 8, 5000, 3 << 20] {
            let bytes = pattern(1, len);
            let landing = b.trecv(FiAddr::UNSPEC, 1, len, 7);
            let cq = Arc::clone(&b.cq);
            let sleeper = std::thread::spawn(move || {
                let mut entry = [Entry::default()];
                assert_eq!(cq.wait(&mut entry, Some(Duration::from_secs(60))), Ok(1));
                entry[0].context
            });
            // Most of the time it is asleep by then.
            std::thread::sleep(Duration::from_millis(2));
            a.tsend(to_b, 1, &bytes, 1).unwrap();
            a.wait_for(1, &[]);
            until(|| {
                a.drive();
                sleeper.is_finished().then_some(())
            });
            assert_eq!(sleeper.join().unwrap(), Context(7));
            assert_eq!(landing.bytes(), bytes);
        }
    }
}

#[test]
fn automatic_progress_needs_no_call() {
    let sides = [(); 2].map(|()| waiting(wait::Object::None, Progress::Auto));
    let [a, b] = &sides;
    let to_b = a.knows(b);
    let bytes = pattern(1, 1 << 20);
    let landing = b.trecv(FiAddr::UNSPEC, 1, bytes.len(), 7);
    a.tsend(to_b, 1, &bytes, 1).unwrap();
    for (side, context) in [(b, 7), (a, 1)] {
        let mut entry = [Entry::default()];
        until(|| (side.cq.read_ready(&mut entry, &mut [FiAddr(0)]) == Ok(1)).then_some(()));
        assert_eq!(entry[0].context, Context(context));
    }
    assert_eq!(landing.bytes(), bytes);
}

#[test]
fn a_child_that_is_forked_gets_errors_and_its_parent_goes_on() {
    let (a, b) = (Side::new(), Side::new());
    exchange(&a, &b);
    let to_b = a.knows(&b);
    let landing = b.trecv(FiAddr::UNSPEC, 9, 1 << 20, 9);
    a.tsend(to_b, 9, &pattern(9, 1 << 20), 9).unwrap();
    #[expect(unsafe_code, reason = "a child that only calls what it may")]
    // SAFETY: the child calls the provider, which has to stand that, and ends without cleaning up.
    let child = match unsafe { libc::fork() } {
        0 => {
            let refused = a.tsend(to_b, 9, b"from a child", 1) == Err(Errno::BadF);
            let refused = refused && a.cq.read(&mut [Entry::default()]) == Err(Errno::BadF);
            // SAFETY: nothing of the parent's is touched behind this.
            unsafe { libc::_exit(i32::from(!refused)) }
        }
        child => child,
    };
    let status = until(|| {
        let mut status = 0;
        #[expect(unsafe_code, reason = "waiting for the child")]
        // SAFETY: a place for the status, as long as the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        (ended == child).then_some(status)
    });
    assert_eq!(status, 0);
    b.wait_for(9, &[&a]);
    a.wait_for(9, &[&b]);
    assert_eq!(landing.bytes(), pattern(9, 1 << 20));
    exchange(&a, &b);
    exchange(&b, &a);
}
