//! Peeking at messages, claiming and discarding them.

use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags, TagMatch};
use selvedge_testkit::local::{settle, until};
use selvedge_testkit::random::Random;

use crate::common::{Done, MessagePair, Rx, Tx, pattern, received, sent, with_data};
use crate::provider::{self, PROTOCOLS};

const TAGGED: CompletionFlags = CompletionFlags::TAGGED;
const PEEK: OpFlags = OpFlags::PEEK;
const CLAIM: OpFlags = OpFlags::CLAIM;
const DISCARD: OpFlags = OpFlags::DISCARD;

/// One length for each protocol.
const LENGTHS: [usize; 6] = [0, 8, 49, 4096, 4097, 200_000];

/// Returns a peek for a message with this tag. A peek has no buffer.
fn peek(tag: impl Into<TagMatch>, flags: OpFlags) -> Rx {
    Rx::tagged(tag, 0).flags(flags)
}

/// Asserts that a peek finds no unexpected message.
fn assert_none(pair: &MessagePair, rx: &Rx) {
    pair.b.recv(rx);
    let done = pair.b.poll().expect("a peek completes in the post");
    let error = done.error();
    assert_eq!(error.errno, Errno::NoMsg);
    let tag = rx.tag.map_or(0, |tag| tag.tag);
    assert_eq!(error.entry, received(TAGGED, rx.context, 0, tag));
}

#[test]
fn a_peek_reports_a_message_and_leaves_it() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in LENGTHS {
            let bytes = pattern(1, len);
            assert_none(&pair, &peek(5, PEEK).context(1));
            pair.a
                .send(&Tx::tagged(pair.to_b, 5, &bytes).data(99).context(2));
            for _ in 0..2 {
                pair.settle();
                pair.b.recv(&peek(5, PEEK).context(3));
                let done = pair.b.poll().expect("a peek completes in the post");
                done.assert_entry(with_data(received(TAGGED, 3, len, 5), 99));
                assert_eq!(done.src, pair.to_a);
            }
            pair.b.recv(&Rx::tagged(5, len).context(4));
            let done = pair.wait_at_b();
            done.assert_entry(with_data(received(TAGGED, 4, len, 5), 99));
            done.assert_bytes(&bytes);
            pair.wait_at_a().assert_entry(sent(TAGGED, 2));
            assert_none(&pair, &peek(5, PEEK).context(5));
        }
    }
}

#[test]
fn a_peek_finds_earlier_messages_without_other_progress() {
    let pair = provider::with_defaults().pair();
    pair.a.send(&Tx::tagged(pair.to_b, 1, b"first"));
    pair.b.recv(&Rx::tagged(1, 5));
    pair.wait_at_b();
    pair.a.send(&Tx::tagged(pair.to_b, 5, b"sent"));
    pair.b.recv(&peek(5, PEEK).context(3));
    let done = pair.b.poll().expect("a peek completes in the post");
    done.assert_entry(received(TAGGED, 3, 4, 5));
}

#[test]
fn a_peek_reports_the_oldest_message_that_its_tag_and_source_accept() {
    let sut = provider::with_defaults();
    let (pair, c) = (sut.pair(), sut.endpoint());
    let (to_b, to_c) = (c.insert_endpoint(&pair.b), pair.b.insert_endpoint(&c));
    pair.a.send(&Tx::tagged(pair.to_b, 0x11, b"1"));
    settle(&[&pair.a, &pair.b]);
    c.send(&Tx::tagged(to_b, 0x12, b"22"));
    settle(&[&c, &pair.b]);
    pair.a.send(&Tx::tagged(pair.to_b, 0x12, b"333"));
    settle(&[&pair.a, &pair.b]);
    let masked = TagMatch {
        tag: 0x10,
        ignore: 0xf,
    };
    let any = FiAddr::UNSPEC;
    for (tag, src, len) in [
        (masked, any, 1),
        (masked, to_c, 2),
        (TagMatch::exact(0x12), any, 2),
        (TagMatch::exact(0x12), pair.to_a, 3),
        (TagMatch::ANY, pair.to_a, 1),
    ] {
        pair.b.recv(&peek(tag, PEEK).from(src));
        assert_eq!(pair.b.poll().unwrap().entry().len, len);
    }
    assert_none(&pair, &peek(0x11, PEEK).from(to_c));
    let unknown = peek(0x11, PEEK).from(FiAddr(99));
    assert_eq!(pair.b.try_recv(&unknown), Err(Errno::Inval));
}

