//! Many senders, many threads, many endpoints.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::info::EpType;
use selvedge::{CompletionFlags, FiAddr};
use selvedge_testkit::random::Random;

use crate::common::{Done, MessageEndpoint, MessagePair, Rx, Tx, pattern, received};
use crate::provider;

/// Sizes at which messages take different protocols.
const SIZES: [usize; 6] = [0, 20, 200, 3000, 9000, 40_000];
const LARGEST: usize = 40_016;

/// Returns the bytes of a message: its sender, its number, and a pattern of `len` bytes.
fn signed(sender: u64, number: u64, len: usize) -> Vec<u8> {
    let mut bytes = sender.to_le_bytes().to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(pattern(sender << 32 | number, len));
    bytes
}

/// Reads sender and number of a message, and checks every byte.
fn signature(done: &Done) -> (u64, u64) {
    let len = done.outcome.as_ref().expect("a receive has failed").len;
    let word =
        |offset: usize| u64::from_le_bytes(done.bytes[offset..offset + 8].try_into().unwrap());
    let (sender, number) = (word(0), word(8));
    assert!(done.bytes[..len] == signed(sender, number, len - 16));
    (sender, number)
}

/// Asserts that each of the senders' messages was received once, and that receives in the order of
/// their posts took them in the order of their sends.
fn assert_complete(mut received: Vec<Done>, senders: u64, messages: u64) {
    received.sort_by_key(|done| done.context());
    let mut next = vec![0; senders as usize];
    for done in &received {
        let (sender, number) = signature(done);
        assert_eq!(number, next[sender as usize], "of sender {sender}");
        next[sender as usize] += 1;
    }
    assert_eq!(next, vec![messages; senders as usize]);
}

fn is_receive(done: &Done) -> bool {
    done.entry().flags.contains(CompletionFlags::RECV)
}

#[test]
fn many_senders_reach_one_receiver_and_receive_its_replies() {
    const SENDERS: u64 = 40;
    const MESSAGES: u64 = 12;
    let sut = provider::with_defaults();
    let rx = sut.endpoint();
    let tx: Vec<_> = (0..SENDERS).map(|_| sut.endpoint()).collect();
    let to: Vec<_> = tx.iter().map(|side| side.insert_endpoint(&rx)).collect();
    let sources: Vec<_> = tx.iter().map(|side| rx.insert_endpoint(side)).collect();
    let mut random = Random::new(3);
    let mut done = Vec::new();
    for number in 0..MESSAGES {
        for (sender, side) in (0..).zip(&tx) {
            rx.recv(&Rx::msg(LARGEST).context(number * SENDERS + sender));
            let bytes = signed(sender, number, *random.pick(&SIZES));
            let message = Tx::msg(to[sender as usize], &bytes).context(number);
            side.send_retrying(&message, &[&rx]);
        }
        let others: Vec<_> = tx.iter().map(|sender| &**sender).collect();
        for _ in 0..SENDERS {
            done.push(rx.wait(&others));
        }
    }
    for (sender, done) in done.iter().map(|done| (signature(done).0, done)) {
        assert_eq!(done.src, sources[sender as usize]);
    }
    assert_complete(done, SENDERS, MESSAGES);
    for (side, &to) in tx.iter().zip(&sources) {
        assert_eq!(side.drain(&[&rx]).len() as u64, MESSAGES);
        side.recv(&Rx::tagged(1, 4));
        rx.ep.tinject(b"back", to, 1, None).unwrap();
        side.wait(&[&rx]).assert_bytes(b"back");
    }
}

#[test]
fn senders_whose_queues_are_always_full_are_all_polled() {
    const SENDERS: usize = 20;
    let sut = provider::with_defaults();
    let rx = sut.endpoint();
    let tx: Vec<_> = (0..SENDERS).map(|_| sut.endpoint()).collect();
    let to: Vec<_> = tx.iter().map(|side| side.insert_endpoint(&rx)).collect();
    let sources: Vec<_> = tx.iter().map(|side| rx.insert_endpoint(side)).collect();
    let fill = |sender: usize| {
        let signed = (sender as u64).to_le_bytes();
        while tx[sender].ep.inject(&signed, to[sender], None).is_ok() {}
    };
    (0..SENDERS).for_each(fill);
    let start = Instant::now();
    let mut received = vec![0; SENDERS];
    // More messages than a queue holds: each sender was polled, unpolled and polled again.
    while received.iter().any(|&count| count < 600) {
        assert!(start.elapsed() < Duration::from_secs(20), "{received:?}");
        rx.recv(&Rx::msg(8));
        let done = rx.wait(&[]);
        let sender = sources.iter().position(|&src| src == done.src).unwrap();
        received[sender] += 1;
        fill(sender);
    }
}

