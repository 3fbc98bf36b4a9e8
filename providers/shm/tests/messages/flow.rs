//! Full queues: posts fail with `Again`, and no message is lost, duplicated or reordered.

use std::iter;

use selvedge::Errno;
use selvedge_testkit::random::Random;

use crate::common::{MessagePair, Rx, Sut, Tx, pattern};
use crate::provider;

/// Returns the bytes of a message: its number, and a pattern of `len` bytes.
fn numbered(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(pattern(number, len));
    bytes
}

/// Sends messages from the number `first` on until a post fails with `Again`. Returns the number of
/// the next message.
fn flood(pair: &MessagePair, first: u64, len: usize) -> u64 {
    let mut number = first;
    loop {
        let tx = Tx::msg(pair.to_b, &numbered(number, len)).context(number);
        match pair.a.try_send(&tx) {
            Ok(()) => number += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::Again);
                return number;
            }
        }
    }
}

/// Receives the messages `first..end`, in order.
fn collect(pair: &MessagePair, first: u64, end: u64, len: usize) {
    for number in first..end {
        pair.b.recv(&Rx::msg(len + 8).context(number));
    }
    let mut done: Vec<_> = (first..end).map(|_| pair.wait_at_b()).collect();
    // Large messages may complete in another order than they match.
    done.sort_by_key(|done| done.context());
    for (number, done) in (first..end).zip(done) {
        assert_eq!(done.context(), number);
        done.assert_bytes(&numbered(number, len));
    }
}

/// Floods and drains in turns, and checks that every send completes exactly once.
fn flood_and_drain(sut: &Sut, len: usize) {
    let pair = sut.pair();
    let (mut sent, mut completed) = (0, Vec::new());
    for round in 0..4 {
        let before = sent;
        sent = flood(&pair, sent, len);
        assert!(sent > before, "no room after draining in round {round}");
        if round % 2 == 0 {
            pair.settle();
            sent = flood(&pair, sent, len);
        }
        collect(&pair, before, sent, len);
        completed.extend(pair.a.drain(&[&pair.b]).iter().map(|done| done.context()));
    }
    completed.sort_unstable();
    assert!(completed.into_iter().eq(0..sent));
    pair.assert_no_completion();
}

#[test]
fn a_flood_of_any_size_stops_and_continues() {
    for len in [0, 100, 4000] {
        flood_and_drain(&provider::with_defaults(), len);
    }
    for protocol in provider::PROTOCOLS {
        flood_and_drain(&provider::with_protocol(protocol), 20_000);
    }
}

#[test]
fn a_queue_that_is_never_empty_continues() {
    let pair = provider::with_defaults().pair();
    let (mut sent, mut received) = (0, 0);
    for _ in 0..12 {
        sent = flood(&pair, sent, 100);
        collect(&pair, received, received + 100, 100);
        received += 100;
        while pair.a.poll().is_some() {}
    }
    assert!(sent > received, "the queue was full to the end");
    collect(&pair, received, sent, 100);
}

#[test]
fn the_smallest_queues_are_enough() {
    let small = [
        ("FI_SHM_CMD_COUNT", "16"),
        ("FI_SHM_POOL_SIZE", "4096"),
        ("FI_SHM_SEGMENT_COUNT", "2"),
        ("FI_SHM_SEGMENT_SIZE", "4096"),
        ("FI_SHM_PROTOCOL", "bounce"),
    ];
    for len in [0, 100, 4000, 20_000] {
        flood_and_drain(&provider::with_params(&small, &provider::hints()), len);
    }
}

#[test]
fn small_inject_sizes_are_enough() {
    let small = [
        ("FI_SHM_INLINE_SIZE", "0"),
        ("FI_SHM_INJECT_SIZE", "64"),
        ("FI_SHM_POOL_SIZE", "4096"),
    ];
    for len in [0, 50, 100] {
        flood_and_drain(&provider::with_params(&small, &provider::hints()), len);
    }
}

#[test]
fn unexpected_messages_beyond_their_limit_make_the_sender_wait() {
    let params = [("FI_SHM_UNEXPECTED_SIZE", "10000")];
    let pair = provider::with_params(&params, &provider::hints()).pair();
    let mut sent = 0;
    loop {
        let before = sent;
        sent = flood(&pair, sent, 1000);
        pair.a.drain(&[&pair.b]);
        if sent == before {
            break;
        }
    }
    // The sent messages are the unexpected ones that the receiver keeps, and those in its queues.
    assert!(sent < 400, "{sent} messages were accepted");
    collect(&pair, 0, sent, 1000);
    let end = flood(&pair, sent, 1000);
    assert!(end > sent);
    collect(&pair, sent, end, 1000);
}

#[test]
fn a_message_larger_than_the_limit_is_kept_when_it_is_alone() {
    let params = [("FI_SHM_UNEXPECTED_SIZE", "100")];
    let pair = provider::with_params(&params, &provider::hints()).pair();
    for number in 0..3 {
        pair.a
            .send(&Tx::tagged(pair.to_b, number, &numbered(number, 4000)));
    }
    pair.settle();
    for number in 0..3 {
        pair.b.recv(&Rx::tagged(number, 4008));
        pair.wait_at_b().assert_bytes(&numbered(number, 4000));
    }
}

