//! Random sends, receives, cancels and peeks against a model of matching.
//!
//! With one sender, which receive takes which message depends on the order of the sends and on that
//! of the posts, and not on when either happens: the first receive takes the first message that it
//! accepts, the second the first of those left, and so on. A cancelled receive counts as one that
//! was never posted, and a peek changes nothing.

use std::collections::HashMap;
use std::iter;

use selvedge::cq::Entry;
use selvedge::{
    CompletionFlags, Context, EpOption, EpOptionName, Errno, FiAddr, OpFlags, TagMatch,
};

use crate::common::{Done, Pair, Random, Rx, Side, Sut, Tx, pattern, received, with_data};
use crate::provider::{self, PROTOCOLS, SIZES};

/// The operations that were posted in one direction, and their outcomes.
struct Direction<'a> {
    from: &'a Side,
    at: &'a Side,
    to: FiAddr,
    source: FiAddr,
    inject_size: usize,
    messages: Vec<Message>,
    receives: Vec<Receive>,
    /// Numbers of peeks posted and completed.
    peeks: [u64; 2],
}

struct Message {
    tx: Tx,
    /// Injected by the call that never completes.
    is_silent: bool,
    completions: usize,
}

struct Receive {
    rx: Rx,
    is_cancelled: bool,
    done: Option<Done>,
}

impl<'a> Direction<'a> {
    fn new((from, to): (&'a Side, FiAddr), (at, source): (&'a Side, FiAddr)) -> Self {
        let option = from.ep.option(EpOptionName::InjectMsgSize);
        let Ok(EpOption::InjectMsgSize(inject_size)) = option else {
            panic!("the inject size is not told");
        };
        Self {
            from,
            at,
            to,
            source,
            inject_size,
            messages: Vec::new(),
            receives: Vec::new(),
            peeks: [0; 2],
        }
    }

    /// By receive, the message that it takes in the model.
    fn pairs(&self) -> HashMap<usize, usize> {
        let mut free: Vec<_> = (0..self.messages.len()).collect();
        let mut pairs = HashMap::new();
        for (number, receive) in self.receives.iter().enumerate() {
            let accepts = |&message: &usize| accepts(&receive.rx, &self.messages[message].tx);
            if !receive.is_cancelled
                && let Some(setup) = free.iter().position(accepts)
            {
                pairs.insert(number, free.remove(setup));
            }
        }
        pairs
    }

    fn step(&mut self, random: &mut Random) {
        match random.below(17) {
            0..7 => self.send(random),
            7..13 => self.receive(random_rx(random, self.source)),
            13 => self.cancel(random),
            14 => self.peek(random),
            _ => self.at.progress(),
        }
    }

