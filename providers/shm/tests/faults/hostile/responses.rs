//! Forged responses: of another kind than the operation's, of another length, to no operation, or
//! repeated. Each operation completes once, and never with success by a forged response.

use selvedge::atomic::Op;
use selvedge::rma::RmaIov;
use selvedge::{Errno, FiAddr, MrAccess};
use selvedge_shm::smr::cmd_queue::{Receiver, Sender};
use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind as Memory, RIGHT_READ, RIGHT_WRITE};
use selvedge_shm::smr::resp_queue::Resp;

use super::commands::{self, guarded_region};
use super::segments::push_rts;
use super::{HostilePeer, Scenario};
use crate::atomics::{KEY, Protocol, RemoteWord, poll};
use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::peer_failure::Random;
use crate::process::alone;

/// Statuses of a response.
const DONE: u32 = 0;
const BOUNCED: u32 = 1;
const BOUNCE: u32 = 2;
const FAILED: u32 = 4;

/// An operation of the target, to which its peer responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// Eight bytes; the response is a command.
    Read,
    /// Many bytes; the response is a command.
    LongRead,
    /// One word; the response is a command.
    Atomic,
    /// A rendezvous, with an entry of the response queue.
    Write,
    /// A message, with an entry of the response queue.
    Delivery,
    /// A lent message, with an entry of the response queue.
    Lent,
}

/// The block of special memory of the lent messages.
const BLOCK: u64 = 9;

/// Bytes of the longer operations.
const LONG: usize = 100_000;

impl Operation {
    const ALL: [Self; 6] = [
        Self::Read,
        Self::LongRead,
        Self::Atomic,
        Self::Write,
        Self::Delivery,
        Self::Lent,
    ];

    /// Posts the operation, and returns its context.
    fn post(self, target: &mut NumberedEndpoint, peer_addr: FiAddr) -> u64 {
        let segment = |len| RmaIov {
            addr: 0,
            len,
            key: KEY,
        };
        match self {
            Self::Read => target.read_from(peer_addr, &[segment(8)], 8, 1).unwrap(),
            Self::LongRead => target
                .read_from(peer_addr, &[segment(LONG)], LONG, 1)
                .unwrap(),
            Self::Write => target
                .write(peer_addr, &[segment(LONG)], &[7; LONG], 1)
                .unwrap(),
            Self::Delivery => target.send(Kind::Delivered, peer_addr, 3000, 1).unwrap(),
            Self::Lent => {
                if !target.blocks.contains_key(&BLOCK) {
                    target.alloc(BLOCK, LONG, MrAccess::empty()).unwrap();
                }
                target.lend(BLOCK, peer_addr, LONG, 1).unwrap();
            }
            Self::Atomic => {
                let (dest, addr, protocol) = (peer_addr, 0, Protocol::Command);
                let remote_word = RemoteWord {
                    dest,
                    addr,
                    protocol,
                };
                remote_word.post(target, Op::Sum, 1, None).unwrap();
                return 7;
            }
        }
        1
    }

    /// The index of the word with the operation's number in its command.
    fn number_index(self) -> usize {
        match self {
            Self::Read | Self::LongRead | Self::Lent => 4,
            Self::Atomic => 2,
            Self::Write => 6,
            Self::Delivery => 5,
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Read | Self::Atomic => 8,
            _ => LONG,
        }
    }
}

/// A response to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forgery {
    /// A response of this status.
    Response(u32),
    /// The given number of bytes of a read.
    Bytes(usize),
    /// The announcement of the given number of bytes of a read in segments.
    Segments(usize),
    /// The announcement of a read in segments under the number of a message.
    TakenSegments,
    /// The given number of bytes of an atomic's previous values.
    Values(usize),
    /// The refusal of an atomic.
    NoValues,
    /// The refusal of a read.
    NoBytes,
}

impl Forgery {
    const ALL: [Self; 13] = [
        Self::Response(DONE),
        Self::Response(BOUNCED),
        Self::Response(BOUNCE),
        Self::Response(FAILED | 14 << 8),
        Self::Response(9),
        Self::Bytes(8),
        Self::Bytes(0),
        Self::Segments(8),
        Self::Segments(LONG),
        Self::TakenSegments,
        Self::Values(8),
        Self::Values(16),
        Self::NoValues,
    ];

    /// Whether a well-behaved peer may send this response to the operation next.
    fn is_valid_for(self, operation: Operation) -> bool {
        match operation {
            Operation::Read => matches!(self, Self::Bytes(8) | Self::Segments(8) | Self::NoBytes),
            Operation::LongRead => matches!(self, Self::Segments(LONG) | Self::NoBytes),
            Operation::Atomic => matches!(self, Self::Values(8) | Self::NoValues),
            Operation::Write | Operation::Lent => {
                matches!(self, Self::Response(status) if status != BOUNCED && status != 9)
            }
            Operation::Delivery => {
                matches!(self, Self::Response(status) if status & 0xff & !FAILED == 0)
            }
        }
    }

