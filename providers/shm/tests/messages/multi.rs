//! Multi-receive buffers: one post, many messages.

use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Context, EpOption, EpOptionName, Errno, OpFlags, TagMatch};

use crate::common::{Done, MessageEndpoint, MessagePair, Rx, Tx, pattern, received, with_data};
use crate::provider::{self, PROTOCOLS};

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;
const MULTI: CompletionFlags = CompletionFlags::MULTI_RECV;

/// A multi-receive buffer of `size` bytes.
fn multi(size: usize) -> Rx {
    Rx::msg(size).flags(OpFlags::MULTI_RECV)
}

/// Sets the least free space with which a multi-receive buffer stays posted.
fn set_least(side: &MessageEndpoint, least: usize) {
    side.ep.set(EpOption::MinMultiRecv(least)).unwrap();
}

fn is_released(done: &Done) -> bool {
    done.entry().flags.contains(MULTI)
}

/// The entry without its address, which was used to find the bytes of [`Done`].
fn entry(done: &Done) -> Entry {
    let entry = done.outcome.as_ref().expect("a success was due");
    Entry { buf: 0, ..*entry }
}

#[test]
fn a_multi_receive_buffer_takes_messages_until_too_little_is_left() {
    for len in [1, 8, 48, 49, 4096] {
        let pair = provider::with_defaults().pair();
        set_least(&pair.b, len);
        pair.b.recv(&multi(3 * len + len - 1).context(7));
        let base = |done: &Done| done.entry().buf;
        let mut bufs = Vec::new();
        for number in 0..3 {
            let bytes = pattern(number, len);
            pair.a.send(&Tx::msg(pair.to_b, &bytes).data(number));
            let done = pair.wait_at_b();
            let mut expected = with_data(received(MSG, 7, len, 0), number);
            if number == 2 {
                expected.flags |= MULTI;
            }
            assert_eq!(entry(&done), expected);
            assert_eq!(done.src, pair.to_a);
            done.assert_bytes(&bytes);
            bufs.push(base(&done));
            pair.wait_at_a();
        }
        assert_eq!(bufs[1] - bufs[0], len);
        assert_eq!(bufs[2] - bufs[1], len);
        pair.a.send(&Tx::msg(pair.to_b, b"x"));
        pair.wait_at_a();
        pair.assert_no_completion();
    }
}

#[test]
fn unexpected_messages_fill_a_multi_receive_buffer_in_their_order() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        set_least(&pair.b, 1);
        let lens = [10, 0, 5000, 48, 100_000, 200, 60_000, 8];
        for (number, &len) in (0..).zip(&lens) {
            pair.a.send(&Tx::msg(pair.to_b, &pattern(number, len)));
        }
        pair.settle();
        pair.b.recv(&multi(lens.iter().sum()).context(7));
        let mut parts: Vec<_> = lens.iter().map(|_| pair.wait_at_b()).collect();
        assert!(is_released(&parts[lens.len() - 1]));
        assert_eq!(parts.iter().filter(|done| is_released(done)).count(), 1);
        parts.sort_by_key(|done| (done.entry().buf, done.entry().len));
        // The empty message (number 1) has the same offset as number 2; the sort puts it first.
        for (number, done) in [0, 1, 2, 3, 4, 5, 6, 7].into_iter().zip(&parts) {
            done.assert_bytes(&pattern(number, lens[number as usize]));
        }
    }
}

#[test]
fn small_messages_go_behind_a_large_one_that_is_still_moving() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        set_least(&pair.b, 64);
        let large = pattern(1, 3 << 20);
        pair.b.recv(&multi(large.len() + 100).context(7));
        pair.a.send(&Tx::msg(pair.to_b, &large).context(1));
        pair.a.send(&Tx::msg(pair.to_b, b"behind it").context(2));
        pair.a.send(&Tx::msg(pair.to_b, &pattern(2, 30)).context(3));
        let mut done: Vec<_> = (0..3).map(|_| pair.wait_at_b()).collect();
        let large_arrived = done.iter().position(|done| done.entry().len == large.len());
        let released = done.iter().position(is_released).expect("it is given back");
        assert_eq!(released, 2, "given back before its last message is there");
        if provider::SMALL_MAY_OVERTAKE_LARGE {
            assert_ne!(large_arrived, Some(0), "nothing has passed the large one");
        }
        done.sort_by_key(|done| done.entry().buf);
        done[0].assert_bytes(&large);
        done[1].assert_bytes(b"behind it");
        done[2].assert_bytes(&pattern(2, 30));
    }
}

