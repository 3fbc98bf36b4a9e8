//! Random sends, receives, cancels and peeks against a model of matching.
//!
//! With one sender, the message that a receive takes depends only on the order of the sends and on
//! the order of the posts, and not on their times: the first receive takes the first message that
//! it accepts, the second receive takes the first acceptable one of the rest, and so on. A
//! cancelled receive counts as one that was never posted, and a peek changes no message.

use std::collections::HashMap;
use std::iter;

use selvedge::cq::Entry;
use selvedge::{
    CompletionFlags, Context, EpOption, EpOptionName, Errno, FiAddr, OpFlags, TagMatch,
};
use selvedge_testkit::random::Random;

use crate::common::{
    Done, MessageEndpoint, MessagePair, Rx, Sut, Tx, pattern, received, with_data,
};
use crate::provider::{self, PROTOCOLS, SIZES};

/// The operations that were posted in one direction, and their outcomes.
struct Direction<'a> {
    sender: &'a MessageEndpoint,
    receiver: &'a MessageEndpoint,
    dest: FiAddr,
    source: FiAddr,
    inject_size: usize,
    messages: Vec<Message>,
    receives: Vec<Receive>,
    /// The numbers of posted and of completed peeks.
    peeks: [u64; 2],
}

struct Message {
    tx: Tx,
    /// Whether the message was injected by a call that never completes.
    is_silent: bool,
    completions: usize,
}

struct Receive {
    rx: Rx,
    is_cancelled: bool,
    done: Option<Done>,
}

