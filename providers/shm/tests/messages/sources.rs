//! The source of a message, while address vectors change.

use selvedge::{Caps, CompletionFlags, Errno, FiAddr, Hints, OpFlags};
use selvedge_testkit::local::settle;

use crate::common::{MessageEndpoint, MessagePair, Rx, Tx, pattern, received, sent, with_data};
use crate::provider;

/// Passes a message of `len` bytes. Returns the source that the receiver reports.
fn pass_message(
    sender: &MessageEndpoint,
    dest: FiAddr,
    receiver: &MessageEndpoint,
    len: usize,
) -> FiAddr {
    let bytes = pattern(1, len);
    receiver.recv(&Rx::msg(len));
    sender.send(&Tx::msg(dest, &bytes));
    let done = receiver.wait(&[sender]);
    done.assert_bytes(&bytes);
    sender
        .wait(&[receiver])
        .assert_entry(sent(CompletionFlags::MSG, 0));
    done.src
}

/// One length for each protocol.
const LENGTHS: [usize; 3] = [8, 3000, 100_000];

#[test]
fn a_sender_has_an_index_from_its_insertion_to_its_removal() {
    let sut = provider::with_defaults();
    let (a, b) = (sut.endpoint(), sut.endpoint());
    let to = a.insert_endpoint(&b);
    for _ in 0..2 {
        for len in LENGTHS {
            assert_eq!(pass_message(&a, to, &b, len), FiAddr::UNSPEC);
        }
        let self_addr = b.insert_endpoint(&b);
        let from = b.insert_endpoint(&a);
        assert_ne!(self_addr, from);
        for len in LENGTHS {
            assert_eq!(pass_message(&a, to, &b, len), from);
        }
        b.av.remove(&[from]).unwrap();
        b.av.remove(&[self_addr]).unwrap();
    }
}

#[test]
fn completions_report_a_peer_by_its_user_id() {
    let sut = provider::with_defaults();
    let (a, b) = (sut.endpoint(), sut.endpoint());
    let to = a.insert_endpoint(&b);
    let from = b.insert_endpoint(&a);
    let id = FiAddr(0xdead_beef_0000_0001);
    assert_eq!(pass_message(&a, to, &b, 8), from);
    assert_eq!(b.av.set_user_id(from, id), Ok(()));
    for len in LENGTHS {
        assert_eq!(pass_message(&a, to, &b, len), id);
    }
    // Posts go by indices, as before.
    b.send(&Tx::msg(from, b"back"));
    b.recv(&Rx::msg(8).from(from));
    a.recv(&Rx::msg(8));
    a.send(&Tx::msg(to, b"directed"));
    assert!(b.drain(&[&a]).iter().any(|done| done.src == id));
    assert_eq!(b.av.lookup(from).unwrap(), a.ep.address().unwrap());
    assert_eq!(b.av.set_user_id(FiAddr(77), id), Err(Errno::Inval));
    assert_eq!(b.av.set_user_id(from, FiAddr::UNSPEC), Err(Errno::Inval));
    // A peer that is inserted again is named by its index.
    b.av.remove(&[from]).unwrap();
    assert_eq!(b.insert_endpoint(&a), from);
    a.drain(&[&b]);
    assert_eq!(pass_message(&a, to, &b, 8), from);
}

#[test]
fn the_source_of_an_unexpected_message_is_resolved_when_it_is_received() {
    let sut = provider::with_defaults();
    let (a, b) = (sut.endpoint(), sut.endpoint());
    let to = a.insert_endpoint(&b);
    for len in LENGTHS {
        a.send(&Tx::msg(to, &pattern(1, len)));
        settle(&[&a, &b]);
    }
    let from = b.insert_endpoint(&a);
    for len in LENGTHS {
        b.recv(&Rx::msg(len));
        assert_eq!(b.wait(&[&a]).src, from);
    }
}

#[test]
fn a_removed_peer_cannot_be_addressed_and_comes_back_at_the_lowest_index() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    assert_eq!(pass_message(&a, to_b, &b, 8), FiAddr(1));
    let second = a.insert_endpoint(&a);
    a.av.remove(&[to_b]).unwrap();
    assert_eq!(a.av.lookup(to_b), Err(Errno::Inval));
    assert_eq!(a.try_send(&Tx::msg(to_b, b"x")), Err(Errno::Inval));
    assert_eq!(a.ep.inject(b"x", to_b, None), Err(Errno::Inval));
    assert_eq!(a.try_recv(&Rx::msg(8).from(to_b)), Err(Errno::Inval));
    assert_eq!(a.insert_endpoint(&b), to_b);
    assert_eq!(pass_message(&a, to_b, &b, 8), FiAddr(1));
    a.av.remove(&[to_b, second]).unwrap();
    assert_eq!(a.insert_endpoint(&a), to_b);
    assert_eq!(a.insert_endpoint(&b), second);
    assert_eq!(pass_message(&a, second, &b, 8), FiAddr(1));
}

