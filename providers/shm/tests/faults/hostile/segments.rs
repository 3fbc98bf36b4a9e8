//! Rendezvous whose segments are forged, missing, or void after a disconnect.

use selvedge::{Context, Errno, FiAddr, IovMut, MrAccess, mr};
use selvedge_shm::smr::bounce::{BounceReceiver, Shape};
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::resp_queue::Resp;
use selvedge_testkit::usage::private_after_trim;

use super::commands::{KEY, guarded_region};
use super::{BOUNCE, HostilePeer, Scenario};
use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::peer_failure::Random;
use crate::process::alone;

#[test]
fn pending_rendezvous_to_a_peer_that_is_cut_off_are_void() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let name = unique("slow");
        let mut hostile_peer = HostilePeer::connect(&mut scenario.target, &name, 5, &nonce);
        let peer_addr = scenario.target.insert(&name);
        scenario
            .target
            .send(Kind::Tagged, peer_addr, 1 << 20, 1)
            .unwrap();
        hostile_peer.tx.claim().unwrap().commit(u32::MAX);
        assert_eq!(scenario.target.next().errno(), Errno::ConnReset);
        // The peer may be reading the message, and must detect that it is void.
        assert!(hostile_peer.target_region.is_closed());
        scenario.expect_traffic();
    });
}

#[test]
fn segments_of_an_unexpected_message_are_bounded() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("heap"), 5, &nonce);
        let mut slot = hostile_peer.tx.claim().unwrap();
        slot.put(3, u64::from(u32::MAX));
        slot.put(4, 1 << 32);
        slot.put(6, u64::from(u32::MAX));
        slot.commit(1 | 2 << 8);
        let mut random = Random::seeded();
        hostile_peer.send_segment(&mut random);
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scenario.target.drive());
        scenario.target.until(|_| {
            let bounce = hostile_peer.bounce.as_mut().unwrap();
            bounce.fill(0, 64, |_, _, _| {});
            let _ = (0..16)
                .filter(|&segment| bounce.free_segment(segment))
                .count();
            hostile_peer.hostile.receive().is_none()
        });
        scenario.expect_traffic();
    });
}

/// Sends the RTS of an untagged message in bounce segments, `eager` of which come without a
/// request.
pub(super) fn push_rts(tx: &mut Sender, len: u64, msg_id: u64, eager: u64) {
    let mut slot = tx.claim().unwrap();
    slot.put(3, len);
    slot.put(4, msg_id | 1 << 32);
    slot.put(6, eager);
    slot.commit(2 << 8);
}

#[test]
fn segments_that_are_longer_than_their_message_leave_the_rest_of_the_buffer_alone() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("long"), 5, &nonce);
        let number = 77;
        let any = FiAddr::UNSPEC;
        scenario.target.recv(Kind::Msg, any, 3000, number).unwrap();
        push_rts(&mut hostile_peer.tx, 100, 1, 1);
        hostile_peer.send_segment(&mut Random::seeded());
        let bounce = hostile_peer.bounce.as_mut().unwrap();
        bounce.fill(1, 4096, |_, _, _| {});
        let event = scenario.target.next().ok();
        assert_eq!((event.context, event.bytes.len()), (number, 100));
        scenario.expect_traffic();
    });
}

#[test]
fn a_receive_fails_when_its_rendezvous_is_repeated() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("twice"), 5, &nonce);
        let any = FiAddr::UNSPEC;
        scenario.target.recv(Kind::Msg, any, 100_000, 77).unwrap();
        push_rts(&mut hostile_peer.tx, 100_000, 1, 0);
        push_rts(&mut hostile_peer.tx, 100_000, 1, 0);
        let event = scenario.target.next();
        assert_eq!((event.context, event.errno()), (77, Errno::ConnReset));
        scenario.expect_traffic();
    });
}

