//! Real processes that die, and threads that sleep.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod killed;
mod other;
#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/side.rs"]
mod side;
mod sleepers;

use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};

use side::{Side, exchange, pattern, until};

/// What every endpoint is opened with, besides what its test asks for.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// The same in a process that a test starts.
const fn variables_of_another() -> Vec<(&'static str, String)> {
    variables()
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
