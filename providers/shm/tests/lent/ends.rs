//! Views that outlive the endpoint of their receiver or of their sender.

use selvedge::owned::Completions;
use selvedge::{Context, Errno, FiAddr};

use crate::common::{lend, pair, pattern};

#[test]
fn a_view_is_dropped_after_its_endpoint_was_closed() {
    let (a, b, to) = pair();
    let bytes = pattern(1, 5000);
    let view = lend(&a, &b, to, &bytes);
    drop(b);
    assert_eq!(view.to_vec().unwrap(), bytes, "the sender has not polled");
    let failed = loop {
        if let Some(done) = a.poll().pop() {
            break done;
        }
    };
    assert_eq!(failed.result.unwrap_err().errno, Errno::ConnReset);
    assert!(failed.buf[..] == bytes);
    // The sender may reuse the memory now, and the view shows nothing of it.
    drop(failed.buf);
    let next = a.message(&pattern(2, 5000));
    assert_eq!(view.to_vec(), Err(Errno::ConnReset));
    assert_eq!(view.read::<u8>(0), Err(Errno::ConnReset));
    drop(view);
    drop(next);
}

#[test]
fn a_view_fails_after_its_sender_has_closed() {
    let (a, b, to) = pair();
    let bytes = pattern(1, 5000);
    let view = lend(&a, &b, to, &bytes);
    let special = a.special.clone();
    drop(a);
    // All buffers are back, and the next owner writes them.
    let mut bufs: Vec<_> = std::iter::from_fn(|| special.take()).collect();
    assert_eq!(bufs.len(), 8);
    for buf in &mut bufs {
        buf.write(&pattern(2, 5000)).unwrap();
    }
    assert_eq!(view.to_vec(), Err(Errno::ConnReset));
    assert_eq!(view.copy_to(0, &mut [0; 8]), Err(Errno::ConnReset));
    b.poll();
    drop(view);
}

#[test]
fn a_message_that_was_not_taken_returns_with_its_completion() {
    let (a, b, to) = pair();
    let mut list = Completions::with_capacity(1);
    b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    a.ep.lend(a.message(b"never read"), to, Context(2)).unwrap();
    while b.ep.poll(&mut list).unwrap() == 0 {
        assert!(a.poll().is_empty());
    }
    drop(list);
    let sent = a.next(&b);
    assert!(sent.result.is_ok());
    assert_eq!(&sent.buf[..], b"never read");
}
