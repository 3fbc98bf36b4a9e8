//! Addresses that cannot be used, and peers that are no clients.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Caps, Context, Hints, av};
use selvedge_service::{Error, Listener, Options, connect, connect_with};

use crate::{bounded, connected, name};

#[test]
fn a_name_that_is_taken_is_refused() {
    bounded(|| {
        let name = name();
        let first = Listener::bind(&name).unwrap();
        let error = Listener::bind(&name).unwrap_err();
        assert!(
            matches!(&error, Error::Address { address, .. } if *address == name),
            "{error}"
        );
        let tcp = Listener::bind("tcp://127.0.0.1:0").unwrap();
        let tcp_address = tcp.addresses().unwrap().remove(0);
        let error = Listener::bind(&tcp_address).unwrap_err();
        assert!(error.to_string().contains(&tcp_address), "{error}");
        drop(first);
        Listener::bind(&name).unwrap();
    });
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_address() {
    bounded(|| {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = format!("tcp://{}", port.local_addr().unwrap());
        drop(port);
        for address in [name(), tcp] {
            let timeout = Duration::from_millis(1500);
            let options = Options::new().connect_timeout(timeout);
            let error = connect_with(&address, &options).wait().unwrap_err();
            assert!(matches!(&error, Error::NoServer { .. }), "{error}");
            assert!(error.to_string().contains(&address), "{error}");
        }
        let error = connect("http://kv").wait().unwrap_err();
        assert!(matches!(error, Error::Address { .. }), "{error}");
    });
}

#[test]
fn a_server_may_start_after_its_client() {
    bounded(|| {
        let name = name();
        thread::scope(|scope| {
            let client = scope.spawn(|| connect(&name).wait().unwrap());
            // Several attempts fail before.
            thread::sleep(Duration::from_millis(1200));
            let listener = Listener::bind(&name).unwrap();
            let event = listener.event().wait().unwrap();
            assert!(
                matches!(event, selvedge_service::Event::Connected(_)),
                "{event:?}"
            );
            client.join().unwrap();
        });
    });
}

#[test]
fn garbage_from_a_program_that_is_no_client_disturbs_no_client() {
    bounded(|| {
        let (listener, connection) = connected(&name());
        let address = listener
            .addresses()
            .unwrap()
            .remove(0)
            .replace("shm", "fi_shm");
        let is_done = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                send_garbage(&address);
                for number in 0..100_u8 {
                    assert_eq!(*connection.request(&[number]).wait().unwrap(), [number]);
                }
                is_done.store(true, std::sync::atomic::Ordering::Release);
            });
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                let event = listener.event().wait_timeout(Duration::from_millis(20));
                if let Ok(selvedge_service::Event::Request(request)) = event {
                    let response = request.to_vec();
                    request.respond(&response);
                }
            }
        });
    });
}

/// Sends frames of random bytes to the endpoint of a listener, also after a correct `Hello`.
fn send_garbage(address: &str) {
    let hints = Hints::new().provider("shm").caps(Caps::MSG | Caps::TAGGED);
    let info = selvedge_providers::builtin()
        .infos(&hints)
        .unwrap()
        .remove(0);
    let domain = info.open().unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..20_usize {
        let endpoint = Endpoint::open(&*domain, &info, std::sync::Arc::clone(&av)).unwrap();
        let peer = av.insert_one(&address.parse().unwrap()).unwrap();
        let pool = Pool::new(&*domain, 8192, 64).unwrap();
        let mut done = Completions::with_capacity(64);
        for number in 0..30_usize {
            let mut frame = vec![0; [0, 16, 32, 64, 5000][number % 5]];
            frame.iter_mut().for_each(|byte| *byte = random.u8(..));
            if number == 0 && round % 2 == 1 {
                frame = hello();
            }
            if let Some(kind) = frame.first_mut().filter(|_| number % 3 == 1) {
                *kind = random.u8(1..11);
            }
            let mut buf = pool.take().unwrap();
            buf.write(&frame).unwrap();
            let _ = endpoint.send(buf, peer, Context(1));
            endpoint.poll(&mut done).unwrap();
            done.drain().for_each(drop);
        }
    }
}

/// A correct `Hello`, written by hand from the description of the format.
fn hello() -> Vec<u8> {
    let mut frame = vec![0; 32];
    frame[0] = 1;
    frame[8] = 77;
    frame[16] = 32;
    frame.extend(b"selv-svc");
    frame.extend(1_u32.to_le_bytes());
    frame.extend(64_u16.to_le_bytes());
    frame.extend([0; 2]);
    frame.extend(2048_u32.to_le_bytes());
    frame.extend([0; 4]);
    frame.extend(1_000_000_u64.to_le_bytes());
    frame
}

#[test]
fn bytes_of_any_program_at_the_port_disturb_no_client() {
    bounded(|| {
        let (listener, connection) = connected("tcp://127.0.0.1:0");
        let address = listener.addresses().unwrap().remove(0);
        let address = address.trim_start_matches("tcp://").to_owned();
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..20_u8 {
                    let mut stream = TcpStream::connect(&address).unwrap();
                    stream.write_all(&[number; 100]).unwrap();
                    assert_eq!(*connection.request(&[number]).wait().unwrap(), [number]);
                }
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
    });
}
