//! Tests with several processes and with parked threads.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod child_process;
#[expect(dead_code, reason = "not every helper is for every test")]
#[path = "../one_process/endpoint.rs"]
mod endpoint;
mod killed;
mod parked;

use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::local::until;

use endpoint::{CopyingEndpoint, exchange, pattern};

/// Parameters of every endpoint, beside those of its test.
const fn variables() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// Parameters of every endpoint in a process that a test starts.
const fn child_variables() -> Vec<(&'static str, String)> {
    variables()
}

#[test]
fn calls_in_a_forked_child_fail_and_the_parent_continues() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    exchange(&a, &b);
    let to_b = a.insert_endpoint(&b);
    let buffer = b.trecv(FiAddr::UNSPEC, 9, 1 << 20, 9);
    a.tsend(to_b, 9, &pattern(9, 1 << 20), 9).unwrap();
    #[expect(unsafe_code, reason = "the forked child is the subject of the test")]
    // SAFETY: the child only calls the provider, which must reject the calls, and exits without
    // running destructors.
    let child = match unsafe { libc::fork() } {
        0 => {
            let are_refused = a.tsend(to_b, 9, b"from a child", 1) == Err(Errno::BadF)
                && a.cq().read(&mut [Entry::default()]) == Err(Errno::BadF);
            // SAFETY: `_exit` runs no code that depends on threads of the parent.
            unsafe { libc::_exit(i32::from(!are_refused)) }
        }
        child => child,
    };
    let status = until(|| {
        let mut status = 0;
        #[expect(unsafe_code, reason = "waiting for the child")]
        // SAFETY: the status variable lives as long as the call.
        let ended = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        (ended == child).then_some(status)
    });
    assert_eq!(status, 0);
    b.wait_for(9, &[&a]);
    a.wait_for(9, &[&b]);
    assert_eq!(buffer.bytes(), pattern(9, 1 << 20));
    exchange(&a, &b);
    exchange(&b, &a);
}
