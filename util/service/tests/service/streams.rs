//! Streams of bytes and of messages.

use std::io::{ErrorKind, Read, Write};
use std::thread;

use futures::{SinkExt, StreamExt};
use nix::sys::signal::Signal;
use selvedge_service::{Event, Listener, Peer, connect, run};

use crate::processes::Process;
use crate::{addresses, bounded, pattern};

/// Listens, and connects; the client's side of the connection at the server.
fn sides(address: &str) -> (Listener, Peer, selvedge_service::Connection) {
    let listener = Listener::bind(address).unwrap();
    let address = listener.addresses().unwrap().remove(0);
    thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&address).wait().unwrap());
        let Event::Connected(peer) = listener.event().wait().unwrap() else {
            panic!("no connection");
        };
        let connection = connecting.join().unwrap();
        (listener, peer, connection)
    })
}

#[test]
fn bytes_of_a_stream_arrive_in_order_in_both_directions() {
    for address in addresses() {
        bounded(|| {
            let (listener, peer, connection) = sides(&address);
            let len = 9_000_000;
            let listener = &listener;
            thread::scope(|scope| {
                scope.spawn(move || {
                    let mut stream = peer.into_stream();
                    let mut bytes = Vec::new();
                    stream.read_to_end(&mut bytes).unwrap();
                    assert!(bytes == pattern(len, 1));
                    stream.write_all(&pattern(70_000, 2)).unwrap();
                    stream.finish().unwrap();
                    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
                });
                let mut stream = connection.into_stream();
                for part in pattern(len, 1).chunks(777_777) {
                    stream.write_all(part).unwrap();
                }
                stream.finish().unwrap();
                assert_eq!(
                    stream.write(b"late").unwrap_err().kind(),
                    ErrorKind::BrokenPipe
                );
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                assert!(bytes == pattern(70_000, 2));
                drop(stream);
                let event = listener.event().wait().unwrap();
                assert!(matches!(event, Event::Lost(..)), "{event:?}");
            });
        });
    }
}

#[test]
fn a_stream_whose_peer_dies_or_closes_is_no_complete_stream() {
    for address in addresses() {
        bounded(|| {
            let listener = Listener::bind(&address).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            let mut client = Process::start("streaming client", &address);
            let Event::Connected(peer) = listener.event().wait().unwrap() else {
                panic!("no connection");
            };
            let mut stream = peer.into_stream();
            assert_eq!(stream.read(&mut [0; 3]).unwrap(), 3);
            assert_eq!(client.line(), "written");
            client.signal(Signal::SIGKILL);
            let error = std::io::copy(&mut stream, &mut std::io::sink()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            drop(stream);
            let event = listener.event().wait().unwrap();
            assert!(matches!(event, Event::Lost(..)), "{event:?}");
            thread::scope(|scope| {
                scope.spawn(|| drop(connect(&address).wait().unwrap().into_stream()));
                let Event::Connected(peer) = listener.event().wait().unwrap() else {
                    panic!("no connection");
                };
                let error = peer.into_stream().read(&mut [0; 3]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
            });
        });
    }
}

#[test]
fn a_request_on_a_stream_fails() {
    bounded(|| {
        let (listener, peer, connection) = sides(&crate::name());
        thread::scope(|scope| {
            scope.spawn(move || {
                let error = connection.request(b"ping").wait().unwrap_err();
                assert!(error.to_string().contains("stream"), "{error}");
                connection.into_messages().wait_flushed().unwrap();
            });
            let mut messages = peer.into_messages();
            let next = run(messages.next()).unwrap();
            assert!(next.is_none(), "{next:?}");
        });
        drop(listener);
    });
}

#[test]
fn messages_are_a_stream_and_a_sink() {
    for address in addresses() {
        bounded(|| {
            let (_listener, peer, connection) = sides(&address);
            thread::scope(|scope| {
                scope.spawn(move || {
                    run(async {
                        let (mut sink, mut stream) = peer.into_messages().split();
                        while let Some(message) = stream.next().await {
                            // The client closes after the last one, which may be before the end of
                            // this call.
                            if sink.send(message.unwrap()).await.is_err() {
                                break;
                            }
                        }
                    })
                });
                run(async {
                    let mut messages = connection.into_messages();
                    for seed in 0..300 {
                        let bytes = pattern(seed * 50, seed);
                        let message = messages.peer().message_from(&bytes).unwrap();
                        messages.feed(message).await.unwrap();
                        if seed >= 10 {
                            let echo = messages.next().await.unwrap().unwrap();
                            assert!(*echo == pattern((seed - 10) * 50, seed - 10));
                        }
                    }
                    messages.close().await.unwrap();
                    for seed in 290..300 {
                        let echo = messages.next().await.unwrap().unwrap();
                        assert!(*echo == pattern(seed * 50, seed));
                    }
                })
                .unwrap();
            });
        });
    }
}

/// The traits of std and of tokio have methods of the same names.
#[cfg(feature = "tokio")]
mod awaited {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::sides;
    use crate::{addresses, bounded, pattern};

    #[test]
    fn reads_and_writes_that_are_dropped_at_any_point_lose_no_byte() {
        for address in addresses() {
            bounded(|| {
                let (_listener, peer, connection) = sides(&address);
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build();
                runtime.unwrap().block_on(async {
                    let bytes = pattern(3_000_000, 5);
                    let expected = bytes.clone();
                    let writer = tokio::spawn(async move {
                        let mut stream = connection.into_stream();
                        let (mut sent, mut turn) = (0, 0_u64);
                        while sent < bytes.len() {
                            let end = bytes.len().min(sent + 50_000);
                            let limit = Duration::from_micros(turn % 70);
                            turn += 1;
                            let written = timeout(limit, stream.write(&bytes[sent..end])).await;
                            sent += written.map_or(0, Result::unwrap);
                            let _ = timeout(limit, stream.flush()).await;
                        }
                        stream.shutdown().await.unwrap();
                        // Closing before the peer has read would end its stream.
                        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
                    });
                    let mut stream = peer.into_stream();
                    let (mut received, mut turn) = (Vec::<u8>::new(), 0_u64);
                    let mut part = [0; 10_000];
                    loop {
                        turn += 1;
                        let limit = Duration::from_micros(turn % 50);
                        match timeout(limit, stream.read(&mut part)).await {
                            Ok(Ok(0)) => break,
                            Ok(len) => received.extend(&part[..len.unwrap()]),
                            Err(_) => {}
                        }
                    }
                    assert!(received == expected);
                    stream.shutdown().await.unwrap();
                    writer.await.unwrap();
                });
            });
        }
    }
}
