//! Random operations of two machines, compared with a model: queues without windows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use fastrand::Rng;

use super::types::INLINE_MAX;
use super::{Event, Machine, Output, Payload, Role, Taken, Violation};
use crate::wire::{Credit, HEADER, Header, Kind, Limits};

impl Payload for Vec<u8> {
    fn len(&self) -> usize {
        self.len()
    }
}

const LIMITS: Limits = Limits {
    messages: 5,
    blocks: 7,
    message_len: 100_000,
};

/// One direction: frames in order, and announced payloads that arrive at any time after a receive
/// for them was posted.
#[derive(Default)]
struct Wire {
    frames: VecDeque<Vec<u8>>,
    sent: BTreeMap<u64, Vec<u8>>,
    posted: BTreeMap<u64, usize>,
}

struct Pair {
    client: Machine<Vec<u8>>,
    server: Machine<Vec<u8>>,
    to_server: Wire,
    to_client: Wire,
    now: Instant,
}

impl Pair {
    fn new() -> Self {
        Self {
            client: Machine::new(Role::Client, LIMITS, LIMITS),
            server: Machine::new(Role::Server, LIMITS, LIMITS),
            to_server: Wire::default(),
            to_client: Wire::default(),
            now: Instant::now(),
        }
    }

    /// Posts all outputs of both machines.
    fn pump(&mut self) {
        pump(
            &mut self.client,
            &mut self.to_server,
            &mut self.to_client,
            self.now,
        );
        pump(
            &mut self.server,
            &mut self.to_client,
            &mut self.to_server,
            self.now,
        );
    }

    /// Delivers something, if there is anything.
    fn deliver(&mut self, random: &mut Rng) -> bool {
        self.pump();
        let delivered = self.deliver_one(random);
        self.pump();
        delivered
    }

    fn deliver_one(&mut self, random: &mut Rng) -> bool {
        let (server, client) = (&mut self.server, &mut self.client);
        let mut sides = [(server, &mut self.to_server), (client, &mut self.to_client)];
        if random.bool() {
            sides.reverse();
        }
        let mut sides = sides.into_iter();
        sides.any(|(machine, wire)| deliver(machine, wire, random))
    }
}

fn pump(machine: &mut Machine<Vec<u8>>, out: &mut Wire, back: &mut Wire, now: Instant) {
    while let Some(output) = machine.next_output(now) {
        match output {
            Output::Frame(header, payload) => {
                let mut frame = header.encode().to_vec();
                frame.extend(payload.unwrap_or_default());
                out.frames.push_back(frame);
            }
            Output::Bulk {
                number, payload, ..
            } => assert!(out.sent.insert(number, payload).is_none()),
            Output::Receive { number, len } => {
                assert!(back.posted.insert(number, len).is_none());
            }
        }
    }
}

fn deliver(machine: &mut Machine<Vec<u8>>, wire: &mut Wire, random: &mut Rng) -> bool {
    let ready: Vec<u64> = wire
        .posted
        .keys()
        .copied()
        .filter(|it| wire.sent.contains_key(it))
        .collect();
    if !ready.is_empty() && (wire.frames.is_empty() || random.bool()) {
        let number = ready[random.usize(..ready.len())];
        let payload = wire.sent.remove(&number).unwrap();
        assert_eq!(wire.posted.remove(&number), Some(payload.len()));
        machine.receive_bulk(number, payload).unwrap();
        return true;
    }
    let Some(frame) = wire.frames.pop_front() else {
        return false;
    };
    let header = Header::parse(&frame).unwrap();
    machine
        .receive_frame(header, frame[HEADER..].to_vec())
        .unwrap();
    true
}

fn payload(random: &mut Rng, number: u64) -> Vec<u8> {
    let len = match random.u8(..4) {
        0 => random.usize(8..64),
        1 => INLINE_MAX + random.usize(..2),
        2 => random.usize(8..20_000),
        _ => random.usize(8..100_000),
    };
    let mut payload = vec![number as u8; len];
    payload[..8].copy_from_slice(&number.to_le_bytes());
    payload
}

fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(*payload.first_chunk().unwrap())
}

