//! The bytes on the wire, observed and modified by a relay.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use selvedge::{Context, Errno, FiAddr, Registry};
use selvedge_testkit::local::until;

use crate::endpoint::{CopyingEndpoint, exchange, pattern};

/// A relay between two endpoints, for any number of connections.
pub(crate) struct Relay {
    pub(crate) addr: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
}

/// Modifies bytes of the client. The first argument is the number of bytes that the relay has
/// passed on before. Returns false to stop the stream.
type Modify = fn(usize, &mut Vec<u8>) -> bool;

impl Relay {
    pub(crate) fn new(server_addr: SocketAddr, modify: Modify) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&recorded);
        // The thread ends with the test process.
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(server_addr).unwrap();
                let directions = [
                    (
                        client.try_clone().unwrap(),
                        server.try_clone().unwrap(),
                        modify,
                    ),
                    (server, client, (|_, _| true) as Modify),
                ];
                for (src, dest, modify) in directions {
                    let log = Arc::clone(&log);
                    std::thread::spawn(move || pass_on(src, dest, modify, &log));
                }
            }
        });
        Self { addr, recorded }
    }

    fn has_recorded(&self, bytes: &[u8]) -> bool {
        let recorded = self.recorded.lock().unwrap();
        recorded.windows(bytes.len()).any(|window| window == bytes)
    }

    fn len(&self) -> usize {
        self.recorded.lock().unwrap().len()
    }
}

/// Passes the bytes of one direction on, until a stream ends or `modify` returns false.
fn pass_on(mut src: TcpStream, mut dest: TcpStream, modify: Modify, log: &Mutex<Vec<u8>>) {
    let (mut bytes, mut passed) = (vec![0; 1 << 16], 0);
    while let Ok(count @ 1..) = src.read(&mut bytes) {
        let mut chunk = bytes[..count].to_vec();
        log.lock().unwrap().extend_from_slice(&chunk);
        let continues = modify(passed, &mut chunk);
        passed += count;
        if dest.write_all(&chunk).is_err() || !continues {
            break;
        }
    }
    let _ = dest.shutdown(Shutdown::Both);
    let _ = src.shutdown(Shutdown::Both);
}

/// Sends a message from `a` to `b` through a relay.
fn exchange_through(relay: SocketAddr, a: &CopyingEndpoint, b: &CopyingEndpoint, bytes: &[u8]) {
    let dest = a.insert(relay);
    let buffer = b.trecv(FiAddr::UNSPEC, 5, bytes.len(), 2);
    a.tsend(dest, 5, bytes, 1).unwrap();
    b.wait_for(2, &[a]);
    a.wait_for(1, &[b]);
    assert_eq!(buffer.bytes(), bytes);
}

fn plain() -> CopyingEndpoint {
    let registry = Registry::new().with(&selvedge_tcp::PROVIDER);
    let hints = selvedge::Hints::new()
        .caps(selvedge::Caps::TAGGED)
        .ep_type(selvedge::info::EpType::Rdm)
        .src_addr("127.0.0.1:0".parse().unwrap());
    CopyingEndpoint::open(&registry.infos(&hints).unwrap()[0])
}

#[test]
fn tls_payloads_are_not_readable_on_the_wire() {
    let plaintext = b"a text that must not be readable on the wire";
    let large = [&plaintext[..], &pattern(3, 300_000), plaintext].concat();
    // Without TLS the relay must find the text.
    let sides = [
        ([plain(), plain()], true),
        ([CopyingEndpoint::new(), CopyingEndpoint::new()], false),
    ];
    for ([a, b], is_readable) in sides {
        let relay = Relay::new(b.addr(), |_, _| true);
        for bytes in [&plaintext[..], &large] {
            exchange_through(relay.addr, &a, &b, bytes);
        }
        assert_eq!(relay.has_recorded(plaintext), is_readable);
        assert_eq!(
            relay.has_recorded(&pattern(3, 300_000)[1000..1100]),
            is_readable
        );
        assert!(relay.len() > 300_000);
    }
}

