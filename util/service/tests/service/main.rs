//! Tests of listeners and connections, with threads and with real processes.

#![expect(clippy::unwrap_used, reason = "a test may fail anywhere")]

mod cancellation;
mod dropped;
mod examples;
mod failures;
mod identity;
mod lent;
mod messages;
#[cfg(feature = "ofi")]
mod over_ofi;
mod processes;
mod refusals;
mod requests;
mod streams;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tokio")]
mod tokio_runtimes;
mod topics;
#[cfg(any(feature = "bytemuck", feature = "postcard"))]
mod typed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use selvedge_service::{Connection, Error, Event, Listener, connect};

/// The addresses under which a test runs: one for each transport.
fn addresses() -> [String; 2] {
    [name(), "tcp://127.0.0.1:0".to_owned()]
}

/// A name that no other test uses.
fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("shm://service-{}-{next}", std::process::id())
}

/// Runs `test` and ends the process if it hangs.
fn bounded<T>(test: impl FnOnce() -> T) -> T {
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        let limit = Duration::from_secs(100);
        if is_done.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test has hung for {limit:?}");
            std::process::abort();
        }
    });
    let result = test();
    drop(done);
    watchdog.join().unwrap();
    result
}

/// Listens, and connects while a thread of its own takes the first event.
fn connected(address: &str) -> (Listener, Connection) {
    let listener = Listener::bind(address).unwrap();
    let address = listener.addresses().unwrap().join(",");
    let connection = thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&address).wait());
        let event = listener.event().wait().unwrap();
        assert!(matches!(event, Event::Connected(_)), "{event:?}");
        connecting.join().unwrap().unwrap()
    });
    (listener, connection)
}

/// Responds to requests by `respond` until the client's connection ends.
fn serve_until_lost(listener: &Listener, respond: impl Fn(&[u8]) -> Vec<u8>) {
    loop {
        match listener.event().wait().unwrap() {
            Event::Request(request) => {
                let response = respond(&request);
                request.respond(&response);
            }
            Event::Lost(..) => return,
            _ => {}
        }
    }
}

/// Bytes that depend on their position and on `seed`.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|index| ((index ^ (index >> 8)) + seed) as u8)
        .collect()
}

fn ended(error: &Error) -> bool {
    matches!(error, Error::Ended(_))
}
