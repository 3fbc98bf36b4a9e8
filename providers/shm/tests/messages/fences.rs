//! Fences: a fenced operation waits for all earlier operations.

use selvedge::{CompletionFlags, Errno, OpFlags};

use crate::common::{Rx, Tx, pattern, sent};
use crate::provider;

const MSG: CompletionFlags = CompletionFlags::MSG;
const LENGTHS: [usize; 6] = [0, 48, 49, 4096, 4097, 200_000];

#[test]
fn a_fenced_message_waits_for_earlier_ones_to_its_peer() {
    let sut = provider::with_protocol("bounce");
    let (pair, c) = (sut.pair(), sut.endpoint());
    let to_c = pair.a.insert_endpoint(&c);
    let level = OpFlags::DELIVERY_COMPLETE;
    let earlier = [
        Tx::tagged(pair.to_b, 1, b"small").flags(level),
        Tx::tagged(pair.to_b, 1, &pattern(1, 4096)).flags(level),
        Tx::tagged(pair.to_b, 1, &pattern(2, 300_000)),
    ];
    for earlier_tx in earlier {
        for len in LENGTHS {
            let fenced = Tx::tagged(pair.to_b, 2, &pattern(3, len));
            let fenced = fenced.flags(OpFlags::FENCE).context(9);
            pair.a.send(&earlier_tx.clone().context(8));
            pair.settle();
            assert_eq!(pair.a.try_send(&fenced), Err(Errno::Again));
            // A message to another peer does not wait, and neither does a message without a fence.
            let other = Tx::tagged(to_c, 1, b"other").flags(OpFlags::FENCE);
            pair.a.send(&other);
            c.recv(&Rx::tagged(1, 5));
            c.wait(&[&pair.a]).assert_bytes(b"other");
            assert_eq!(pair.wait_at_a().context(), 0);
            pair.b.recv(&Rx::tagged(1, 300_000));
            pair.wait_at_b();
            assert_eq!(pair.wait_at_a().context(), 8);
            pair.a.send(&fenced);
            pair.b.recv(&Rx::tagged(2, len));
            pair.wait_at_b().assert_bytes(&pattern(3, len));
            assert_eq!(pair.wait_at_a().context(), 9);
        }
    }
}

#[test]
fn a_fenced_message_to_a_peer_that_has_not_started_waits_for_it() {
    let name = format!("fenced-{}", std::process::id());
    let sut = provider::with_defaults();
    let a = sut.endpoint();
    let to_b = a.av.insert_service(&name, "").unwrap();
    a.send(&Tx::msg(to_b, b"first"));
    let fenced = Tx::msg(to_b, b"second").flags(OpFlags::FENCE);
    assert_eq!(a.try_send(&fenced), Err(Errno::Again));
    let address = selvedge::Address::Str(name);
    let b = provider::with_params(&[], &provider::hints().src_addr(address)).endpoint();
    a.wait(&[&b]).assert_entry(sent(MSG, 0));
    a.send(&fenced);
    for bytes in [&b"first"[..], b"second"] {
        b.recv(&Rx::msg(bytes.len()));
        b.wait(&[&a]).assert_bytes(bytes);
    }
}