/// Records are encrypted while the socket has no room for all of them.
#[test]
fn messages_delayed_by_backpressure_arrive_unchanged() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    exchange(&a, &b);
    let dest = a.insert_endpoint(&b);
    let bytes = |number: u64| pattern(number as usize, 2049 + (number as usize * 1009) % 60_000);
    let buffers: Vec<_> = (0..600)
        .map(|number| b.trecv(FiAddr::UNSPEC, number, bytes(number).len(), number))
        .collect();
    for number in 0..600 {
        a.tsend(dest, number, &bytes(number), number).unwrap();
    }
    // A part of the messages is in the kernel, and the receiver does not read. Traffic of other
    // sides changes the thread's count of sent bytes, which must not change the records.
    let (c, d) = (plain(), plain());
    for _ in 0..100 {
        a.progress();
        exchange(&c, &d);
    }
    let mut sent = 0;
    for number in 0..600 {
        until(|| {
            sent += u64::from(a.poll().is_some_and(|done| done.is_ok()));
            b.poll()
                .map(|done| assert_eq!(done.unwrap().context, Context(number)))
        });
    }
    until(|| {
        sent += u64::from(a.poll().is_some_and(|done| done.is_ok()));
        (sent == 600).then_some(())
    });
    for (number, buffer) in (0..).zip(buffers) {
        assert!(buffer.bytes() == bytes(number), "{number}");
    }
}

/// An offset in the stream, far after the handshakes.
const PAYLOAD_OFFSET: usize = 100_000;

/// Returns the error of a large message whose bytes a relay modifies.
fn large_message_error(modify: Modify) -> String {
    let (a, b, c) = (
        CopyingEndpoint::new(),
        CopyingEndpoint::new(),
        CopyingEndpoint::new(),
    );
    let relay = Relay::new(b.addr(), modify);
    let dest = a.insert(relay.addr);
    let bytes = pattern(1, 8 << 20);
    b.trecv(FiAddr::UNSPEC, 5, bytes.len(), 2);
    a.tsend(dest, 5, &bytes, 1).unwrap();
    let error = b.wait(&[&a, &c]).unwrap_err();
    assert_eq!(error.errno, Errno::ConnReset, "{error:?}");
    exchange(&c, &b);
    exchange(&b, &c);
    error.detail
}

#[test]
fn a_stream_cut_within_a_record_is_a_lost_connection() {
    let detail = large_message_error(|passed, bytes| {
        let is_cut = passed + bytes.len() > PAYLOAD_OFFSET;
        if is_cut {
            bytes.truncate(PAYLOAD_OFFSET - passed);
        }
        !is_cut
    });
    assert!(detail.contains("lost"), "{detail}");
}

#[test]
fn a_modified_tls_record_ends_the_connection() {
    let detail = large_message_error(|passed, bytes| {
        let index = PAYLOAD_OFFSET.checked_sub(passed);
        if let Some(byte) = index.and_then(|index| bytes.get_mut(index)) {
            *byte ^= 1;
        }
        true
    });
    assert!(detail.contains("TLS"), "{detail}");
}

/// A stream that ends without close_notify is truncated.
#[test]
fn a_close_without_close_notify_is_an_error() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    let relay = Relay::new(b.addr(), |_, bytes| !bytes.starts_with(&[23, 3, 3, 0x40]));
    exchange_through(relay.addr, &a, &b, b"small");
    let from_a = b.insert_endpoint(&a);
    b.trecv(from_a, 6, 8, 6);
    let dest = a.insert(relay.addr);
    // Complete records arrive, and then no more bytes.
    a.tsend(dest, 9, &pattern(1, 1 << 20), 3).unwrap();
    let error = b.wait(&[&a]).unwrap_err();
    assert_eq!(error.errno, Errno::ConnReset, "{error:?}");
    assert!(error.detail.contains("close_notify"), "{error:?}");
}