    fn send(self, forger: &mut ForgingPeer, msg_id: u32, operation: Operation) {
        let HostilePeer { tx, resp, .. } = &mut forger.hostile_peer;
        let id = u64::from(msg_id);
        match self {
            Self::Response(status) => resp.push(Resp { msg_id, status }),
            Self::Bytes(len) => send_command(tx, 7 | (len as u32) << 24, &[id]),
            Self::Segments(len) => send_command(tx, 7 | 2 << 8, &[id, len as u64, 55]),
            Self::TakenSegments => {
                push_rts(tx, 100, 55, 0);
                send_command(tx, 7 | 2 << 8, &[id, operation.len() as u64, 55]);
            }
            Self::Values(len) => send_command(tx, 9 | (len as u32) << 24, &[id]),
            Self::NoValues => send_command(tx, 9, &[id | 14 << 32]),
            Self::NoBytes => send_command(tx, 7, &[id | 14 << 32]),
        }
    }
}

fn send_command(tx: &mut Sender, head: u32, words: &[u64]) {
    let mut slot = tx.claim().unwrap();
    for (index, &word) in (1..).zip(words) {
        slot.put(index, word);
    }
    slot.commit(head);
}

/// A hostile peer that gives the target keys of its memory, and forges responses.
struct ForgingPeer {
    hostile_peer: HostilePeer,
    rx: Receiver,
    peer_addr: FiAddr,
    _chunk: Chunk,
    _nonce: Box<u64>,
}

impl ForgingPeer {
    fn connect(target: &mut NumberedEndpoint, name: &str) -> Self {
        let (mut chunk, nonce) = (Chunk::create(0).unwrap(), Box::new(9_u64));
        let entry = KeyEntry {
            key: KEY,
            start: 0,
            len: 1 << 20,
            rights: RIGHT_READ | RIGHT_WRITE,
            kind: Memory::Plain,
            memory: 1 << 20,
            block: 0,
        };
        chunk.publish(KEY as usize, &entry);
        let hostile_peer = HostilePeer::connect_with_keys(target, name, &nonce, &chunk);
        Self {
            rx: hostile_peer.target_region.cmd_receiver(),
            peer_addr: target.insert(name),
            hostile_peer,
            _chunk: chunk,
            _nonce: nonce,
        }
    }

    /// Waits for the target's request of the operation, and returns the number of the request.
    #[track_caller]
    fn take_number(&mut self, target: &NumberedEndpoint, operation: Operation) -> u32 {
        loop {
            assert!(poll(target).is_none());
            if let Some(slot) = self.rx.peek() {
                let number = slot.word(operation.number_index()) as u32;
                self.rx.release();
                return number;
            }
        }
    }

    /// Makes progress until the target has closed the connection, and returns its completions.
    fn wait_for_cut_off(&self, target: &NumberedEndpoint) -> Vec<(u64, Option<Errno>)> {
        let mut done = Vec::new();
        let mut is_over = false;
        while !std::mem::replace(&mut is_over, self.hostile_peer.hostile.receive().is_none()) {
            done.extend(completed(target));
        }
        done
    }
}

/// The context of a completion, and its error if it has one.
fn completed(target: &NumberedEndpoint) -> Option<(u64, Option<Errno>)> {
    poll(target).map(|outcome| match outcome {
        Ok(entry) => (entry.context.0, None),
        Err(error) => (error.entry.context.0, Some(error.errno)),
    })
}

/// Parameters with which the target of a read copies the bytes, and not the initiator.
const COPIES_BY_TARGET: [(&str, &str); 1] = [("FI_SHM_PROTOCOL", "bounce")];

#[test]
fn an_operation_completes_by_a_response_of_its_own_kind_only() {
    alone(|| {
        let (mut scenario, name) = (Scenario::with_params(&COPIES_BY_TARGET), unique("forger"));
        for operation in Operation::ALL {
            for forgery in Forgery::ALL {
                if forgery.is_valid_for(operation) {
                    continue;
                }
                let mut forger = ForgingPeer::connect(&mut scenario.target, &name);
                let context = operation.post(&mut scenario.target, forger.peer_addr);
                let number = forger.take_number(&scenario.target, operation);
                forgery.send(&mut forger, number, operation);
                let done = forger.wait_for_cut_off(&scenario.target);
                let expected = [(context, Some(Errno::ConnReset))];
                assert_eq!(done, expected, "{forgery:?} to {operation:?}");
            }
            scenario.expect_traffic();
        }
    });
}