#[test]
fn segments_without_a_rendezvous_are_bounded() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("early"), 5, &nonce);
        push_rts(&mut hostile_peer.tx, 100, 1, 1);
        hostile_peer.send_segment(&mut Random::seeded());
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scenario.target.drive());
        scenario.target.until(|_| {
            let bounce = hostile_peer.bounce.as_mut().unwrap();
            bounce.fill(99, 64, |_, _, _| {});
            let _ = (0..16)
                .filter(|&segment| bounce.free_segment(segment))
                .count();
            hostile_peer.hostile.receive().is_none()
        });
        scenario.expect_traffic();
    });
}

#[test]
fn a_rendezvous_without_bytes_holds_its_receive_alone_and_ends_with_its_peer() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("empty"), 5, &nonce);
        let (any, len) = (FiAddr::UNSPEC, 100_000);
        let numbers: Vec<_> = (1000..1000 + 20).collect();
        for (&number, msg_id) in numbers.iter().zip(0..) {
            scenario.target.recv(Kind::Msg, any, len, number).unwrap();
            // Some of the commands announce eager segments, which come without a request.
            push_rts(&mut hostile_peer.tx, len as u64, msg_id, msg_id % 3);
        }
        let free = 2000;
        scenario.target.recv(Kind::Msg, any, len, free).unwrap();
        let mut requests = hostile_peer.target_region.resp_receiver();
        let mut unrequested = numbers.len();
        scenario.target.until(|_| {
            unrequested -= std::iter::from_fn(|| requests.pop()).count();
            unrequested == 0
        });
        scenario.expect_traffic();
        // A receive without a match can be cancelled.
        let cancel = |number| scenario.target.ep.cancel(Context(number));
        assert_eq!(cancel(free), Ok(()));
        assert_eq!(cancel(numbers[0]), Err(Errno::NoEnt));
        assert_eq!(scenario.target.next().errno(), Errno::Canceled);
        scenario.expect_traffic();
        assert!(scenario.target.poll().is_none());
        drop(hostile_peer);
        let mut failed = numbers.clone();
        while !failed.is_empty() {
            let event = scenario.target.next();
            assert_eq!(event.errno(), Errno::ConnReset);
            failed.retain(|&number| number != event.context);
        }
        scenario.expect_traffic();
    });
}

#[test]
fn endless_rendezvous_without_bytes_cut_off_their_peer() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let before = private_after_trim().unwrap();
        for name in ["first", "second", "third"] {
            let mut hostile_peer =
                HostilePeer::connect(&mut scenario.target, &unique(name), 5, &nonce);
            let mut msg_id = 0;
            scenario.target.until(|_| {
                let _ = hostile_peer.tx.refresh(hostile_peer.tx.position());
                if hostile_peer.tx.room() > 0 {
                    push_rts(&mut hostile_peer.tx, 100_000, msg_id, 0);
                    msg_id += 1;
                }
                hostile_peer.hostile.receive().is_none()
            });
            scenario.expect_traffic();
        }
        let grown = private_after_trim().unwrap().saturating_sub(before);
        assert!(grown < 4 << 20, "memory has grown by {grown} bytes");
    });
}

/// Fills the sockets to the target's peers with packets about special memory, which no peer reads.
fn fill_sockets(target: &mut NumberedEndpoint) {
    for block in 1000..1400 {
        let access = MrAccess::REMOTE_READ;
        target.alloc(block, 4096, access).unwrap();
        target.drive();
    }
}

