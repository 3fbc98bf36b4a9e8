//! One-sided operations on special memory: by loads and stores of the initiator alone.

use nix::sys::signal::Signal;
use selvedge::rma::RmaIov;
use selvedge::{FiAddr, MrAccess};

use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::process::{PeerProcess, alone};
use crate::special::connected_peer;

/// The access of a block, as a request to a peer process states it.
fn rights(access: MrAccess) -> u64 {
    access.bits()
}

fn read_write() -> u64 {
    rights(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
}

const fn segment_at(key: u64, addr: u64, len: usize) -> RmaIov {
    RmaIov { addr, len, key }
}

/// Opens a side, and a peer process with a block that peers may access. The peer process has
/// announced the block, and makes no call of the library afterwards.
fn open_target(len: usize, access: u64) -> (NumberedEndpoint, PeerProcess, FiAddr) {
    let mut side = NumberedEndpoint::new();
    let (mut peer_process, _, peer_addr) = connected_peer(&mut side);
    assert_eq!(
        peer_process.request(&format!("alloc 1 {len} {access}")),
        "ok"
    );
    (side, peer_process, peer_addr)
}

fn word(number: u64) -> [u8; 8] {
    number.to_ne_bytes()
}

#[test]
fn a_target_that_makes_no_call_sees_writes_and_serves_reads() {
    alone(|| {
        let (mut side, mut peer_process, peer_addr) = open_target(1 << 20, read_write());
        // The target reads its memory, and makes no call.
        peer_process.send_request("wait 1 8 4711");
        side.write(peer_addr, &[segment_at(1, 8, 8)], &word(4711), 1)
            .unwrap();
        assert_eq!(peer_process.response(), "ok");
        assert_eq!(side.next().ok().context, 1);
        peer_process.request("put 1 16 99");
        side.read_from(peer_addr, &[segment_at(1, 8, 16)], 16, 2)
            .unwrap();
        assert_eq!(side.next().ok().bytes, [word(4711), word(99)].concat());
        for len in [1, 7, 8, 9, 100, 4096, 100_000, 1 << 20] {
            for addr in [0, 1] {
                let len = len.min((1 << 20) - addr);
                let bytes = content(len as u64, len);
                let segment = [segment_at(1, addr as u64, len)];
                side.write(peer_addr, &segment, &bytes, 3).unwrap();
                side.next().ok();
                side.read_from(peer_addr, &segment, len, 4).unwrap();
                assert!(side.next().ok().bytes == bytes, "{len} bytes at {addr}");
            }
        }
        assert_eq!(
            side.ep.inject_write(&word(5), peer_addr, 0, 1, None),
            Ok(())
        );
        assert_eq!(peer_process.request("words 1 0 1"), "5");
    });
}

#[test]
fn segments_are_written_to_their_own_addresses() {
    alone(|| {
        let (mut side, mut peer_process, peer_addr) = open_target(4096, read_write());
        assert_eq!(
            peer_process.request(&format!("alloc 9 4096 {}", read_write())),
            "ok"
        );
        let segments = [
            segment_at(1, 0, 8),
            segment_at(9, 8, 12),
            segment_at(1, 100, 0),
            segment_at(1, 16, 4),
        ];
        let bytes = content(1, 24);
        side.write(peer_addr, &segments, &bytes, 1).unwrap();
        side.next().ok();
        side.read_from(peer_addr, &segments, 24, 2).unwrap();
        assert_eq!(side.next().ok().bytes, bytes);
        side.read_from(peer_addr, &[segment_at(9, 8, 12)], 12, 2)
            .unwrap();
        assert_eq!(side.next().ok().bytes, bytes[8..20]);
    });
}

#[test]
fn writes_become_visible_in_the_order_of_their_posts() {
    alone(|| {
        let (mut side, mut peer_process, peer_addr) = open_target(1 << 16, read_write());
        for round in 1..2000 {
            let bytes = word(round).repeat(512);
            peer_process.send_request(&format!("wait 1 0 {round}"));
            side.write(peer_addr, &[segment_at(1, 4096, 4096)], &bytes, 1)
                .unwrap();
            side.write(peer_addr, &[segment_at(1, 0, 8)], &word(round), 2)
                .unwrap();
            assert_eq!(peer_process.response(), "ok");
            if round % 100 == 0 {
                let seen = peer_process.request("words 1 4096 512");
                assert!(seen.split(' ').all(|word| word == round.to_string()));
            }
            side.clear();
        }
    });
}

#[test]
fn an_endpoint_reaches_its_own_special_memory() {
    alone(|| {
        let mut side = NumberedEndpoint::new();
        let self_addr = side.insert(side.name());
        side.alloc(3, 8192, MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE)
            .unwrap();
        side.send(Kind::Tagged, self_addr, 8, 1).unwrap();
        side.recv(Kind::Tagged, self_addr, 8, 1).unwrap();
        side.next().ok();
        side.next().ok();
        side.write(self_addr, &[segment_at(3, 8, 8)], &word(6), 1)
            .unwrap();
        side.next().ok();
        assert_eq!(side.word(3, 8), 6);
        side.read_from(self_addr, &[segment_at(3, 8, 8)], 8, 2)
            .unwrap();
        assert_eq!(side.next().ok().bytes, word(6));
    });
}

#[test]
fn memory_of_a_killed_or_stopped_owner_can_be_used_until_its_disconnect_is_detected() {
    alone(|| {
        for is_killed in [false, true] {
            let (mut side, mut peer_process, peer_addr) = open_target(1 << 20, read_write());
            side.write(peer_addr, &[segment_at(1, 0, 8)], &word(1), 1)
                .unwrap();
            side.next().ok();
            if is_killed {
                peer_process.kill()
            } else {
                peer_process.signal(Signal::SIGSTOP)
            }
            // The peer is killed or stopped, and this side has not detected it: no access may fail.
            let bytes = content(2, 1 << 20);
            side.write(peer_addr, &[segment_at(1, 0, 1 << 20)], &bytes, 2)
                .unwrap();
            side.read_from(peer_addr, &[segment_at(1, 0, 1 << 20)], 1 << 20, 3)
                .unwrap();
            side.next().ok();
            assert!(side.next().ok().bytes == bytes);
        }
    });
}

#[test]
fn a_read_of_continuously_reallocated_memory_never_returns_other_memory() {
    alone(|| {
        let (mut side, mut peer_process, peer_addr) = open_target(8192, read_write());
        peer_process.send_request(&format!("recycle 1 8192 {}", read_write()));
        assert_eq!(peer_process.response(), "ok");
        let mut good = 0;
        side.until(|side| {
            // Between free and allocation there is no key.
            if side
                .read_from(peer_addr, &[segment_at(1, 0, 8)], 8, 1)
                .is_ok()
            {
                let event = side.next();
                let word = u64::from_ne_bytes(event.bytes[..].try_into().unwrap());
                assert!(event.error.is_some() || word <= 1, "{word:#x}");
                good += u64::from(event.error.is_none());
            }
            let _ = side.write(peer_addr, &[segment_at(1, 4096, 8)], &word(77), 2);
            side.clear();
            good >= 500
        });
    });
}