/// Messages of the endpoint to itself and of another one, which arrive at any time.
#[test]
fn a_receive_takes_the_message_that_a_peek_has_found() {
    let pair = provider::with_defaults().pair();
    let to_itself = pair.b.insert_endpoint(&pair.b);
    let send = |from_a: bool, len: usize| {
        if from_a {
            pair.a.send(&Tx::tagged(pair.to_b, 5, &pattern(1, len)));
        } else {
            pair.b.send(&Tx::tagged(to_itself, 5, &pattern(2, len)));
        }
    };
    let mut random = Random::new(7);
    for _ in 0..300 {
        let a_is_first = random.below(2) == 0;
        let lens = [(); 2].map(|()| LENGTHS[random.index(LENGTHS.len())]);
        send(a_is_first, lens[0]);
        let second_is_late = random.below(2) == 0;
        if !second_is_late {
            send(!a_is_first, lens[1]);
        }
        for number in 0..2 {
            let peeked = until(|| {
                pair.b.recv(&peek(5, PEEK).context(3));
                until(|| next_at(&pair, 3)).outcome.ok()
            });
            if number == 0 && second_is_late {
                send(!a_is_first, lens[1]);
            }
            pair.b.recv(&Rx::tagged(5, 200_000).context(4));
            let received = until(|| next_at(&pair, 4));
            assert_eq!(received.entry().len, peeked.len);
        }
    }
}

/// Polls both endpoints. Returns a completion of `b` with this context, and drops others.
fn next_at(pair: &MessagePair, context: u64) -> Option<Done> {
    pair.a.poll();
    pair.b.poll().filter(|done| done.context() == context)
}

#[test]
fn a_claimed_message_matches_only_its_claiming_receive() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in LENGTHS {
            let (first, second) = (pattern(1, len), pattern(2, len));
            for bytes in [&first, &second] {
                pair.a.send(&Tx::tagged(pair.to_b, 5, bytes).data(7));
            }
            pair.settle();
            pair.b.recv(&peek(5, PEEK | CLAIM).context(3));
            let mut claimed = with_data(received(TAGGED, 3, len, 5), 7);
            claimed.flags |= CompletionFlags::CLAIM;
            pair.b.poll().unwrap().assert_entry(claimed);
            // Neither a peek nor a receive matches the claimed message.
            pair.b.recv(&Rx::tagged(5, len).context(4));
            let done = pair.wait_at_b();
            assert_eq!(done.context(), 4);
            done.assert_bytes(&second);
            assert_none(&pair, &peek(5, PEEK).context(6));
            let other = Rx::tagged(5, len).context(4).flags(CLAIM);
            assert_eq!(pair.b.try_recv(&other), Err(Errno::NoMsg));
            pair.b.recv(&Rx::tagged(5, len).context(3).flags(CLAIM));
            let done = pair.wait_at_b();
            done.assert_entry(with_data(received(TAGGED, 3, len, 5), 7));
            done.assert_bytes(&first);
            assert_eq!(pair.a.drain(&[&pair.b]).len(), 2);
        }
    }
}

#[test]
fn a_claimed_message_may_be_cut() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in [8, 4096, 200_000] {
            let bytes = pattern(1, len);
            pair.a.send(&Tx::tagged(pair.to_b, 5, &bytes));
            pair.settle();
            pair.b.recv(&peek(5, PEEK | CLAIM).context(3));
            assert_eq!(pair.b.poll().unwrap().entry().len, len);
            pair.b.recv(&Rx::tagged(5, len - 3).context(3).flags(CLAIM));
            let done = pair.wait_at_b();
            assert_eq!((done.error().errno, done.error().olen), (Errno::Trunc, 3));
            done.assert_bytes(&bytes[..len - 3]);
        }
    }
}

