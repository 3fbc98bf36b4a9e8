//! Unauthenticated connections to a TLS listener that send malformed, incomplete or no input.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use proptest::prelude::*;
use selvedge_testkit::local::until;

use crate::endpoint::{CopyingEndpoint, exchange};

/// Returns the hello request of a stock libfabric that listens at a port.
pub(crate) fn hello(port: u16) -> Vec<u8> {
    let mut bytes = vec![3, 0, 0, 8];
    bytes.extend([0; 20]);
    bytes.extend(1_u64.to_ne_bytes());
    bytes.extend([1, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0, 1, 1]);
    bytes
}

fn wait_for_close(side: &CopyingEndpoint, mut stream: TcpStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    until(|| {
        side.progress();
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Some(()),
            Ok(count) => received.extend_from_slice(&bytes[..count]),
            Err(cause) if cause.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return Some(()),
        }
        None
    });
    received
}

#[test]
fn plaintext_connections_get_an_alert_and_are_closed() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    exchange(&a, &b);
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &hello(1000), &[255; 300]] {
        let mut stream = TcpStream::connect(a.addr()).unwrap();
        stream.write_all(bytes).unwrap();
        let received = wait_for_close(&a, stream);
        assert_eq!(received[..3], [21, 3, 3], "{received:?}");
        exchange(&a, &b);
    }
}

#[test]
fn connections_that_stall_during_the_tls_handshake_expire_and_do_not_block_peers() {
    let params = [("FI_TCP_PENDING", "8"), ("FI_TCP_CONNECT_TIMEOUT", "100ms")];
    let a = CopyingEndpoint::with(&params);
    let mut slow: Vec<_> = (0..40)
        .map(|count| {
            let mut stream = TcpStream::connect(a.addr()).unwrap();
            // The first bytes of a long handshake record.
            let first = [22, 3, 1, 1, 0, 1, 0, 0, 252, 3, 3];
            stream.write_all(&first[..count % first.len()]).unwrap();
            stream
        })
        .collect();
    let b = CopyingEndpoint::new();
    exchange(&b, &a);
    for stream in slow.drain(..) {
        wait_for_close(&a, stream);
    }
    exchange(&a, &b);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The endpoint closes the connection, and its other connections continue.
    #[test]
    fn random_bytes_before_the_handshake_disturb_no_other_connection(
        first in prop::collection::vec(
            prop_oneof![Just(22_u8), Just(23), Just(21), any::<u8>()], 1),
        release in prop_oneof![Just([3_u8, 1]), Just([3, 3]), any::<[u8; 2]>()],
        lens in prop::collection::vec((any::<bool>(), 0_usize..300), 1..4),
        noise in prop::collection::vec(any::<u8>(), 1200),
    ) {
        thread_local! {
            static SIDES: (CopyingEndpoint, CopyingEndpoint) = (CopyingEndpoint::new(), CopyingEndpoint::new());
        }
        SIDES.with(|(a, b)| {
            let mut stream = TcpStream::connect(a.addr()).unwrap();
            let mut sent = Vec::new();
            for (number, &(is_record, len)) in lens.iter().enumerate() {
                if is_record {
                    sent.extend([first[0], release[0], release[1]]);
                    sent.extend((len as u16).to_be_bytes());
                }
                sent.extend_from_slice(&noise[number * 300..][..len]);
            }
            // The write fails when the endpoint has already closed the connection.
            let _ = stream.write_all(&sent);
            let _ = stream.shutdown(Shutdown::Write);
            for _ in 0..20 {
                a.progress();
            }
            drop(stream);
            exchange(a, b);
        });
    }
}
