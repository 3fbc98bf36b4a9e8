//! Lent messages that are awaited, by threads that park.

use std::sync::Arc;
use std::thread;

use selvedge::owned::{AsyncEndpoint, Pool, SharedBuf};
use selvedge::{FiAddr, alloc, av, wait};

use crate::common::{info, pattern};

const MESSAGES: usize = 200;
const LEN: usize = 100_000;

#[test]
fn lent_messages_are_awaited_by_parked_threads() {
    let info = info(&[]);
    let domain = info.open().unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let [a, b] = [(); 2].map(|()| {
        AsyncEndpoint::open_waiting(&*domain, &info, Arc::clone(&av), wait::Object::Unspec).unwrap()
    });
    let to = av.insert_one(&b.address().unwrap()).unwrap();
    let special = Pool::special(&*domain, LEN, 2, &alloc::Attr::default()).unwrap();
    let small = Pool::new(&*domain, 8, 1).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                let mut buf = special.take().unwrap();
                buf.write(&pattern(number, LEN)).unwrap();
                let sent = match number % 2 {
                    0 => a.run(a.tlend(buf, to, number as u64)),
                    _ => a.run(a.tlend_shared(&SharedBuf::from(buf), to, number as u64)),
                };
                sent.unwrap().unwrap();
            }
        });
        for number in 0..MESSAGES {
            let receive = b.trecv_lent(small.take().unwrap(), FiAddr::UNSPEC, number as u64);
            let (view, received) = b.run(receive).unwrap().unwrap();
            assert!(view.is_lent());
            assert_eq!((received.tag, received.len), (number as u64, LEN));
            assert!(view.to_vec().unwrap() == pattern(number, LEN));
        }
    });
    assert_eq!(special.available(), 2);
}

#[test]
fn a_dropped_future_of_a_lending_receive_gives_its_message_back() {
    let info = info(&[]);
    let domain = info.open().unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let [a, b] = [(); 2].map(|()| AsyncEndpoint::open(&*domain, &info, Arc::clone(&av)).unwrap());
    let to = av.insert_one(&b.address().unwrap()).unwrap();
    let special = Pool::special(&*domain, LEN, 1, &alloc::Attr::default()).unwrap();
    let small = Pool::new(&*domain, 8, 1).unwrap();
    let mut buf = special.take().unwrap();
    buf.write(&pattern(1, LEN)).unwrap();
    let mut lend = Box::pin(a.lend(buf, to));
    let mut receive = Box::pin(b.recv_lent(small.take().unwrap(), FiAddr::UNSPEC));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(lend.as_mut().poll(&mut cx).is_pending());
    // The message arrives while the future waits, and the future is dropped unread.
    assert!(receive.as_mut().poll(&mut cx).is_pending());
    for _ in 0..1000 {
        b.progress().unwrap();
    }
    drop(receive);
    let sent = loop {
        if let std::task::Poll::Ready(sent) = lend.as_mut().poll(&mut cx) {
            break sent.unwrap();
        }
        b.progress().unwrap();
    };
    assert!(sent[..] == pattern(1, LEN));
    assert_eq!(small.available(), 1);
}
