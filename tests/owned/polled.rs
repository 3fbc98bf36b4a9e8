//! `Endpoint`, whose completions are polled.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::thread;

use selvedge::cq::Entry;
use selvedge::owned::{Completion, Completions, Endpoint, Pool};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, Mode};

use crate::loopback::{Net, info};
use crate::under_watchdog;

const TAG: u64 = 7;

/// Polls until no more completions arrive.
fn poll_all(ep: &Endpoint) -> Vec<Completion> {
    let mut all = Vec::new();
    let mut done = Completions::with_capacity(64);
    while ep.poll(&mut done).unwrap() > 0 {
        all.extend(done.drain());
    }
    all
}

fn expect_one(mut completions: Vec<Completion>) -> Completion {
    assert_eq!(completions.len(), 1, "{completions:?}");
    completions.remove(0)
}

fn filled(pool: &Pool, bytes: &[u8]) -> selvedge::owned::Buf {
    let mut buf = pool.take().unwrap();
    buf.write(bytes).unwrap();
    buf
}

#[test]
fn both_buffers_are_returned_with_their_contexts() {
    let net = Net::new();
    let (a, a_addr) = net.polled();
    let (b, b_addr) = net.polled();
    let pool = net.pool(2);
    let (message, receive_buf) = (filled(&pool, b"hello"), pool.take().unwrap());
    let addresses = [message.as_ptr(), receive_buf.as_ptr()];
    b.recv(receive_buf, FiAddr::UNSPEC, Context(1)).unwrap();
    a.send(message, b_addr, Context(2)).unwrap();

    let sent = expect_one(poll_all(&a));
    assert_eq!(sent.context, Context(2));
    assert!(sent.result.unwrap().flags.contains(CompletionFlags::SEND));
    let received = expect_one(poll_all(&b));
    assert_eq!(received.context, Context(1));
    assert_eq!(received.result.unwrap().src, a_addr);
    assert_eq!(&received.buf[..], b"hello");
    assert_eq!([sent.buf.as_ptr(), received.buf.as_ptr()], addresses);
}

#[test]
fn tag_and_data_reach_the_receiver() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(6);
    let take = || pool.take().unwrap();
    ep.recv(take(), own_addr, Context(1)).unwrap();
    ep.trecv(take(), own_addr, TAG, Context(2)).unwrap();
    ep.senddata(take(), 11, own_addr, Context(3)).unwrap();
    ep.tsenddata(take(), 22, own_addr, TAG, Context(4)).unwrap();
    let mut received: Vec<_> = poll_all(&ep)
        .into_iter()
        .map(|completion| (completion.context.0, completion.result.unwrap()))
        .map(|(context, done)| (context, done.tag, done.data))
        .collect();
    received.sort();
    let expected = [
        (1, 0, Some(11)),
        (2, TAG, Some(22)),
        (3, 0, None),
        (4, 0, None),
    ];
    assert_eq!(received, expected);
}

#[test]
fn injected_messages_need_no_buffer() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(2);
    ep.inject(b"one", own_addr, Some(5)).unwrap();
    ep.tinject(b"two", own_addr, TAG, None).unwrap();
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    ep.trecv(pool.take().unwrap(), own_addr, TAG, Context(2))
        .unwrap();
    let received = poll_all(&ep);
    assert_eq!(&received[0].buf[..], b"one");
    assert_eq!(received[0].result.as_ref().unwrap().data, Some(5));
    assert_eq!(&received[1].buf[..], b"two");
}

#[test]
fn a_truncated_message_reports_the_lost_bytes() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    ep.inject(&[9; 100], own_addr, None).unwrap();
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let received = expect_one(poll_all(&ep));
    assert_eq!(&received.buf[..], [9; 64]);
    let error = received.result.unwrap_err();
    assert_eq!((error.errno, error.olen), (Errno::Trunc, 36));
}

#[test]
fn a_failed_post_returns_the_buffer_unchanged() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    net.set(|settings| settings.post_errors.extend([Errno::MsgSize]));
    let rejected = ep
        .tsend(filled(&pool, b"hello"), own_addr, TAG, Context(1))
        .unwrap_err();
    assert_eq!(rejected.errno, Errno::MsgSize);
    assert_eq!(&rejected.buf[..], b"hello");
    assert!(poll_all(&ep).is_empty());
}

