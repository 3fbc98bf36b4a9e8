//! RTS commands for more bytes than an address space has.

use selvedge::FiAddr;
use selvedge_shm::smr::cmd_queue::Sender;

use super::{HostilePeer, Scenario};
use crate::connect::unique;
use crate::endpoint::Kind;
use crate::process::alone;

/// Sends the RTS of an untagged message of `len` bytes at an address.
fn push_rts(tx: &mut Sender, addr: u64, len: u64) {
    let mut slot = tx.claim().unwrap();
    slot.put(3, len);
    slot.put(4, 1 << 32);
    slot.put(5, addr);
    slot.put(6, 0);
    slot.put(7, 0);
    slot.commit(2 << 8);
}

#[test]
fn a_rendezvous_beyond_the_address_space_takes_no_receive() {
    let memory = vec![7_u8; 4096];
    let local_addr = memory.as_ptr().expose_provenance() as u64;
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        for (addr, len) in [
            (local_addr, i64::MAX as u64),
            (0, i64::MAX as u64),
            (u64::MAX - 4096, 1 << 20),
            (local_addr, 1 << 56),
            (8, 1 << 46),
        ] {
            let name = unique("boaster");
            let mut hostile_peer = HostilePeer::connect(&mut scenario.target, &name, 5, &nonce);
            let (any, number) = (FiAddr::UNSPEC, 77);
            scenario.target.recv(Kind::Msg, any, 64, number).unwrap();
            push_rts(&mut hostile_peer.tx, addr, len);
            hostile_peer.hostile.expect_cut_off_by(&mut scenario.target);
            // The receive still matches a message of another peer.
            let to_target = scenario.to_target;
            scenario
                .other
                .send(Kind::Msg, to_target, 8, number)
                .unwrap();
            let event = scenario.target.next().ok();
            assert_eq!((event.context, event.bytes.len()), (number, 8), "{len}");
            scenario.other.next().ok();
            scenario.expect_traffic();
        }
    });
}
