//! Messages that are offered in untrue segments, or not to be had any more.

use selvedge::{Context, Errno, FiAddr, IovMut, MrAccess, mr};
use selvedge_shm::smr::bounce::{BounceReceiver, Shape};
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::resp_queue::Resp;
use selvedge_testkit::usage::private_after_trim;

use super::commands::{KEY, window};
use super::{BOUNCE, Intruder, Scene};
use crate::contact::unique;
use crate::death::Random;
use crate::process::alone;
use crate::side::{Kind, Side};

#[test]
fn what_was_offered_to_a_peer_that_is_cut_off_is_void() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let name = unique("slow");
        let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let them = scene.victim.insert(&name);
        scene.victim.send(Kind::Tagged, them, 1 << 20, 1).unwrap();
        intruder.tx.claim().unwrap().commit(u32::MAX);
        assert_eq!(scene.victim.next().errno(), Errno::ConnReset);
        // It may be at reading what it was offered, and must know that it is no message.
        assert!(intruder.theirs.is_closed());
        scene.goes_on();
    });
}

#[test]
fn segments_of_a_message_that_nobody_receives_do_not_pile_up_without_end() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("heap"), 5, &nonce);
        let mut slot = intruder.tx.claim().unwrap();
        slot.put(3, u64::from(u32::MAX));
        slot.put(4, 1 << 32);
        slot.put(6, u64::from(u32::MAX));
        slot.commit(1 | 2 << 8);
        let mut random = Random::seeded();
        intruder.segment(&mut random);
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scene.victim.drive());
        scene.victim.until(|_| {
            let bounce = intruder.bounce.as_mut().unwrap();
            bounce.fill(0, 64, |_, _, _| {});
            let _ = (0..16)
                .filter(|&segment| bounce.free_segment(segment))
                .count();
            intruder.hostile.hear().is_none()
        });
        scene.goes_on();
    });
}

/// Offers an untagged message in bounce segments, `eager` of which come unasked.
pub(super) fn offer(tx: &mut Sender, len: u64, msg_id: u64, eager: u64) {
    let mut slot = tx.claim().unwrap();
    slot.put(3, len);
    slot.put(4, msg_id | 1 << 32);
    slot.put(6, eager);
    slot.commit(2 << 8);
}

#[test]
fn segments_that_are_longer_than_their_message_leave_the_rest_of_the_buffer_alone() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("long"), 5, &nonce);
        let number = 77;
        let any = FiAddr::UNSPEC;
        scene.victim.recv(Kind::Msg, any, 3000, number).unwrap();
        offer(&mut intruder.tx, 100, 1, 1);
        intruder.segment(&mut Random::seeded());
        let bounce = intruder.bounce.as_mut().unwrap();
        bounce.fill(1, 4096, |_, _, _| {});
        let event = scene.victim.next().ok();
        assert_eq!((event.context, event.bytes.len()), (number, 100));
        scene.goes_on();
    });
}

#[test]
fn a_receive_fails_when_its_message_is_offered_again_under_way() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("twice"), 5, &nonce);
        let any = FiAddr::UNSPEC;
        scene.victim.recv(Kind::Msg, any, 100_000, 77).unwrap();
        offer(&mut intruder.tx, 100_000, 1, 0);
        offer(&mut intruder.tx, 100_000, 1, 0);
        let event = scene.victim.next();
        assert_eq!((event.context, event.errno()), (77, Errno::ConnReset));
        scene.goes_on();
    });
}

#[test]
fn segments_of_messages_that_were_never_offered_do_not_pile_up_without_end() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("early"), 5, &nonce);
        offer(&mut intruder.tx, 100, 1, 1);
        intruder.segment(&mut Random::seeded());
        // The ring of announcements must not be overtaken before it is mapped.
        (0..1000).for_each(|_| scene.victim.drive());
        scene.victim.until(|_| {
            let bounce = intruder.bounce.as_mut().unwrap();
            bounce.fill(99, 64, |_, _, _| {});
            let _ = (0..16)
                .filter(|&segment| bounce.free_segment(segment))
                .count();
            intruder.hostile.hear().is_none()
        });
        scene.goes_on();
    });
}

#[test]
fn offers_whose_bytes_never_come_hold_their_receives_alone_and_end_with_their_peer() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("empty"), 5, &nonce);
        let (any, len) = (FiAddr::UNSPEC, 100_000);
        let matched_receives: Vec<_> = (1000..1000 + 20).collect();
        for (&number, msg_id) in matched_receives.iter().zip(0..) {
            scene.victim.recv(Kind::Msg, any, len, number).unwrap();
            // Some of their segments are said to come without being asked for.
            offer(&mut intruder.tx, len as u64, msg_id, msg_id % 3);
        }
        let free = 2000;
        scene.victim.recv(Kind::Msg, any, len, free).unwrap();
        let mut asked = intruder.theirs.resp_receiver();
        let mut left = matched_receives.len();
        scene.victim.until(|_| {
            left -= std::iter::from_fn(|| asked.pop()).count();
            left == 0
        });
        scene.goes_on();
        // Those that no offer has met are the application's.
        let cancel = |number| scene.victim.ep.cancel(Context(number));
        assert_eq!(cancel(free), Ok(()));
        assert_eq!(cancel(matched_receives[0]), Err(Errno::NoEnt));
        assert_eq!(scene.victim.next().errno(), Errno::Canceled);
        scene.goes_on();
        assert!(scene.victim.poll().is_none());
        drop(intruder);
        let mut failed = matched_receives.clone();
        while !failed.is_empty() {
            let event = scene.victim.next();
            assert_eq!(event.errno(), Errno::ConnReset);
            failed.retain(|&number| number != event.context);
        }
        scene.goes_on();
    });
}

