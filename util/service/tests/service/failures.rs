//! Processes that are killed or stopped.

use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use selvedge_service::{End, Error, Event, Listener, Options, connect, connect_with};

use crate::processes::Process;
use crate::{addresses, bounded};

fn next_event(listener: &Listener) -> Event {
    listener.event().wait().unwrap()
}

#[test]
fn an_idle_listener_reports_a_killed_client() {
    for address in addresses() {
        bounded(|| {
            let listener = Listener::bind(&address).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            for _ in 0..3 {
                let mut client = Process::start("idle client", &address);
                let Event::Connected(connected) = next_event(&listener) else {
                    panic!("no connection");
                };
                assert_eq!(client.line(), "connected");
                client.signal(Signal::SIGKILL);
                let Event::Lost(lost, end) = next_event(&listener) else {
                    panic!("no end");
                };
                assert!(lost == connected && matches!(end, End::Lost(_)), "{end:?}");
            }
        });
    }
}

#[test]
fn requests_fail_when_their_server_is_killed() {
    for address in addresses() {
        bounded(|| {
            let mut server = Process::start("silent server", &address);
            let address = server.line();
            let options = Options::new().request_timeout(None);
            let connection = connect_with(&address, &options).wait().unwrap();
            thread::scope(|scope| {
                let requests: Vec<_> = (0..3)
                    .map(|_| scope.spawn(|| connection.request(b"never").wait()))
                    .collect();
                for _ in 0..3 {
                    assert_eq!(server.line(), "request");
                }
                server.signal(Signal::SIGKILL);
                for request in requests {
                    let error = request.join().unwrap().unwrap_err();
                    assert!(matches!(error, Error::Ended(End::Lost(_))), "{error}");
                }
            });
            let error = connection.receive().wait().unwrap_err();
            assert!(matches!(error, Error::Ended(End::Lost(_))), "{error}");
            assert!(matches!(connection.end(), Some(End::Lost(_))));
        });
    }
}

#[test]
fn clients_that_are_killed_amid_requests_disturb_no_other_client() {
    for address in addresses() {
        bounded(|| {
            let listener = Listener::bind(&address).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            thread::scope(|scope| {
                let steady = scope.spawn(|| {
                    let connection = connect(&address).wait().unwrap();
                    let (mut responses, mut killed) = (0_u32, 0);
                    while killed < 6 {
                        let process = Process::start("requesting client", &address);
                        for _ in 0..50 + killed * 20 {
                            let request = responses.to_le_bytes().repeat(700);
                            let response = connection.request(&request).wait().unwrap();
                            assert_eq!(*response, *request);
                            responses += 1;
                        }
                        process.signal(Signal::SIGKILL);
                        killed += 1;
                    }
                });
                let (mut connected, mut lost) = (0, 0);
                while connected == 0 || lost < connected || !steady.is_finished() {
                    let short = Duration::from_millis(50);
                    match listener.event().wait_timeout(short) {
                        Ok(Event::Request(request)) => {
                            let response = request.to_vec();
                            request.respond(&response);
                        }
                        Ok(Event::Connected(_)) => connected += 1,
                        Ok(Event::Lost(..)) => lost += 1,
                        Err(Error::Timeout(_)) => {}
                        other => panic!("{other:?}"),
                    }
                }
                steady.join().unwrap();
            });
        });
    }
}

#[test]
fn a_stopped_client_delays_no_other_client_and_continues() {
    for address in addresses() {
        bounded(|| {
            let listener = Listener::bind(&address).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            let stopped = Process::start("requesting client", &address);
            let serve = |count: usize| {
                for _ in 0..count {
                    if let Event::Request(request) = next_event(&listener) {
                        let response = request.to_vec();
                        request.respond(&response);
                    }
                }
            };
            serve(20);
            stopped.signal(Signal::SIGSTOP);
            thread::scope(|scope| {
                let address = &address;
                scope.spawn(move || {
                    let connection = connect(address).wait().unwrap();
                    for number in 0..200_u64 {
                        let request = number.to_le_bytes().repeat(500);
                        assert_eq!(*connection.request(&request).wait().unwrap(), *request);
                    }
                });
                crate::serve_until_lost(&listener, <[u8]>::to_vec);
            });
            stopped.signal(Signal::SIGCONT);
            serve(20);
        });
    }
}

#[test]
fn a_request_to_a_stopped_server_times_out() {
    for address in addresses() {
        bounded(|| {
            let mut server = Process::start("silent server", &address);
            let address = server.line();
            let connection = connect(&address).wait().unwrap();
            server.signal(Signal::SIGSTOP);
            let short = Duration::from_millis(100);
            for len in [8, 1 << 20] {
                let result = connection.request(&vec![1; len]).timeout(short).wait();
                assert_eq!(result.unwrap_err(), Error::Timeout(short));
            }
        });
    }
}
