//! Forged answers: of another kind than the operation's, of another length, to nothing, or once
//! more. Whatever a peer says, each operation ends once, and no lie ends it with success.

use selvedge::atomic::Op;
use selvedge::rma::RmaIov;
use selvedge::{Errno, FiAddr};
use selvedge_shm::smr::cmd_queue::{Receiver, Sender};
use selvedge_shm::smr::keys::{Chunk, KeyEntry, Kind as Memory, RIGHT_READ, RIGHT_WRITE};
use selvedge_shm::smr::resp_queue::Resp;

use super::commands::{self, window};
use super::segments::offer;
use super::{Intruder, Scene};
use crate::atomics::{KEY, Place, Way, poll};
use crate::contact::unique;
use crate::death::Random;
use crate::process::alone;
use crate::side::{Kind, Side};

/// What a response says.
const DONE: u32 = 0;
const BOUNCED: u32 = 1;
const BOUNCE: u32 = 2;
const FAILED: u32 = 4;

/// An operation of the victim that its peer has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Eight bytes, answered by a command.
    Read,
    /// Many, likewise.
    LongRead,
    /// One word, answered by a command.
    Atomic,
    /// Offered, answered by a response.
    Write,
    /// Answered by a response.
    Delivery,
}

/// Bytes of the longer operations.
const LONG: usize = 100_000;

impl Asked {
    const ALL: [Self; 5] = [
        Self::Read,
        Self::LongRead,
        Self::Atomic,
        Self::Write,
        Self::Delivery,
    ];

    /// Posts it; its context.
    fn post(self, victim: &mut Side, them: FiAddr) -> u64 {
        let piece = |len| RmaIov {
            addr: 0,
            len,
            key: KEY,
        };
        match self {
            Self::Read => victim.read_from(them, &[piece(8)], 8, 1).unwrap(),
            Self::LongRead => victim.read_from(them, &[piece(LONG)], LONG, 1).unwrap(),
            Self::Write => victim.write(them, &[piece(LONG)], &[7; LONG], 1).unwrap(),
            Self::Delivery => victim.send(Kind::Delivered, them, 3000, 1).unwrap(),
            Self::Atomic => {
                let (dest, addr, way) = (them, 0, Way::Command);
                let place = Place { dest, addr, way };
                place.post(victim, Op::Sum, 1, None).unwrap();
                return 7;
            }
        }
        1
    }

