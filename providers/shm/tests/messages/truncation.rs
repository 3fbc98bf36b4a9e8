//! Messages that are longer than their receives.

use selvedge::{CompletionFlags, Errno};

use crate::common::{MessagePair, Rx, Tx, pattern, received, sent, with_data};
use crate::provider::{self, PROTOCOLS, SIZES};

const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

/// Returns buffer sizes that are too small for a message of `len` bytes.
fn short_sizes(len: usize) -> impl Iterator<Item = usize> {
    [0, 1, len / 2, len - 1]
        .into_iter()
        .filter(move |&size| size < len)
}

fn check_truncated(pair: &MessagePair, tx: &Tx, rx: &Rx, is_late: bool) {
    let bytes = tx.segments.concat();
    let size = rx.sizes.iter().sum();
    if is_late {
        pair.a.send(tx);
        pair.settle();
        pair.b.recv(rx);
    } else {
        pair.b.recv(rx);
        pair.a.send(tx);
    }
    let done = pair.wait_at_b();
    let error = done.error();
    assert_eq!(error.errno, Errno::Trunc);
    assert_eq!(error.olen, bytes.len() - size);
    let expected = received(TAGGED, rx.context, size, 1);
    assert_eq!(error.entry, with_data(expected, 77));
    assert_eq!(done.src, pair.to_a);
    assert!(!error.detail.is_empty());
    done.assert_bytes(&bytes[..size]);
    pair.wait_at_a().assert_entry(sent(TAGGED, tx.context));
}

#[test]
fn bytes_that_fit_are_delivered_and_the_rest_is_counted() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in SIZES.into_iter().filter(|&len| len > 0) {
            let tx = Tx::tagged(pair.to_b, 1, &pattern(1, len)).data(77);
            for size in short_sizes(len) {
                let rx = Rx::tagged(1, size).context(2);
                check_truncated(&pair, &tx.clone().context(3), &rx, false);
            }
        }
    }
}

#[test]
fn unexpected_messages_are_truncated_like_expected_ones() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in [1, 49, 4096, 4097, 100_000] {
            let tx = Tx::tagged(pair.to_b, 1, &pattern(1, len)).data(77);
            for size in short_sizes(len) {
                let rx = Rx::tagged(1, size).context(2);
                check_truncated(&pair, &tx.clone().context(3), &rx, true);
            }
        }
    }
}

#[test]
fn a_cut_may_go_through_the_middle_of_segments() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for len in [30, 3000, 100_000] {
            let tx = Tx::tagged(pair.to_b, 1, &pattern(1, len)).data(77);
            let rx = Rx::tagged(1, len - 10).cut(&[7, 0, len / 3]);
            check_truncated(&pair, &tx.cut(&[11, 1]).context(3), &rx, false);
        }
    }
}

#[test]
fn the_next_message_is_whole_again() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let bytes = pattern(1, 200_000);
        pair.b.recv(&Rx::msg(10).context(1));
        pair.b.recv(&Rx::msg(200_000).context(2));
        for context in [3, 4] {
            pair.a.send(&Tx::msg(pair.to_b, &bytes).context(context));
        }
        let (first, second) = (pair.wait_at_b(), pair.wait_at_b());
        let (cut, whole) = match first.context() {
            1 => (first, second),
            _ => (second, first),
        };
        assert_eq!((cut.context(), cut.error().olen), (1, 199_990));
        assert_eq!(whole.context(), 2);
        whole.assert_bytes(&bytes);
        pair.wait_at_a();
        pair.wait_at_a();
    }
}
