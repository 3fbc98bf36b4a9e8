//! Datagrams between endpoints of one process, and with plain sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod endpoint;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use selvedge::cq::Entry;
use selvedge::eq::Event;
use selvedge::{Address, Caps, CompletionFlags, Context, Errno, FiAddr, OpFlags, wait};
use selvedge_testkit::local::{LocalEndpoint, open_domain, until};

use endpoint::DatagramEndpoint;

fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 7 + number * 31) as u8)
        .collect()
}

#[test]
fn datagrams_of_every_size_arrive_whole_with_their_sources() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let caps = Caps::MSG | Caps::SOURCE;
        let [sender, receiver] =
            [(); 2].map(|()| DatagramEndpoint::open_with(caps, addr, wait::Object::None));
        let (dest, sender_addr) = (
            sender.insert(receiver.addr()),
            receiver.insert(sender.addr()),
        );
        let max = sender.context.info().ep_attr.max_msg_size;
        for (number, len) in [0, 1, 8, 1000, max].into_iter().enumerate() {
            let buffer = receiver.recv(max, 7);
            sender.send(dest, &bytes(number, len), 3);
            let (sent, _) = sender.next();
            assert_eq!(sent.context, Context(3));
            assert_eq!(sent.flags, CompletionFlags::SEND | CompletionFlags::MSG);
            let (received, src) = receiver.next();
            assert_eq!(
                (received.context, received.len, src),
                (Context(7), len, sender_addr)
            );
            assert_eq!(received.flags, CompletionFlags::RECV | CompletionFlags::MSG);
            assert_eq!(buffer.bytes()[..len], bytes(number, len));
            assert!(buffer.bytes()[len..].iter().all(|&byte| byte == 0xaa));
        }
    }
}

#[test]
fn unreceived_datagrams_stay_queued_in_order() {
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    let dest = sender.insert(receiver.addr());
    for number in 0..3 {
        sender.send(dest, &bytes(number, 100), 0);
        sender.next();
    }
    receiver.assert_no_completion();
    for number in 0..3 {
        let buffer = receiver.recv(100, number as u64);
        let (received, _) = receiver.next();
        assert_eq!(received.context, Context(number as u64));
        assert_eq!(buffer.bytes(), bytes(number, 100));
    }
}

#[test]
fn many_datagrams_are_sent_and_received_in_batches() {
    const RUN: usize = 100;
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    let dest = sender.insert(receiver.addr());
    let buffers: Vec<_> = (0..RUN)
        .map(|index| receiver.recv(64, index as u64))
        .collect();
    for number in 0..RUN {
        sender.send(dest, &bytes(number, 64), number as u64);
    }
    let mut sent = BTreeSet::new();
    while sent.len() < RUN {
        assert!(sent.insert(sender.next().0.context.0));
    }
    for (number, buffer) in buffers.iter().enumerate() {
        assert_eq!(receiver.next().0.context, Context(number as u64));
        assert_eq!(buffer.bytes(), bytes(number, 64));
    }
}

#[test]
fn a_datagram_larger_than_its_receive_is_truncated_and_the_excess_counted() {
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    let dest = sender.insert(receiver.addr());
    let buffer = receiver.recv(10, 5);
    sender.send(dest, &bytes(1, 100), 0);
    let error = receiver.next_error();
    assert_eq!((error.errno, error.olen), (Errno::Trunc, 90));
    assert_eq!((error.entry.context, error.entry.len), (Context(5), 10));
    assert_eq!(buffer.bytes(), &bytes(1, 100)[..10]);
}

#[test]
fn a_plain_socket_is_a_peer() {
    let side = DatagramEndpoint::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let dest = side.insert(socket.local_addr().unwrap());
    side.ep.inject(b"nothing but this", dest, None).unwrap();
    let mut received = [0; 100];
    let (len, src) = socket.recv_from(&mut received).unwrap();
    assert_eq!(
        (&received[..len], src),
        (&b"nothing but this"[..], side.addr())
    );
    let buffer = side.recv(4, 1);
    socket.send_to(b"back", src).unwrap();
    assert_eq!(side.next().0.len, 4);
    assert_eq!(buffer.bytes(), b"back");
}

