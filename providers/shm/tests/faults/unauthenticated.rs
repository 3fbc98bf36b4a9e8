//! Processes that connect to an endpoint's socket and are refused. Their packets and descriptors
//! delay no peer.
//!
//! Only root can start processes of another user. Without that right, tests are skipped and report
//! why.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, UnixAddr, bind, connect, listen, setsockopt, sockopt};
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use selvedge::info::EpType;
use selvedge::{Errno, FiAddr};
use selvedge_shm::smr::doorbell::Doorbell;
use selvedge_testkit::shm_peer::packet_socket;
use selvedge_testkit::skip::{Need, skip};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, info};
use crate::hostile::{HostileConnection, Scenario, hello, region};
use crate::process::{PeerProcess, Watchdog, alone};

/// The number of another user.
const OTHER_UID: u32 = 65533;
/// Seconds that the last close of a lingering socket waits: longer than any test.
const LINGER: i32 = 3600;

/// The sockets of a process of another user.
#[derive(Default)]
pub(crate) struct OtherUser {
    connections: Vec<OwnedFd>,
    unread: Vec<TcpStream>,
}

impl OtherUser {
    /// Serves a request of [`PeerProcess`].
    pub(crate) fn serve(&mut self, args: &[&str]) -> String {
        match args {
            ["become", user] => {
                let user = user.parse().unwrap();
                setgroups(&[]).unwrap();
                setgid(Gid::from_raw(user)).unwrap();
                setuid(Uid::from_raw(user)).unwrap();
            }
            ["connect", path, count] => {
                let count: usize = count.parse().unwrap();
                let connections = (0..count).map(|_| connect_to(path));
                self.connections.extend(connections);
            }
            // The number of connections that the other side has closed.
            ["ended"] => {
                return self
                    .connections
                    .iter()
                    .filter(is_closed_by_peer)
                    .count()
                    .to_string();
            }
            ["leave", path] => {
                let (socket, unread) = open_lingering_socket();
                let hostile = HostileConnection::from_socket(connect_to(path));
                hostile.send(b"?", &[socket.as_fd()]);
                self.unread.push(unread);
            }
            ["read"] => read_to_the_end(std::mem::take(&mut self.unread)),
            _ => panic!("unknown request {args:?}"),
        }
        "ok".into()
    }
}

/// Starts a process of another user. Returns `None` if this process cannot start one.
fn other_user_process() -> Option<PeerProcess> {
    if !geteuid().is_root() {
        skip(
            Need::Rights,
            "this user cannot start a process of another one",
        );
        return None;
    }
    let mut peer_process = PeerProcess::start();
    peer_process.request(&format!("other-user become {OTHER_UID}"));
    Some(peer_process)
}

/// Returns the abstract name of an endpoint's socket.
fn socket_name(side: &NumberedEndpoint) -> String {
    let name = side.name();
    let name = name.strip_prefix("fi_shm://").unwrap();
    format!("selvedge-shm/{}/{name}", geteuid())
}

fn connect_to(path: &str) -> OwnedFd {
    let socket = packet_socket().unwrap();
    let address = UnixAddr::new_abstract(path.as_bytes()).unwrap();
    connect(socket.as_raw_fd(), &address).unwrap();
    socket
}

fn is_closed_by_peer(socket: &&OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap();
    fds[0].revents().unwrap().contains(PollFlags::POLLHUP)
}

/// Opens a socket with unsent bytes, whose last close waits until its peer has read them. Returns
/// it and the peer's socket.
fn open_lingering_socket() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER,
    };
    setsockopt(&sender, sockopt::Linger, &linger).unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.write(&[0; 1 << 16]).is_ok() {}
    (sender.into(), listener.accept().unwrap().0)
}

/// Reads each socket to its end, which the last close of the other side causes. These closes may
/// happen one after the other.
fn read_to_the_end(sockets: Vec<TcpStream>) {
    let read = |mut socket: TcpStream| {
        std::thread::spawn(move || socket.read_to_end(&mut Vec::new()).unwrap())
    };
    let readers: Vec<_> = sockets.into_iter().map(read).collect();
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
}

#[test]
fn connections_of_another_user_are_refused_a_few_at_a_time() {
    let _watchdog = Watchdog::new();
    let Some(mut other_user) = other_user_process() else {
        return;
    };
    let mut scenario = Scenario::new();
    let count = 400;
    other_user.request(&format!(
        "other-user connect {} {count}",
        socket_name(&scenario.target)
    ));
    let mut ended = 0;
    while ended < count {
        scenario.target.drive();
        let total = other_user.request("other-user ended").parse().unwrap();
        assert!(total <= ended + 32, "{} in one call", total - ended);
        ended = total;
    }
    scenario.expect_traffic();
}

#[test]
fn descriptors_left_by_another_user_delay_no_peer() {
    let _watchdog = Watchdog::new();
    let Some(mut other_user) = other_user_process() else {
        return;
    };
    let mut scenario = Scenario::new();
    let path = socket_name(&scenario.target);
    for _ in 0..10 {
        other_user.request(&format!("other-user leave {path}"));
        scenario.expect_traffic();
    }
    other_user.request(&format!("other-user connect {path} 1"));
    while other_user.request("other-user ended") == "0" {
        scenario.target.drive();
    }
    scenario.expect_traffic();
    other_user.request("other-user read");
}