    fn send(&mut self, random: &mut Random) {
        let number = self.messages.len() as u64;
        let tx = random_tx(random, number, self.to);
        let len: usize = tx.segments.iter().map(Vec::len).sum();
        let is_silent = len <= self.inject_size && random.below(4) == 0;
        let posted = match (is_silent, tx.tag) {
            (false, _) => self.from.try_send(&tx),
            (true, None) => self.from.ep.inject(&tx.segments.concat(), self.to, tx.data),
            (true, Some(tag)) => {
                let bytes = tx.segments.concat();
                self.from.ep.tinject(&bytes, self.to, tag, tx.data)
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
        self.at.recv(&rx);
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
        let number = random.below(self.receives.len());
        match self.at.ep.cancel(Context(number as u64)) {
            Ok(()) => self.receives[number].is_cancelled = true,
            Err(errno) => {
                assert_eq!(errno, Errno::NoEnt);
                let is_over = self.receives[number].is_cancelled;
                assert!(is_over || self.pairs().contains_key(&number));
            }
        }
    }

    /// Peeks for a message, which changes nothing.
    fn peek(&mut self, random: &mut Random) {
        let tag = TagMatch {
            tag: random.next() % 4,
            ignore: random.pick(&[0, 1, u64::MAX]),
        };
        let rx = Rx::tagged(tag, 0).context(PEEK_CONTEXT + self.peeks[0]);
        self.at.recv(&rx.flags(OpFlags::PEEK));
        self.peeks[0] += 1;
    }

    /// Checks that a peeked message is a sent one.
    fn peeked(&mut self, done: &Done) {
        self.peeks[1] += 1;
        let Ok(seen) = done.outcome else {
            return assert_eq!(done.error().errno, Errno::NoMsg);
        };
        let is_it = |message: &Message| {
            let len: usize = message.tx.segments.iter().map(Vec::len).sum();
            (message.tx.tag, message.tx.data.unwrap_or(0), len)
                == (Some(seen.tag), seen.data, seen.len)
        };
        assert!(self.messages.iter().any(is_it), "nobody has sent {seen:?}");
        assert_eq!(done.src, self.source);
    }

    /// Records a completed send.
    fn sent(&mut self, done: &Done) {
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
    fn received(&mut self, done: Done) {
        if done.context() >= PEEK_CONTEXT {
            return self.peeked(&done);
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
                self.at.ep.cancel(Context(number as u64)).unwrap();
                self.receives[number].is_cancelled = true;
            }
        }
    }

    /// Compares with the model.
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
        match len == bytes.len() {
            true => drop(done.outcome.as_ref().expect("all of it fitted")),
            false => {
                assert_eq!(done.error().errno, Errno::Trunc);
                assert_eq!(done.error().olen, bytes.len() - len);
            }
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
    match random.below(40) {
        0 => LARGEST,
        1..20 => random.pick(&SIZES[..14]),
        20..26 => random.pick(&SIZES[..18]),
        _ => random.below(100),
    }
}

fn random_tx(random: &mut Random, number: u64, to: FiAddr) -> Tx {
    let size = random_size(random);
    let bytes = pattern(number, size);
    let mut tx = match random.below(4) {
        0 => Tx::msg(to, &bytes),
        _ => Tx::tagged(to, random.next() % 4, &bytes),
    };
    tx.data = (random.below(3) == 0).then(|| random.next());
    if random.below(4) == 0 {
        tx = tx.cut(&[random.below(50), random.below(size + 1)]);
    }
    let flags = random.pick(&[
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
    let size = match random.below(3) {
        0 => LARGEST,
        _ => random_size(random),
    };
    let tag = TagMatch {
        tag: random.next() % 4,
        ignore: random.pick(&[0, 0, 0, 1, 2, u64::MAX]),
    };
    let mut rx = match random.below(4) {
        0 => Rx::msg(size),
        _ => Rx::tagged(tag, size),
    };
    if random.below(3) == 0 {
        rx = rx.from(source);
    }
    if random.below(4) == 0 {
        rx = rx.cut(&[random.below(50), random.below(size + 1)]);
    }
    rx
}

/// Takes the completions of both sides. Returns their number.
fn collect(pair: &Pair, forth: &mut Direction<'_>, back: &mut Direction<'_>) -> usize {
    collect_at(&pair.a, forth, back) + collect_at(&pair.b, back, forth)
}

fn collect_at(side: &Side, out: &mut Direction<'_>, into: &mut Direction<'_>) -> usize {
    iter::from_fn(|| side.poll())
        .map(
            |done| match done.entry().flags.contains(CompletionFlags::SEND) {
                true => out.sent(&done),
                false => into.received(done),
            },
        )
        .count()
}

/// Runs `steps` random operations in both directions at once.
fn run_random(sut: &Sut, seed: u64, steps: usize) {
    let pair = sut.pair();
    let mut random = Random::new(seed);
    let mut forth = Direction::new((&pair.a, pair.to_b), (&pair.b, pair.to_a));
    let mut back = Direction::new((&pair.b, pair.to_a), (&pair.a, pair.to_b));
    for _ in 0..steps {
        match random.below(2) {
            0 => forth.step(&mut random),
            _ => back.step(&mut random),
        }
        if random.below(8) == 0 {
            collect(&pair, &mut forth, &mut back);
        }
    }
    forth.settle();
    back.settle();
    let mut silence = 0;
    while silence < 1000 {
        silence += 1;
        if collect(&pair, &mut forth, &mut back) > 0 {
            silence = 0;
        }
    }
    forth.check();
    back.check();
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
        let sut = provider::with(&small, &provider::hints());
        for seed in 100..105 {
            run_random(&sut, seed, 400);
        }
    }
}

/// Contexts from here on belong to peeks.
const PEEK_CONTEXT: u64 = 1 << 32;

/// The largest message.
const LARGEST: usize = SIZES[SIZES.len() - 1];