#[test]
fn an_unknown_source_is_reported_with_its_address_on_request() {
    let sender = DatagramEndpoint::new();
    let caps = Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR;
    let receiver = DatagramEndpoint::open_with(caps, "127.0.0.1:0", wait::Object::None);
    let dest = sender.insert(receiver.addr());
    let buffer = receiver.recv(8, 1);
    sender.send(dest, &bytes(0, 8), 0);
    let error = receiver.next_error();
    assert_eq!(error.errno, Errno::AddrNotAvail);
    let source = Address::from_bytes(&error.err_data).unwrap();
    assert_eq!(source, Address::Ip(sender.addr()));
    assert_eq!(buffer.bytes(), bytes(0, 8));
}

#[test]
fn injected_bytes_may_be_overwritten_at_once_even_when_queued() {
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    let dest = sender.insert(receiver.addr());
    let buffers: Vec<_> = (0..40).map(|index| receiver.recv(16, index)).collect();
    for number in 0..40 {
        let mut buf = bytes(number, 16);
        sender.ep.inject(&buf, dest, None).unwrap();
        buf.fill(0);
    }
    sender.assert_no_completion();
    for (number, buffer) in buffers.iter().enumerate() {
        receiver.next();
        assert_eq!(buffer.bytes(), bytes(number, 16));
    }
}

#[test]
fn unsupported_operations_and_sizes_are_rejected() {
    let side = DatagramEndpoint::new();
    let dest = side.insert("127.0.0.1:9".parse().unwrap());
    let max = side.context.info().ep_attr.max_msg_size;
    let send = |len: usize, flags| side.try_send(dest, &vec![0; len], 0, flags);
    assert_eq!(send(max + 1, OpFlags::empty()), Err(Errno::MsgSize));
    for flag in [
        OpFlags::REMOTE_CQ_DATA,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::FENCE,
    ] {
        assert_eq!(send(1, flag), Err(Errno::BadFlags), "{flag}");
    }
    let unknown_peer = side.try_send(FiAddr(77), b"", 0, OpFlags::empty());
    assert_eq!(unknown_peer, Err(Errno::Inval));
    assert_eq!(side.ep.inject(b"", dest, Some(1)), Err(Errno::OpNotSupp));
    let tagged = side.ep.tinject(b"", dest, 1, None);
    assert_eq!(tagged, Err(Errno::NoSys));
}

#[test]
fn an_unreachable_destination_is_an_error_and_later_datagrams_are_sent() {
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    // An endpoint at the loopback interface reaches no other host.
    let unreachable = sender.insert("192.0.2.77:9".parse().unwrap());
    let reachable = sender.insert(receiver.addr());
    let buffer = receiver.recv(3, 2);
    sender.send(unreachable, b"far", 1);
    sender.send(reachable, b"one", 2);
    let error = sender.next_error();
    assert_eq!(error.entry.context, Context(1));
    assert!(error.detail.contains("192.0.2.77:9"), "{}", error.detail);
    assert_eq!(sender.next().0.context, Context(2));
    assert_eq!(receiver.next().0.context, Context(2));
    assert_eq!(buffer.bytes(), b"one");
}

#[test]
fn a_cancelled_receive_takes_no_datagram() {
    let [sender, receiver] = [(); 2].map(|()| DatagramEndpoint::new());
    let dest = sender.insert(receiver.addr());
    receiver.recv(8, 1);
    let buffer = receiver.recv(8, 2);
    receiver.ep.cancel(Context(1)).unwrap();
    assert_eq!(receiver.next_error().errno, Errno::Canceled);
    assert_eq!(receiver.ep.cancel(Context(1)), Err(Errno::NoEnt));
    sender.send(dest, &bytes(0, 8), 0);
    assert_eq!(receiver.next().0.context, Context(2));
    assert_eq!(buffer.bytes(), bytes(0, 8));
}

