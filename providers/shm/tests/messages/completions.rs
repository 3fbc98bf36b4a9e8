//! When a send or receive completes, and whether its completion is reported.

use selvedge::{CompletionFlags, Errno, OpFlags};

use crate::common::{MessagePair, Rx, Tx, pattern, received, sent};
use crate::provider::{self, PROTOCOLS};

const MSG: CompletionFlags = CompletionFlags::MSG;
const TAGGED: CompletionFlags = CompletionFlags::TAGGED;

/// Lengths on both sides of the thresholds between the protocols.
const LENGTHS: [usize; 6] = [0, 48, 49, 4096, 4097, 200_000];

#[test]
fn delivery_and_match_complete_sends_complete_after_their_receives() {
    for level in [OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE] {
        for protocol in PROTOCOLS {
            let pair = provider::with_protocol(protocol).pair();
            for len in LENGTHS {
                assert_completes_after_its_receive(&pair, len, level);
            }
        }
    }
}

/// Sends a message with `flags`, and checks that neither the send nor a receive with another tag
/// makes the send complete, but the receive of the message does.
fn assert_completes_after_its_receive(pair: &MessagePair, len: usize, flags: OpFlags) {
    let bytes = pattern(1, len);
    pair.a
        .send(&Tx::tagged(pair.to_b, 1, &bytes).flags(flags).context(3));
    pair.assert_no_completion();
    pair.b.recv(&Rx::tagged(2, len).context(4));
    pair.assert_no_completion();
    pair.b.recv(&Rx::tagged(1, len).context(5));
    let send = pair.wait_at_a();
    send.assert_entry(sent(TAGGED, 3));
    let received = pair
        .b
        .poll()
        .expect("the receive completes before the send");
    assert_eq!(received.context(), 5);
    received.assert_bytes(&bytes);
    pair.b.ep.cancel(selvedge::Context(4)).unwrap();
    assert_eq!(pair.wait_at_b().error().errno, Errno::Canceled);
}

#[test]
fn inject_and_transmit_complete_sends_complete_without_a_receive() {
    for level in [OpFlags::INJECT_COMPLETE, OpFlags::TRANSMIT_COMPLETE] {
        let pair = provider::with_defaults().pair();
        for len in [0, 48, 4096] {
            let bytes = pattern(2, len);
            pair.a
                .send(&Tx::msg(pair.to_b, &bytes).flags(level).context(3));
            pair.wait_at_a().assert_entry(sent(MSG, 3));
            pair.b.recv(&Rx::msg(len));
            pair.wait_at_b().assert_bytes(&bytes);
        }
    }
}

#[test]
fn an_inject_with_delivery_complete_completes_after_its_receive() {
    let pair = provider::with_defaults().pair();
    let flags = OpFlags::INJECT | OpFlags::DELIVERY_COMPLETE;
    for len in [0, 48, 4096] {
        assert_completes_after_its_receive(&pair, len, flags);
    }
}

#[test]
#[expect(
    unsafe_code,
    reason = "posts a buffer that is overwritten before the send is complete"
)]
fn a_buffer_may_be_overwritten_right_after_an_inject() {
    use selvedge::{Context, Iov, msg};

    let pair = provider::with_defaults().pair();
    for flags in [OpFlags::empty(), OpFlags::DELIVERY_COMPLETE] {
        for len in [1, 48, 49, 4096] {
            let bytes = pattern(5, len);
            let mut buffer = bytes.clone();
            let post = msg::SendMsg {
                iov: &[Iov::new(&buffer)],
                desc: &[],
                dest: pair.to_b,
                context: Context(1),
                data: 0,
            };
            // SAFETY: with `INJECT` the provider reads the bytes only during the call.
            unsafe { pair.a.ep.sendmsg(&post, flags | OpFlags::INJECT) }.unwrap();
            buffer.fill(0);
            drop(buffer);
            pair.b.recv(&Rx::msg(len));
            pair.wait_at_b().assert_bytes(&bytes);
            let mut out = [selvedge::cq::Entry::default()];
            while pair.a.cq().read(&mut out).unwrap() == 0 {
                pair.b.progress();
            }
            assert_eq!(out[0], sent(MSG, 1));
        }
    }
}

