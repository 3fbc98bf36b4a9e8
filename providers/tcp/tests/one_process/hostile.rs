//! Unauthenticated connections and peers that send malformed, incomplete or no input. Their
//! connections are closed, and other peers are not affected.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use proptest::prelude::*;
use selvedge::{Context, Errno, FiAddr};
use selvedge_testkit::local::until;

use crate::endpoint::{CopyingEndpoint, exchange, pattern};

/// The hello request of a stock libfabric that listens at a port.
pub(crate) fn hello(port: u16) -> Vec<u8> {
    let mut bytes = vec![3, 0, 0, 8];
    bytes.extend([0; 20]);
    bytes.extend(1_u64.to_ne_bytes());
    bytes.extend([1, 0]);
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 0, 1, 1]);
    bytes
}

/// Opens a connection and completes the handshake.
fn connected(side: &CopyingEndpoint, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(side.addr()).unwrap();
    stream.write_all(&hello(port)).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut response = Vec::new();
    until(|| {
        side.progress();
        let mut bytes = [0; 40];
        let capacity = 40 - response.len();
        if let Ok(count) = stream.read(&mut bytes[..capacity]) {
            response.extend_from_slice(&bytes[..count]);
        }
        (response.len() == 40).then_some(())
    });
    assert_eq!(response[..4], [3, 1, 0, 8]);
    assert_eq!(response[4..24], [0; 20], "a stock peer sees zeros");
    assert_eq!(response[32], 0x81);
    stream
}

/// Whether the other side has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(count) => count == 0,
        Err(cause) => cause.kind() != ErrorKind::WouldBlock,
    }
}

pub(crate) fn wait_for_close(side: &CopyingEndpoint, mut stream: TcpStream) {
    stream.set_nonblocking(true).unwrap();
    until(|| {
        side.progress();
        is_closed(&mut stream).then_some(())
    });
}

#[test]
fn unauthenticated_connections_with_malformed_input_are_closed() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    exchange(&a, &b);
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[3, 9],
        &[0; 32],
        &[255; 300],
    ] {
        let mut stream = TcpStream::connect(a.addr()).unwrap();
        stream.write_all(bytes).unwrap();
        wait_for_close(&a, stream);
        exchange(&a, &b);
    }
}

#[test]
fn a_request_with_private_data_of_another_layer_is_rejected() {
    let a = CopyingEndpoint::new();
    let mut bytes = hello(1);
    bytes[3] = 24;
    bytes.extend([0; 16]);
    let mut stream = TcpStream::connect(a.addr()).unwrap();
    stream.write_all(&bytes).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut response = [0; 64];
    let count = until(|| {
        a.progress();
        stream.read(&mut response).ok()
    });
    assert_eq!((count, &response[..4]), (32, &[3, 6, 0, 0][..]));
}

#[test]
fn silent_unauthenticated_connections_expire_and_do_not_block_peers() {
    let params = [("FI_TCP_PENDING", "8"), ("FI_TCP_CONNECT_TIMEOUT", "100ms")];
    let a = CopyingEndpoint::with(&params);
    let connect = |addr: SocketAddr| TcpStream::connect(addr).unwrap();
    let mut silent: Vec<_> = (0..40).map(|_| connect(a.addr())).collect();
    let b = CopyingEndpoint::new();
    exchange(&b, &a);
    for stream in silent.drain(..) {
        wait_for_close(&a, stream);
    }
    // A slow connection that completes its hello in time is accepted.
    let mut slow = connect(a.addr());
    slow.set_nodelay(true).unwrap();
    let bytes = hello(1);
    for byte in &bytes[..bytes.len() - 1] {
        slow.write_all(&[*byte]).unwrap();
        a.progress();
    }
    slow.write_all(&bytes[39..]).unwrap();
    slow.set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    until(|| {
        a.progress();
        let mut response = [0; 40];
        slow.read(&mut response).ok().filter(|&count| count > 0)
    });
}