#[test]
fn a_parked_thread_is_woken_by_a_datagram_and_by_a_receive_for_a_queued_one() {
    let sender = DatagramEndpoint::new();
    let receiver = DatagramEndpoint::open_with(Caps::MSG, "127.0.0.1:0", wait::Object::Unspec);
    let dest = sender.insert(receiver.addr());
    let cq = receiver.cq();
    let wait = || {
        let mut entry = [Entry::default()];
        let found = cq.wait(&mut entry, Some(Duration::from_secs(30)));
        assert_eq!(found, Ok(1));
    };
    receiver.recv(8, 1);
    std::thread::scope(|scope| {
        let parked_thread = scope.spawn(wait);
        std::thread::sleep(Duration::from_millis(20));
        sender.ep.inject(&bytes(0, 8), dest, None).unwrap();
        parked_thread.join().unwrap();
    });
    sender.assert_no_completion();
    sender.ep.inject(&bytes(0, 8), dest, None).unwrap();
    let mut entry = [Entry::default()];
    let timed_out = receiver
        .cq()
        .wait(&mut entry, Some(Duration::from_millis(20)));
    assert_eq!(timed_out, Err(Errno::Again));
    receiver.recv(8, 2);
    wait();
}

#[test]
fn members_receive_multicast_until_they_leave() {
    let [sender, receiver, second_receiver] = [(); 3].map(|()| DatagramEndpoint::new());
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = port.local_addr().unwrap().port();
    let group: SocketAddr = format!("239.255.77.{}:{port}", port % 250 + 1)
        .parse()
        .unwrap();
    let group = Address::Ip(group);
    let members =
        [&receiver, &second_receiver].map(|side| side.ep.join(&group, Context(9)).unwrap());
    for side in [&receiver, &second_receiver] {
        let joined = side.eq.read().unwrap();
        assert!(
            matches!(joined, Event::JoinComplete { context } if context == Context(9)),
            "{joined:?}"
        );
    }
    assert_eq!(receiver.av.lookup(members[0].addr()), Ok(group.clone()));
    let dest = sender.av.insert_one(&group).unwrap();
    let buffers = [&receiver, &second_receiver].map(|side| side.recv(5, 1));
    sender.send(dest, b"to all", 0);
    sender.next();
    for (side, buffer) in [&receiver, &second_receiver].into_iter().zip(&buffers) {
        assert_eq!(side.next_error().olen, 1);
        assert_eq!(buffer.bytes(), b"to al");
    }
    let [first, second] = members;
    drop(first);
    let buffers = [&receiver, &second_receiver].map(|side| side.recv(5, 2));
    until(|| {
        sender.send(dest, b"again", 0);
        sender.next();
        let mut entry = [Entry::default()];
        (second_receiver.cq().read(&mut entry) == Ok(1)).then_some(())
    });
    assert_eq!(buffers[1].bytes(), b"again");
    receiver.assert_no_completion();
    drop(second);
    for address in ["127.0.0.1:5", "239.255.77.1:0"] {
        let rejected = sender.ep.join(&address.parse().unwrap(), Context(0));
        assert_eq!(rejected.err(), Some(Errno::Inval), "{address}");
    }
}

#[test]
fn an_invalid_source_address_fails_with_its_value() {
    let side = DatagramEndpoint::new();
    for text in ["localhost:24601", "127.0.0.1:99999", "fi_shm://here"] {
        let mut info = side.context.info().clone();
        info.src_addr = Some(text.parse().unwrap());
        let error = LocalEndpoint::try_open(&open_domain(&info).unwrap(), |_, _| ()).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}