#[test]
fn an_inject_beyond_inject_size_is_refused() {
    let sut = provider::with_defaults();
    let limit = sut.info().tx_attr.inject_size;
    let pair = sut.pair();
    let (ep, to, bytes) = (&pair.a.ep, pair.to_b, vec![1; limit + 1]);
    assert_eq!(ep.inject(&bytes, to, None), Err(Errno::MsgSize));
    assert_eq!(ep.tinject(&bytes, to, 1, Some(2)), Err(Errno::MsgSize));
    let tx = Tx::msg(to, &bytes).flags(OpFlags::INJECT);
    assert_eq!(pair.a.try_send(&tx), Err(Errno::MsgSize));
    let tx = Tx::tagged(to, 1, &bytes).cut(&[5]).flags(OpFlags::INJECT);
    assert_eq!(pair.a.try_send(&tx), Err(Errno::MsgSize));
    pair.b.recv(&Rx::msg(limit));
    pair.b.recv(&Rx::tagged(1, limit));
    pair.assert_no_completion();
    ep.inject(&bytes[..limit], to, None).unwrap();
    pair.wait_at_b().assert_bytes(&bytes[..limit]);
}

#[test]
fn flags_that_do_not_belong_to_an_operation_are_refused() {
    let pair = provider::with_defaults().pair();
    let unknown = OpFlags::from_bits_retain(1 << 40);
    let commit = OpFlags::COMMIT_COMPLETE;
    for flags in [unknown, OpFlags::PEEK, OpFlags::MULTI_RECV, commit] {
        for tx in [Tx::msg(pair.to_b, b"x"), Tx::tagged(pair.to_b, 1, b"x")] {
            assert_eq!(pair.a.try_send(&tx.flags(flags)), Err(Errno::BadFlags));
        }
    }
    for flags in [unknown, OpFlags::INJECT, OpFlags::DELIVERY_COMPLETE] {
        for rx in [Rx::msg(8), Rx::tagged(1, 8)] {
            assert_eq!(pair.b.try_recv(&rx.flags(flags)), Err(Errno::BadFlags));
        }
    }
    pair.assert_no_completion();
}

#[test]
fn selective_queues_report_success_only_on_request() {
    let pair = provider::with_defaults().pair_with(|_, config| {
        config.tx_selective = true;
        config.rx_selective = true;
    });
    for len in LENGTHS {
        let tx = Tx::msg(pair.to_b, &pattern(1, len));
        pair.b.recv(&Rx::msg(len).context(1));
        pair.a.send(&tx);
        pair.assert_no_completion();
        let flags = OpFlags::COMPLETION;
        pair.b.recv(&Rx::msg(len).context(2).flags(flags));
        pair.a.send(&tx.clone().context(3).flags(flags));
        pair.wait_at_b().assert_entry(received(MSG, 2, len, 0));
        pair.wait_at_a().assert_entry(sent(MSG, 3));
    }
}

#[test]
fn selective_queues_report_every_error() {
    let pair = provider::with_defaults().pair_with(|_, config| config.rx_selective = true);
    pair.b.recv(&Rx::msg(2).context(1));
    pair.a.ep.inject(b"long", pair.to_b, None).unwrap();
    assert_eq!(pair.wait_at_b().error().errno, Errno::Trunc);
}

#[test]
fn default_flags_apply_only_to_calls_without_a_flags_argument() {
    let hints = provider::hints().edit(|info| {
        info.tx_attr.op_flags = OpFlags::DELIVERY_COMPLETE;
    });
    let pair = provider::with_params(&[], &hints).pair();
    pair.a.send(&Tx::msg(pair.to_b, b"default").context(1));
    pair.assert_no_completion();
    let tx = Tx::msg(pair.to_b, b"replaced").context(2);
    pair.a.send(&tx.flags(OpFlags::empty()));
    pair.wait_at_a().assert_entry(sent(MSG, 2));
    pair.b.recv(&Rx::msg(8));
    pair.wait_at_a().assert_entry(sent(MSG, 1));
}