#[test]
fn an_endpoint_closes_although_another_user_left_descriptors_at_its_socket() {
    let _watchdog = Watchdog::new();
    let Some(mut other_user) = other_user_process() else {
        return;
    };
    let name = unique("left");
    let side = NumberedEndpoint::named(&name);
    other_user.request(&format!("other-user leave {}", socket_name(&side)));
    drop(side);
    let reopened = NumberedEndpoint::named(&name);
    other_user.request("other-user read");
    drop(reopened);
}

#[test]
fn descriptors_of_a_refused_packet_delay_no_peer() {
    alone(|| {
        let mut scenario = Scenario::new();
        let mut unread = Vec::new();
        for packets in 0..4 {
            let (socket, receiver) = open_lingering_socket();
            let hostile = HostileConnection::connect(&scenario.target);
            // The connection is refused for its first packet; the rest is never read.
            (0..packets).for_each(|_| hostile.send(b"?", &[]));
            hostile.send(b"?", &[socket.as_fd()]);
            drop(socket);
            hostile.expect_cut_off_by(&mut scenario.target);
            unread.push(receiver);
            scenario.expect_traffic();
        }
        read_to_the_end(unread);
    });
}

#[test]
fn default_names_that_are_taken_are_skipped() {
    alone(|| {
        let first = NumberedEndpoint::new();
        let mut name = first.name();
        let endpoint = name.rfind(':').unwrap();
        name.truncate(endpoint);
        let domain = name.rfind(':').unwrap();
        let process = name[..domain].strip_prefix("fi_shm://").unwrap();
        let names =
            (0..20).map(|domain| format!("selvedge-shm/{}/{process}:{domain}:0", geteuid()));
        let taken: Vec<_> = names.filter_map(|name| listen_at(&name)).collect();
        assert!(taken.len() >= 19);
        let mut sides: Vec<_> = (0..5).map(|_| NumberedEndpoint::new()).collect();
        let (mut last, first) = (sides.pop().unwrap(), &mut sides[0]);
        let to_first = last.insert(first.name());
        last.send(Kind::Delivered, to_first, 8, 1).unwrap();
        first.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 1).unwrap();
        last.next_with(&mut [first]).ok();
        // A name that the program has chosen is not replaced by another one.
        let chosen = format!("{process}:{}:0", 19);
        let error = NumberedEndpoint::open(Some(&chosen), &info(EpType::Rdm, &[])).err();
        assert_eq!(error.unwrap().errno(), Errno::AddrInUse);
    });
}

/// Opens a listening socket of this name. Returns `None` if the name is taken.
fn listen_at(path: &str) -> Option<OwnedFd> {
    let socket = packet_socket().unwrap();
    let address = UnixAddr::new_abstract(path.as_bytes()).unwrap();
    bind(socket.as_raw_fd(), &address).ok()?;
    listen(&socket, Backlog::new(1).unwrap()).unwrap();
    Some(socket)
}

#[test]
fn hellos_are_accepted_a_few_at_a_time() {
    alone(|| {
        let mut scenario = Scenario::new();
        let (_, bell) = Doorbell::create().unwrap();
        let mut hostiles = Vec::new();
        for number in 0..60 {
            let region = region();
            let hostile = HostileConnection::connect(&scenario.target);
            let hello = hello(&unique(&number.to_string()), 1, &7);
            hostile.send(&hello, &[region.fd(), bell.fd()]);
            hostiles.push(hostile);
        }
        while !hostiles.is_empty() {
            scenario.target.drive();
            let before = hostiles.len();
            hostiles.retain(|hostile| {
                hostile
                    .receive()
                    .is_some_and(|(packet, _)| packet.is_empty())
            });
            let accepted = before - hostiles.len();
            assert!(accepted <= 8, "{accepted} in one call");
        }
        scenario.expect_traffic();
    });
}

#[test]
fn a_peer_that_rings_first_is_polled_first_however_many_ring() {
    alone(|| {
        const PEERS: u64 = 300;
        let mut side = NumberedEndpoint::new();
        let name = side.name();
        let mut peers: Vec<_> = (0..PEERS).map(|_| NumberedEndpoint::new()).collect();
        for round in 0..6 {
            let numbers = round * PEERS..;
            for (peer, number) in peers.iter_mut().zip(numbers) {
                let to_side = peer.insert(&name);
                peer.send(Kind::Tagged, to_side, 8, number).unwrap();
                side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
            }
            let mut order = Vec::new();
            while order.len() < PEERS as usize {
                order.extend(side.poll().map(|event| event.ok().context));
            }
            for peer in &mut peers {
                // The first round's turns let the peer receive the reply to its hello.
                (0..64).for_each(|_| peer.drive());
            }
            let position = order.iter().position(|&number| number == round * PEERS);
            let position = position.unwrap();
            // In the first round the peers connect. Some peers are polled, whether they ring or
            // not.
            assert!(
                round == 0 || position < 80,
                "round {round}: {position} peers were polled before"
            );
        }
    });
}
