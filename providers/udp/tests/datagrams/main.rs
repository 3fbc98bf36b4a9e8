//! Datagrams between endpoints of one process, and plain sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![expect(unsafe_code, reason = "tests of the raw face")]

mod side;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use selvedge::cq::{self, Entry};
use selvedge::eq::Event;
use selvedge::{
    Address, Bindings, Caps, CompletionFlags, Context, Errno, FiAddr, OpFlags, av, wait,
};

use side::{Side, until};

fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 31) as u8).collect()
}

#[test]
fn datagrams_of_every_size_arrive_whole_with_their_sources() {
    for at in ["127.0.0.1:0", "[::1]:0"] {
        let caps = Caps::MSG | Caps::SOURCE;
        let [here, there] = [(); 2].map(|()| Side::with(caps, at, wait::Object::None));
        let (to, from) = (here.insert(there.addr()), there.insert(here.addr()));
        let most = here.info.ep_attr.max_msg_size;
        for (number, len) in [0, 1, 8, 1000, most].into_iter().enumerate() {
            let landing = there.recv(most, 7);
            here.send(to, &bytes(number, len), 3);
            let (sent, _) = here.next();
            assert_eq!(sent.context, Context(3));
            assert_eq!(sent.flags, CompletionFlags::SEND | CompletionFlags::MSG);
            let (came, src) = there.next();
            assert_eq!((came.context, came.len, src), (Context(7), len, from));
            assert_eq!(came.flags, CompletionFlags::RECV | CompletionFlags::MSG);
            assert_eq!(landing.bytes()[..len], bytes(number, len));
            assert!(landing.bytes()[len..].iter().all(|&byte| byte == 0xaa));
        }
    }
}

#[test]
fn what_is_not_received_yet_waits_in_order() {
    let [here, there] = [(); 2].map(|()| Side::new());
    let to = here.insert(there.addr());
    for number in 0..3 {
        here.send(to, &bytes(number, 100), 0);
        here.next();
    }
    there.finds_nothing();
    for number in 0..3 {
        let landing = there.recv(100, number as u64);
        let (came, _) = there.next();
        assert_eq!(came.context, Context(number as u64));
        assert_eq!(landing.bytes(), bytes(number, 100));
    }
}

#[test]
fn a_run_of_datagrams_is_sent_and_received_by_the_batch() {
    const RUN: usize = 100;
    let [here, there] = [(); 2].map(|()| Side::new());
    let to = here.insert(there.addr());
    let landings: Vec<_> = (0..RUN).map(|at| there.recv(64, at as u64)).collect();
    for number in 0..RUN {
        here.send(to, &bytes(number, 64), number as u64);
    }
    let mut sent = BTreeSet::new();
    while sent.len() < RUN {
        assert!(sent.insert(here.next().0.context.0));
    }
    for (number, landing) in landings.iter().enumerate() {
        assert_eq!(there.next().0.context, Context(number as u64));
        assert_eq!(landing.bytes(), bytes(number, 64));
    }
}

#[test]
fn a_datagram_that_does_not_fit_is_cut_and_what_is_lost_is_counted() {
    let [here, there] = [(); 2].map(|()| Side::new());
    let to = here.insert(there.addr());
    let landing = there.recv(10, 5);
    here.send(to, &bytes(1, 100), 0);
    let error = there.next_error();
    assert_eq!((error.errno, error.olen), (Errno::Trunc, 90));
    assert_eq!((error.entry.context, error.entry.len), (Context(5), 10));
    assert_eq!(landing.bytes(), &bytes(1, 100)[..10]);
}

#[test]
fn a_plain_socket_is_a_peer() {
    let side = Side::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let to = side.insert(socket.local_addr().unwrap());
    side.ep.inject(b"nothing but this", to, None).unwrap();
    let mut got = [0; 100];
    let (len, from) = socket.recv_from(&mut got).unwrap();
    assert_eq!((&got[..len], from), (&b"nothing but this"[..], side.addr()));
    let landing = side.recv(4, 1);
    socket.send_to(b"back", from).unwrap();
    assert_eq!(side.next().0.len, 4);
    assert_eq!(landing.bytes(), b"back");
}

#[test]
fn a_stranger_is_reported_with_its_address_once_that_is_asked_for() {
    let here = Side::new();
    let caps = Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR;
    let there = Side::with(caps, "127.0.0.1:0", wait::Object::None);
    let to = here.insert(there.addr());
    let landing = there.recv(8, 1);
    here.send(to, &bytes(0, 8), 0);
    let error = there.next_error();
    assert_eq!(error.errno, Errno::AddrNotAvail);
    let stranger = Address::from_bytes(&error.err_data).unwrap();
    assert_eq!(stranger, Address::Ip(here.addr()));
    assert_eq!(landing.bytes(), bytes(0, 8));
}

#[test]
fn injected_bytes_may_be_overwritten_at_once_also_behind_others() {
    let [here, there] = [(); 2].map(|()| Side::new());
    let to = here.insert(there.addr());
    let landings: Vec<_> = (0..40).map(|at| there.recv(16, at)).collect();
    for number in 0..40 {
        let mut buf = bytes(number, 16);
        here.ep.inject(&buf, to, None).unwrap();
        buf.fill(0);
    }
    here.finds_nothing();
    for (number, landing) in landings.iter().enumerate() {
        there.next();
        assert_eq!(landing.bytes(), bytes(number, 16));
    }
}