#[test]
fn segments_are_announced_to_a_peer_with_a_full_socket_once_it_has_room() {
    alone(|| {
        let mut scenario = Scenario::with_params(&[("FI_SHM_PROTOCOL", "bounce")]);
        let (_guarded, nonce, name) = (
            guarded_region(&scenario.target),
            Box::new(9_u64),
            unique("full"),
        );
        let mut hostile_peer = HostilePeer::connect(&mut scenario.target, &name, 5, &nonce);
        let peer_addr = scenario.target.insert(&name);
        fill_sockets(&mut scenario.target);
        // A read of the target's memory, and a message of the target.
        let mut slot = hostile_peer.tx.claim().unwrap();
        for (index, word) in (1..).zip([KEY, 0, 4096, 77]) {
            slot.put(index, word);
        }
        slot.commit(3);
        scenario
            .target
            .send(Kind::Tagged, peer_addr, 100_000, 1)
            .unwrap();
        let mut commands = hostile_peer.target_region.cmd_receiver();
        let (mut read, mut announced) = (None, None);
        scenario.target.until(|_| {
            if let Some(slot) = commands.peek() {
                match slot.head() & 0xff {
                    1 => announced = Some(slot.word(4) as u32),
                    _ => {
                        assert_eq!(
                            slot.head(),
                            7 | 2 << 8,
                            "the response announces no segments"
                        );
                        read = Some(slot.word(3) as u32);
                    }
                }
                commands.release();
            }
            read.is_some() && announced.is_some()
        });
        let request = Resp {
            msg_id: announced.unwrap(),
            status: REQUEST_SEGMENTS,
        };
        hostile_peer.resp.push(request);
        for _ in 0..1000 {
            assert!(scenario.target.poll().is_none(), "the message has failed");
        }
        let mut segments = None;
        scenario.target.until(|_| {
            let (bytes, mut fds) = hostile_peer
                .hostile
                .receive()
                .expect("the target cuts the peer off");
            if bytes.get(12..16) == Some(&BOUNCE.to_le_bytes()[..]) {
                segments = fds.pop();
            }
            segments.is_some()
        });
        let shape = Shape {
            count: 16,
            size: 16 << 10,
        };
        let mut segments = BounceReceiver::attach(segments.unwrap(), shape).unwrap();
        scenario.target.until(|_| {
            if let Some(filled) = segments.peek().unwrap() {
                for stream in [&mut read, &mut announced] {
                    stream.take_if(|id| *id == filled.msg_id);
                }
                segments.take();
            }
            read.is_none() && announced.is_none()
        });
        scenario.expect_traffic();
    });
}

/// The status that requests a message in segments.
const REQUEST_SEGMENTS: u32 = 2;
/// The status that gives a segment back.
const SEGMENT: u32 = 3;
/// The kind of packet that aborts a message.
const ABORT: u32 = 3;

#[test]
#[expect(unsafe_code, reason = "registers memory that is never freed")]
fn a_peer_with_a_full_socket_receives_the_abort_once_it_has_room() {
    alone(|| {
        let params = [
            ("FI_SHM_SEGMENT_COUNT", "2"),
            ("FI_SHM_SEGMENT_SIZE", "4096"),
        ];
        let (mut scenario, nonce) = (Scenario::with_params(&params), Box::new(9_u64));
        let memory = vec![7_u8; 1 << 20].leak();
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (MrAccess::REMOTE_READ, KEY);
        let segment = IovMut::from_raw(memory.as_mut_ptr().cast(), memory.len());
        // SAFETY: never freed, and not touched again.
        let region = unsafe { scenario.target.domain().reg(&[segment], &attr) }.unwrap();
        let mut hostile_peer =
            HostilePeer::connect(&mut scenario.target, &unique("full"), 5, &nonce);
        let mut slot = hostile_peer.tx.claim().unwrap();
        for (index, word) in (1..).zip([KEY, 0, 1 << 20, 77]) {
            slot.put(index, word);
        }
        slot.commit(3);
        let responses = hostile_peer.target_region.cmd_receiver();
        let mut stream = None;
        scenario.target.until(|_| {
            stream = responses.peek().map(|slot| slot.word(3) as u32);
            stream.is_some()
        });
        // The peer has two segments of the bytes.
        fill_sockets(&mut scenario.target);
        drop(region);
        for segment in 0..2 {
            hostile_peer.resp.push(Resp {
                msg_id: segment,
                status: SEGMENT,
            });
        }
        (0..1000).for_each(|_| scenario.target.drive());
        scenario.target.until(|_| {
            let (bytes, _) = hostile_peer
                .hostile
                .receive()
                .expect("the target cuts the peer off");
            let word = |offset: usize| {
                bytes
                    .get(offset..offset + 4)
                    .map(|word| word.try_into().unwrap())
            };
            let is_abort = word(12).map(u32::from_le_bytes) == Some(ABORT);
            is_abort && word(16).map(u32::from_le_bytes) == stream
        });
        scenario.expect_traffic();
    });
}
