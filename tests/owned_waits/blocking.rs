//! Threads that park in `Endpoint::wait`, and in `poll(2)` on the descriptor of an endpoint.

use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Context, Errno, FiAddr, wait};

use crate::transport::Transport;
use crate::watchdog::under_watchdog;
use crate::{ROUNDS, over_each_provider};

/// Waits until the list has a new completion.
type Wait = fn(&Endpoint, &mut Completions);

/// A side of an exchange: an endpoint, the buffers of its operations, and the peer.
struct Side<'a> {
    ep: &'a Endpoint,
    peer: FiAddr,
    pool: Pool,
    wait: Wait,
}

const SEND: Context = Context(1);
const RECEIVE: Context = Context(2);

impl Side<'_> {
    fn send(&self, number: u64) {
        let mut buf = self.pool.take().unwrap();
        buf.write(&number.to_ne_bytes()).unwrap();
        self.ep.send(buf, self.peer, SEND).unwrap();
    }

    fn post_receive(&self) {
        let buf = self.pool.take().unwrap();
        self.ep.recv(buf, FiAddr::UNSPEC, RECEIVE).unwrap();
    }

    /// Waits for a number, and for the completions of earlier sends.
    fn receive(&self) -> u64 {
        let mut done = Completions::with_capacity(2);
        loop {
            (self.wait)(self.ep, &mut done);
            let received = done.drain().filter(|completion| {
                assert_eq!(completion.result.as_ref().err().map(|e| e.errno), None);
                completion.context == RECEIVE
            });
            if let Some(message) = received.last() {
                return u64::from_ne_bytes(message.buf[..].try_into().unwrap());
            }
        }
    }
}

/// Two threads send numbers to each other and wait in turns.
fn exchange(transport: &Transport, object: wait::Object, wait: Wait) {
    let ((a, a_addr), (b, b_addr)) = (transport.polled(object), transport.polled(object));
    let side = |ep, peer| Side {
        ep,
        peer,
        pool: transport.pool(8),
        wait,
    };
    thread::scope(|scope| {
        let (client, server) = (side(&a, b_addr), side(&b, a_addr));
        server.post_receive();
        scope.spawn(move || {
            for number in 0..ROUNDS {
                assert_eq!(server.receive(), number);
                server.post_receive();
                server.send(number + 1);
            }
            // Progresses the last message until the client has received it.
            let mut done = Completions::with_capacity(1);
            server
                .ep
                .wait(&mut done, Some(Duration::from_millis(1)))
                .unwrap();
        });
        for number in 0..ROUNDS {
            client.post_receive();
            client.send(number);
            assert_eq!(client.receive(), number + 1);
        }
    });
}

#[test]
fn a_thread_waits_until_a_message_arrives() {
    over_each_provider(|transport| {
        exchange(transport, wait::Object::Unspec, |ep, done| {
            ep.wait(done, None).unwrap();
        });
    });
}

/// Blocks in poll(2) until the endpoint has a completion.
fn poll_descriptor(ep: &Endpoint, done: &mut Completions) {
    while ep.poll(done).unwrap() == 0 {
        match ep.try_wait() {
            Ok(()) => {
                let mut fds = [PollFd::new(ep.wait_fd().unwrap(), PollFlags::POLLIN)];
                assert_eq!(poll(&mut fds, PollTimeout::NONE), Ok(1));
            }
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
    }
}

#[test]
fn a_program_blocks_on_the_descriptor_until_a_message_arrives() {
    over_each_provider(|transport| exchange(transport, wait::Object::Fd, poll_descriptor));
}

/// The number of times that this thread has given up the processor to wait.
fn parks() -> i64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    usage.voluntary_context_switches()
}

#[test]
fn a_wait_parks_until_its_timeout() {
    over_each_provider(|transport| {
        let (ep, _) = transport.polled(wait::Object::Unspec);
        let pool = transport.pool(1);
        ep.recv(pool.take().unwrap(), FiAddr::UNSPEC, RECEIVE)
            .unwrap();
        let mut done = Completions::with_capacity(1);
        let before = parks();
        let timeout = Some(Duration::from_millis(20));
        assert_eq!(ep.wait(&mut done, timeout), Ok(0));
        assert!(parks() > before, "the thread has not parked");
        assert_eq!(ep.wait(&mut done, Some(Duration::ZERO)), Ok(0));
    });
}

#[test]
fn a_signal_ends_a_wait_of_another_thread() {
    over_each_provider(|transport| {
        let (ep, _) = transport.polled(wait::Object::Unspec);
        for _ in 0..ROUNDS {
            thread::scope(|scope| {
                let waiter = scope.spawn(|| ep.wait(&mut Completions::with_capacity(1), None));
                ep.signal().unwrap();
                assert_eq!(waiter.join().unwrap(), Ok(0));
            });
        }
    });
}

#[test]
fn an_endpoint_without_a_wait_object_refuses_waits() {
    under_watchdog(|| {
        let transport = Transport::open("shm");
        for object in [wait::Object::None, wait::Object::Unspec] {
            let (ep, _) = transport.polled(object);
            let error = ep.wait_fd().unwrap_err();
            assert_eq!(error.errno(), Errno::NoSys);
            assert!(error.to_string().contains("wait::Object::Fd"), "{error}");
            assert_eq!(ep.try_wait(), Err(Errno::NoSys));
        }
        let (ep, _) = transport.polled(wait::Object::None);
        let mut done = Completions::with_capacity(1);
        assert_eq!(ep.wait(&mut done, None), Err(Errno::NoSys));
        assert_eq!(ep.signal(), Err(Errno::NoSys));
    });
}