#[test]
fn many_simultaneous_connections_are_all_accepted() {
    let a = CopyingEndpoint::with(&[("FI_TCP_PENDING", "2")]);
    let streams: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(a.addr()).unwrap())
        .collect();
    for (number, mut stream) in (1..).zip(&streams) {
        stream.write_all(&hello(number)).unwrap();
    }
    for mut stream in &streams {
        stream.set_nonblocking(true).unwrap();
        let response = until(|| {
            a.progress();
            let mut response = [0; 40];
            match stream.read(&mut response) {
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => None,
                result => Some((result.unwrap(), response)),
            }
        });
        assert_eq!(response.0, 40);
        assert_eq!(response.1[..4], [3, 1, 0, 8]);
    }
}

#[test]
fn a_session_in_any_fragments_is_received() {
    let a = CopyingEndpoint::new();
    let mut session = Vec::new();
    for tag in 0..3_u64 {
        let mut frame = vec![3, 1, 0, 0, 0, 0, 24, 0, 24 + 5, 0, 0, 0, 0, 0, 0, 0];
        frame.extend(tag.to_ne_bytes());
        frame.extend(b"hello");
        session.extend(frame);
    }
    for cut in 0..=session.len() {
        let buffers: Vec<_> = (0..3)
            .map(|tag| a.trecv(FiAddr::UNSPEC, tag, 5, tag))
            .collect();
        let mut stream = connected(&a, 2000 + cut as u16);
        stream.set_nodelay(true).unwrap();
        stream.write_all(&session[..cut]).unwrap();
        for _ in 0..50 {
            a.progress();
        }
        stream.write_all(&session[cut..]).unwrap();
        let mut remaining = 3;
        until(|| {
            remaining -= a.poll().map_or(0, |entry| {
                entry.unwrap();
                1
            });
            (remaining == 0).then_some(())
        });
        assert!(buffers.iter().all(|buffer| buffer.bytes() == b"hello"));
    }
}

#[test]
fn a_session_cut_anywhere_fails_only_its_incomplete_operations() {
    let a = CopyingEndpoint::new();
    let mut frame = vec![3, 1, 0, 0, 0, 0, 24, 0, 24 + 5, 0, 0, 0, 0, 0, 0, 0];
    frame.extend(7_u64.to_ne_bytes());
    frame.extend(b"hello");
    for cut in 0..frame.len() {
        let mut stream = connected(&a, 4000 + cut as u16);
        a.trecv(FiAddr::UNSPEC, 7, 5, cut as u64);
        stream.write_all(&frame[..cut]).unwrap();
        drop(stream);
        let is_matched = cut >= 24;
        if is_matched {
            let error = a.wait(&[]).unwrap_err();
            assert_eq!(error.errno, Errno::ConnReset);
        } else {
            for _ in 0..200 {
                a.progress();
            }
            assert!(a.poll().is_none(), "a receive from anybody waits on");
            a.ep.cancel(Context(cut as u64)).unwrap();
            assert_eq!(a.wait(&[]).unwrap_err().errno, Errno::Canceled);
        }
    }
}

#[test]
fn operations_queued_for_a_disconnected_peer_do_not_complete() {
    let a = CopyingEndpoint::new();
    let stream = connected(&a, 6500);
    let to = a.insert(SocketAddr::from(([127, 0, 0, 1], 6500)));
    let bytes = pattern(1, 2000);
    let (mut sent, mut done) = (0, 0);
    // Until the buffers of both sides are full; the peer reads nothing.
    while a.tsend(to, 5, &bytes, sent).is_ok() {
        sent += 1;
        while let Some(completion) = a.poll() {
            completion.unwrap();
            done += 1;
        }
    }
    drop(stream);
    assert!((1..sent).contains(&done), "{done} of {sent} are complete");
    for _ in done..sent {
        let error = a.wait(&[]).unwrap_err();
        assert_eq!((error.errno, error.src), (Errno::ConnReset, to));
    }
}