#[test]
fn a_full_queue_accepts_posts_after_a_poll() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(3);
    net.set(|settings| settings.depth = 1);
    ep.send(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let rejected = ep
        .send(pool.take().unwrap(), own_addr, Context(2))
        .unwrap_err();
    assert_eq!(rejected.errno, Errno::Again);
    ep.recv(pool.take().unwrap(), own_addr, Context(3)).unwrap();
    assert_eq!(poll_all(&ep).len(), 2);
    ep.send(rejected.buf, own_addr, Context(2)).unwrap();
}

#[test]
fn posts_beyond_the_number_of_slots_fail() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(17);
    for i in 0..16 {
        ep.recv(pool.take().unwrap(), own_addr, Context(i)).unwrap();
    }
    let rejected = ep
        .recv(pool.take().unwrap(), own_addr, Context(16))
        .unwrap_err();
    assert_eq!(rejected.errno, Errno::Again);
    ep.inject(b"", own_addr, None).unwrap();
    assert_eq!(expect_one(poll_all(&ep)).context, Context(0));
    ep.recv(rejected.buf, own_addr, Context(16)).unwrap();
}

#[test]
fn a_failed_operation_returns_the_buffer_with_the_error() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(2);
    net.set(|settings| settings.completion_errors.extend([Errno::ConnReset]));
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    ep.send(filled(&pool, b"hello"), own_addr, Context(2))
        .unwrap();
    let failed = expect_one(poll_all(&ep));
    assert_eq!(failed.context, Context(2));
    assert_eq!(&failed.buf[..], b"hello");
    assert_eq!(failed.result.unwrap_err().errno, Errno::ConnReset);
}

#[test]
fn a_cancelled_operation_completes() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    let handle = ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    ep.cancel(handle).unwrap();
    let cancelled = expect_one(poll_all(&ep));
    assert_eq!(cancelled.result.unwrap_err().errno, Errno::Canceled);
    assert!(cancelled.buf.is_empty());
    assert_eq!(ep.cancel(handle), Err(Errno::NoEnt));
}

#[test]
fn an_old_handle_does_not_cancel_the_next_operation() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    let old = ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    ep.inject(b"", own_addr, None).unwrap();
    let buf = expect_one(poll_all(&ep)).buf;
    let new = ep.recv(buf, own_addr, Context(2)).unwrap();
    assert_eq!(ep.cancel(old), Err(Errno::NoEnt));
    assert_eq!(ep.cancel(new), Ok(()));
}

#[test]
fn an_old_completion_does_not_complete_the_next_operation() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let old = net.wire().last_context();
    ep.inject(b"", own_addr, None).unwrap();
    let buf = expect_one(poll_all(&ep)).buf;
    ep.recv(buf, own_addr, Context(2)).unwrap();
    let stray = Entry {
        context: old,
        flags: CompletionFlags::RECV | CompletionFlags::MSG,
        ..Entry::default()
    };
    net.wire().push_stray_entry(stray);
    net.wire().push_stray_entry(Entry::default());
    assert!(poll_all(&ep).is_empty());
    assert!(pool.take().is_none());
}

#[test]
fn an_access_by_a_peer_completes_no_operation() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let entry = Entry {
        context: net.wire().last_context(),
        flags: CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA,
        ..Entry::default()
    };
    net.wire().push_stray_entry(entry);
    assert!(poll_all(&ep).is_empty());
}

#[test]
fn an_entry_without_an_operation_leaves_no_gap_in_the_list() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(2);
    net.wire().push_stray_entry(Entry::default());
    for i in 1..3 {
        ep.recv(pool.take().unwrap(), own_addr, Context(i)).unwrap();
        ep.inject(&[i as u8], own_addr, None).unwrap();
    }
    let mut done = Completions::with_capacity(4);
    assert_eq!(ep.poll(&mut done), Ok(2));
    let received = done
        .drain()
        .map(|c| (c.context.0, c.buf[0], c.result.unwrap().len));
    assert_eq!(received.collect::<Vec<_>>(), [(1, 1, 1), (2, 2, 1)]);
}