#[test]
fn senders_in_threads_of_their_own_reach_one_receiver() {
    const SENDERS: u64 = 12;
    const MESSAGES: u64 = 100;
    let sut = provider::with_defaults();
    let rx = sut.endpoint();
    for context in 0..SENDERS * MESSAGES {
        rx.recv(&Rx::tagged(7, LARGEST).context(context));
    }
    let mut done = Vec::new();
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            let (sut, rx) = (&sut, &rx);
            scope.spawn(move || {
                let side = sut.endpoint();
                let to = side.insert_endpoint(rx);
                let mut random = Random::new(sender);
                for number in 0..MESSAGES {
                    let bytes = signed(sender, number, *random.pick(&SIZES));
                    side.send_retrying(&Tx::tagged(to, 7, &bytes), &[]);
                    side.wait(&[]);
                }
            });
        }
        done.extend((0..SENDERS * MESSAGES).map(|_| rx.wait(&[])));
    });
    assert_complete(done, SENDERS, MESSAGES);
}

#[test]
fn threads_may_share_two_endpoints() {
    const THREADS: u64 = 4;
    const MESSAGES: u64 = 200;
    let pair = provider::with_defaults().pair();
    let (received, completed) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let collect = |side: &MessageEndpoint| {
        if let Some(done) = side.poll() {
            if is_receive(&done) {
                received.lock().unwrap().push(done);
            } else {
                completed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let all = THREADS * MESSAGES;
    let is_complete = || {
        let received = received.lock().unwrap().len() as u64;
        received == all && completed.load(Ordering::Relaxed) == all
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (pair, collect, is_complete) = (&pair, &collect, &is_complete);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for number in 0..MESSAGES {
                    let context = thread * MESSAGES + number;
                    pair.b.recv(&Rx::tagged(thread, LARGEST).context(context));
                    let bytes = signed(thread, number, *random.pick(&SIZES));
                    let tx = Tx::tagged(pair.to_b, thread, &bytes).context(context);
                    while pair.a.try_send(&tx).is_err() {
                        collect(&pair.a);
                        collect(&pair.b);
                    }
                    collect(&pair.b);
                }
                while !is_complete() {
                    collect(&pair.a);
                    collect(&pair.b);
                }
            });
        }
    });
    assert_complete(received.into_inner().unwrap(), THREADS, MESSAGES);
}

#[test]
fn datagram_endpoints_exchange_messages_too() {
    let pair = provider::with_params(&[], &provider::hints().ep_type(EpType::Dgram)).pair();
    for (number, len) in (0..).zip(SIZES) {
        let bytes = pattern(number, len);
        pair.b.recv(&Rx::tagged(number, len).context(number));
        pair.a.send(&Tx::tagged(pair.to_b, number, &bytes));
        let done = pair.wait_at_b();
        done.assert_entry(received(CompletionFlags::TAGGED, number, len, number));
        done.assert_bytes(&bytes);
        assert_eq!(done.src, pair.to_a);
        pair.wait_at_a();
    }
}

#[test]
fn endpoints_of_one_domain_and_of_two_reach_each_other() {
    let sut = provider::with_defaults();
    let domains = [sut.open_domain(), sut.open_domain()];
    let sides = [0, 0, 1, 1].map(|domain: usize| MessageEndpoint::open(&domains[domain]));
    for (index, b) in sides.iter().enumerate() {
        for a in &sides[..index] {
            let (to_b, to_a) = (a.insert_endpoint(b), b.insert_endpoint(a));
            b.recv(&Rx::msg(LARGEST).from(to_a));
            a.send(&Tx::msg(to_b, &pattern(1, LARGEST)));
            let done = b.wait(&[a]);
            assert_eq!(done.src, to_a);
            done.assert_bytes(&pattern(1, LARGEST));
            a.wait(&[b]);
        }
    }
}

#[test]
fn endpoints_may_share_a_queue_and_an_address_vector() {
    let domain = provider::with_defaults().open_domain();
    let (queue, av) = (domain.queue(0).unwrap(), domain.av().unwrap());
    let sides = [(); 2].map(|()| {
        MessageEndpoint::open_with(&domain, |_, config| {
            config.rx = Some(queue.clone());
            config.av = Some(Arc::clone(&av));
        })
    });
    let to: Vec<FiAddr> = sides
        .iter()
        .map(|side| side.insert_endpoint(side))
        .collect();
    sides[1].recv(&Rx::msg(LARGEST).context(1));
    sides[0].ep.inject(b"to the other", to[1], None).unwrap();
    let done = sides[1].wait(&[]);
    assert_eq!((done.context(), done.src), (1, to[0]));
    done.assert_bytes(b"to the other");
}

#[test]
fn a_pair_outlives_the_handles_that_it_was_opened_from() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    let ep = Arc::clone(&a.ep);
    drop(a);
    b.recv(&Rx::msg(4));
    ep.inject(b"last", to_b, None).unwrap();
    b.wait(&[]).assert_bytes(b"last");
}
