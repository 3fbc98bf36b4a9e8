//! Lent messages in the matching of messages and receives: unexpected, tagged, peeked, claimed and
//! discarded ones, and cancelled receives.

use selvedge::owned::View;
use selvedge::{Context, Errno, FiAddr};

use crate::common::{lend, pair, pair_with, pattern, settle};

#[test]
fn an_unexpected_lent_message_stays_in_the_senders_memory() {
    // No byte of an unexpected message may be kept.
    let (a, b, to) = pair_with(&[("FI_SHM_UNEXPECTED_SIZE", "0")]);
    let messages: Vec<_> = (0..4).map(|seed| pattern(seed, 300_000)).collect();
    for bytes in &messages {
        a.ep.lend(a.message(bytes), to, Context(2)).unwrap();
    }
    assert!(settle(&a, &b).0.is_empty());
    let views: Vec<View> = messages
        .iter()
        .map(|_| {
            b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
                .unwrap();
            b.view(&a)
        })
        .collect();
    for (view, bytes) in views.iter().zip(&messages) {
        assert!(view.is_lent());
        assert_eq!(&view.to_vec().unwrap(), bytes);
    }
    drop(views);
    assert_eq!(settle(&a, &b).0.len(), messages.len());
}

#[test]
fn lent_messages_keep_the_order_of_their_sender() {
    let (a, b, to) = pair();
    let mut views = Vec::new();
    for number in 0..4_u64 {
        b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(number))
            .unwrap();
        let message = a.message(&number.to_ne_bytes());
        match number % 2 {
            0 => a.ep.lend(message, to, Context(2)).unwrap(),
            _ => a.ep.send(message, to, Context(2)).unwrap(),
        };
        views.extend(settle(&a, &b).1);
    }
    for (number, done) in (0..4_u64).zip(views) {
        assert_eq!(done.context, Context(number));
        let (view, _) = done.into_view().unwrap();
        assert_eq!(view.is_lent(), number % 2 == 0);
        assert_eq!(view.read::<u64>(0), Ok(number));
    }
}

#[test]
fn a_tag_selects_a_lent_message() {
    let (a, b, to) = pair();
    for tag in [5, 6] {
        a.ep.tlend(a.message(&pattern(tag, 5000)), to, tag as u64, Context(2))
            .unwrap();
    }
    settle(&a, &b);
    for tag in [6, 5] {
        b.ep.trecv_lent(b.short(), FiAddr::UNSPEC, tag as u64, Context(1))
            .unwrap();
        let (view, received) = b.next(&a).into_view().unwrap();
        assert_eq!((received.tag, view.is_lent()), (tag as u64, true));
        assert_eq!(view.to_vec().unwrap(), pattern(tag, 5000));
        drop(view);
        assert!(a.next(&b).result.is_ok());
    }
}

#[test]
fn a_lent_message_is_peeked_claimed_and_discarded() {
    let (a, b, to) = pair();
    let bytes = pattern(1, 5000);
    let lend = || a.ep.tlend(a.message(&bytes), to, 7, Context(2)).unwrap();
    lend();
    settle(&a, &b);
    b.ep.tpeek(b.short(), FiAddr::UNSPEC, 7, Context(1))
        .unwrap();
    assert_eq!(b.next(&a).result.unwrap().len, bytes.len());
    let claim =
        b.ep.tclaim(b.short(), FiAddr::UNSPEC, 7, Context(1))
            .unwrap();
    assert_eq!(b.next(&a).result.unwrap().len, bytes.len());
    b.ep.recv_claimed_lent(claim, b.short(), Context(3))
        .unwrap();
    let view = b.view(&a);
    assert!(view.is_lent());
    assert_eq!(view.to_vec().unwrap(), bytes);
    drop(view);
    assert!(a.next(&b).result.is_ok());
    lend();
    settle(&a, &b);
    b.ep.tdiscard(b.short(), FiAddr::UNSPEC, 7, Context(1))
        .unwrap();
    let (mut sent, discarded) = settle(&a, &b);
    assert_eq!((sent.len(), discarded.len()), (1, 1));
    assert!(sent.remove(0).result.is_ok());
}

#[test]
fn a_cancelled_lending_receive_takes_no_message() {
    let (a, b, to) = pair();
    let handle =
        b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(9))
            .unwrap();
    b.ep.cancel(handle).unwrap();
    assert_eq!(b.next(&a).result.unwrap_err().errno, Errno::Canceled);
    let view = lend(&a, &b, to, &pattern(1, 5000));
    assert_eq!(view.to_vec().unwrap(), pattern(1, 5000));
    assert_eq!(b.ep.cancel(handle), Err(Errno::NoEnt));
}