impl<'a> Direction<'a> {
    fn new(
        (sender, dest): (&'a MessageEndpoint, FiAddr),
        (receiver, source): (&'a MessageEndpoint, FiAddr),
    ) -> Self {
        let option = sender.ep.option(EpOptionName::InjectMsgSize);
        let Ok(EpOption::InjectMsgSize(inject_size)) = option else {
            panic!("the endpoint does not report the inject size");
        };
        Self {
            sender,
            receiver,
            dest,
            source,
            inject_size,
            messages: Vec::new(),
            receives: Vec::new(),
            peeks: [0; 2],
        }
    }

    /// Returns the message that each receive takes in the model, by receive.
    fn pairs(&self) -> HashMap<usize, usize> {
        let mut free: Vec<_> = (0..self.messages.len()).collect();
        let mut pairs = HashMap::new();
        for (number, receive) in self.receives.iter().enumerate() {
            let accepts = |&message: &usize| accepts(&receive.rx, &self.messages[message].tx);
            if !receive.is_cancelled
                && let Some(index) = free.iter().position(accepts)
            {
                pairs.insert(number, free.remove(index));
            }
        }
        pairs
    }

    fn step(&mut self, random: &mut Random) {
        match random.index(17) {
            0..7 => self.send(random),
            7..13 => self.receive(random_rx(random, self.source)),
            13 => self.cancel(random),
            14 => self.peek(random),
            _ => self.receiver.progress(),
        }
    }

    fn send(&mut self, random: &mut Random) {
        let number = self.messages.len() as u64;
        let tx = random_tx(random, number, self.dest);
        let len: usize = tx.segments.iter().map(Vec::len).sum();
        let is_silent = len <= self.inject_size && random.index(4) == 0;
        let posted = match (is_silent, tx.tag) {
            (false, _) => self.sender.try_send(&tx),
            (true, None) => self
                .sender
                .ep
                .inject(&tx.segments.concat(), self.dest, tx.data),
            (true, Some(tag)) => {
                let bytes = tx.segments.concat();
                self.sender.ep.tinject(&bytes, self.dest, tag, tx.data)
            }
        };
        match posted {
            Ok(()) => self.messages.push(Message {
                tx,
                is_silent,
                completions: 0,
            }),
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
    }

    fn receive(&mut self, rx: Rx) {
        let rx = rx.context(self.receives.len() as u64);
        self.receiver.recv(&rx);
        self.receives.push(Receive {
            rx,
            is_cancelled: false,
            done: None,
        });
    }

    fn cancel(&mut self, random: &mut Random) {
        if self.receives.is_empty() {
            return;
        }
        let number = random.index(self.receives.len());
        match self.receiver.ep.cancel(Context(number as u64)) {
            Ok(()) => self.receives[number].is_cancelled = true,
            Err(errno) => {
                assert_eq!(errno, Errno::NoEnt);
                let is_cancelled = self.receives[number].is_cancelled;
                assert!(is_cancelled || self.pairs().contains_key(&number));
            }
        }
    }

    /// Peeks for a message. A peek changes no message.
    fn peek(&mut self, random: &mut Random) {
        let tag = TagMatch {
            tag: random.word() % 4,
            ignore: *random.pick(&[0, 1, u64::MAX]),
        };
        let rx = Rx::tagged(tag, 0).context(PEEK_CONTEXT + self.peeks[0]);
        self.receiver.recv(&rx.flags(OpFlags::PEEK));
        self.peeks[0] += 1;
    }

    /// Checks that a peeked message was sent.
    fn record_peek(&mut self, done: &Done) {
        self.peeks[1] += 1;
        let Ok(peeked) = done.outcome else {
            return assert_eq!(done.error().errno, Errno::NoMsg);
        };
        let is_peeked = |message: &Message| {
            let len: usize = message.tx.segments.iter().map(Vec::len).sum();
            (message.tx.tag, message.tx.data.unwrap_or(0), len)
                == (Some(peeked.tag), peeked.data, peeked.len)
        };
        assert!(
            self.messages.iter().any(is_peeked),
            "no message was sent for {peeked:?}"
        );
        assert_eq!(done.src, self.source);
    }

    /// Records a completed send.
    fn record_send(&mut self, done: &Done) {
        let number = done.context() as usize;
        done.outcome.as_ref().expect("no send fails");
        self.messages[number].completions += 1;
        let confirmed = OpFlags::DELIVERY_COMPLETE | OpFlags::MATCH_COMPLETE;
        if self.messages[number].tx.flags.intersects(confirmed) {
            let pairs = self.pairs();
            assert!(pairs.values().any(|&message| message == number));
        }
    }

    /// Records a completed receive.
    fn record_receive(&mut self, done: Done) {
        if done.context() >= PEEK_CONTEXT {
            return self.record_peek(&done);
        }
        let number = done.context() as usize;
        let before = self.receives[number].done.replace(done);
        assert!(before.is_none(), "receive {number} completed twice");
    }

    /// Posts receives for unmatched messages, or cancels unmatched receives.
    fn settle(&mut self) {
        let pairs = self.pairs();
        for number in 0..self.messages.len() {
            if !pairs.values().any(|&message| message == number) {
                self.receive(match self.messages[number].tx.tag {
                    None => Rx::msg(LARGEST),
                    Some(tag) => Rx::tagged(tag, LARGEST),
                });
            }
        }
        let pairs = self.pairs();
        assert_eq!(pairs.len(), self.messages.len());
        for number in 0..self.receives.len() {
            if !pairs.contains_key(&number) && !self.receives[number].is_cancelled {
                self.receiver.ep.cancel(Context(number as u64)).unwrap();
                self.receives[number].is_cancelled = true;
            }
        }
    }

    /// Compares the outcomes with the model.
    fn check(&self) {
        let pairs = self.pairs();
        for (number, receive) in self.receives.iter().enumerate() {
            let done = receive.done.as_ref().expect("every receive completes");
            match pairs.get(&number) {
                Some(&message) => self.check_received(done, &self.messages[message].tx),
                None => assert_eq!(done.error().errno, Errno::Canceled),
            }
        }
        assert_eq!(self.peeks[0], self.peeks[1]);
        for message in &self.messages {
            assert_eq!(message.completions, usize::from(!message.is_silent));
        }
    }

    fn check_received(&self, done: &Done, tx: &Tx) {
        let bytes = tx.segments.concat();
        let len = bytes.len().min(done.bytes.len());
        assert_eq!(done.entry(), &entry(done.context(), tx, len));
        assert_eq!(done.src, self.source);
        done.assert_bytes(&bytes[..len]);
        if len == bytes.len() {
            assert!(
                done.outcome.is_ok(),
                "a receive of the whole message has failed"
            );
        } else {
            assert_eq!(done.error().errno, Errno::Trunc);
            assert_eq!(done.error().olen, bytes.len() - len);
        }
    }
}

fn accepts(rx: &Rx, tx: &Tx) -> bool {
    match (rx.tag, tx.tag) {
        (None, None) => true,
        (Some(wanted), Some(tag)) => wanted.accepts(tag),
        _ => false,
    }
}

fn entry(context: u64, tx: &Tx, len: usize) -> Entry {
    let entry = match tx.tag {
        None => received(CompletionFlags::MSG, context, len, 0),
        Some(tag) => received(CompletionFlags::TAGGED, context, len, tag),
    };
    match tx.data {
        None => entry,
        Some(data) => with_data(entry, data),
    }
}

fn random_size(random: &mut Random) -> usize {
    match random.index(40) {
        0 => LARGEST,
        1..20 => *random.pick(&SIZES[..14]),
        20..26 => *random.pick(&SIZES[..18]),
        _ => random.index(100),
    }
}

fn random_tx(random: &mut Random, number: u64, dest: FiAddr) -> Tx {
    let size = random_size(random);
    let bytes = pattern(number, size);
    let mut tx = match random.index(4) {
        0 => Tx::msg(dest, &bytes),
        _ => Tx::tagged(dest, random.word() % 4, &bytes),
    };
    tx.data = (random.index(3) == 0).then(|| random.word());
    if random.index(4) == 0 {
        tx = tx.cut(&[random.index(50), random.index(size + 1)]);
    }
    let flags = *random.pick(&[
        OpFlags::DEFAULT,
        OpFlags::empty(),
        OpFlags::MORE,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::MATCH_COMPLETE,
        OpFlags::TRANSMIT_COMPLETE,
    ]);
    tx.context(number).flags(flags)
}

fn random_rx(random: &mut Random, source: FiAddr) -> Rx {
    let size = match random.index(3) {
        0 => LARGEST,
        _ => random_size(random),
    };
    let tag = TagMatch {
        tag: random.word() % 4,
        ignore: *random.pick(&[0, 0, 0, 1, 2, u64::MAX]),
    };
    let mut rx = match random.index(4) {
        0 => Rx::msg(size),
        _ => Rx::tagged(tag, size),
    };
    if random.index(3) == 0 {
        rx = rx.from(source);
    }
    if random.index(4) == 0 {
        rx = rx.cut(&[random.index(50), random.index(size + 1)]);
    }
    rx
}

/// Takes the completions of both sides. Returns their number.
fn collect(pair: &MessagePair, forward: &mut Direction<'_>, backward: &mut Direction<'_>) -> usize {
    collect_at(&pair.a, forward, backward) + collect_at(&pair.b, backward, forward)
}

fn collect_at(
    side: &MessageEndpoint,
    outgoing: &mut Direction<'_>,
    incoming: &mut Direction<'_>,
) -> usize {
    iter::from_fn(|| side.poll())
        .map(|done| {
            if done.entry().flags.contains(CompletionFlags::SEND) {
                outgoing.record_send(&done)
            } else {
                incoming.record_receive(done)
            }
        })
        .count()
}

/// Runs `steps` random operations in both directions at once.
fn run_random(sut: &Sut, seed: u64, steps: usize) {
    let pair = sut.pair();
    let mut random = Random::new(seed);
    let mut forward = Direction::new((&pair.a, pair.to_b), (&pair.b, pair.to_a));
    let mut backward = Direction::new((&pair.b, pair.to_a), (&pair.a, pair.to_b));
    for _ in 0..steps {
        match random.index(2) {
            0 => forward.step(&mut random),
            _ => backward.step(&mut random),
        }
        if random.index(8) == 0 {
            collect(&pair, &mut forward, &mut backward);
        }
    }
    forward.settle();
    backward.settle();
    let mut idle_turns = 0;
    while idle_turns < 1000 {
        idle_turns += 1;
        if collect(&pair, &mut forward, &mut backward) > 0 {
            idle_turns = 0;
        }
    }
    forward.check();
    backward.check();
}

#[test]
fn random_operations_follow_the_model_by_every_protocol() {
    for protocol in PROTOCOLS {
        let sut = provider::with_protocol(protocol);
        for seed in 0..6 {
            run_random(&sut, seed, 400);
        }
    }
}

#[test]
fn random_operations_follow_the_model_through_the_smallest_queues() {
    for protocol in PROTOCOLS {
        let small = [
            ("FI_SHM_CMD_COUNT", "16"),
            ("FI_SHM_INJECT_SIZE", "64"),
            ("FI_SHM_POOL_SIZE", "4096"),
            ("FI_SHM_SEGMENT_COUNT", "2"),
            ("FI_SHM_SEGMENT_SIZE", "4096"),
            ("FI_SHM_PROTOCOL", protocol),
        ];
        let sut = provider::with_params(&small, &provider::hints());
        for seed in 100..105 {
            run_random(&sut, seed, 400);
        }
    }
}

/// The first context of the peeks.
const PEEK_CONTEXT: u64 = 1 << 32;

/// The largest message.
const LARGEST: usize = SIZES[SIZES.len() - 1];
