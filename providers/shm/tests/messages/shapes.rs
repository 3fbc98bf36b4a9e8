//! Every size by every protocol, in segments that differ between the two sides.

use selvedge::{CompletionFlags, Errno, FiAddr, OpFlags};
use selvedge_testkit::random::Random;

use crate::common::{MessagePair, Rx, Tx, pattern, received, sent};
use crate::provider::{self, PROTOCOLS, SIZES};

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

/// Sends and receives one message, and checks both completions.
fn exchange(pair: &MessagePair, tx: &Tx, rx: &Rx) {
    let bytes = tx.segments.concat();
    pair.b.recv(rx);
    pair.a.send_retrying(tx, &[&pair.b]);
    let done = pair.wait_at_b();
    done.assert_entry(received(TAGGED, rx.context, bytes.len(), tx.tag.unwrap()));
    done.assert_bytes(&bytes);
    pair.wait_at_a().assert_entry(sent(TAGGED, tx.context));
}

#[test]
fn every_size_arrives_by_every_protocol() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for round in 0..3 {
            for size in SIZES {
                let bytes = pattern(round, size);
                let tx = Tx::tagged(pair.to_b, 5, &bytes).context(1);
                exchange(&pair, &tx, &Rx::tagged(5, size).context(2));
            }
        }
    }
}

#[test]
fn a_message_may_be_received_into_a_larger_buffer() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        for size in SIZES {
            let tx = Tx::tagged(pair.to_b, 5, &pattern(7, size));
            exchange(&pair, &tx, &Rx::tagged(5, size + 5000));
        }
    }
}

/// Returns up to three sizes of segments, some of them 0.
fn random_cuts(random: &mut Random, size: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    for _ in 0..random.index(4) {
        sizes.push(match random.index(3) {
            0 => 0,
            1 => random.index(9),
            _ => random.index(size + 1),
        });
    }
    sizes
}

#[test]
fn segments_of_both_sides_need_not_agree() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let mut random = Random::new(1);
        for _ in 0..8 {
            for size in SIZES {
                let (send_cuts, recv_cuts) = (
                    random_cuts(&mut random, size),
                    random_cuts(&mut random, size),
                );
                let tx = Tx::tagged(pair.to_b, 5, &pattern(3, size)).cut(&send_cuts);
                exchange(&pair, &tx, &Rx::tagged(5, size + 2).cut(&recv_cuts));
            }
        }
    }
}

#[test]
fn unexpected_messages_in_segments_arrive_too() {
    for protocol in PROTOCOLS {
        let pair = provider::with_protocol(protocol).pair();
        let mut random = Random::new(2);
        for size in SIZES {
            let bytes = pattern(4, size);
            let cut = random_cuts(&mut random, size);
            pair.a.send(&Tx::msg(pair.to_b, &bytes).cut(&cut));
            pair.settle();
            let cut = random_cuts(&mut random, size);
            pair.b.recv(&Rx::msg(size).cut(&cut).context(3));
            let done = pair.wait_at_b();
            done.assert_entry(received(MSG, 3, size, 0));
            done.assert_bytes(&bytes);
            pair.wait_at_a().assert_entry(sent(MSG, 0));
        }
    }
}

#[test]
fn a_message_without_segments_is_empty() {
    let pair = provider::with_defaults().pair();
    let mut tx = Tx::msg(pair.to_b, b"");
    tx.segments.clear();
    let mut rx = Rx::msg(0);
    rx.sizes.clear();
    pair.b.recv(&rx);
    pair.a.send(&tx);
    pair.wait_at_b().assert_entry(received(MSG, 0, 0, 0));
}

#[test]
fn more_segments_than_the_limit_are_refused() {
    let sut = provider::with_defaults();
    let info = sut.info();
    let pair = sut.pair();
    let mut tx = Tx::msg(pair.to_b, b"");
    tx.segments = vec![vec![1]; info.tx_attr.iov_limit + 1];
    assert_eq!(pair.a.try_send(&tx), Err(Errno::Inval));
    tx.tag = Some(1);
    assert_eq!(pair.a.try_send(&tx), Err(Errno::Inval));
    let mut rx = Rx::msg(0);
    rx.sizes = vec![1; info.rx_attr.iov_limit + 1];
    assert_eq!(pair.b.try_recv(&rx), Err(Errno::Inval));
    rx.tag = Some(1.into());
    assert_eq!(pair.b.try_recv(&rx), Err(Errno::Inval));
    pair.assert_no_completion();
}

#[test]
fn every_size_is_received_from_the_endpoint_itself() {
    for protocol in PROTOCOLS {
        let side = provider::with_protocol(protocol).endpoint();
        let self_addr = side.insert_endpoint(&side);
        for size in SIZES {
            let bytes = pattern(9, size);
            side.recv(&Rx::msg(size).context(1));
            side.send_retrying(&Tx::msg(self_addr, &bytes).context(2), &[]);
            let mut done = [side.wait(&[]), side.wait(&[])];
            done.sort_by_key(|done| done.context());
            done[0].assert_entry(received(MSG, 1, size, 0));
            done[0].assert_bytes(&bytes);
            assert_eq!(done[0].src, self_addr);
            done[1].assert_entry(sent(MSG, 2));
            assert_eq!(done[1].src, FiAddr::UNSPEC);
        }
    }
}

#[test]
fn messages_and_receives_with_the_more_flag_complete() {
    let pair = provider::with_defaults().pair();
    for size in SIZES {
        let bytes = pattern(11, size);
        pair.b.recv(&Rx::msg(size).flags(OpFlags::MORE).context(1));
        pair.b.recv(&Rx::msg(size).context(2));
        let tx = Tx::msg(pair.to_b, &bytes);
        pair.a.send(&tx.clone().flags(OpFlags::MORE));
        let done = pair.wait_at_b();
        assert_eq!(done.context(), 1);
        done.assert_bytes(&bytes);
        pair.a.send(&tx);
        let done = pair.wait_at_b();
        assert_eq!(done.context(), 2);
        done.assert_bytes(&bytes);
        assert_eq!(
            (pair.wait_at_a().context(), pair.wait_at_a().context()),
            (0, 0)
        );
    }
}