#[test]
fn what_a_datagram_cannot_do_is_refused() {
    let side = Side::new();
    let to = side.insert("127.0.0.1:9".parse().unwrap());
    let most = side.info.ep_attr.max_msg_size;
    let send = |len: usize, flags| side.try_send(to, &vec![0; len], 0, flags);
    assert_eq!(send(most + 1, OpFlags::empty()), Err(Errno::MsgSize));
    for flag in [
        OpFlags::REMOTE_CQ_DATA,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::FENCE,
    ] {
        assert_eq!(send(1, flag), Err(Errno::BadFlags), "{flag}");
    }
    let nobody = side.try_send(FiAddr(77), b"", 0, OpFlags::empty());
    assert_eq!(nobody, Err(Errno::Inval));
    assert_eq!(side.ep.inject(b"", to, Some(1)), Err(Errno::OpNotSupp));
    let tagged = side.ep.tinject(b"", to, 1, None);
    assert_eq!(tagged, Err(Errno::NoSys));
}

#[test]
fn where_no_datagram_gets_to_is_an_error_and_the_next_ones_are_sent() {
    let [here, there] = [(); 2].map(|()| Side::new());
    // An endpoint of the loopback interface reaches nobody else.
    let far = here.insert("192.0.2.77:9".parse().unwrap());
    let near = here.insert(there.addr());
    let landing = there.recv(3, 2);
    here.send(far, b"far", 1);
    here.send(near, b"one", 2);
    let error = here.next_error();
    assert_eq!(error.entry.context, Context(1));
    assert!(error.detail.contains("192.0.2.77:9"), "{}", error.detail);
    assert_eq!(here.next().0.context, Context(2));
    assert_eq!(there.next().0.context, Context(2));
    assert_eq!(landing.bytes(), b"one");
}

#[test]
fn a_cancelled_receive_takes_nothing() {
    let [here, there] = [(); 2].map(|()| Side::new());
    let to = here.insert(there.addr());
    there.recv(8, 1);
    let landing = there.recv(8, 2);
    there.ep.cancel(Context(1)).unwrap();
    assert_eq!(there.next_error().errno, Errno::Canceled);
    assert_eq!(there.ep.cancel(Context(1)), Err(Errno::NoEnt));
    here.send(to, &bytes(0, 8), 0);
    assert_eq!(there.next().0.context, Context(2));
    assert_eq!(landing.bytes(), bytes(0, 8));
}

#[test]
fn a_sleeper_is_woken_by_a_datagram_and_by_a_receive_for_one_that_waits() {
    let here = Side::new();
    let there = Side::with(Caps::MSG, "127.0.0.1:0", wait::Object::Unspec);
    let to = here.insert(there.addr());
    let cq = &there.cq;
    let wait = || {
        let mut entry = [Entry::default()];
        let found = cq.wait(&mut entry, Some(Duration::from_secs(30)));
        assert_eq!(found, Ok(1));
    };
    there.recv(8, 1);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(wait);
        std::thread::sleep(Duration::from_millis(20));
        here.ep.inject(&bytes(0, 8), to, None).unwrap();
        sleeper.join().unwrap();
    });
    here.finds_nothing();
    here.ep.inject(&bytes(0, 8), to, None).unwrap();
    let mut entry = [Entry::default()];
    let nothing = there.cq.wait(&mut entry, Some(Duration::from_millis(20)));
    assert_eq!(nothing, Err(Errno::Again));
    there.recv(8, 2);
    wait();
}

#[test]
fn a_group_is_heard_by_its_members_until_they_leave() {
    let [here, there, other] = [(); 3].map(|()| Side::new());
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = port.local_addr().unwrap().port();
    let group: SocketAddr = format!("239.255.77.{}:{port}", port % 250 + 1)
        .parse()
        .unwrap();
    let group = Address::Ip(group);
    let members = [&there, &other].map(|side| side.ep.join(&group, Context(9)).unwrap());
    for side in [&there, &other] {
        let joined = side.eq.read().unwrap();
        assert!(
            matches!(joined, Event::JoinComplete { context } if context == Context(9)),
            "{joined:?}"
        );
    }
    assert_eq!(there.av.lookup(members[0].addr()), Ok(group.clone()));
    let to = here.av.insert_one(&group).unwrap();
    let landings = [&there, &other].map(|side| side.recv(5, 1));
    here.send(to, b"to all", 0);
    here.next();
    for (side, landing) in [&there, &other].into_iter().zip(&landings) {
        assert_eq!(side.next_error().olen, 1);
        assert_eq!(landing.bytes(), b"to al");
    }
    let [first, second] = members;
    drop(first);
    let landings = [&there, &other].map(|side| side.recv(5, 2));
    until(|| {
        here.send(to, b"again", 0);
        here.next();
        let mut entry = [Entry::default()];
        (other.cq.read(&mut entry) == Ok(1)).then_some(())
    });
    assert_eq!(landings[1].bytes(), b"again");
    there.finds_nothing();
    drop(second);
    for address in ["127.0.0.1:5", "239.255.77.1:0"] {
        let refused = here.ep.join(&address.parse().unwrap(), Context(0));
        assert_eq!(refused.err(), Some(Errno::Inval), "{address}");
    }
}

#[test]
fn an_address_of_its_own_that_is_none_is_refused_by_value() {
    let side = Side::new();
    for text in ["localhost:24601", "127.0.0.1:99999", "fi_shm://here"] {
        let mut info = side.info.clone();
        info.src_addr = Some(text.parse().unwrap());
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let error = domain.endpoint(&info, Bindings::new(cq, av)).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}
