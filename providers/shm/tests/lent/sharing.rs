//! One buffer that is lent to several receivers, and the limit of messages that are lent to one.

use selvedge::owned::{Pool, SharedBuf, View};
use selvedge::{Context, Errno, FiAddr};

use crate::common::{Side, lend, pair, pair_with, pattern, settle};

#[test]
fn a_shared_buffer_returns_after_the_last_view_of_the_last_receiver() {
    let a = Side::open();
    let receivers = [Side::open(), Side::open(), Side::open()];
    let bytes = pattern(1, 1 << 20);
    let shared = SharedBuf::from(a.message(&bytes));
    let mut views = Vec::new();
    for receiver in &receivers {
        let to = a.insert(receiver);
        receiver
            .ep
            .recv_lent(receiver.short(), FiAddr::UNSPEC, Context(1))
            .unwrap();
        a.ep.lend_shared(&shared, to, Context(2)).unwrap();
        views.push(receiver.view(&a));
    }
    assert!(views.iter().all(View::is_lent));
    assert!(
        shared[..] == bytes,
        "the sender reads the bytes while they are lent"
    );
    let mut shared = shared;
    for (view, receiver) in views.into_iter().zip(&receivers) {
        assert_eq!(view.to_vec().unwrap(), bytes);
        shared = shared.into_buf().unwrap_err();
        drop(view);
        let sent = a.next(receiver);
        assert!(sent.result.is_ok());
        assert_eq!((sent.buf.capacity(), sent.buf.len()), (0, 0));
        shared = shared
            .into_buf()
            .expect_err("the completion holds the buffer");
    }
    assert_eq!(a.special.available(), 7);
    let mut buf = shared.into_buf().expect("every completion was dropped");
    assert!(buf[..] == bytes);
    buf.write(b"mine again").unwrap();
    drop(buf);
    assert_eq!(a.special.available(), 8);
}

#[test]
fn an_endpoint_lends_to_itself() {
    let a = Side::open();
    let to = a.insert(&a);
    a.ep.recv_lent(a.short(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    a.ep.lend(a.message(&pattern(1, 5000)), to, Context(2))
        .unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        done = a.poll();
    }
    let (view, _) = done.remove(0).into_view().unwrap();
    assert!(view.is_lent());
    assert_eq!(view.to_vec().unwrap(), pattern(1, 5000));
    drop(view);
    while done.is_empty() {
        done = a.poll();
    }
    assert!(done[0].result.is_ok() && done[0].buf[..] == pattern(1, 5000));
}

#[test]
fn a_full_loan_leaves_room_for_other_messages_and_ends_with_a_view() {
    let (a, b, to) = pair_with(&[("FI_SHM_LENT_MAX", "2")]);
    let mut views = [1, 2].map(|seed| Some(lend(&a, &b, to, &pattern(seed, 64))));
    let refused = a.ep.lend(a.message(b"third"), to, Context(3)).unwrap_err();
    assert_eq!(refused.errno, Errno::Again);
    assert_eq!(&refused.buf[..], b"third");
    // Messages of every other protocol pass.
    let pool = Pool::new(&*b.domain, 1 << 20, 1).unwrap();
    for len in [8, 3000, 1 << 20] {
        b.ep.recv(pool.take().unwrap(), FiAddr::UNSPEC, Context(4))
            .unwrap();
        a.ep.send(a.message(&pattern(4, len)), to, Context(5))
            .unwrap();
        let (sent, received) = settle(&a, &b);
        assert_eq!((sent.len(), received.len()), (1, 1));
        assert!(received[0].buf[..] == pattern(4, len));
    }
    views[0] = None;
    assert!(a.next(&b).result.is_ok());
    b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    a.ep.lend(refused.buf, to, Context(3)).unwrap();
    assert_eq!(b.view(&a).to_vec().unwrap(), b"third");
}

#[test]
fn many_views_return_in_any_order() {
    let (a, b, to) = pair();
    let shared: Vec<_> = (0..8)
        .map(|seed| SharedBuf::from(a.message(&pattern(seed, 4096))))
        .collect();
    let mut views = Vec::new();
    for number in 0..64 {
        b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(number))
            .unwrap();
        a.ep.lend_shared(&shared[number as usize % 8], to, Context(number))
            .unwrap();
    }
    for done in settle(&a, &b).1 {
        let number = done.context.0;
        views.push((number, done.into_view().unwrap().0));
    }
    assert_eq!(views.len(), 64);
    let mut random = fastrand::Rng::with_seed(7);
    random.shuffle(&mut views);
    for (number, view) in views {
        assert_eq!(view.to_vec().unwrap(), pattern(number as usize % 8, 4096));
        drop(view);
        assert_eq!(a.next(&b).context, Context(number));
    }
    for shared in shared {
        shared.into_buf().expect("all views are gone");
    }
    assert_eq!(a.special.available(), 8);
}