#[test]
fn a_full_completion_queue_makes_posts_wait_and_receives_too() {
    let pair = provider::with_defaults().pair_with(|context, config| {
        config.rx = Some(context.queue(4).unwrap());
    });
    assert_eq!(flood(&pair, 0, 0), 4);
    let mut sent = 4;
    for number in 0..40 {
        pair.b.recv(&Rx::msg(8).context(number));
    }
    while sent < 40 {
        let end = flood(&pair, sent, 0);
        assert!(end <= sent + 4);
        sent = end;
        pair.b.progress();
        while pair.a.poll().is_some() {}
    }
    // The receiver has read no completion yet: its queue holds a few completions, and the other
    // messages wait.
    for number in 0..sent.min(40) {
        let done = pair.wait_at_b();
        assert_eq!(done.context(), number);
        done.assert_bytes(&number.to_le_bytes());
    }
}

#[test]
fn injects_wait_for_room_too() {
    let pair = provider::with_defaults().pair();
    let mut sent = 0_u64;
    while pair.a.ep.inject(&sent.to_le_bytes(), pair.to_b, None) == Ok(()) {
        sent += 1;
    }
    assert!(sent > 16);
    collect(&pair, 0, sent, 0);
    pair.a
        .ep
        .inject(&sent.to_le_bytes(), pair.to_b, None)
        .unwrap();
    collect(&pair, sent, sent + 1, 0);
}

#[test]
fn floods_in_both_directions_do_not_stop_each_other() {
    let pair = provider::with_defaults().pair();
    let mut random = Random::new(5);
    let mut done = [Vec::new(), Vec::new()];
    for number in 0..3000 {
        let len = *random.pick(&[1, 30, 500, 4000, 9000]);
        for (sender, receiver, dest) in
            [(&pair.a, &pair.b, pair.to_b), (&pair.b, &pair.a, pair.to_a)]
        {
            receiver.recv(&Rx::tagged(number, len).context(number));
            let tx = Tx::tagged(dest, number, &pattern(number, len)).context(number);
            sender.send_retrying(&tx, &[receiver]);
        }
        done[0].extend(iter::from_fn(|| pair.a.poll()));
        done[1].extend(iter::from_fn(|| pair.b.poll()));
    }
    done[0].extend(pair.a.drain(&[&pair.b]));
    done[1].extend(pair.b.drain(&[&pair.a]));
    for done in done {
        assert_eq!(done.len(), 6000);
        for done in done.iter().filter(|done| !done.bytes.is_empty()) {
            assert!(done.bytes == pattern(done.context(), done.bytes.len()));
        }
    }
}

#[test]
fn messages_sent_before_a_sender_closed_arrive() {
    for is_connected in [false, true] {
        let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
        if is_connected {
            a.ep.inject(&numbered(9, 0), to_b, None).unwrap();
            b.recv(&Rx::msg(8));
            b.wait(&[&a]).assert_bytes(&numbered(9, 0));
        }
        for number in 0..5 {
            let len = 700 * number as usize;
            a.send(&Tx::msg(to_b, &numbered(number, len)));
            a.wait(&[]);
        }
        drop(a);
        for number in 0..5 {
            b.recv(&Rx::msg(3000));
            let len = 700 * number as usize;
            b.wait(&[]).assert_bytes(&numbered(number, len));
        }
    }
}

#[test]
fn a_flooding_sender_does_not_use_the_quota_of_other_senders() {
    let params = [("FI_SHM_UNEXPECTED_SIZE", "1m")];
    let sut = provider::with_params(&params, &provider::hints());
    let (pair, others) = (sut.pair(), [sut.endpoint(), sut.endpoint()]);
    let to = others
        .each_ref()
        .map(|other| other.insert_endpoint(&pair.b));
    // All senders are connected before the flood.
    for (other, &to) in others.iter().zip(&to) {
        pair.b.recv(&Rx::tagged(1, 8));
        other.send(&Tx::tagged(to, 1, b"here"));
        pair.b.wait(&[other]);
        other.wait(&[&pair.b]);
    }
    let mut flooded = 0;
    loop {
        let before = flooded;
        flooded = flood(&pair, flooded, 1000);
        pair.settle();
        pair.a.drain(&[&pair.b]);
        if flooded == before {
            break;
        }
    }
    assert!(
        flooded > 500,
        "only {flooded} messages of the flood were kept"
    );
    // The receiver has room for more messages of each sender than the sender's queue holds, so the
    // queue does not fill.
    let messages_per_sender = 300;
    for (other, &to) in others.iter().zip(&to) {
        for number in 0..messages_per_sender {
            let tx = Tx::tagged(to, 2, &numbered(number, 16));
            other.send_retrying(&tx, &[&pair.b]);
            other.wait(&[&pair.b]);
        }
    }
    for other in &others {
        for number in 0..messages_per_sender {
            let source = pair.b.insert_endpoint(other);
            pair.b.recv(&Rx::tagged(2, 24).from(source));
            pair.b.wait(&[]).assert_bytes(&numbered(number, 16));
        }
    }
    collect(&pair, 0, flooded, 1000);
}
