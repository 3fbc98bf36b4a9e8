//! Input that the TLS session has buffered, for which epoll(7) reports no event.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::info::Progress;
use selvedge::{Context, Errno, FiAddr, wait};

use crate::endpoint::{CopyingEndpoint, pattern};
use crate::parked::open_parking;

/// The bytes that one turn decrypts, without a header.
const TURN_LEN: usize = (64 << 10) - 24;

#[test]
fn a_thread_does_not_park_with_buffered_tls_input() {
    let (a, c) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    let b = open_parking(wait::Object::Fd, Progress::Manual);
    let (b_of_a, b_of_c) = (a.insert_endpoint(&b), c.insert_endpoint(&b));
    // A large message makes the kernel enlarge the receive buffer.
    let large = pattern(9, 16 << 20);
    let buffer = b.trecv(FiAddr::UNSPEC, 99, large.len(), 99);
    a.tsend(b_of_a, 99, &large, 99).unwrap();
    b.wait_for(99, &[&a]);
    a.wait_for(99, &[&b]);
    assert_eq!(buffer.bytes(), large);
    let _first = b.trecv(FiAddr::UNSPEC, 3, 1, 3);
    c.tsend(b_of_c, 3, &[0], 4).unwrap();
    b.wait_for(3, &[&c]);
    c.wait_for(4, &[&b]);
    // One turn delivers fewer bytes of such a message than the turn reads from the socket. A later
    // message of another peer keeps the endpoint from reading this connection without an event.
    for excess in (1..30_000).step_by(1500) {
        let bytes = pattern(excess, TURN_LEN + excess);
        let buffer = b.trecv(FiAddr::UNSPEC, 1, bytes.len(), 2);
        let _other = b.trecv(FiAddr::UNSPEC, 3, 1, 3);
        a.tsend(b_of_a, 1, &bytes, 1).unwrap();
        a.wait_for(1, &[]);
        c.tsend(b_of_c, 3, &[0], 4).unwrap();
        c.wait_for(4, &[]);
        let mut missing = vec![Context(2), Context(3)];
        while !missing.is_empty() {
            if let Some(done) = b.poll() {
                let context = done.unwrap().context;
                missing.retain(|expected| *expected != context);
            } else if b.cq().try_wait() != Err(Errno::Again) {
                let mut fds = [PollFd::new(b.cq().wait_fd().unwrap(), PollFlags::POLLIN)];
                let woken = poll(&mut fds, PollTimeout::from(20_000_u16));
                assert_eq!(woken, Ok(1), "the last {excess} bytes wake no thread");
            }
        }
        assert_eq!(buffer.bytes(), bytes);
    }
}
