//! One thread is parked in a test. Another thread posts, looks up or closes, and makes no further
//! call. The parked thread continues the work.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use nix::unistd::gettid;
use selvedge_bmi::{Bmi, Config, Post};

use crate::common::{
    SCHEMES, TIMEOUT, for_each_scheme, is_parked, pending, server_at, unexpected, until,
};

/// Longer than the test takes.
const LONG: Duration = Duration::from_secs(20);

/// Stores the thread's id, then waits.
fn park<T>(thread: &AtomicI32, wait: impl FnOnce() -> T) -> T {
    thread.store(gettid().as_raw(), Ordering::SeqCst);
    wait()
}

fn until_parked(thread: &AtomicI32) {
    until("a thread to park", || {
        let thread = thread.load(Ordering::SeqCst);
        (thread != 0 && is_parked(thread)).then_some(())
    });
}

#[test]
fn a_parked_thread_sends_the_queued_posts_of_another_thread() {
    const MESSAGES: usize = 20_000;
    for_each_scheme(|pair| {
        let (server, client) = (&pair.server, &pair.client);
        let id = pending(client.recv(1, 2));
        let thread = &AtomicI32::new(0);
        thread::scope(|scope| {
            let wait = || client.bmi.test(id, 2 * TIMEOUT, client.context).unwrap();
            let parked = scope.spawn(move || park(thread, wait));
            until_parked(thread);
            for _ in 0..MESSAGES {
                client.send(&[1; 8], 1).unwrap();
            }
            // From here on only the parked thread progresses the client.
            for _ in 0..MESSAGES {
                server.wait(server.recv(8, 1));
            }
            server.wait(server.send(&[1], 2));
            assert!(parked.join().unwrap().is_some());
        });
    });
}

#[test]
fn a_parked_thread_progresses_a_method_that_another_thread_activates() {
    for scheme in SCHEMES {
        let (server, url) = server_at(scheme);
        let context = server.open_context().unwrap();
        let client = Bmi::initialize(Config::client()).unwrap();
        let client_context = client.open_context().unwrap();
        let thread = &AtomicI32::new(0);
        thread::scope(|scope| {
            let wait = || client.testcontext(1, LONG, client_context, |_| ());
            let parked = scope.spawn(move || park(thread, wait));
            until_parked(thread);
            let peer = client.addr_lookup(&url).unwrap();
            pending(client.post_recv(Post::new(peer, vec![0; 8], 2, client_context)));
            let post = Post::new(peer, Vec::<u8>::new(), 1, client_context);
            client.post_sendunexpected(post, 0).unwrap();
            // From here on only the parked thread progresses the client.
            let hello = until("a hello", || unexpected(&server, 0));
            let post = Post::new(hello.addr, vec![7; 8], 2, context);
            server.post_send(post).unwrap();
            until("the end of the wait", || {
                server
                    .testcontext(1, Duration::ZERO, context, |_| ())
                    .unwrap();
                parked.is_finished().then_some(())
            });
            assert_eq!(parked.join().unwrap(), Ok(1), "{scheme}");
        });
    }
}

#[test]
fn a_waiting_test_ends_when_its_context_is_closed() {
    for_each_scheme(|pair| {
        let side = &pair.server;
        let thread = &AtomicI32::new(0);
        thread::scope(|scope| {
            let wait = || side.bmi.testcontext(1, 2 * TIMEOUT, side.context, |_| ());
            let parked = scope.spawn(move || park(thread, wait));
            until_parked(thread);
            side.bmi.close_context(side.context);
            until("the end of the wait", || {
                thread::yield_now();
                parked.is_finished().then_some(())
            });
            assert_eq!(parked.join().unwrap(), Ok(0));
        });
    });
}
