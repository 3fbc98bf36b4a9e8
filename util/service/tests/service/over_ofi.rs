//! The same lines over a provider of another libfabric, Debian's.

use std::thread;

use nix::sys::signal::Signal;
use selvedge_service::{End, Error, Event, Listener, Options, connect_with};
use selvedge_testkit::long::is_long;
use selvedge_testkit::skip::{Need, skip};

use crate::processes::Process;
use crate::{bounded, pattern};

const PROVIDER: &str = "tcp;ofi_rxm";

/// A listener over the library, or `None` where there is none.
fn listener() -> Option<(Listener, String)> {
    let address = format!("ofi://127.0.0.1:0/{PROVIDER}");
    let listener = Listener::bind(&address);
    let listener = listener
        .map_err(|error| skip(Need::Libfabric, &error))
        .ok()?;
    let address = listener.addresses().unwrap().remove(0);
    Some((listener, address))
}

#[test]
fn requests_of_all_sizes_pass_over_another_libfabric() {
    bounded(|| {
        let Some((listener, address)) = listener() else {
            return;
        };
        assert!(address.ends_with(PROVIDER), "{address}");
        let _client = Process::start("requesting client", &address);
        let mut large = 0;
        while large < 200 {
            match listener.event().wait().unwrap() {
                Event::Request(request) => {
                    large += usize::from(request.len() > 8000);
                    request.respond(&request);
                }
                Event::Connected(peer) => assert_eq!(peer.identity(), None),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_killed_server_over_another_libfabric_ends_its_requests() {
    // It takes the seconds after which a peer that refuses everything counts as lost.
    if !is_long() {
        return;
    }
    bounded(|| {
        if listener().is_none() {
            return;
        }
        let address = format!("ofi://127.0.0.1:0/{PROVIDER}");
        let mut server = Process::start("silent server", &address);
        let address = server.line();
        let options = Options::new().request_timeout(None);
        let connection = connect_with(&address, &options).wait().unwrap();
        assert_eq!(connection.identity(), None);
        thread::scope(|scope| {
            let request = scope.spawn(|| connection.request(&pattern(100, 1)).wait());
            assert_eq!(server.line(), "request");
            server.signal(Signal::SIGKILL);
            let error = request.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Ended(End::Lost(_))), "{error}");
        });
    });
}

#[test]
fn a_killed_client_over_another_libfabric_is_reported_to_an_idle_listener() {
    // As above.
    if !is_long() {
        return;
    }
    bounded(|| {
        let Some((listener, address)) = listener() else {
            return;
        };
        let mut client = Process::start("idle client", &address);
        let event = listener.event().wait().unwrap();
        let Event::Connected(connected) = event else {
            panic!("{event:?}");
        };
        assert_eq!(client.line(), "connected");
        client.signal(Signal::SIGKILL);
        let event = listener.event().wait().unwrap();
        let Event::Lost(lost, End::Lost(_)) = event else {
            panic!("{event:?}");
        };
        assert!(lost == connected);
    });
}