/// The state that the model expects.
#[derive(Default)]
struct Expected {
    /// Numbers of messages and requests that the server has not taken, in order.
    to_server: VecDeque<u64>,
    to_client: VecDeque<u64>,
    /// The requests without a response that the client has not cancelled: id and number.
    outstanding: BTreeMap<u64, u64>,
    cancelled: BTreeSet<u64>,
    responses: usize,
}

fn take(pair: &mut Pair, expected: &mut Expected, random: &mut Rng) {
    if let Some(taken) = pair.server.take() {
        let (payload, id) = match taken {
            Taken::Message(payload) => (payload, None),
            Taken::Request(request) => (request.payload, Some(request.id)),
        };
        let taken = number(&payload);
        while let Some(first) = expected.to_server.pop_front()
            && first != taken
        {
            assert!(expected.cancelled.contains(&first), "{first} is skipped");
        }
        if let Some(id) = id {
            let response = payload.clone();
            let outcome = if random.bool() {
                Ok(response)
            } else {
                Err(response)
            };
            pair.server.respond(id, outcome);
        }
    }
    if let Some(taken) = pair.client.take() {
        let Taken::Message(payload) = taken else {
            panic!("a client takes no request");
        };
        assert_eq!(expected.to_client.pop_front(), Some(number(&payload)));
    }
    while let Some(event) = pair.client.next_event() {
        let Event::Response { id, outcome } = event else {
            panic!("{event:?}");
        };
        let (Ok(payload) | Err(payload)) = outcome;
        if let Some(sent) = expected.outstanding.remove(&id) {
            assert_eq!(sent, number(&payload));
            expected.responses += 1;
        }
    }
    while pair.server.next_event().is_some() {}
}

#[test]
fn every_message_arrives_once_in_order_and_every_request_has_one_response() {
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let (mut pair, mut expected) = (Pair::new(), Expected::default());
        let (mut requests, mut cancelled) = (0, 0);
        for step in 0..400 {
            let payload = payload(&mut random, step);
            match random.u8(..8) {
                0 => {
                    pair.client.send(payload);
                    expected.to_server.push_back(step);
                }
                1 => {
                    pair.server.send(payload);
                    expected.to_client.push_back(step);
                }
                2 | 3 => {
                    let id = pair.client.request(payload, None);
                    expected.to_server.push_back(step);
                    expected.outstanding.insert(id, step);
                    requests += 1;
                }
                4 if random.bool() => {
                    if let Some((id, number)) = expected.outstanding.pop_last() {
                        pair.client.cancel(id);
                        expected.cancelled.insert(number);
                        cancelled += 1;
                    }
                }
                5 => take(&mut pair, &mut expected, &mut random),
                _ => _ = pair.deliver(&mut random),
            }
        }
        // The rest arrives as soon as both applications take messages.
        for _ in 0..10_000 {
            pair.deliver(&mut random);
            take(&mut pair, &mut expected, &mut random);
        }
        expected
            .to_server
            .retain(|it| !expected.cancelled.contains(it));
        assert_eq!(expected.to_server, [0; 0], "seed {seed}");
        assert_eq!(expected.to_client, [0; 0], "seed {seed}");
        assert_eq!(expected.responses, requests - cancelled, "seed {seed}");
    }
}

fn frame(machine: &mut Machine<Vec<u8>>, header: Header) -> Result<(), Violation> {
    machine.receive_frame(header, Vec::new())
}

#[test]
fn a_peer_that_exceeds_the_window_is_found() {
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let message = Header::new(Kind::Message);
    for _ in 0..LIMITS.messages {
        assert_eq!(frame(&mut server, message), Ok(()));
    }
    assert_eq!(frame(&mut server, message), Err(Violation::Window));
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let announced = Header {
        is_announced: true,
        len: LIMITS.message_len,
        ..message
    };
    assert_eq!(frame(&mut server, announced), Ok(()));
    assert_eq!(frame(&mut server, announced), Ok(()));
    assert_eq!(frame(&mut server, announced), Err(Violation::Window));
}