#[test]
fn completions_are_appended_up_to_the_capacity() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(3);
    for i in 0..3 {
        ep.recv(pool.take().unwrap(), own_addr, Context(i)).unwrap();
        ep.inject(&[], own_addr, None).unwrap();
    }
    let mut done = Completions::with_capacity(2);
    assert_eq!(ep.poll(&mut done), Ok(2));
    assert_eq!(ep.poll(&mut done), Ok(2));
    let contexts: Vec<_> = done.drain().map(|done| done.context.0).collect();
    assert_eq!(contexts, [0, 1]);
    assert_eq!(ep.poll(&mut done), Ok(1));
}

#[test]
fn an_error_waits_for_capacity() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(2);
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let cancelled = ep.recv(pool.take().unwrap(), own_addr, Context(2)).unwrap();
    ep.inject(&[], own_addr, None).unwrap();
    let mut done = Completions::with_capacity(1);
    assert_eq!(ep.poll(&mut done), Ok(1));
    ep.cancel(cancelled).unwrap();
    assert_eq!(ep.poll(&mut done), Ok(1));
    assert_eq!(done.drain().next().unwrap().context, Context(1));
    assert_eq!(ep.poll(&mut done), Ok(1));
    assert_eq!(done.drain().next().unwrap().context, Context(2));
}

#[test]
fn closing_returns_the_buffers_of_outstanding_operations() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(4);
    net.set(|settings| settings.budget = 0);
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    ep.trecv(pool.take().unwrap(), own_addr, TAG, Context(2))
        .unwrap();
    ep.send(pool.take().unwrap(), own_addr, Context(3)).unwrap();
    ep.tsend(pool.take().unwrap(), own_addr, TAG, Context(4))
        .unwrap();
    assert_eq!(pool.available(), 0);
    drop(ep);
    assert_eq!(pool.available(), 4);
    assert_eq!(net.wire().outstanding(), 0);
}

#[test]
fn buffers_are_not_returned_before_the_endpoint_is_closed() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let pool = net.pool(1);
    ep.recv(pool.take().unwrap(), own_addr, Context(1)).unwrap();
    let (notify, notified) = mpsc::channel();
    let watched = pool.clone();
    net.set(|settings| {
        settings.on_close = Some(Box::new(move || notify.send(watched.available()).unwrap()))
    });
    drop(ep);
    assert_eq!(notified.recv(), Ok(0));
}

#[test]
fn opening_fails_if_the_provider_keeps_a_handle() {
    let net = Net::new();
    net.set(|settings| settings.keeps_handles = true);
    let error = Endpoint::open(&*net.domain, &info(), Arc::clone(&net.av)).unwrap_err();
    assert_eq!(error.errno(), Errno::Busy);
}

#[test]
fn an_unsupported_mode_is_rejected() {
    let net = Net::new();
    let mut info = info();
    info.mode = Mode::CONTEXT2;
    let error = Endpoint::open(&*net.domain, &info, Arc::clone(&net.av)).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    assert!(error.message().contains("CONTEXT2"), "{error}");
}

#[test]
fn threads_share_an_endpoint() {
    const THREADS: u64 = 4;
    const MESSAGES: u64 = 200;
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.polled();
        let pool = net.pool(8);
        let exchange = |thread: u64| {
            let mut received = HashSet::new();
            let mut done = Completions::with_capacity(4);
            for number in 0..MESSAGES {
                let message = thread * MESSAGES + number;
                while let Err(Errno::Again) = ep.inject(&message.to_ne_bytes(), own_addr, None) {}
                if let Some(buf) = pool.take() {
                    let _ = ep.recv(buf, own_addr, Context(message));
                }
                ep.poll(&mut done).unwrap();
                received.extend(done.drain().map(|done| done.buf.to_vec()));
            }
            received
        };
        let mut received: Vec<_> = thread::scope(|scope| {
            let spawn = |thread| scope.spawn(move || exchange(thread));
            let threads: Vec<_> = (0..THREADS).map(spawn).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        });
        while (received.len() as u64) < THREADS * MESSAGES {
            if let Some(buf) = pool.take() {
                let _ = ep.recv(buf, own_addr, Context(0));
            }
            received.extend(poll_all(&ep).into_iter().map(|done| done.buf.to_vec()));
        }
        let distinct: HashSet<_> = received.iter().collect();
        assert_eq!(
            distinct.len(),
            received.len(),
            "a message was received twice"
        );
        drop(ep);
        assert_eq!(pool.available(), 8);
    });
}
