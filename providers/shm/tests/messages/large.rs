//! Large messages block neither small messages nor each other.

use selvedge::{CompletionFlags, OpFlags};

use crate::common::{MessagePair, Rx, Tx, pattern, received, sent};
use crate::provider::{self, PROTOCOLS};

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

const LARGE: usize = 64 << 20;

/// One small message there and one back.
fn ping_pong(pair: &MessagePair) {
    for (sender, receiver, dest) in [(&pair.a, &pair.b, pair.to_b), (&pair.b, &pair.a, pair.to_a)] {
        receiver.recv(&Rx::tagged(1, 8).context(1));
        sender.ep.tinject(b"ping", dest, 1, None).unwrap();
        receiver
            .wait(&[sender])
            .assert_entry(received(TAGGED, 1, 4, 1));
    }
}

#[test]
fn an_unmatched_large_message_does_not_block_others() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let bytes = pattern(1, LARGE);
        pair.a.send(&Tx::tagged(pair.to_b, 2, &bytes).context(2));
        for _ in 0..300 {
            ping_pong(&pair);
        }
        pair.b.recv(&Rx::tagged(2, LARGE).context(3));
        pair.wait_at_b().assert_bytes(&bytes);
        pair.wait_at_a().assert_entry(sent(TAGGED, 2));
    }
}

#[test]
fn small_messages_pass_a_large_one_that_is_moving() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        ping_pong(&pair);
        let bytes = pattern(1, LARGE);
        pair.b.recv(&Rx::msg(LARGE).context(2));
        pair.a.send(&Tx::msg(pair.to_b, &bytes).context(3));
        // If a small message had to wait for the large one, the large one's completion would arrive
        // first.
        for _ in 0..5 {
            ping_pong(&pair);
        }
        let done = pair.wait_at_b();
        done.assert_entry(received(MSG, 2, LARGE, 0));
        done.assert_bytes(&bytes);
        pair.wait_at_a().assert_entry(sent(MSG, 3));
    }
}

#[test]
fn a_message_of_a_new_peer_is_received_while_a_large_message_is_moving() {
    let sut = provider::with_protocol("cma");
    let pair = sut.pair();
    ping_pong(&pair);
    pair.b.recv(&Rx::msg(LARGE).context(2));
    pair.a.send(&Tx::msg(pair.to_b, &vec![7; LARGE]).context(3));
    let late = sut.endpoint();
    let to_b = late.insert_endpoint(&pair.b);
    pair.b.recv(&Rx::tagged(1, 8).context(1));
    late.ep.tinject(b"late", to_b, 1, None).unwrap();
    assert_eq!(pair.wait_at_b().context(), 1);
    assert_eq!(pair.wait_at_b().context(), 2);
}

#[test]
fn several_large_messages_may_be_outstanding_in_both_directions() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let len = |tag: u64| 500_000 * (tag as usize % 5 + 1) + 13;
        for tag in 0..8 {
            for (sender, receiver, dest) in
                [(&pair.a, &pair.b, pair.to_b), (&pair.b, &pair.a, pair.to_a)]
            {
                receiver.recv(&Rx::tagged(tag, len(tag)).context(tag));
                let bytes = pattern(tag, len(tag));
                sender.send(&Tx::tagged(dest, tag, &bytes).context(100));
            }
        }
        for (side, other) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let completions = side.drain(&[other]);
            assert_eq!(completions.len(), 16);
            for done in completions.iter().filter(|done| done.context() < 100) {
                let tag = done.context();
                done.assert_entry(received(TAGGED, tag, len(tag), tag));
                done.assert_bytes(&pattern(tag, len(tag)));
            }
        }
    }
}

/// After a message was bounced, the sender fills eager segments for later messages of its size
/// class.
#[test]
fn full_windows_of_large_messages_follow_each_other() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let bytes = pattern(1, 40_000);
        let tx = Tx::msg(pair.to_b, &bytes).flags(OpFlags::DELIVERY_COMPLETE);
        for _ in 0..4 {
            pair.b.recv(&Rx::msg(40_000));
            pair.a.send(&tx);
            pair.wait_at_b().assert_bytes(&bytes);
            pair.wait_at_a().outcome.expect("delivered");
        }
        let (mut posted, mut done) = (0, 0);
        while done < 2000 {
            while pair.a.try_send(&tx.clone().context(posted)).is_ok() {
                pair.b.recv(&Rx::msg(40_000).context(posted));
                posted += 1;
            }
            for received in pair.b.take(1000) {
                received.outcome.as_ref().expect("delivered");
                received.assert_bytes(&bytes);
            }
            for sent in pair.a.take(1000) {
                sent.outcome.expect("delivered");
                done += 1;
            }
        }
    }
}

/// The segments of a large message may arrive long before its command, which waits for room at the
/// receiver.
#[test]
fn segments_of_a_message_that_waits_for_room_do_not_block_others() {
    let params = [
        ("FI_SHM_PROTOCOL", "bounce"),
        ("FI_SHM_UNEXPECTED_SIZE", "2000"),
    ];
    let pair = provider::with_params(&params, &provider::hints()).pair();
    const LEN: usize = 1 << 20;
    let bytes = pattern(1, LEN);
    let large = |tag| Tx::tagged(pair.to_b, tag, &bytes).context(tag);
    pair.b.recv(&Rx::tagged(0, LEN));
    pair.a.send(&large(0));
    pair.wait_at_b();
    pair.wait_at_a();
    pair.b.recv(&Rx::tagged(1, LEN).context(1));
    pair.a.send(&large(1));
    for _ in 0..4 {
        pair.a.send(&Tx::msg(pair.to_b, &bytes[..1000]));
        pair.wait_at_a();
    }
    pair.a.send(&large(2));
    let done = pair.wait_at_b();
    done.assert_entry(received(TAGGED, 1, LEN, 1));
    done.assert_bytes(&bytes);
    for _ in 0..4 {
        pair.b.recv(&Rx::msg(1000));
        pair.wait_at_b().assert_bytes(&bytes[..1000]);
    }
    pair.b.recv(&Rx::tagged(2, LEN).context(2));
    pair.wait_at_b().assert_bytes(&bytes);
    assert_eq!(pair.a.drain(&[&pair.b]).len(), 2);
}

#[test]
fn unexpected_large_messages_with_eager_segments_do_not_block_others() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let bytes = pattern(1, 100_000);
        let tx = Tx::msg(pair.to_b, &bytes).flags(OpFlags::DELIVERY_COMPLETE);
        for _ in 0..3 {
            pair.b.recv(&Rx::msg(100_000));
            pair.a.send(&tx);
            pair.wait_at_b();
            pair.wait_at_a();
        }
        for context in 0..20 {
            pair.a.send(&tx.clone().context(context));
        }
        pair.settle();
        ping_pong(&pair);
        let other = pattern(2, 100_000);
        pair.b.recv(&Rx::tagged(2, 100_000).context(4));
        pair.a.send(&Tx::tagged(pair.to_b, 2, &other).context(50));
        pair.wait_at_b().assert_bytes(&other);
        for context in 0..20 {
            pair.b.recv(&Rx::msg(100_000).context(context));
            let done = pair.wait_at_b();
            assert_eq!(done.context(), context);
            done.assert_bytes(&bytes);
        }
        assert_eq!(pair.a.drain(&[&pair.b]).len(), 21);
    }
}
