//! Tests of the matcher: its results against those of a model, and the cost of its methods.

use std::collections::HashMap;

use proptest::prelude::*;
use selvedge::{IovMut, OpFlags};
use selvedge_testkit::long::part;

use super::super::{EXAMINED, Kind, MASKS};
use super::*;
use crate::copy::RxBuf;

fn receive(src: Source, tag: TagMatch, context: u64) -> Posted {
    multi_receive(src, tag, context, 0)
}

#[expect(unsafe_code, reason = "a receive whose bytes are never reached")]
fn multi_receive(src: Source, tag: TagMatch, context: u64, len: usize) -> Posted {
    let bytes = IovMut::from_raw(std::ptr::dangling_mut(), len);
    Posted {
        // SAFETY: the matcher moves the buffer and accesses no byte of it.
        buf: unsafe { RxBuf::new(&[bytes]) },
        src,
        tag,
        context: Context(context),
        flags: OpFlags::empty(),
        kind: Kind::Tagged,
    }
}

fn message(src: u32, tag: u64) -> Envelope {
    Envelope {
        src: Source(src),
        tag,
        len: tag as usize % 5,
        data: 0,
        has_data: false,
    }
}

fn contexts(receives: &[Posted]) -> Vec<u64> {
    receives.iter().map(|rx| rx.context.0).collect()
}

fn payloads(messages: &[(Envelope, u64)]) -> Vec<u64> {
    messages.iter().map(|&(_, payload)| payload).collect()
}

/// A model of the matcher that uses lists.
#[derive(Default)]
struct Oracle {
    posted: Vec<(u64, Source, TagMatch)>,
    unexpected: Vec<(u64, Envelope)>,
    /// The number of bytes left in each multi-receive buffer.
    room: HashMap<u64, usize>,
    claimed: Vec<(u64, u64)>,
}

impl Oracle {
    fn find(&self, src: Source, tag: TagMatch) -> Option<usize> {
        let accepts = |env: &Envelope| src.accepts(env.src) && tag.accepts(env.tag);
        self.unexpected.iter().position(|(_, env)| accepts(env))
    }

    fn post(&mut self, id: u64, src: Source, tag: TagMatch) -> Option<u64> {
        let found = self.find(src, tag).map(|at| self.unexpected.remove(at).0);
        if found.is_none() {
            self.posted.push((id, src, tag));
        }
        found
    }

    fn match_message(&mut self, id: u64, env: Envelope) -> Option<u64> {
        let accepts = |src: Source, tag: TagMatch| src.accepts(env.src) && tag.accepts(env.tag);
        let at = self
            .posted
            .iter()
            .position(|&(_, src, tag)| accepts(src, tag));
        if at.is_none() {
            self.unexpected.push((id, env));
        }
        at.map(|at| self.take_receive(at, env.len))
    }

    /// Matches a message of `len` bytes with the receive at index `at`; returns the identifier of
    /// the receive. Removes the receive, unless it is a multi-receive buffer with at least
    /// `MIN_LEFT` bytes left.
    fn take_receive(&mut self, at: usize, len: usize) -> u64 {
        let id = self.posted[at].0;
        if let Some(room) = self.room.get_mut(&id) {
            *room = room.saturating_sub(len);
            if *room >= MIN_LEFT {
                return id;
            }
        }
        self.posted.remove(at).0
    }

    /// Posts a multi-receive buffer; returns the messages that it takes.
    fn post_multi(&mut self, id: u64, src: Source, tag: TagMatch, room: usize) -> Vec<u64> {
        self.posted.push((id, src, tag));
        self.room.insert(id, room);
        let mut taken = Vec::new();
        while self.posted.last().is_some_and(|last| last.0 == id)
            && let Some(at) = self.find(src, tag)
        {
            let (message, env) = self.unexpected.remove(at);
            self.take_receive(self.posted.len() - 1, env.len);
            taken.push(message);
        }
        taken
    }

    fn claim(&mut self, id: u64, src: Source, tag: TagMatch) -> Option<u64> {
        let message = self.unexpected.remove(self.find(src, tag)?).0;
        self.claimed.push((id % CLAIMS, message));
        Some(message)
    }

