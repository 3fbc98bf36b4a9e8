//! Matching of messages and receives.

use selvedge::{CompletionFlags, Context, Errno, FiAddr, TagMatch};

use crate::common::{MessageEndpoint, MessagePair, Rx, Tx, pattern, received, sent};
use crate::provider::{self, PROTOCOLS};

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

/// Sizes that take different protocols, so that later messages overtake the bytes of earlier ones.
const MIXED: [usize; 7] = [2_000_000, 8, 5000, 0, 300_000, 48, 2000];

/// Waits for `count` receives of `pair.b`. Returns their contexts and lengths, sorted.
fn receive_lengths(pair: &MessagePair, count: usize) -> Vec<(u64, usize)> {
    let mut taken: Vec<_> = (0..count)
        .map(|_| pair.wait_at_b())
        .map(|done| (done.context(), done.outcome.expect("a success").len))
        .collect();
    taken.sort_unstable();
    taken
}

fn numbered(lengths: &[usize]) -> Vec<(u64, usize)> {
    (0..).zip(lengths.iter().copied()).collect()
}

#[test]
fn messages_of_one_sender_match_in_order_whatever_their_size() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for context in 0..7 {
            pair.b.recv(&Rx::msg(2_000_000).context(context));
        }
        for len in MIXED {
            pair.a.send(&Tx::msg(pair.to_b, &pattern(1, len)));
        }
        assert_eq!(receive_lengths(&pair, 7), numbered(&MIXED));
    }
}

#[test]
fn unexpected_messages_match_in_the_order_of_their_sends() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in MIXED {
            pair.a.send(&Tx::tagged(pair.to_b, 1, &pattern(1, len)));
        }
        pair.settle();
        for context in 0..7 {
            pair.b
                .recv(&Rx::tagged(TagMatch::ANY, 2_000_000).context(context));
        }
        assert_eq!(receive_lengths(&pair, 7), numbered(&MIXED));
    }
}

#[test]
fn unexpected_messages_may_be_received_in_another_order() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for (tag, len) in (0..).zip(MIXED) {
            pair.a.send(&Tx::tagged(pair.to_b, tag, &pattern(tag, len)));
        }
        pair.settle();
        for tag in [6, 2, 4, 0, 5, 1, 3] {
            let len = MIXED[tag as usize];
            pair.b.recv(&Rx::tagged(tag, len).context(tag));
            let done = pair.wait_at_b();
            done.assert_entry(received(TAGGED, tag, len, tag));
            done.assert_bytes(&pattern(tag, len));
        }
    }
}

#[test]
fn long_queues_of_either_kind_keep_their_order() {
    let pair = provider::with_defaults().pair();
    let tags: Vec<u64> = (0..200).map(|i| i * 7 % 13).collect();
    for is_late in [false, true] {
        let post = || {
            for (context, &tag) in (0..).zip(&tags) {
                pair.b.recv(&Rx::tagged(tag, 8).context(context));
            }
        };
        let send = || {
            for (number, &tag) in (0_u64..).zip(&tags) {
                let tx = Tx::tagged(pair.to_b, tag, &number.to_le_bytes());
                pair.a.inject_retrying(&tx, &[&pair.b]);
            }
        };
        if is_late {
            [&send as &dyn Fn(), &post].map(|step| step())
        } else {
            [&post as &dyn Fn(), &send].map(|step| step())
        };
        for _ in &tags {
            let done = pair.wait_at_b();
            done.assert_bytes(&done.context().to_le_bytes());
        }
    }
}

#[test]
fn ignored_bits_of_a_tag_do_not_matter_and_all_others_do() {
    let pair = provider::with_defaults().pair();
    let masked = TagMatch {
        tag: 0xab00,
        ignore: 0xf0f0,
    };
    pair.b.recv(&Rx::tagged(masked, 8).context(1));
    for other in [0xab01, 0xaa00, 0x1_ab00, 1 << 63 | 0xab00, 0] {
        pair.a.ep.tinject(b"other", pair.to_b, other, None).unwrap();
    }
    pair.assert_no_completion();
    pair.a.ep.tinject(b"same", pair.to_b, 0x5bc0, None).unwrap();
    pair.wait_at_b()
        .assert_entry(received(TAGGED, 1, 4, 0x5bc0));
    for number in 0..5 {
        pair.b.recv(&Rx::tagged(TagMatch::ANY, 8).context(number));
    }
    let tags: Vec<_> = (0..5).map(|_| pair.wait_at_b().entry().tag).collect();
    assert_eq!(tags, [0xab01, 0xaa00, 0x1_ab00, 1 << 63 | 0xab00, 0]);
}

