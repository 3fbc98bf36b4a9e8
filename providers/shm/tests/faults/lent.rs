//! Lent messages whose sender or holder is killed, stopped or restarted.

use nix::sys::signal::Signal;
use selvedge::{Errno, LentMemory, MrAccess};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, content, read};
use crate::fork::{fork, reap};
use crate::process::{PeerProcess, alone};
use crate::special::connected_peer;

const LEN: usize = 100_000;

/// Receives message `number` by reference from the peer process.
fn receive(
    side: &mut NumberedEndpoint,
    peer_process: &mut PeerProcess,
    index: &str,
    number: u64,
) -> Box<dyn LentMemory> {
    side.recv_lent(8, number);
    let request = format!("lend 1 {index} {LEN} {number}");
    assert_eq!(peer_process.request(&request), "ok");
    let event = side.next().ok();
    assert!(event.bytes == content(number, LEN));
    event.view.expect("the message is lent")
}

#[test]
fn a_view_of_a_killed_sender_stays_readable_and_returns_to_no_successor() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let name = unique("lender");
        let mut peer_process = PeerProcess::named(&name);
        let index = peer_process.request(&format!("insert {}", side.name()));
        let addr = side.insert(&name);
        assert_eq!(peer_process.request("alloc 1 200000 0"), "ok");
        let view = receive(&mut side, &mut peer_process, &index, 7);
        peer_process.kill();
        // The end of the peer is noticed.
        side.recv(Kind::Tagged, addr, 8, 555).unwrap();
        assert_eq!(side.next().errno(), Errno::ConnReset);
        assert!(view.is_intact());
        assert!(read(&*view) == content(7, LEN));
        // The successor's first loan has the same number on the wire.
        let mut successor = PeerProcess::named(&name);
        let index = successor.request(&format!("insert {}", side.name()));
        assert_eq!(successor.request("alloc 1 200000 0"), "ok");
        let second = receive(&mut side, &mut successor, &index, 8);
        assert!(read(&*view) == content(7, LEN));
        // A second return of the successor's message would disconnect the endpoints.
        side.recv(Kind::Tagged, addr, 8, 556).unwrap();
        drop(view);
        (0..1000).for_each(|_| side.drive());
        successor.request("drive 1000");
        assert!(read(&*second) == content(8, LEN));
        successor.send_request("next");
        drop(second);
        assert_eq!(successor.response(), "done 8");
        let third = receive(&mut side, &mut successor, &index, 9);
        successor.request("drive 1000");
        assert!((0..1000).all(|_| side.poll().is_none()));
        successor.send_request("next");
        drop(third);
        assert_eq!(successor.response(), "done 9");
    });
}

#[test]
fn a_buffer_returns_once_when_its_holder_is_killed() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, _, addr) = connected_peer(&mut side);
        side.alloc(1, 2 * LEN, MrAccess::empty()).unwrap();
        for number in [1, 2] {
            assert_eq!(peer_process.request(&format!("recv-lent 8 {number}")), "ok");
            side.lend(1, addr, LEN, number).unwrap();
            assert_eq!(
                peer_process.request("keep"),
                format!("done {number} {LEN} good")
            );
        }
        peer_process.request("return");
        assert_eq!(side.next().ok().context, 1);
        peer_process.kill();
        let failed = side.next();
        assert_eq!((failed.context, failed.errno()), (2, Errno::ConnReset));
        (0..1000).for_each(|_| side.drive());
        assert!(side.is_idle());
    });
}

#[test]
fn a_stopped_holder_keeps_its_message() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, _, addr) = connected_peer(&mut side);
        side.alloc(1, 2 * LEN, MrAccess::empty()).unwrap();
        assert_eq!(peer_process.request("recv-lent 8 1"), "ok");
        side.lend(1, addr, LEN, 1).unwrap();
        assert_eq!(peer_process.request("keep"), format!("done 1 {LEN} good"));
        peer_process.signal(Signal::SIGSTOP);
        assert!((0..10_000).all(|_| side.poll().is_none()));
        peer_process.signal(Signal::SIGCONT);
        peer_process.request("return");
        assert_eq!(side.next().ok().context, 1);
    });
}

#[test]
fn a_forked_child_gives_nothing_back() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let (mut peer_process, index, _) = connected_peer(&mut side);
        assert_eq!(peer_process.request("alloc 1 200000 0"), "ok");
        let mut view = Some(receive(&mut side, &mut peer_process, &index, 7));
        let child = fork(|| drop(view.take()));
        reap(child);
        (0..1000).for_each(|_| side.drive());
        peer_process.request("drive 1000");
        peer_process.send_request("next");
        drop(view);
        assert_eq!(peer_process.response(), "done 7");
    });
}