#[test]
fn a_second_response_to_an_operation_completes_nothing() {
    let valid = [
        (Operation::Read, Forgery::Bytes(8), None),
        (Operation::Read, Forgery::NoBytes, Some(Errno::Fault)),
        (Operation::Atomic, Forgery::Values(8), None),
        (Operation::Atomic, Forgery::NoValues, Some(Errno::Fault)),
        (Operation::Write, Forgery::Response(DONE), None),
        (
            Operation::Write,
            Forgery::Response(FAILED | 14 << 8),
            Some(Errno::Fault),
        ),
        (Operation::Delivery, Forgery::Response(DONE), None),
        (Operation::Lent, Forgery::Response(DONE), None),
    ];
    alone(|| {
        let (mut scenario, name) = (Scenario::with_params(&COPIES_BY_TARGET), unique("again"));
        for (operation, first, outcome) in valid {
            for second in Forgery::ALL {
                let mut forger = ForgingPeer::connect(&mut scenario.target, &name);
                let context = operation.post(&mut scenario.target, forger.peer_addr);
                let number = forger.take_number(&scenario.target, operation);
                first.send(&mut forger, number, operation);
                let mut done = Vec::new();
                while done.is_empty() {
                    done.extend(completed(&scenario.target));
                }
                second.send(&mut forger, number, operation);
                (0..1000).for_each(|_| done.extend(completed(&scenario.target)));
                drop(forger);
                (0..1000).for_each(|_| done.extend(completed(&scenario.target)));
                assert_eq!(done, [(context, outcome)], "{second:?} behind {first:?}");
            }
        }
        scenario.expect_traffic();
    });
}

#[test]
fn a_read_in_segments_fails_once_after_any_other_response() {
    alone(|| {
        let (mut scenario, name) = (Scenario::with_params(&COPIES_BY_TARGET), unique("stream"));
        for forgery in Forgery::ALL {
            let mut forger = ForgingPeer::connect(&mut scenario.target, &name);
            let context = Operation::LongRead.post(&mut scenario.target, forger.peer_addr);
            let number = forger.take_number(&scenario.target, Operation::LongRead);
            Forgery::Segments(LONG).send(&mut forger, number, Operation::LongRead);
            forger.hostile_peer.send_segment(&mut Random::seeded());
            let bounce = forger.hostile_peer.bounce.as_mut().unwrap();
            bounce.fill(55, 4096, |_, _, _| {});
            forgery.send(&mut forger, number, Operation::LongRead);
            let done = forger.wait_for_cut_off(&scenario.target);
            assert_eq!(done, [(context, Some(Errno::ConnReset))], "{forgery:?}");
        }
        scenario.expect_traffic();
    });
}

#[test]
fn a_reader_of_segments_may_only_acknowledge_them() {
    alone(|| {
        let mut scenario = Scenario::with_params(&COPIES_BY_TARGET);
        let (_guarded, name) = (guarded_region(&scenario.target), unique("reader"));
        for forgery in Forgery::ALL {
            let mut forger = ForgingPeer::connect(&mut scenario.target, &name);
            let read = [commands::KEY, 0, 4096, 77];
            send_command(&mut forger.hostile_peer.tx, 3, &read);
            let mut stream = None;
            scenario.target.until(|_| {
                stream = forger.rx.peek().map(|slot| slot.word(3) as u32);
                stream.is_some()
            });
            forgery.send(&mut forger, stream.unwrap(), Operation::LongRead);
            if forgery == Forgery::Response(BOUNCED) {
                (0..1000).for_each(|_| scenario.target.drive());
                assert!(forger.hostile_peer.hostile.receive().is_some());
            } else {
                assert_eq!(forger.wait_for_cut_off(&scenario.target), [], "{forgery:?}");
            }
        }
        scenario.expect_traffic();
    });
}

#[test]
fn an_incarnation_with_requests_behind_unexpected_messages_beyond_the_quota_is_drained() {
    let params = [("FI_SHM_UNEXPECTED_SIZE", "16k"), COPIES_BY_TARGET[0]];
    alone(|| {
        let mut scenario = Scenario::with_params(&params);
        let (_guarded, name) = (guarded_region(&scenario.target), unique("late"));
        let result = [1, 8, 0, 0];
        for (head, words) in [(3, [commands::KEY, 0, 8, 77]), (7 | 8 << 24, result)] {
            let mut forger = ForgingPeer::connect(&mut scenario.target, &name);
            let tx = &mut forger.hostile_peer.tx;
            // More messages than the quota allows.
            let messages = 250;
            (0..messages).for_each(|_| send_command(tx, 48 << 24, &[0]));
            send_command(tx, head, &words);
            (0..1000).for_each(|_| scenario.target.drive());
            let peer_addr = forger.peer_addr;
            drop(forger);
            (0..1000).for_each(|_| scenario.target.drive());
            for number in 0..messages {
                let any = FiAddr::UNSPEC;
                scenario
                    .target
                    .recv(Kind::Msg, any, 48, 1000 + number)
                    .unwrap();
                scenario.target.next().ok();
            }
            // The next incarnation can use the name.
            let next = ForgingPeer::connect(&mut scenario.target, &name);
            assert_eq!(next.peer_addr, peer_addr);
        }
        scenario.expect_traffic();
    });
}