#[test]
fn a_reused_index_addresses_the_new_peer() {
    let sut = provider::with_defaults();
    let (a, b, c) = (sut.endpoint(), sut.endpoint(), sut.endpoint());
    let to = a.insert_endpoint(&b);
    pass_message(&a, to, &b, 8);
    a.av.remove(&[to]).unwrap();
    assert_eq!(a.insert_endpoint(&c), to);
    pass_message(&a, to, &c, 8);
}

#[test]
fn inserting_twice_gives_the_same_index() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    let address = b.ep.address().unwrap();
    let mut out = [FiAddr::NOTAVAIL; 2];
    let both = [address.clone(), address];
    assert_eq!(a.av.insert(&both, &mut out), Ok(2));
    assert_eq!(out, [to_b, to_b]);
}

#[test]
fn a_malformed_address_fails_its_own_slot_alone() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    let bad = provider::invalid_address();
    let both = [bad, b.ep.address().unwrap()];
    let mut out = [FiAddr(9); 2];
    assert_eq!(a.av.insert(&both, &mut out), Ok(1));
    assert_eq!(out, [FiAddr::NOTAVAIL, to_b]);
    assert_eq!(a.av.insert(&both, &mut out[..1]), Err(Errno::Inval));
}

#[test]
fn removing_an_unknown_address_removes_nothing() {
    let MessagePair { a, to_b, .. } = provider::with_defaults().pair();
    assert_eq!(a.av.remove(&[to_b, FiAddr(7)]), Err(Errno::Inval));
    a.av.lookup(to_b).unwrap();
    assert_eq!(a.av.remove(&[FiAddr::UNSPEC]), Err(Errno::Inval));
}

#[test]
fn the_unspecified_address_is_no_destination() {
    let MessagePair { a, .. } = provider::with_defaults().pair();
    for dest in [FiAddr::UNSPEC, FiAddr(99)] {
        assert_eq!(a.try_send(&Tx::msg(dest, b"x")), Err(Errno::Inval));
        assert_eq!(a.ep.tinject(b"x", dest, 1, None), Err(Errno::Inval));
    }
    assert_eq!(a.try_recv(&Rx::msg(1).from(FiAddr(99))), Err(Errno::Inval));
}

/// Opens a side with these capabilities besides messages and tagged messages.
fn side_with(caps: Caps) -> MessageEndpoint {
    let hints = Hints::new().caps(Caps::MSG | Caps::TAGGED | caps);
    provider::with_params(&[], &hints).endpoint()
}

#[test]
fn a_message_of_an_unknown_source_has_its_address_if_requested() {
    let (a, b) = (
        provider::with_defaults().endpoint(),
        side_with(Caps::SOURCE | Caps::SOURCE_ERR),
    );
    let (to, address) = (a.insert_endpoint(&b), a.ep.address().unwrap());
    for is_late in [false, true] {
        for len in LENGTHS {
            let tx = Tx::tagged(to, 5, &pattern(1, len));
            let rx = Rx::tagged(5, len).context(3);
            if is_late {
                a.send(&tx)
            } else {
                b.recv(&rx)
            }
            settle(&[&a, &b]);
            if is_late {
                b.recv(&rx)
            } else {
                a.send(&tx)
            }
            let done = b.wait(&[&a]);
            let error = done.error();
            assert_eq!(error.errno, Errno::AddrNotAvail);
            let entry = received(CompletionFlags::TAGGED, 3, len, 5);
            assert_eq!(error.entry, entry);
            assert_eq!(
                (error.src, error.sender()),
                (FiAddr::UNSPEC, Some(address.clone()))
            );
            assert!(error.err_data.len() <= max_err_data());
            done.assert_bytes(&pattern(1, len));
            a.wait(&[&b]);
        }
    }
    // A truncated message reports the truncation and its sender.
    b.recv(&Rx::msg(2));
    a.send(&Tx::msg(to, b"long").data(9));
    let done = b.wait(&[&a]);
    let entry = received(CompletionFlags::MSG, 0, 2, 0);
    assert_eq!(done.error().entry, with_data(entry, 9));
    assert_eq!((done.error().errno, done.error().olen), (Errno::Trunc, 2));
    let sender = done
        .error()
        .sender()
        .expect("the error entry has the sender's address");
    a.wait(&[&b]);
    let from = b.av.insert_one(&sender).unwrap();
    for len in LENGTHS {
        assert_eq!(pass_message(&a, to, &b, len), from);
    }
}