    fn take_claimed(&mut self, context: u64) -> Option<u64> {
        let index = self.claimed.iter().position(|&(id, _)| id == context)?;
        Some(self.claimed.remove(index).1)
    }

    /// Sorts receives in the order in which the matcher returns them.
    fn with_multis_last(&self, mut ids: Vec<u64>) -> Vec<u64> {
        ids.sort_by_key(|id| (self.room.contains_key(id), *id));
        ids
    }

    fn take_posted(&mut self, which: impl Fn(u64, Source) -> bool) -> Vec<u64> {
        let taken = self
            .posted
            .extract_if(.., |&mut (id, src, _)| which(id, src));
        let taken = taken.map(|(id, ..)| id).collect();
        self.with_multis_last(taken)
    }

    fn take_unexpected(&mut self, which: impl Fn(Source) -> bool) -> Vec<u64> {
        let taken = self.unexpected.extract_if(.., |(_, env)| which(env.src));
        taken.map(|(id, _)| id).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Post(Source, TagMatch),
    PostMulti(Source, TagMatch, usize),
    Claim(Source, TagMatch),
    TakeClaimed(u64),
    Arrive(Source, u64),
    Peek(Source, TagMatch),
    Take(Source, TagMatch),
    Cancel(u64),
    Fail(Source),
    Forget(Source),
    Drain,
}

/// Generates a step, with few sources and tags, so that they collide, and with more masks than the
/// matcher has indices.
fn step(posts: u32, messages: u32) -> impl Strategy<Value = Step> {
    let sender = || (0..3u32).prop_map(Source);
    let source = || prop_oneof![sender(), Just(Source::ANY)];
    let masks = prop_oneof![4 => Just(0), 3 => 0..3u64, 2 => 0..64u64, 1 => Just(u64::MAX)];
    let tags = move || {
        let masks = masks.clone();
        (0..64u64, masks).prop_map(|(tag, ignore)| TagMatch { tag, ignore })
    };
    prop_oneof![
        posts * 20 => (source(), tags()).prop_map(|(src, tag)| Step::Post(src, tag)),
        posts => (source(), tags(), 0..20usize)
            .prop_map(|(src, tag, room)| Step::PostMulti(src, tag, room)),
        5 => (source(), tags()).prop_map(|(src, tag)| Step::Claim(src, tag)),
        5 => (0..CLAIMS).prop_map(Step::TakeClaimed),
        messages * 20 => (sender(), 0..64u64).prop_map(|(src, tag)| Step::Arrive(src, tag)),
        5 => (source(), tags()).prop_map(|(src, tag)| Step::Peek(src, tag)),
        5 => (source(), tags()).prop_map(|(src, tag)| Step::Take(src, tag)),
        10 => (0..500u64).prop_map(Step::Cancel),
        1 => sender().prop_map(Step::Fail),
        1 => sender().prop_map(Step::Forget),
        1 => Just(Step::Drain),
    ]
}

/// Generates steps that make long queues of receives, then of messages, and then of receives.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let phase = |posts, messages| prop::collection::vec(step(posts, messages), 0..150);
    (phase(9, 2), phase(2, 9), phase(5, 5), phase(9, 3))
        .prop_map(|(a, b, c, d)| [a, b, c, d].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: part(60, 300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_lists_do(steps in steps()) {
        let mut matcher = Matcher::new();
        let mut oracle = Oracle::default();
        for (id, step) in steps.into_iter().enumerate() {
            run(&mut matcher, &mut oracle, id as u64, step)?;
            prop_assert_eq!(matcher.posted_len(), oracle.posted.len());
            let waiting = oracle.unexpected.len() + oracle.claimed.len();
            prop_assert_eq!(matcher.unexpected_len(), waiting);
        }
    }
}

fn run(
    matcher: &mut Matcher<u64>,
    oracle: &mut Oracle,
    id: u64,
    step: Step,
) -> Result<(), TestCaseError> {
    match step {
        Step::Post(src, tag) => {
            let matched = matcher.post(receive(src, tag, id));
            prop_assert_eq!(
                matched.map(|(.., payload)| payload),
                oracle.post(id, src, tag)
            );
        }
        Step::PostMulti(src, tag, room) => {
            let rx = multi_receive(src, tag, id, room);
            prop_assert!(matcher.post_multi(rx, MIN_LEFT).is_ok());
            let matched = std::iter::from_fn(|| matcher.feed_multi());
            let matched: Vec<_> = matched.map(|(.., payload)| payload).collect();
            prop_assert_eq!(matched, oracle.post_multi(id, src, tag, room));
        }
        Step::Claim(src, tag) => {
            let claimed = matcher.claim(src, tag, Context(id % CLAIMS));
            prop_assert_eq!(claimed.is_some(), oracle.claim(id, src, tag).is_some());
        }
        Step::TakeClaimed(context) => {
            let taken = matcher.take_claimed(Context(context));
            let taken = taken.map(|(_, payload)| payload);
            prop_assert_eq!(taken, oracle.take_claimed(context));
        }
        Step::Arrive(src, tag) => {
            let env = message(src.0, tag);
            let first_new = matcher.first_unindexed(env.src, tag).map(|rx| rx.context.0);
            let matched = match (first_new, matcher.oldest(env.src, tag).is_some()) {
                (Some(first_new), false) => {
                    matcher.drop_first_unindexed();
                    Some(first_new)
                }
                _ => matcher.match_message(&env).map(|rx| rx.context.0),
            };
            if matched.is_none() {
                matcher.store(env, id);
            }
            prop_assert_eq!(matched, oracle.match_message(id, env));
        }
        Step::Peek(src, tag) => {
            let peeked = matcher.peek(src, tag).map(|(_, payload)| *payload);
            prop_assert_eq!(
                peeked,
                oracle.find(src, tag).map(|at| oracle.unexpected[at].0)
            );
        }
        Step::Take(src, tag) => {
            let taken = matcher.take(src, tag).map(|(_, payload)| payload);
            let expected = oracle
                .find(src, tag)
                .map(|at| oracle.unexpected.remove(at).0);
            prop_assert_eq!(taken, expected);
        }
        Step::Cancel(context) => {
            let taken = matcher.cancel(Context(context));
            let expected = oracle.take_posted(|id, _| id == context);
            prop_assert_eq!(contexts(taken.as_slice()), expected);
        }
        Step::Fail(failed) => {
            let taken = matcher.fail_source(failed);
            prop_assert_eq!(contexts(&taken), oracle.take_posted(|_, src| src == failed));
        }
        Step::Forget(failed) => {
            let taken = matcher.drop_unexpected(|env, _| env.src == failed);
            prop_assert_eq!(
                payloads(&taken),
                oracle.take_unexpected(|src| src == failed)
            );
        }
        Step::Drain => {
            let posted = contexts(&matcher.drain_posted());
            prop_assert_eq!(posted, oracle.take_posted(|_, _| true));
            let unexpected = payloads(&matcher.drain_unexpected());
            prop_assert_eq!(unexpected, oracle.take_unexpected(|_| true));
            prop_assert_eq!(matcher.is_empty(), oracle.claimed.is_empty());
        }
    }
    Ok(())
}

/// A multi-receive buffer is given back when fewer bytes than this are left.
const MIN_LEFT: usize = 3;

/// The number of contexts that messages are claimed with.
const CLAIMS: u64 = 4;

const MANY: u64 = 10_000;

/// Returns the number of queue members that `work` examines.
fn cost(work: impl FnOnce()) -> u64 {
    EXAMINED.set(0);
    work();
    EXAMINED.get() as u64
}

/// Returns a tag that differs from the tags of all other numbers, with `noise` in the low byte.
const fn tag(number: u64, noise: u64) -> u64 {
    number << 8 | noise
}

/// Returns a receive of one of three kinds. Of the messages of source 1, it takes only message
/// `number`.
fn receive_for(number: u64) -> Posted {
    let exact = TagMatch::exact(tag(number, 0));
    let masked = TagMatch {
        tag: tag(number, 0),
        ignore: 0xff,
    };
    match number % 3 {
        0 => receive(Source(1), exact, number),
        1 => receive(Source::ANY, exact, number),
        _ => receive(Source::ANY, masked, number),
    }
}

#[test]
fn finding_a_receive_costs_the_same_among_ten_thousand() {
    let mut matcher = Matcher::<()>::new();
    (0..MANY).for_each(|n| assert!(matcher.post(receive_for(n)).is_none()));
    let cost = cost(|| {
        for number in (0..MANY).rev() {
            let matched = matcher.match_message(&message(1, tag(number, 0)));
            assert_eq!(matched.map(|rx| rx.context.0), Some(number));
        }
    });
    assert!(cost <= 6 * MANY, "{cost} members examined");
}

#[test]
fn finding_a_message_costs_the_same_among_ten_thousand() {
    let mut matcher = Matcher::new();
    (0..MANY).for_each(|n| matcher.store(message(1, tag(n, 0)), n));
    let cost = cost(|| {
        for number in (0..MANY).rev() {
            let matched = matcher.post(receive_for(number));
            assert_eq!(matched.map(|(.., payload)| payload), Some(number));
        }
    });
    assert!(cost <= 12 * MANY, "{cost} members examined");
}

#[test]
fn finding_no_receive_costs_the_same_among_ten_thousand() {
    let mut matcher = Matcher::new();
    (0..MANY).for_each(|n| assert!(matcher.post(receive_for(n)).is_none()));
    let cost = cost(|| {
        for number in MANY..2 * MANY {
            let env = message(2, tag(number, 0));
            assert!(matcher.match_message(&env).is_none());
            matcher.store(env, number);
        }
    });
    assert!(cost <= 4 * MANY, "{cost} members examined");
    assert_eq!(matcher.unexpected_len() as u64, MANY);
}

#[test]
fn batches_of_messages_skip_ten_thousand_receives_at_no_cost() {
    const BATCH: u64 = 64;
    let mut matcher = Matcher::<()>::new();
    (0..MANY).for_each(|n| assert!(matcher.post(receive_for(n)).is_none()));
    assert!(matcher.match_message(&message(1, tag(MANY, 0))).is_none());
    let all = TagMatch::exact(tag(MANY, 0));
    let cost = cost(|| {
        for batch in 0..100 {
            for number in 0..BATCH {
                let context = MANY + batch * BATCH + number;
                assert!(matcher.post(receive(Source::ANY, all, context)).is_none());
            }
            for number in 0..BATCH {
                let matched = matcher.match_message(&message(1, tag(MANY, 0)));
                let context = MANY + batch * BATCH + number;
                assert_eq!(matched.map(|rx| rx.context.0), Some(context));
            }
        }
    });
    assert!(cost <= 4 * 100 * BATCH, "{cost} members examined");
    assert_eq!(matcher.posted_len() as u64, MANY);
}

#[test]
fn a_member_that_is_removed_in_order_is_examined_once() {
    let mut matcher = Matcher::<()>::new();
    (0..MANY).for_each(|n| assert!(matcher.post(receive_for(n)).is_none()));
    let cost = cost(|| {
        for number in 0..MANY {
            assert!(matcher.match_message(&message(1, tag(number, 0))).is_some());
        }
    });
    assert_eq!(cost, MANY);
}

#[test]
fn more_masks_than_indices_still_match_in_order() {
    let mut matcher = Matcher::<()>::new();
    let masks = 3 * MASKS as u64;
    for number in 0..masks {
        let tag = TagMatch {
            tag: 1 << 40,
            ignore: (1 << number) - 1,
        };
        assert!(matcher.post(receive(Source::ANY, tag, number)).is_none());
    }
    for expected in (1..masks).chain([0]) {
        let noise = if expected == 0 {
            0
        } else {
            (1 << expected) >> 1
        };
        let matched = matcher.match_message(&message(1, 1 << 40 | noise));
        assert_eq!(matched.map(|rx| rx.context.0), Some(expected));
    }
}