#[test]
fn a_discarded_message_is_removed_and_its_send_completes() {
    for protocol in PROTOCOLS {
        for len in LENGTHS {
            let pair = provider::with_protocol(protocol).pair();
            let (first, second) = (pattern(1, len), pattern(2, len));
            let level = OpFlags::DELIVERY_COMPLETE;
            for (context, flags) in [(1, PEEK | DISCARD), (2, PEEK | CLAIM)] {
                let tx = Tx::tagged(pair.to_b, 5, &first).flags(level);
                pair.a.send(&tx.context(context));
                pair.assert_no_completion();
                pair.b.recv(&peek(5, flags).context(9));
                let peeked = pair.b.poll().expect("a peek completes in the post");
                assert_eq!((peeked.context(), peeked.entry().len), (9, len));
                if flags.contains(CLAIM) {
                    pair.assert_no_completion();
                    pair.b.recv(&peek(5, CLAIM | DISCARD).context(9));
                    let peeked = pair.b.poll().expect("a discard completes in the post");
                    assert_eq!((peeked.context(), peeked.entry().len), (9, len));
                }
                pair.wait_at_a().assert_entry(sent(TAGGED, context));
            }
            // The following message is whole, also after eager segments of the discarded one.
            for _ in 0..3 {
                pair.b.recv(&Rx::tagged(5, len).context(4));
                pair.a.send(&Tx::tagged(pair.to_b, 5, &second));
                pair.wait_at_b().assert_bytes(&second);
                pair.wait_at_a();
                pair.a.send(&Tx::tagged(pair.to_b, 5, &first));
                pair.settle();
                pair.b.recv(&peek(5, PEEK | DISCARD));
                assert_eq!(pair.wait_at_b().entry().len, len);
                pair.wait_at_a();
            }
            assert_none(&pair, &peek(5, PEEK));
            pair.assert_no_completion();
        }
    }
}

#[test]
fn messages_of_one_context_are_claimed_first_come_first_served() {
    let pair = provider::with_defaults().pair();
    for number in 0..3u8 {
        pair.a.send(&Tx::tagged(pair.to_b, 5, &[number]));
    }
    pair.settle();
    for _ in 0..3 {
        pair.b.recv(&peek(5, PEEK | CLAIM).context(3));
        pair.b.poll().unwrap();
    }
    for number in 0..3u8 {
        pair.b.recv(&Rx::tagged(5, 1).context(3).flags(CLAIM));
        pair.wait_at_b().assert_bytes(&[number]);
    }
}

#[test]
fn peeks_are_reported_by_selective_queues_too() {
    let pair = provider::with_defaults().pair_with(|_, config| config.rx_selective = true);
    pair.a.send(&Tx::tagged(pair.to_b, 5, b"x"));
    pair.settle();
    pair.b.recv(&peek(5, PEEK | CLAIM).context(3));
    assert_eq!(pair.b.poll().unwrap().entry().len, 1);
    pair.b.recv(&peek(5, CLAIM | DISCARD).context(3));
    assert_eq!(pair.b.poll().unwrap().entry().len, 1);
}

#[test]
fn invalid_combinations_of_flags_are_refused() {
    let pair = provider::with_defaults().pair();
    for flags in [
        DISCARD,
        PEEK | CLAIM | DISCARD,
        PEEK | OpFlags::MULTI_RECV,
        CLAIM | OpFlags::MULTI_RECV,
        PEEK | OpFlags::INJECT,
    ] {
        assert_eq!(pair.b.try_recv(&peek(5, flags)), Err(Errno::BadFlags));
    }
    // Untagged messages cannot be peeked at (fi_msg(3)).
    for flags in [PEEK, CLAIM, PEEK | CLAIM, PEEK | DISCARD] {
        let rx = Rx::msg(0).flags(flags);
        assert_eq!(pair.b.try_recv(&rx), Err(Errno::BadFlags));
    }
    pair.assert_no_completion();
}