#[test]
fn an_announced_length_allocates_no_memory() {
    let a = CopyingEndpoint::new();
    let mut stream = connected(&a, 6000);
    let mut frame = vec![3, 1, 0, 0, 0, 0, 24, 0];
    frame.extend((1_u64 << 60).to_ne_bytes());
    frame.extend(7_u64.to_ne_bytes());
    frame.extend([1; 1000]);
    stream.write_all(&frame).unwrap();
    for _ in 0..500 {
        a.progress();
    }
    let b = CopyingEndpoint::new();
    exchange(&a, &b);
    exchange(&b, &a);
}

#[test]
fn incomplete_messages_block_only_their_receives_and_fail_with_their_peer() {
    let (a, b) = (CopyingEndpoint::new(), CopyingEndpoint::new());
    let mut streams = Vec::new();
    for tag in 0..8_u64 {
        a.trecv(FiAddr::UNSPEC, tag, 100_000, tag);
        let mut stream = connected(&a, 6100 + tag as u16);
        let mut frame = vec![3, 1, 0, 0, 0, 0, 24, 0];
        frame.extend((24 + 100_000_u64).to_ne_bytes());
        frame.extend(tag.to_ne_bytes());
        // A part of the payload: none, or a prefix.
        frame.resize(frame.len() + 1000 * tag as usize, 7);
        stream.write_all(&frame).unwrap();
        streams.push(stream);
    }
    (0..500).for_each(|_| a.progress());
    exchange(&a, &b);
    exchange(&b, &a);
    // A receive that none of them matched can be cancelled.
    a.trecv(FiAddr::UNSPEC, 99, 8, 99);
    assert_eq!(a.ep.cancel(Context(99)), Ok(()));
    assert_eq!(a.wait(&[]).unwrap_err().errno, Errno::Canceled);
    assert_eq!(a.ep.cancel(Context(0)), Err(Errno::NoEnt));
    assert!(a.poll().is_none());
    for (tag, stream) in (0..).zip(streams) {
        drop(stream);
        let error = a.wait(&[]).unwrap_err();
        let failed = (error.entry.context, error.errno);
        assert_eq!(failed, (Context(tag), Errno::ConnReset));
    }
    exchange(&a, &b);
}

#[test]
fn a_write_with_a_wrong_key_disconnects_a_peer_without_extensions() {
    let a = CopyingEndpoint::new();
    let mut stream = connected(&a, 6001);
    let mut frame = vec![3, 4, 0, 0, 0, 1, 40, 0, 48, 0, 0, 0, 0, 0, 0, 0];
    for word in [0_u64, 8, 99, 0] {
        frame.extend(word.to_ne_bytes());
    }
    stream.write_all(&frame).unwrap();
    wait_for_close(&a, stream);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Frames with random fields and random bytes, from a peer that has completed the handshake.
    /// The endpoint survives, and its other connections continue.
    #[test]
    fn random_frames_disturb_no_other_connection(
        frames in prop::collection::vec(
            (0_u8..9, any::<u16>(), any::<u8>(), 0_u8..6, 2_u8..16, 0_u64..200,
             prop::collection::vec(any::<u8>(), 0..200)),
            1..6,
        ),
        port in 7000_u16..9000,
    ) {
        thread_local! {
            static SIDES: (CopyingEndpoint, CopyingEndpoint) = (CopyingEndpoint::new(), CopyingEndpoint::new());
        }
        SIDES.with(|(a, b)| {
            let mut stream = connected(a, port);
            for (op, flags, op_data, count, words, size, bytes) in frames {
                let mut frame = vec![3, op];
                frame.extend(flags.to_ne_bytes());
                frame.extend([op_data, count, words * 8, 0]);
                frame.extend((u64::from(words) * 8 + size).to_ne_bytes());
                frame.extend(bytes);
                // It fails when the other side has closed the connection.
                let _ = stream.write_all(&frame);
            }
            for _ in 0..20 {
                a.progress();
            }
            drop(stream);
            exchange(a, b);
            exchange(b, a);
        });
    }
}