#[test]
fn offers_without_end_whose_bytes_never_come_end_their_peer() {
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        let before = private_after_trim().unwrap();
        for name in ["first", "second", "third"] {
            let mut intruder = Intruder::enter(&mut scene.victim, &unique(name), 5, &nonce);
            let mut msg_id = 0;
            scene.victim.until(|_| {
                let _ = intruder.tx.refresh(intruder.tx.position());
                if intruder.tx.room() > 0 {
                    offer(&mut intruder.tx, 100_000, msg_id, 0);
                    msg_id += 1;
                }
                intruder.hostile.hear().is_none()
            });
            scene.goes_on();
        }
        let grown = private_after_trim().unwrap().saturating_sub(before);
        assert!(grown < 4 << 20, "memory has grown by {grown} bytes");
    });
}

/// Fills the sockets to the victim's peers: packets about special memory, which no peer reads.
fn fill_sockets(victim: &mut Side) {
    for block in 1000..1400 {
        let access = MrAccess::REMOTE_READ;
        victim.alloc(block, 4096, access).unwrap();
        victim.drive();
    }
}

#[test]
fn segments_are_announced_to_a_peer_with_a_full_socket_once_it_has_room() {
    alone(|| {
        let mut scene = Scene::with(&[("FI_SHM_PROTOCOL", "bounce")]);
        let (_window, nonce, name) = (window(&scene.victim), Box::new(9_u64), unique("full"));
        let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
        let them = scene.victim.insert(&name);
        fill_sockets(&mut scene.victim);
        // A read of the victim's memory, and a message of the victim.
        let mut slot = intruder.tx.claim().unwrap();
        for (at, word) in (1..).zip([KEY, 0, 4096, 77]) {
            slot.put(at, word);
        }
        slot.commit(3);
        scene.victim.send(Kind::Tagged, them, 100_000, 1).unwrap();
        let mut commands = intruder.theirs.cmd_receiver();
        let (mut read, mut offered) = (None, None);
        scene.victim.until(|_| {
            if let Some(slot) = commands.peek() {
                match slot.head() & 0xff {
                    1 => offered = Some(slot.word(4) as u32),
                    _ => {
                        assert_eq!(slot.head(), 7 | 2 << 8, "no bytes in segments");
                        read = Some(slot.word(3) as u32);
                    }
                }
                commands.release();
            }
            read.is_some() && offered.is_some()
        });
        let asked = Resp {
            msg_id: offered.unwrap(),
            status: BOUNCE_IT,
        };
        intruder.resp.push(asked);
        for _ in 0..1000 {
            assert!(scene.victim.poll().is_none(), "the message has failed");
        }
        let mut segments = None;
        scene.victim.until(|_| {
            let (bytes, mut fds) = intruder.hostile.hear().expect("not cut off");
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
        scene.victim.until(|_| {
            if let Some(filled) = segments.peek().unwrap() {
                for stream in [&mut read, &mut offered] {
                    stream.take_if(|id| *id == filled.msg_id);
                }
                segments.take();
            }
            read.is_none() && offered.is_none()
        });
        scene.goes_on();
    });
}

/// Asks for a message in segments.
const BOUNCE_IT: u32 = 2;
/// Says that a segment is free again.
const SEGMENT: u32 = 3;
/// The packet that says that the bytes of a message will not come.
const ABORT: u32 = 3;

#[test]
#[expect(unsafe_code, reason = "registers memory that is never freed")]
fn a_peer_with_a_full_socket_hears_that_its_bytes_will_not_come_once_it_has_room() {
    alone(|| {
        let params = [
            ("FI_SHM_SEGMENT_COUNT", "2"),
            ("FI_SHM_SEGMENT_SIZE", "4096"),
        ];
        let (mut scene, nonce) = (Scene::with(&params), Box::new(9_u64));
        let memory = vec![7_u8; 1 << 20].leak();
        let mut attr = mr::Attr::default();
        (attr.access, attr.requested_key) = (MrAccess::REMOTE_READ, KEY);
        let piece = IovMut::from_raw(memory.as_mut_ptr().cast(), memory.len());
        // SAFETY: never freed, and not touched again.
        let region = unsafe { scene.victim.domain().reg(&[piece], &attr) }.unwrap();
        let mut intruder = Intruder::enter(&mut scene.victim, &unique("deaf"), 5, &nonce);
        let mut slot = intruder.tx.claim().unwrap();
        for (at, word) in (1..).zip([KEY, 0, 1 << 20, 77]) {
            slot.put(at, word);
        }
        slot.commit(3);
        let answers = intruder.theirs.cmd_receiver();
        let mut stream = None;
        scene.victim.until(|_| {
            stream = answers.peek().map(|slot| slot.word(3) as u32);
            stream.is_some()
        });
        // It has two segments of the bytes.
        fill_sockets(&mut scene.victim);
        drop(region);
        for segment in 0..2 {
            intruder.resp.push(Resp {
                msg_id: segment,
                status: SEGMENT,
            });
        }
        (0..1000).for_each(|_| scene.victim.drive());
        scene.victim.until(|_| {
            let (bytes, _) = intruder.hostile.hear().expect("not cut off");
            let word = |at: usize| bytes.get(at..at + 4).map(|word| word.try_into().unwrap());
            let is_abort = word(12).map(u32::from_le_bytes) == Some(ABORT);
            is_abort && word(16).map(u32::from_le_bytes) == stream
        });
        scene.goes_on();
    });
}
