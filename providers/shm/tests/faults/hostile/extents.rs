//! Offers of more bytes than a process can have.

use selvedge::FiAddr;
use selvedge_shm::smr::cmd_queue::Sender;

use super::{Intruder, Scene};
use crate::contact::unique;
use crate::process::alone;
use crate::side::Kind;

/// Offers an untagged message of `len` bytes at an address.
fn offer(tx: &mut Sender, addr: u64, len: u64) {
    let mut slot = tx.claim().unwrap();
    slot.put(3, len);
    slot.put(4, 1 << 32);
    slot.put(5, addr);
    slot.put(6, 0);
    slot.put(7, 0);
    slot.commit(2 << 8);
}

#[test]
fn an_offer_of_more_than_a_process_can_have_takes_no_receive() {
    let memory = vec![7_u8; 4096];
    let here = memory.as_ptr().expose_provenance() as u64;
    alone(|| {
        let (mut scene, nonce) = (Scene::new(), Box::new(9_u64));
        for (addr, len) in [
            (here, i64::MAX as u64),
            (0, i64::MAX as u64),
            (u64::MAX - 4096, 1 << 20),
            (here, 1 << 56),
            (8, 1 << 46),
        ] {
            let name = unique("boaster");
            let mut intruder = Intruder::enter(&mut scene.victim, &name, 5, &nonce);
            let (any, number) = (FiAddr::UNSPEC, 77);
            scene.victim.recv(Kind::Msg, any, 64, number).unwrap();
            offer(&mut intruder.tx, addr, len);
            intruder.hostile.is_cut_off_by(&mut scene.victim);
            // The receive is still there for a message that exists.
            let to_victim = scene.to_victim;
            scene.other.send(Kind::Msg, to_victim, 8, number).unwrap();
            let event = scene.victim.next().ok();
            assert_eq!((event.context, event.bytes.len()), (number, 8), "{len}");
            scene.other.next().ok();
            scene.goes_on();
        }
    });
}
