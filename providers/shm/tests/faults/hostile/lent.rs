//! Lent messages that are malformed or outside of their block, and returns of messages that were
//! lent to another peer.

use std::os::fd::AsFd;

use selvedge::{Errno, MrAccess};
use selvedge_shm::smr::Writers;
use selvedge_shm::smr::cmd_queue::Sender;
use selvedge_shm::smr::resp_queue::Resp;
use selvedge_shm::smr::special::{Block, PageSize};

use super::{BLOCK, HostilePeer, Scenario, packet};
use crate::connect::unique;
use crate::process::alone;

/// The address that the hostile peer states for its block.
const BASE: u64 = 1 << 40;
const LEN: u64 = 8192;
const TAG: u64 = 77;

/// Words of a command of the tagged message [`TAG`].
#[derive(Clone, Copy, Debug)]
struct Command {
    op_src: u32,
    flags: u32,
    inline_len: u32,
    len: u64,
    segments: u64,
    addr: u64,
    eager: u64,
    block: u64,
}

/// A valid lent message.
const VALID: Command = Command {
    op_src: 2,
    flags: LENT,
    inline_len: 0,
    len: 64,
    segments: 1,
    addr: BASE,
    eager: 0,
    block: 1,
};

/// The flag of a lent message.
const LENT: u32 = 8;

impl Command {
    fn push(self, tx: &mut Sender, msg_id: u64) {
        let mut slot = tx.claim().unwrap();
        let segments = msg_id | self.segments << 32;
        for (index, word) in (1..).zip([
            TAG, 0, self.len, segments, self.addr, self.eager, self.block,
        ]) {
            slot.put(index, word);
        }
        slot.commit(1 | self.op_src << 8 | self.flags << 16 | self.inline_len << 24);
    }
}

/// Connects a hostile peer with a block of special memory, and waits until the target can have
/// mapped the block.
fn lender(scenario: &mut Scenario, nonce: &u64) -> (HostilePeer, Block) {
    let peer = HostilePeer::connect(&mut scenario.target, &unique("lender"), 5, nonce);
    let (memory, fd) = Block::create(LEN as usize, Writers::Owner, PageSize::Ordinary).unwrap();
    let mut block = packet(BLOCK);
    for word in [1, BASE, LEN] {
        block.extend(u64::to_le_bytes(word));
    }
    block.resize(256, 0);
    peer.hostile.send(&block, &[fd.as_fd()]);
    (0..1000).for_each(|_| scenario.target.drive());
    (peer, memory)
}

#[test]
fn a_malformed_lent_message_disconnects_its_sender() {
    let malformed = [
        Command {
            op_src: 0,
            inline_len: 8,
            ..VALID
        },
        Command {
            op_src: 1,
            addr: 0,
            ..VALID
        },
        Command { len: 0, ..VALID },
        Command {
            segments: 0,
            ..VALID
        },
        Command {
            segments: 2,
            ..VALID
        },
        Command { eager: 1, ..VALID },
        Command { block: 0, ..VALID },
        Command {
            flags: LENT | 2,
            op_src: 0,
            ..VALID
        },
        Command { flags: 16, ..VALID },
    ];
    let outside = [
        Command {
            addr: BASE - 1,
            ..VALID
        },
        Command {
            addr: BASE + LEN,
            len: 1,
            ..VALID
        },
        Command {
            addr: BASE + 1,
            len: LEN,
            ..VALID
        },
        Command {
            len: LEN + 1,
            ..VALID
        },
        Command { addr: 0, ..VALID },
    ];
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        for (is_malformed, command) in malformed
            .map(|command| (true, command))
            .into_iter()
            .chain(outside.map(|command| (false, command)))
        {
            let (mut peer, _memory) = lender(&mut scenario, &nonce);
            if !is_malformed {
                scenario.target.recv_lent(64, TAG);
            }
            command.push(&mut peer.tx, 1);
            peer.hostile.expect_cut_off_by(&mut scenario.target);
            if !is_malformed {
                let event = scenario.target.next();
                assert_eq!((event.context, event.errno()), (TAG, Errno::ConnReset));
            }
            scenario.expect_traffic();
        }
    });
}

#[test]
fn a_second_loan_under_the_number_of_a_view_disconnects_its_sender() {
    alone(|| {
        second_loan_of_a_view(false);
        second_loan_of_a_view(true);
    });
}

/// Lends a message twice, the second time for a posted receive if `is_awaited`.
fn second_loan_of_a_view(is_awaited: bool) {
    let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
    let (mut peer, memory) = lender(&mut scenario, &nonce);
    scenario.target.recv_lent(64, TAG);
    VALID.push(&mut peer.tx, 1);
    let event = scenario.target.next().ok();
    let view = event.view.expect("the message is lent");
    assert_eq!(event.bytes, [0; 64]);
    if is_awaited {
        scenario.target.recv_lent(64, TAG);
    }
    VALID.push(&mut peer.tx, 1);
    peer.hostile.expect_cut_off_by(&mut scenario.target);
    // The view outlives the peer and the peer's own mapping.
    drop((peer, memory));
    (0..1000).for_each(|_| scenario.target.drive());
    assert_eq!(crate::endpoint::read(&*view), [0; 64]);
    drop(view);
    scenario.expect_traffic();
}

#[test]
fn a_message_returns_only_from_the_peer_that_it_was_lent_to() {
    alone(|| {
        let (mut scenario, nonce) = (Scenario::new(), Box::new(9_u64));
        let target = &mut scenario.target;
        target.alloc(3, 4096, MrAccess::empty()).unwrap();
        let names = [unique("honest"), unique("thief")];
        let [mut honest, mut thief] = [
            HostilePeer::connect(target, &names[0], 5, &nonce),
            HostilePeer::connect(target, &names[1], 6, &nonce),
        ];
        let to = target.insert(&names[0]);
        target.lend(3, to, 64, 1).unwrap();
        let slot = honest.target_region.cmd_receiver();
        let msg_id = slot.peek().unwrap().word(4) as u32;
        // The other peer has no such message.
        thief.resp.push(Resp { msg_id, status: 0 });
        // An endpoint reads responses of peers to which it has sent something.
        let to_thief = target.insert(&names[1]);
        target.lend(3, to_thief, 64, 2).unwrap();
        for stale in [msg_id ^ 1 << 16, msg_id + 1] {
            thief.resp.push(Resp {
                msg_id: stale,
                status: 0,
            });
        }
        let mut done = Vec::new();
        (0..1000).for_each(|_| done.extend(target.poll()));
        assert!(done.iter().all(|event| event.context == 2), "{done:?}");
        honest.resp.push(Resp { msg_id, status: 0 });
        assert_eq!(target.next().ok().context, 1);
        scenario.expect_traffic();
    });
}
