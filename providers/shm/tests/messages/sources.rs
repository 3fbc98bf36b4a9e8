//! Who a message is from, while address vectors change.

use selvedge::{Address, CompletionFlags, Errno, FiAddr};

use crate::common::{Pair, Rx, Side, Tx, pattern, sent, settle};
use crate::shm;

/// The source of a message of `len` bytes.
fn source(from: &Side, to: FiAddr, at: &Side, len: usize) -> FiAddr {
    let bytes = pattern(1, len);
    at.recv(&Rx::msg(len));
    from.send(&Tx::msg(to, &bytes));
    let done = at.wait(&[from]);
    done.assert_bytes(&bytes);
    from.wait(&[at]).assert_entry(sent(CompletionFlags::MSG, 0));
    done.src
}

/// One for each way that a message can take.
const LENGTHS: [usize; 3] = [8, 3000, 100_000];

#[test]
fn a_sender_has_an_index_from_its_insertion_to_its_removal() {
    let sut = shm::plain();
    let (a, b) = (sut.side(), sut.side());
    let to = a.knows(&b);
    for _ in 0..2 {
        for len in LENGTHS {
            assert_eq!(source(&a, to, &b, len), FiAddr::UNSPEC);
        }
        let own = b.knows(&b);
        let from = b.knows(&a);
        assert_ne!(own, from);
        for len in LENGTHS {
            assert_eq!(source(&a, to, &b, len), from);
        }
        b.av.remove(&[from]).unwrap();
        b.av.remove(&[own]).unwrap();
    }
}

#[test]
fn the_source_of_an_unexpected_message_is_looked_up_when_it_is_received() {
    let sut = shm::plain();
    let (a, b) = (sut.side(), sut.side());
    let to = a.knows(&b);
    for len in LENGTHS {
        a.send(&Tx::msg(to, &pattern(1, len)));
        settle(&[&a, &b]);
    }
    let from = b.knows(&a);
    for len in LENGTHS {
        b.recv(&Rx::msg(len));
        assert_eq!(b.wait(&[&a]).src, from);
    }
}

#[test]
fn a_removed_peer_cannot_be_addressed_and_comes_back_at_the_lowest_index() {
    let Pair { a, b, to_b, .. } = shm::plain().pair();
    assert_eq!(source(&a, to_b, &b, 8), FiAddr(1));
    let second = a.knows(&a);
    a.av.remove(&[to_b]).unwrap();
    assert_eq!(a.av.lookup(to_b), Err(Errno::Inval));
    assert_eq!(a.try_send(&Tx::msg(to_b, b"x")), Err(Errno::Inval));
    assert_eq!(a.ep.inject(b"x", to_b, None), Err(Errno::Inval));
    assert_eq!(a.try_recv(&Rx::msg(8).from(to_b)), Err(Errno::Inval));
    assert_eq!(a.knows(&b), to_b);
    assert_eq!(source(&a, to_b, &b, 8), FiAddr(1));
    a.av.remove(&[to_b, second]).unwrap();
    assert_eq!(a.knows(&a), to_b);
    assert_eq!(a.knows(&b), second);
    assert_eq!(source(&a, second, &b, 8), FiAddr(1));
}

#[test]
fn an_index_that_changes_its_meaning_reaches_the_new_peer() {
    let sut = shm::plain();
    let (a, b, c) = (sut.side(), sut.side(), sut.side());
    let to = a.knows(&b);
    source(&a, to, &b, 8);
    a.av.remove(&[to]).unwrap();
    assert_eq!(a.knows(&c), to);
    source(&a, to, &c, 8);
}

#[test]
fn inserting_twice_gives_the_same_index() {
    let Pair { a, b, to_b, .. } = shm::plain().pair();
    let address = b.ep.address().unwrap();
    let mut out = [FiAddr::NOTAVAIL; 2];
    let both = [address.clone(), address];
    assert_eq!(a.av.insert(&both, &mut out), Ok(2));
    assert_eq!(out, [to_b, to_b]);
}

#[test]
fn a_malformed_address_fails_its_own_slot_alone() {
    let Pair { a, b, to_b, .. } = shm::plain().pair();
    let bad = Address::Ip("127.0.0.1:1".parse().unwrap());
    let both = [bad, b.ep.address().unwrap()];
    let mut out = [FiAddr(9); 2];
    assert_eq!(a.av.insert(&both, &mut out), Ok(1));
    assert_eq!(out, [FiAddr::NOTAVAIL, to_b]);
    assert_eq!(a.av.insert(&both, &mut out[..1]), Err(Errno::Inval));
}

#[test]
fn removing_what_is_not_there_removes_nothing() {
    let Pair { a, to_b, .. } = shm::plain().pair();
    assert_eq!(a.av.remove(&[to_b, FiAddr(7)]), Err(Errno::Inval));
    a.av.lookup(to_b).unwrap();
    assert_eq!(a.av.remove(&[FiAddr::UNSPEC]), Err(Errno::Inval));
}

#[test]
fn nobody_is_no_destination() {
    let Pair { a, .. } = shm::plain().pair();
    for dest in [FiAddr::UNSPEC, FiAddr(99)] {
        assert_eq!(a.try_send(&Tx::msg(dest, b"x")), Err(Errno::Inval));
        assert_eq!(a.ep.tinject(b"x", dest, 1, None), Err(Errno::Inval));
    }
    assert_eq!(a.try_recv(&Rx::msg(1).from(FiAddr(99))), Err(Errno::Inval));
}