#[test]
fn a_message_that_does_not_fit_the_rest_is_cut_and_gives_the_buffer_back() {
    for protocol in PROTOCOLS {
        for len in [30, 3000, 300_000] {
            let pair = provider::with_protocol(protocol).pair();
            set_least(&pair.b, 1);
            let (first, second) = (pattern(1, len), pattern(2, len));
            pair.b.recv(&multi(len + len / 2).context(7));
            pair.a.send(&Tx::msg(pair.to_b, &first));
            pair.wait_at_b().assert_bytes(&first);
            pair.a.send(&Tx::msg(pair.to_b, &second));
            let done = pair.wait_at_b();
            let error = done.error();
            assert_eq!((error.errno, error.olen), (Errno::Trunc, len - len / 2));
            assert!(is_released(&done));
            done.assert_bytes(&second[..len / 2]);
        }
    }
}

#[test]
fn receives_and_multi_receive_buffers_take_in_the_order_of_their_posts() {
    let pair = provider::with_defaults().pair();
    set_least(&pair.b, 8);
    pair.b.recv(&Rx::msg(8).context(1));
    pair.b.recv(&multi(16).context(2));
    pair.b.recv(&Rx::msg(8).context(3));
    pair.b.recv(&multi(8).context(4));
    pair.b.recv(&Rx::msg(8).context(5));
    for (number, context) in [1, 2, 2, 3, 4, 5].into_iter().enumerate() {
        let bytes = (number as u64).to_le_bytes();
        pair.a.send(&Tx::msg(pair.to_b, &bytes));
        let done = pair.wait_at_b();
        assert_eq!(done.context(), context);
        done.assert_bytes(&bytes);
    }
}

#[test]
fn tagged_and_directed_multi_receive_buffers_take_their_messages_alone() {
    let sut = provider::with_defaults();
    let (pair, c) = (sut.pair(), sut.endpoint());
    let to_b = c.insert_endpoint(&pair.b);
    set_least(&pair.b, 8);
    let tag = TagMatch {
        tag: 0x10,
        ignore: 0xf,
    };
    let flags = OpFlags::MULTI_RECV;
    let rx = Rx::tagged(tag, 16).flags(flags).from(pair.to_a);
    pair.b.recv(&rx.context(1));
    c.send(&Tx::tagged(to_b, 0x11, b"stranger"));
    pair.a.send(&Tx::tagged(pair.to_b, 0x21, b"otherwise"));
    pair.a.send(&Tx::msg(pair.to_b, b"untagged"));
    for (tag, bytes) in [(0x12, b"the first"), (0x13, b"a second!")] {
        pair.a.send(&Tx::tagged(pair.to_b, tag, &bytes[..8]));
        let done = pair.b.wait(&[&pair.a, &c]);
        done.assert_bytes(&bytes[..8]);
        let mut expected = received(TAGGED, 1, 8, tag);
        if tag == 0x13 {
            expected.flags |= MULTI;
        }
        assert_eq!(entry(&done), expected);
    }
    selvedge_testkit::local::settle(&[&pair.b, &c]);
    assert!(pair.b.poll().is_none());
}

#[test]
fn a_cancelled_multi_receive_buffer_is_released_when_its_messages_are_complete() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        pair.b.recv(&multi(4 << 20).context(7));
        pair.a.send(&Tx::msg(pair.to_b, b"small"));
        pair.wait_at_b().assert_bytes(b"small");
        pair.b.ep.cancel(Context(7)).unwrap();
        let done = pair.wait_at_b();
        assert_eq!(done.error().errno, Errno::Canceled);
        assert!(is_released(&done));
        assert_eq!(pair.b.ep.cancel(Context(7)), Err(Errno::NoEnt));

        let large = pattern(1, 2 << 20);
        pair.a.send(&Tx::msg(pair.to_b, &large));
        pair.settle();
        // The posted buffer takes the message, and is cancelled while the message moves.
        pair.b.recv(&multi(4 << 20).context(8));
        pair.b.ep.cancel(Context(8)).unwrap();
        let (first, last) = (pair.wait_at_b(), pair.wait_at_b());
        let (cancelled, arrived) = match &first.outcome {
            Err(_) => (&first, &last),
            Ok(_) => (&last, &first),
        };
        assert_eq!(cancelled.error().errno, Errno::Canceled);
        arrived.assert_bytes(&large);
        assert!(!is_released(&first));
        assert!(is_released(&last));
    }
}

