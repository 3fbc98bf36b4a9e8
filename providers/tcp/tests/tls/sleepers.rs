//! Threads that sleep: what has come and was opened, or is to be, wakes them though the system has
//! nothing more to tell.

use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::{self, Entry};
use selvedge::info::{EpType, Progress};
use selvedge::{Bindings, Context, Errno, FiAddr, av, wait};

use crate::side::{Side, info, pattern, until};

fn waiting(object: wait::Object, progress: Progress) -> Side {
    let mut info = info(EpType::Rdm, &[("FI_TCP_SPIN_TIME", "0s")]);
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
fn a_sleeper_is_woken_by_messages_of_every_size_in_tls() {
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

/// Bytes that are opened in one turn, less a header.
const TURN: usize = (64 << 10) - 24;

#[test]
fn whoever_may_sleep_has_nothing_that_was_read_already() {
    let (a, b) = (Side::new(), waiting(wait::Object::Fd, Progress::Manual));
    let to_b = a.knows(&b);
    // The system has room for much after that.
    let large = pattern(9, 16 << 20);
    let landing = b.trecv(FiAddr::UNSPEC, 99, large.len(), 99);
    a.tsend(to_b, 99, &large, 99).unwrap();
    b.wait_for(99, &[&a]);
    a.wait_for(99, &[&b]);
    assert_eq!(landing.bytes(), large);
    // Of these, a turn takes less than what was read of the socket.
    for behind in (1..30_000).step_by(1500) {
        let bytes = pattern(behind, TURN + behind);
        let landing = b.trecv(FiAddr::UNSPEC, 1, bytes.len(), 2);
        a.tsend(to_b, 1, &bytes, 1).unwrap();
        a.wait_for(1, &[]);
        loop {
            if let Some(done) = b.poll() {
                assert_eq!(done.unwrap().context, Context(2));
                break;
            }
            if b.cq.try_wait() != Err(Errno::Again) {
                let mut fds = [PollFd::new(b.cq.wait_fd().unwrap(), PollFlags::POLLIN)];
                let woken = poll(&mut fds, PollTimeout::from(20_000_u16));
                assert_eq!(woken, Ok(1), "asleep over the last {behind} bytes");
            }
        }
        assert_eq!(landing.bytes(), bytes);
    }
}

#[test]
fn automatic_progress_needs_no_call_in_tls() {
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