/// Returns the number of bytes that an error entry may carry.
fn max_err_data() -> usize {
    provider::with_defaults().info().domain_attr.max_err_data
}

#[test]
fn without_the_capability_unknown_sources_are_no_error_and_sources_are_ignored() {
    let (a, b) = (
        provider::with_defaults().endpoint(),
        side_with(Caps::empty()),
    );
    let (to, to_itself) = (a.insert_endpoint(&b), b.insert_endpoint(&b));
    // The receives are directed at another peer, at no peer, and at an index that does not exist.
    for src in [to_itself, FiAddr::UNSPEC, FiAddr(77)] {
        b.recv(&Rx::tagged(1, 8).from(src));
        b.recv(&Rx::msg(8).from(src));
        a.send(&Tx::tagged(to, 1, b"tagged"));
        b.wait(&[&a]).assert_bytes(b"tagged");
        a.send(&Tx::msg(to, b"untagged"));
        b.wait(&[&a]).assert_bytes(b"untagged");
    }
}

#[test]
fn only_tagged_receives_are_directed_with_tagged_directed_recv() {
    let (a, b) = (
        provider::with_defaults().endpoint(),
        side_with(Caps::TAGGED_DIRECTED_RECV),
    );
    let (to, to_itself, from) = (
        a.insert_endpoint(&b),
        b.insert_endpoint(&b),
        b.insert_endpoint(&a),
    );
    b.recv(&Rx::tagged(1, 8).from(to_itself).context(1));
    b.recv(&Rx::tagged(1, 8).from(from).context(2));
    b.recv(&Rx::msg(8).from(to_itself).context(3));
    a.send(&Tx::tagged(to, 1, b"tagged"));
    assert_eq!(b.wait(&[&a]).context(), 2);
    a.send(&Tx::msg(to, b"untagged"));
    assert_eq!(b.wait(&[&a]).context(), 3);
}

#[test]
fn an_exact_directed_receive_has_to_name_its_peer() {
    let caps = Caps::EXACT_DIRECTED_RECV;
    let b = side_with(caps | Caps::DIRECTED_RECV);
    let a = provider::with_defaults().endpoint();
    let (to, from) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    let flags = OpFlags::MULTI_RECV;
    for rx in [Rx::msg(8), Rx::tagged(1, 8), Rx::msg(8).flags(flags)] {
        assert_eq!(b.try_recv(&rx), Err(Errno::Inval));
    }
    b.recv(&Rx::msg(8).from(from));
    a.send(&Tx::msg(to, b"directed"));
    b.wait(&[&a]).assert_bytes(b"directed");
    // The capability modifies tagged receives alone.
    let b = side_with(caps | Caps::TAGGED_DIRECTED_RECV);
    assert_eq!(b.try_recv(&Rx::tagged(1, 8)), Err(Errno::Inval));
    b.recv(&Rx::msg(8));
}

#[test]
fn a_directed_receive_outlives_the_index_that_it_was_posted_with() {
    let sut = provider::with_defaults();
    let (a, b, c) = (sut.endpoint(), sut.endpoint(), sut.endpoint());
    let (a_to_b, c_to_b) = (a.insert_endpoint(&b), c.insert_endpoint(&b));
    let from = b.insert_endpoint(&a);
    for len in LENGTHS {
        b.recv(&Rx::msg(len).from(from).context(1));
        b.av.remove(&[from]).unwrap();
        assert_eq!(b.insert_endpoint(&c), from);
        b.recv(&Rx::msg(len).from(from).context(2));
        c.send(&Tx::msg(c_to_b, &pattern(2, len)));
        let done = b.wait(&[&a, &c]);
        assert_eq!((done.context(), done.src), (2, from));
        a.send(&Tx::msg(a_to_b, &pattern(1, len)));
        let done = b.wait(&[&a, &c]);
        assert_eq!((done.context(), done.src), (1, FiAddr::UNSPEC));
        done.assert_bytes(&pattern(1, len));
        b.av.remove(&[from]).unwrap();
        assert_eq!(b.insert_endpoint(&a), from);
    }
}

#[test]
fn a_message_received_before_its_sender_was_inserted_matches_a_directed_receive() {
    let sut = provider::with_defaults();
    let (a, b) = (sut.endpoint(), sut.endpoint());
    let to = a.insert_endpoint(&b);
    for len in LENGTHS {
        a.send(&Tx::tagged(to, 3, &pattern(1, len)));
        settle(&[&a, &b]);
        let from = b.insert_endpoint(&a);
        b.recv(&Rx::tagged(3, len).from(from));
        let done = b.wait(&[&a]);
        assert_eq!(done.src, from);
        done.assert_bytes(&pattern(1, len));
        b.av.remove(&[from]).unwrap();
    }
}