#[test]
fn the_receive_that_was_posted_first_takes_the_message() {
    let pair = provider::with_defaults().pair();
    let low = TagMatch {
        tag: 0,
        ignore: 0xff,
    };
    let tags = [low, TagMatch::exact(7), TagMatch::ANY, TagMatch::exact(7)];
    for (context, tag) in (0..).zip(tags) {
        pair.b.recv(&Rx::tagged(tag, 8).context(context));
    }
    for tag in [7, 7, 0x100, 7] {
        pair.a.ep.tinject(b"x", pair.to_b, tag, None).unwrap();
    }
    let order = [(0, 7), (1, 7), (2, 0x100), (3, 7)];
    for (context, tag) in order {
        pair.wait_at_b()
            .assert_entry(received(TAGGED, context, 1, tag));
    }
}

/// A receiver and two senders, with each other's addresses.
struct TwoSenders {
    rx: MessageEndpoint,
    tx: [MessageEndpoint; 2],
    from: [FiAddr; 2],
    to: [FiAddr; 2],
}

impl TwoSenders {
    fn open() -> Self {
        let sut = provider::with_defaults();
        let (rx, tx) = (sut.endpoint(), [sut.endpoint(), sut.endpoint()]);
        Self {
            from: [rx.insert_endpoint(&tx[0]), rx.insert_endpoint(&tx[1])],
            to: [tx[0].insert_endpoint(&rx), tx[1].insert_endpoint(&rx)],
            rx,
            tx,
        }
    }

    fn send(&self, sender: usize, tag: Option<u64>, text: &str) {
        let (ep, to) = (&self.tx[sender].ep, self.to[sender]);
        match tag {
            None => ep.inject(text.as_bytes(), to, None),
            Some(tag) => ep.tinject(text.as_bytes(), to, tag, None),
        }
        .unwrap();
        // A message that is sent later arrives later.
        selvedge_testkit::local::settle(&[&self.rx, &self.tx[0], &self.tx[1]]);
    }

    /// Waits for the next receive. Returns its context, source and text.
    fn next(&self) -> (u64, FiAddr, String) {
        let done = self.rx.wait(&[&self.tx[0], &self.tx[1]]);
        let len = done.outcome.as_ref().expect("a success").len;
        let text = String::from_utf8(done.bytes[..len].to_vec()).unwrap();
        (done.context(), done.src, text)
    }
}

#[test]
fn a_directed_receive_waits_for_its_sender() {
    let two_senders = TwoSenders::open();
    let [first, second] = two_senders.from;
    for (rx, tag) in [(Rx::msg(8), None), (Rx::tagged(5, 8), Some(5))] {
        two_senders.rx.recv(&rx.clone().from(second).context(1));
        two_senders.rx.recv(&rx.clone().context(2));
        two_senders.rx.recv(&rx.clone().from(first).context(3));
        two_senders.send(0, tag, "a");
        two_senders.send(0, tag, "b");
        two_senders.send(1, tag, "c");
        assert_eq!(two_senders.next(), (2, first, "a".into()));
        assert_eq!(two_senders.next(), (3, first, "b".into()));
        assert_eq!(two_senders.next(), (1, second, "c".into()));
    }
}