#[test]
fn default_flags_may_request_completions_at_selective_queues() {
    let hints = provider::hints().edit(|info| {
        info.tx_attr.op_flags = OpFlags::COMPLETION;
        info.rx_attr.op_flags = OpFlags::COMPLETION;
    });
    let pair = provider::with_params(&[], &hints).pair_with(|_, config| {
        config.tx_selective = true;
        config.rx_selective = true;
    });
    pair.b.recv(&Rx::msg(8).context(1).flags(OpFlags::empty()));
    pair.b.recv(&Rx::msg(8).context(2));
    let tx = Tx::msg(pair.to_b, b"x");
    pair.a.send(&tx.clone().context(3).flags(OpFlags::empty()));
    pair.a.send(&tx.context(4));
    pair.wait_at_b().assert_entry(received(MSG, 2, 1, 0));
    pair.wait_at_a().assert_entry(sent(MSG, 4));
    pair.assert_no_completion();
}

#[test]
fn inject_in_the_default_flags_limits_the_size_of_calls_without_a_flags_argument() {
    let hints = provider::hints().edit(|info| info.tx_attr.op_flags = OpFlags::INJECT);
    let pair = provider::with_params(&[], &hints).pair();
    let tx = Tx::msg(pair.to_b, &[0; 5000]);
    assert_eq!(pair.a.try_send(&tx), Err(Errno::MsgSize));
    pair.b.recv(&Rx::msg(5000));
    pair.a.send(&tx.flags(OpFlags::empty()));
    pair.wait_at_b().assert_bytes(&[0; 5000]);
}

#[test]
fn a_read_into_an_empty_array_makes_progress_even_if_completions_are_stored() {
    let pair = provider::with_protocol("bounce").pair();
    pair.a.send(&Tx::msg(pair.to_b, b"first"));
    pair.a.send(&Tx::msg(pair.to_b, &[1; 100_000]));
    pair.b.recv(&Rx::msg(5));
    pair.b.recv(&Rx::msg(100_000));
    pair.wait_at_b();
    // Endpoint A does not take its completions, but makes progress by reads into an empty array.
    pair.wait_at_b().assert_bytes(&[1; 100_000]);
}

#[test]
#[expect(
    unsafe_code,
    reason = "posts through the raw API to an endpoint with two queues"
)]
fn reading_either_queue_of_an_endpoint_drives_its_sends() {
    use selvedge::{Context, Desc, Iov, MsgExt, cq};
    use selvedge_testkit::local::LocalEndpoint;

    let sut = provider::with_protocol("bounce");
    let b = sut.endpoint();
    let a = LocalEndpoint::try_open(&sut.open_domain(), |domain, config| {
        config.tx = Some(domain.queue(0).unwrap());
    });
    let a = a.unwrap();
    let to = a.insert_endpoint(&b);
    let (tx_cq, rx_cq) = (a.tx.cq(), a.rx.cq());
    let bytes = pattern(1, 300_000);
    for (read_first, other) in [(tx_cq, rx_cq), (rx_cq, tx_cq)] {
        b.recv(&Rx::msg(bytes.len()));
        // SAFETY: the bytes live until the send is complete.
        unsafe { a.ep.send(Iov::new(&bytes), Desc::NONE, to, Context(1)) }.unwrap();
        let received = loop {
            read_first.read(&mut []).unwrap();
            if let Some(received) = b.poll() {
                break received;
            }
        };
        received.assert_bytes(&bytes);
        let mut out = [cq::Entry::default(); 2];
        while tx_cq.read(&mut out).unwrap() == 0 {
            other.read(&mut []).unwrap();
        }
        assert_eq!(out[0], sent(MSG, 1));
        assert_eq!(rx_cq.read(&mut out), Ok(0));
    }
}