#[test]
fn the_least_of_a_multi_receive_buffer_is_an_option() {
    let pair = provider::with_defaults().pair();
    let least = |side: &MessageEndpoint| side.ep.option(EpOptionName::MinMultiRecv);
    // The domain reports the default before an endpoint is opened.
    let info = provider::with_defaults().info();
    let domain = info.open().unwrap();
    let described = domain.option(&info, EpOptionName::MinMultiRecv);
    assert!(described.is_ok());
    assert_eq!(least(&pair.b), described);
    set_least(&pair.b, 77);
    assert_eq!(least(&pair.b), Ok(EpOption::MinMultiRecv(77)));
    let other = EpOption::MaxMsgSize(1);
    assert_eq!(pair.b.ep.set(other), Err(Errno::NoProtoOpt));
    // A buffer takes at least one message, and a buffer without room takes an empty one.
    for (size, len) in [(10, 5), (0, 0)] {
        pair.b.recv(&multi(size).context(1));
        pair.a.send(&Tx::msg(pair.to_b, &pattern(1, len)));
        let done = pair.wait_at_b();
        assert_eq!(entry(&done).len, len);
        assert!(is_released(&done));
    }
    // With a least space of 0, a buffer is used up to its last byte.
    set_least(&pair.b, 0);
    pair.b.recv(&multi(2).context(1));
    for is_last in [false, true] {
        pair.a.send(&Tx::msg(pair.to_b, b"x"));
        assert_eq!(is_released(&pair.wait_at_b()), is_last);
    }
}

#[test]
fn a_multi_receive_buffer_is_one_segment() {
    let pair = provider::with_defaults().pair();
    let rx = multi(100).cut(&[50]);
    assert_eq!(pair.b.try_recv(&rx), Err(Errno::Inval));
    let mut rx = multi(0);
    rx.sizes.clear();
    pair.b.recv(&rx.context(1));
    pair.a.send(&Tx::msg(pair.to_b, b""));
    assert!(is_released(&pair.wait_at_b()));
}

#[test]
fn selective_queues_report_the_end_of_a_multi_receive_buffer() {
    let pair = provider::with_defaults().pair_with(|_, config| config.rx_selective = true);
    set_least(&pair.b, 8);
    pair.b.recv(&multi(24).context(7));
    for _ in 0..3 {
        pair.a.send(&Tx::msg(pair.to_b, b"12345678"));
        pair.wait_at_a();
    }
    let done = pair.wait_at_b();
    assert!(is_released(&done));
    pair.assert_no_completion();
}

#[test]
fn the_default_flag_makes_untagged_receives_multi_receive_buffers() {
    let hints = provider::hints().edit(|info| info.rx_attr.op_flags = OpFlags::MULTI_RECV);
    let pair = provider::with_params(&[], &hints).pair();
    set_least(&pair.b, 8);
    let flags = OpFlags::DEFAULT | OpFlags::MULTI_RECV;
    pair.b.recv(&Rx::msg(16).flags(flags).context(1));
    pair.b.recv(&Rx::tagged(5, 16).context(2));
    for is_last in [false, true] {
        pair.a.send(&Tx::msg(pair.to_b, b"12345678"));
        assert_eq!(is_released(&pair.wait_at_b()), is_last);
        pair.wait_at_a();
    }
    pair.a.send(&Tx::tagged(pair.to_b, 5, b"12345678"));
    pair.wait_at_b().assert_entry(received(TAGGED, 2, 8, 5));
}

#[test]
fn thousands_of_messages_fill_a_ring_of_multi_receive_buffers() {
    for protocol in PROTOCOLS {
        let pair: MessagePair = provider::with_protocol(protocol).pair();
        set_least(&pair.b, 5000);
        let size = 64 << 10;
        for context in 0..2 {
            pair.b.recv(&multi(size).context(context));
        }
        let lens = |number: u64| [8, 200, 5000, 48, 0][number as usize % 5];
        let (mut sent, mut arrived) = (0, Vec::new());
        while arrived.len() < 2000 {
            let tx = Tx::msg(pair.to_b, &pattern(sent, lens(sent))).data(sent);
            if sent < 2000 && pair.a.try_send(&tx).is_ok() {
                sent += 1;
            }
            while let Some(done) = pair.b.poll() {
                let number = done.entry().data;
                done.assert_bytes(&pattern(number, lens(number)));
                if is_released(&done) {
                    pair.b.recv(&multi(size).context(done.context()));
                }
                arrived.push(number);
            }
            while pair.a.poll().is_some() {}
        }
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..2000));
    }
}