    /// The word of its command that has its number.
    fn word(self) -> usize {
        match self {
            Self::Read | Self::LongRead => 4,
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

/// What is said of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// A response of this status.
    Response(u32),
    /// So many bytes that were read.
    Bytes(usize),
    /// That so many of them come in segments.
    Segments(usize),
    /// The same, under a number that a message has.
    TakenSegments,
    /// So many bytes of what an atomic has found.
    Values(usize),
    /// That an atomic was refused, or a read.
    NoValues,
    NoBytes,
}

impl Said {
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

    /// Whether an honest peer may say it next.
    fn is_honest(self, asked: Asked) -> bool {
        match asked {
            Asked::Read => matches!(self, Self::Bytes(8) | Self::Segments(8) | Self::NoBytes),
            Asked::LongRead => matches!(self, Self::Segments(LONG) | Self::NoBytes),
            Asked::Atomic => matches!(self, Self::Values(8) | Self::NoValues),
            Asked::Write => matches!(self, Self::Response(what) if what != BOUNCED && what != 9),
            Asked::Delivery => matches!(self, Self::Response(what) if what & 0xff & !FAILED == 0),
        }
    }

    fn say(self, liar: &mut Liar, msg_id: u32, asked: Asked) {
        let Intruder { tx, resp, .. } = &mut liar.intruder;
        let id = u64::from(msg_id);
        match self {
            Self::Response(status) => resp.push(Resp { msg_id, status }),
            Self::Bytes(len) => command(tx, 7 | (len as u32) << 24, &[id]),
            Self::Segments(len) => command(tx, 7 | 2 << 8, &[id, len as u64, 55]),
            Self::TakenSegments => {
                offer(tx, 100, 55, 0);
                command(tx, 7 | 2 << 8, &[id, asked.len() as u64, 55]);
            }
            Self::Values(len) => command(tx, 9 | (len as u32) << 24, &[id]),
            Self::NoValues => command(tx, 9, &[id | 14 << 32]),
            Self::NoBytes => command(tx, 7, &[id | 14 << 32]),
        }
    }
}

fn command(tx: &mut Sender, head: u32, words: &[u64]) {
    let mut slot = tx.claim().unwrap();
    for (at, &word) in (1..).zip(words) {
        slot.put(at, word);
    }
    slot.commit(head);
}

/// A peer that lets the victim at its memory, and lies about what comes of it.
struct Liar {
    intruder: Intruder,
    rx: Receiver,
    them: FiAddr,
    _chunk: Chunk,
    _nonce: Box<u64>,
}

impl Liar {
    fn enter(victim: &mut Side, name: &str) -> Self {
        let (mut chunk, nonce) = (Chunk::create(0).unwrap(), Box::new(9_u64));
        let row = KeyEntry {
            key: KEY,
            start: 0,
            len: 1 << 20,
            rights: RIGHT_READ | RIGHT_WRITE,
            kind: Memory::Plain,
            memory: 1 << 20,
            block: 0,
        };
        chunk.publish(KEY as usize, &row);
        let intruder = Intruder::enter_with_keys(victim, name, &nonce, &chunk);
        Self {
            rx: intruder.theirs.cmd_receiver(),
            them: victim.insert(name),
            intruder,
            _chunk: chunk,
            _nonce: nonce,
        }
    }

    /// The number of the operation that the victim has asked for.
    #[track_caller]
    fn number(&mut self, victim: &Side, asked: Asked) -> u32 {
        loop {
            assert!(poll(victim).is_none());
            if let Some(slot) = self.rx.peek() {
                let number = slot.word(asked.word()) as u32;
                self.rx.release();
                return number;
            }
        }
    }

    /// What has completed by the time that the victim has had enough.
    fn is_cut_off(&self, victim: &Side) -> Vec<(u64, Option<Errno>)> {
        let mut done = Vec::new();
        let mut is_over = false;
        while !std::mem::replace(&mut is_over, self.intruder.hostile.hear().is_none()) {
            done.extend(completed(victim));
        }
        done
    }
}

/// The context of what has completed, and its error if it has one.
fn completed(victim: &Side) -> Option<(u64, Option<Errno>)> {
    poll(victim).map(|outcome| match outcome {
        Ok(entry) => (entry.context.0, None),
        Err(error) => (error.entry.context.0, Some(error.errno)),
    })
}

/// Reads are asked for, not made.
const ASKING: [(&str, &str); 1] = [("FI_SHM_PROTOCOL", "bounce")];

#[test]
fn an_operation_is_ended_by_an_answer_of_its_own_kind_alone() {
    alone(|| {
        let (mut scene, name) = (Scene::with(&ASKING), unique("liar"));
        for asked in Asked::ALL {
            for said in Said::ALL {
                if said.is_honest(asked) {
                    continue;
                }
                let mut liar = Liar::enter(&mut scene.victim, &name);
                let context = asked.post(&mut scene.victim, liar.them);
                let number = liar.number(&scene.victim, asked);
                said.say(&mut liar, number, asked);
                let done = liar.is_cut_off(&scene.victim);
                let expected = [(context, Some(Errno::ConnReset))];
                assert_eq!(done, expected, "{said:?} to {asked:?}");
            }
            scene.goes_on();
        }
    });
}

#[test]
fn an_operation_that_was_answered_is_not_answered_again() {
    let honest = [
        (Asked::Read, Said::Bytes(8), None),
        (Asked::Read, Said::NoBytes, Some(Errno::Fault)),
        (Asked::Atomic, Said::Values(8), None),
        (Asked::Atomic, Said::NoValues, Some(Errno::Fault)),
        (Asked::Write, Said::Response(DONE), None),
        (
            Asked::Write,
            Said::Response(FAILED | 14 << 8),
            Some(Errno::Fault),
        ),
        (Asked::Delivery, Said::Response(DONE), None),
    ];
    alone(|| {
        let (mut scene, name) = (Scene::with(&ASKING), unique("again"));
        for (asked, first, outcome) in honest {
            for again in Said::ALL {
                let mut liar = Liar::enter(&mut scene.victim, &name);
                let context = asked.post(&mut scene.victim, liar.them);
                let number = liar.number(&scene.victim, asked);
                first.say(&mut liar, number, asked);
                let mut done = Vec::new();
                while done.is_empty() {
                    done.extend(completed(&scene.victim));
                }
                again.say(&mut liar, number, asked);
                (0..1000).for_each(|_| done.extend(completed(&scene.victim)));
                drop(liar);
                (0..1000).for_each(|_| done.extend(completed(&scene.victim)));
                assert_eq!(done, [(context, outcome)], "{again:?} behind {first:?}");
            }
        }
        scene.goes_on();
    });
}

#[test]
fn a_read_whose_bytes_are_on_their_way_fails_once_whatever_else_is_said_of_it() {
    alone(|| {
        let (mut scene, name) = (Scene::with(&ASKING), unique("stream"));
        for said in Said::ALL {
            let mut liar = Liar::enter(&mut scene.victim, &name);
            let context = Asked::LongRead.post(&mut scene.victim, liar.them);
            let number = liar.number(&scene.victim, Asked::LongRead);
            Said::Segments(LONG).say(&mut liar, number, Asked::LongRead);
            liar.intruder.segment(&mut Random::seeded());
            let bounce = liar.intruder.bounce.as_mut().unwrap();
            bounce.fill(55, 4096, |_, _, _| {});
            said.say(&mut liar, number, Asked::LongRead);
            let done = liar.is_cut_off(&scene.victim);
            assert_eq!(done, [(context, Some(Errno::ConnReset))], "{said:?}");
        }
        scene.goes_on();
    });
}

#[test]
fn a_peer_that_has_asked_for_bytes_says_of_them_only_that_it_has_them() {
    alone(|| {
        let mut scene = Scene::with(&ASKING);
        let (_window, name) = (window(&scene.victim), unique("reader"));
        for said in Said::ALL {
            let mut liar = Liar::enter(&mut scene.victim, &name);
            let read = [commands::KEY, 0, 4096, 77];
            command(&mut liar.intruder.tx, 3, &read);
            let mut stream = None;
            scene.victim.until(|_| {
                stream = liar.rx.peek().map(|slot| slot.word(3) as u32);
                stream.is_some()
            });
            said.say(&mut liar, stream.unwrap(), Asked::LongRead);
            if said == Said::Response(BOUNCED) {
                (0..1000).for_each(|_| scene.victim.drive());
                assert!(liar.intruder.hostile.hear().is_some());
            } else {
                assert_eq!(liar.is_cut_off(&scene.victim), [], "{said:?}");
            }
        }
        scene.goes_on();
    });
}

#[test]
fn a_life_that_ends_with_questions_behind_messages_without_room_ends_all_the_same() {
    let params = [("FI_SHM_UNEXPECTED_SIZE", "16k"), ASKING[0]];
    alone(|| {
        let mut scene = Scene::with(&params);
        let (_window, name) = (window(&scene.victim), unique("late"));
        let result = [1, 8, 0, 0];
        for (head, words) in [(3, [commands::KEY, 0, 8, 77]), (7 | 8 << 24, result)] {
            let mut liar = Liar::enter(&mut scene.victim, &name);
            let tx = &mut liar.intruder.tx;
            // More than is kept.
            let messages = 250;
            (0..messages).for_each(|_| command(tx, 48 << 24, &[0]));
            command(tx, head, &words);
            (0..1000).for_each(|_| scene.victim.drive());
            let them = liar.them;
            drop(liar);
            (0..1000).for_each(|_| scene.victim.drive());
            for number in 0..messages {
                let any = FiAddr::UNSPEC;
                scene
                    .victim
                    .recv(Kind::Msg, any, 48, 1000 + number)
                    .unwrap();
                scene.victim.next().ok();
            }
            // Its name is free for a next life.
            let next = Liar::enter(&mut scene.victim, &name);
            assert_eq!(next.them, them);
        }
        scene.goes_on();
    });
}
