//! Messages that are gathered from several buffers.

use futures::executor::block_on;
use futures::future::join_all;
use selvedge::owned::{Buf, Completions, Pool};
use selvedge::{Context, Errno, FiAddr};

use crate::{Shm, message, pattern, under_watchdog};

/// Lengths of segments: of an inline message, with empty segments, and of a rendezvous.
const LENGTHS: [&[usize]; 5] = [
    &[3],
    &[1, 0, 4],
    &[0, 0],
    &[100, 4000, 1, 900],
    &[8, 1 << 20, 300_000],
];

/// Returns a buffer for each length. Their seeds are consecutive from `seed` on.
fn segments(pool: &Pool, lengths: &[usize], seed: usize) -> (Buf, Vec<Buf>) {
    let numbered = lengths.iter().zip(seed..);
    let mut bufs: Vec<_> = numbered
        .map(|(&len, seed)| message(pool, len, seed))
        .collect();
    let rest = bufs.split_off(1);
    (bufs.remove(0), rest)
}

/// The message that [`segments`] makes.
fn whole(lengths: &[usize], seed: usize) -> Vec<u8> {
    let segment = |(&len, seed)| (0..len).map(move |index| pattern(index, seed));
    lengths.iter().zip(seed..).flat_map(segment).collect()
}

fn concatenated(bufs: &[Buf]) -> Vec<u8> {
    bufs.iter().flat_map(|buf| buf.to_vec()).collect()
}

fn assert_segments(holder: Buf, lengths: &[usize], seed: usize) {
    assert_eq!((holder.len(), holder.capacity()), (0, 0));
    let segments = holder.into_segments();
    assert_eq!(segments.len(), lengths.len());
    assert!(concatenated(&segments) == whole(lengths, seed));
}

#[test]
fn a_gathered_message_arrives_whole_and_returns_all_its_buffers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let ((a, _), (b, b_addr)) = (shm.polled(), shm.polled());
        let pool = shm.pool(2 << 20, 6);
        for (seed, lengths) in LENGTHS.into_iter().enumerate() {
            let (head, rest) = segments(&pool, lengths, seed);
            b.trecv(pool.take().unwrap(), FiAddr::UNSPEC, 7, Context(1))
                .unwrap();
            a.tsendv(head, rest, b_addr, 7, Context(2)).unwrap();
            let (mut sent, mut received) =
                (Completions::with_capacity(1), Completions::with_capacity(1));
            while a.poll(&mut sent).unwrap() + b.poll(&mut received).unwrap() < 2 {}
            let received = received.drain().next().unwrap();
            received.result.unwrap();
            assert!(received.buf[..] == whole(lengths, seed));
            let sent = sent.drain().next().unwrap();
            assert_eq!((sent.context, sent.result.is_ok()), (Context(2), true));
            assert_segments(sent.buf, lengths, seed);
        }
    });
}

#[test]
fn a_refused_gathered_message_returns_all_its_buffers() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (ep, own_addr) = shm.polled();
        let lengths = vec![10; shm.info.tx_attr.iov_limit + 1];
        let pool = shm.pool(64, lengths.len());
        let (head, rest) = segments(&pool, &lengths, 5);
        let refused = ep.sendv(head, rest, own_addr, Context(1)).unwrap_err();
        assert_eq!(refused.errno, Errno::Inval);
        assert_segments(refused.buf, &lengths, 5);
        assert_eq!(pool.available(), lengths.len());
    });
}

#[test]
fn closing_returns_the_buffers_of_gathered_messages() {
    under_watchdog(|| {
        let shm = Shm::open();
        let (ep, own_addr) = shm.polled();
        let pool = shm.pool(1 << 20, 3);
        let (head, rest) = segments(&pool, &[8, 1 << 20, 300_000], 0);
        ep.sendv(head, rest, own_addr, Context(1)).unwrap();
        assert_eq!(pool.available(), 0);
        drop(ep);
        assert_eq!(pool.available(), 3);
    });
}

#[test]
fn gathered_messages_wait_for_room_in_the_queue() {
    under_watchdog(|| {
        const MESSAGES: usize = 3000;
        const LENGTHS: [usize; 2] = [4, 9];
        let shm = Shm::open();
        let (ep, own_addr) = shm.awaited();
        let pool = shm.pool(16, 3 * MESSAGES);
        let sends = (0..MESSAGES).map(|seed| {
            let (head, rest) = segments(&pool, &LENGTHS, seed);
            ep.sendv(head, rest, own_addr)
        });
        let receives = async {
            for seed in 0..MESSAGES {
                let received = ep.recv(pool.take().unwrap(), FiAddr::UNSPEC).await;
                assert_eq!(&received.unwrap().0[..], whole(&LENGTHS, seed));
            }
        };
        let both = async { futures::join!(join_all(sends), receives).0 };
        for (seed, sent) in block_on(both).into_iter().enumerate() {
            assert_segments(sent.unwrap(), &LENGTHS, seed);
        }
        assert_eq!(pool.available(), 3 * MESSAGES);
    });
}

#[test]
fn an_ordinary_buffer_is_its_only_segment() {
    let pool = Shm::open().pool(16, 1);
    let segments = message(&pool, 9, 1).into_segments();
    assert_eq!(concatenated(&segments), whole(&[9], 1));
}