#[test]
fn frames_that_violate_the_protocol_are_found() {
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let mut header = Header::new(Kind::Response);
    assert_eq!(
        frame(&mut server, header),
        Err(Violation::Kind(Kind::Response))
    );
    let mut client = Machine::new(Role::Client, LIMITS, LIMITS);
    assert_eq!(frame(&mut client, header), Err(Violation::Unexpected(0)));
    header.kind = Kind::Request;
    header.id = 4;
    assert_eq!(frame(&mut server, header), Ok(()));
    assert_eq!(frame(&mut server, header), Err(Violation::Duplicate(4)));
    let mut credit = Header::new(Kind::Credit);
    credit.credit = Credit {
        messages: 1,
        blocks: 0,
    };
    assert_eq!(frame(&mut server, credit), Err(Violation::Credit));
    let mut large = Header::new(Kind::Message);
    (large.is_announced, large.len) = (true, LIMITS.message_len + 1);
    let found = frame(&mut server, large).unwrap_err();
    assert_eq!(found, Violation::TooLarge(large.len, LIMITS.message_len));
    assert_eq!(
        server.receive_bulk(9, Vec::new()),
        Err(Violation::Unannounced)
    );
}

#[test]
fn a_connection_ends_when_everything_that_was_sent_has_arrived() {
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let announced = Header {
        is_announced: true,
        len: 5000,
        ..Header::new(Kind::Message)
    };
    // The peer closes after it has sent the payloads of two announcements of three.
    for _ in 0..3 {
        assert_eq!(frame(&mut server, announced), Ok(()));
    }
    let mut close = Header::new(Kind::Close);
    close.id = 2;
    assert_eq!(frame(&mut server, close), Ok(()));
    for number in [1, 0] {
        assert!(server.is_closing() && server.next_event().is_none());
        assert_eq!(server.receive_bulk(number, vec![7; 5000]), Ok(()));
    }
    assert!(matches!(server.next_event(), Some(Event::Closed(text)) if text.is_empty()));
    server.abandon();
    let messages = std::iter::from_fn(|| server.take()).count();
    assert_eq!((messages, server.is_closing()), (2, false));
}

#[test]
fn a_connection_that_is_closed_for_a_reason_ends_at_once() {
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let announced = Header {
        is_announced: true,
        len: 5000,
        ..Header::new(Kind::Message)
    };
    assert_eq!(frame(&mut server, announced), Ok(()));
    let mut close = Header::new(Kind::Close);
    (close.id, close.len) = (1, 6);
    assert_eq!(server.receive_frame(close, b"reason".to_vec()), Ok(()));
    assert!(matches!(server.next_event(), Some(Event::Closed(text)) if text == b"reason"));
}

#[test]
fn a_response_to_a_cancelled_request_is_not_sent() {
    let mut server = Machine::new(Role::Server, LIMITS, LIMITS);
    let mut header = Header::new(Kind::Request);
    header.id = 4;
    assert_eq!(frame(&mut server, header), Ok(()));
    assert!(matches!(server.take(), Some(Taken::Request(_))));
    header.kind = Kind::Cancel;
    assert_eq!(frame(&mut server, header), Ok(()));
    server.respond(4, Ok(vec![1]));
    let outputs = std::iter::from_fn(|| server.next_output(Instant::now()));
    let kinds = outputs.filter_map(|output| match output {
        Output::Frame(header, _) => Some(header.kind),
        _ => None,
    });
    let kinds: Vec<_> = kinds.filter(|kind| *kind != Kind::Credit).collect();
    assert_eq!(kinds, [Kind::Failure]);
}

#[test]
fn frames_of_any_bytes_and_numbers_are_taken_or_refused() {
    let mut random = Rng::with_seed(5);
    for _ in 0..2_000 {
        let role = if random.bool() {
            Role::Client
        } else {
            Role::Server
        };
        let mut machine = Machine::new(role, LIMITS, LIMITS);
        for _ in 0..50 {
            let mut bytes = [0; HEADER];
            bytes[0] = random.u8(1..11);
            bytes[1] = random.u8(..2);
            bytes[2] = random.u8(..3);
            bytes[8] = random.u8(..4);
            bytes[18] = random.u8(..2);
            let Ok(header) = Header::parse(&bytes) else {
                continue;
            };
            if frame(&mut machine, header).is_err() {
                break;
            }
            if random.bool() {
                machine.take();
            }
            let bulk = machine.receive_bulk(random.u64(..3), vec![0; 65536]);
            if bulk.is_err() && bulk != Err(Violation::Unannounced) {
                break;
            }
        }
    }
}
