//! Messages that are offered in untrue segments, or not to be had any more.

use selvedge::{Errno, FiAddr};
use selvedge_shm::smr::cmd_queue::Sender;

use super::{Intruder, Scene};
use crate::contact::unique;
use crate::death::Random;
use crate::process::alone;
use crate::side::Kind;

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
            let _ = (0..16).filter(|&segment| bounce.give_back(segment)).count();
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
            let _ = (0..16).filter(|&segment| bounce.give_back(segment)).count();
            intruder.hostile.hear().is_none()
        });
        scene.goes_on();
    });
}
