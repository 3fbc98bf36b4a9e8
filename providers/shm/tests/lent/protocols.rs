//! Which messages are lent, copied and sent by other protocols, and when their sends complete.

use std::thread;

use selvedge::owned::{Pool, View};
use selvedge::{Context, Errno, FiAddr};

use crate::common::{LENGTHS, lend, pair, pattern, settle};

#[test]
fn a_lent_message_is_read_in_the_senders_memory_and_returns_when_its_view_is_dropped() {
    let (a, b, to) = pair();
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(seed, len);
        let message = a.message(&bytes);
        let memory = message.as_ptr();
        b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
            .unwrap();
        a.ep.lend(message, to, Context(2)).unwrap();
        let received = b.next(&a);
        assert_eq!(received.context, Context(1));
        let (view, received) = received.into_view().unwrap();
        assert!(view.is_lent(), "{len} bytes were copied");
        assert_eq!((received.len, view.len()), (len, len));
        assert_eq!(view.to_vec().unwrap(), bytes);
        // The receive's own buffer was not needed.
        assert_eq!(b.small.available(), 256);
        let (early, _) = settle(&a, &b);
        assert!(early.is_empty(), "the send completed while it was lent");
        drop(view);
        let sent = a.next(&b);
        assert_eq!((sent.context, sent.buf.as_ptr()), (Context(2), memory));
        assert!(sent.result.is_ok() && sent.buf[..] == bytes);
    }
}

#[test]
fn an_ordinary_receive_takes_a_copy_of_a_lent_message() {
    let (a, b, to) = pair();
    let pool = Pool::new(&*b.domain, 1 << 20, 1).unwrap();
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(seed, len);
        b.ep.recv(pool.take().unwrap(), FiAddr::UNSPEC, Context(1))
            .unwrap();
        a.ep.lend(a.message(&bytes), to, Context(2)).unwrap();
        let received = b.next(&a);
        assert!(received.buf[..] == bytes);
        // The message is given back although the received buffer is kept.
        assert!(a.next(&b).result.is_ok());
        assert!(!View::from(received.buf).is_lent());
    }
}

#[test]
fn a_lending_receive_takes_an_ordinary_message_into_its_buffer() {
    let (a, b, to) = pair();
    let pool = Pool::new(&*b.domain, 1 << 20, 1).unwrap();
    for (seed, len) in LENGTHS.into_iter().enumerate() {
        let bytes = pattern(seed, len);
        b.ep.recv_lent(pool.take().unwrap(), FiAddr::UNSPEC, Context(1))
            .unwrap();
        a.ep.send(a.message(&bytes), to, Context(2)).unwrap();
        let (mut sent, mut received) = (Vec::new(), Vec::new());
        while sent.is_empty() || received.is_empty() {
            sent.extend(a.poll());
            received.extend(b.poll());
        }
        let (view, _) = received.remove(0).into_view().unwrap();
        assert!(!view.is_lent() && view.len() == len);
        assert_eq!(view.to_vec().unwrap(), bytes);
        assert_eq!(pool.available(), 0);
        drop(view);
        assert_eq!(pool.available(), 1);
    }
}

#[test]
fn bytes_outside_of_special_memory_and_empty_messages_are_sent_as_ordinary_messages() {
    let (a, b, to) = pair();
    let ordinary = Pool::new(&*a.domain, 64, 1).unwrap();
    let mut outside = ordinary.take().unwrap();
    outside.write(b"outside").unwrap();
    for (message, bytes) in [(outside, &b"outside"[..]), (a.message(b""), b"")] {
        b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
            .unwrap();
        a.ep.lend(message, to, Context(2)).unwrap();
        let (sent, mut received) = settle(&a, &b);
        assert!(sent[0].result.is_ok());
        let (view, _) = received.remove(0).into_view().unwrap();
        assert!(!view.is_lent());
        assert_eq!(view.to_vec().unwrap(), bytes);
    }
}

#[test]
fn only_a_copied_message_is_truncated() {
    let (a, b, to) = pair();
    let bytes = pattern(1, 100_000);
    let view = lend(&a, &b, to, &bytes);
    assert_eq!(view.to_vec().unwrap(), bytes);
    drop(view);
    a.next(&b);
    b.ep.recv(b.short(), FiAddr::UNSPEC, Context(1)).unwrap();
    a.ep.lend(a.message(&bytes), to, Context(2)).unwrap();
    let error = b.next(&a).result.unwrap_err();
    assert_eq!((error.errno, error.olen), (Errno::Trunc, bytes.len() - 64));
    assert!(a.next(&b).result.is_ok());
}

#[test]
fn a_view_reads_values_and_parts_within_the_message_alone() {
    let (a, b, to) = pair();
    let mut bytes = pattern(3, 40);
    bytes[1..9].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_ne_bytes());
    bytes[9..13].copy_from_slice(&1.5_f32.to_ne_bytes());
    let view = lend(&a, &b, to, &bytes);
    assert_eq!(view.read::<u64>(1), Ok(0x0123_4567_89ab_cdef));
    assert_eq!(view.read::<f32>(9), Ok(1.5));
    assert_eq!(view.read::<[u8; 40]>(0).unwrap()[..], bytes);
    assert_eq!(
        view.read::<[u16; 2]>(36)
            .unwrap()
            .map(u16::to_ne_bytes)
            .as_flattened(),
        &bytes[36..]
    );
    assert_eq!(view.read::<u64>(33), Err(Errno::Inval));
    assert_eq!(view.read::<u8>(usize::MAX), Err(Errno::Inval));
    let mut part = [0; 10];
    assert_eq!(view.copy_to(30, &mut part), Ok(()));
    assert_eq!(part, bytes[30..]);
    assert_eq!(view.copy_to(31, &mut part), Err(Errno::Inval));
    assert_eq!(view.copy_to(usize::MAX, &mut part), Err(Errno::Inval));
}

#[test]
fn a_view_is_dropped_by_any_thread() {
    let (a, b, to) = pair();
    for round in 0..200 {
        let view = lend(&a, &b, to, &pattern(round, 64));
        let reader = thread::spawn(move || view.to_vec().unwrap());
        assert!(a.next(&b).result.is_ok());
        assert_eq!(reader.join().unwrap(), pattern(round, 64));
    }
}