#[test]
fn directed_and_undirected_receives_match_in_the_order_of_their_posts() {
    let two_senders = TwoSenders::open();
    let [first, second] = two_senders.from;
    for source in [first, FiAddr::UNSPEC, second, FiAddr::UNSPEC, first] {
        let context = two_senders
            .rx
            .av
            .lookup(source)
            .map_or(0, |_| 10 + source.0);
        two_senders
            .rx
            .recv(&Rx::tagged(1, 8).from(source).context(context));
    }
    for (sender, text) in [(1, "a"), (1, "b"), (0, "c"), (1, "d"), (0, "e")] {
        two_senders.send(sender, Some(1), text);
    }
    let any = 0;
    assert_eq!(two_senders.next(), (any, second, "a".into()));
    assert_eq!(two_senders.next(), (10 + second.0, second, "b".into()));
    assert_eq!(two_senders.next(), (10 + first.0, first, "c".into()));
    assert_eq!(two_senders.next(), (any, second, "d".into()));
    assert_eq!(two_senders.next(), (10 + first.0, first, "e".into()));
}

#[test]
fn directed_receives_pick_their_senders_among_unexpected_messages() {
    let two_senders = TwoSenders::open();
    let [first, second] = two_senders.from;
    for (sender, text) in [(0, "a"), (1, "b"), (0, "c"), (1, "d")] {
        two_senders.send(sender, None, text);
    }
    for (source, text) in [
        (second, "b"),
        (FiAddr::UNSPEC, "a"),
        (second, "d"),
        (first, "c"),
    ] {
        two_senders.rx.recv(&Rx::msg(8).from(source));
        assert_eq!(two_senders.next().2, text);
    }
}

#[test]
fn a_cancelled_receive_completes_once_and_its_message_goes_to_the_next() {
    let pair = provider::with_defaults().pair();
    let receives = [
        Rx::msg(8),
        Rx::msg(8).from(pair.to_a),
        Rx::tagged(0, 8),
        Rx::tagged(TagMatch::ANY, 8).from(pair.to_a),
    ];
    for rx in receives {
        pair.b.recv(&rx.clone().context(1));
        pair.b.recv(&rx.clone().context(2));
        assert_eq!(pair.b.ep.cancel(Context(3)), Err(Errno::NoEnt));
        assert_eq!(pair.b.ep.cancel(Context(1)), Ok(()));
        assert_eq!(pair.b.ep.cancel(Context(1)), Err(Errno::NoEnt));
        let done = pair.wait_at_b();
        assert_eq!(done.error().errno, Errno::Canceled);
        assert_eq!((done.context(), done.error().olen), (1, 0));
        done.assert_bytes(b"");
        let kind = match rx.tag {
            None => pair.a.ep.inject(b"next", pair.to_b, None).map(|()| MSG),
            Some(_) => pair
                .a
                .ep
                .tinject(b"next", pair.to_b, 0, None)
                .map(|()| TAGGED),
        };
        assert_eq!(done.entry().flags, CompletionFlags::RECV | kind.unwrap());
        let done = pair.wait_at_b();
        done.assert_bytes(b"next");
        assert_eq!(done.context(), 2);
        assert_eq!(pair.b.ep.cancel(Context(2)), Err(Errno::NoEnt));
    }
    pair.assert_no_completion();
}

#[test]
fn a_matched_receive_is_not_cancelled() {
    for protocol in ["cma", "bounce"] {
        let pair = provider::with_protocol(protocol).pair();
        let bytes = pattern(1, 8 << 20);
        let tx = Tx::tagged(pair.to_b, 1, &bytes);
        pair.a.send(&tx);
        pair.settle();
        // The message has arrived: the post itself matches it.
        pair.b.recv(&Rx::tagged(1, 8 << 20).context(1));
        assert_eq!(pair.b.ep.cancel(Context(1)), Err(Errno::NoEnt));
        let done = pair.wait_at_b();
        done.assert_entry(received(TAGGED, 1, 8 << 20, 1));
        done.assert_bytes(&bytes);
        pair.wait_at_a().assert_entry(sent(TAGGED, 0));
    }
}

#[test]
fn receives_of_one_context_are_cancelled_one_by_one() {
    let pair = provider::with_defaults().pair();
    for _ in 0..3 {
        pair.b.recv(&Rx::tagged(1, 8).context(1));
    }
    for _ in 0..3 {
        pair.b.ep.cancel(Context(1)).unwrap();
        assert_eq!(pair.wait_at_b().error().errno, Errno::Canceled);
    }
    assert_eq!(pair.b.ep.cancel(Context(1)), Err(Errno::NoEnt));
    pair.assert_no_completion();
}
