//! Lent messages over a provider that cannot lend: the same calls send ordinary messages.

use selvedge::owned::{Buf, Completions, Endpoint, Pool, SharedBuf, View};
use selvedge::{Context, Errno, FiAddr};

use crate::loopback::Net;
use crate::under_watchdog;

fn filled(pool: &Pool, bytes: &[u8]) -> Buf {
    let mut buf = pool.take().unwrap();
    buf.write(bytes).unwrap();
    buf
}

/// The message of the next completion of a lending receive.
fn view(ep: &Endpoint) -> View {
    let mut done = Completions::with_capacity(1);
    while ep.poll(&mut done).unwrap() == 0 {}
    let completion = done.drain().next().unwrap();
    completion.into_view().unwrap().0
}

#[test]
fn a_lent_message_is_an_ordinary_one_where_the_provider_cannot_lend() {
    let net = Net::new();
    let ((a, _), (b, b_addr)) = (net.polled(), net.polled());
    let pool = net.pool(4);
    let lent = filled(&pool, b"lent");
    let memory = lent.as_ptr();
    b.recv_lent(pool.take().unwrap(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    a.lend(lent, b_addr, Context(2)).unwrap();
    let received = view(&b);
    assert!(!received.is_lent());
    assert_eq!(received.to_vec().unwrap(), b"lent");
    assert_eq!(received.read::<[u8; 2]>(2), Ok(*b"nt"));
    assert_eq!(received.read::<[u8; 2]>(3), Err(Errno::Inval));
    let mut done = Completions::with_capacity(1);
    while a.poll(&mut done).unwrap() == 0 {}
    assert_eq!(done.drain().next().unwrap().buf.as_ptr(), memory);
    assert_eq!(pool.available(), 3);
    assert_eq!(&received.into_buf().unwrap()[..], b"lent");
    assert_eq!(pool.available(), 4);
}

#[test]
fn a_shared_buffer_is_sent_to_several_peers_and_is_no_receive_buffer() {
    let net = Net::new();
    let (a, a_addr) = net.polled();
    let pool = net.pool(4);
    let shared = SharedBuf::from(filled(&pool, b"for all"));
    for tag in 0..3 {
        a.trecv_lent(pool.take().unwrap(), FiAddr::UNSPEC, tag, Context(tag))
            .unwrap();
        a.tlend_shared(&shared, a_addr, tag, Context(10 + tag))
            .unwrap();
    }
    let shared = shared.into_buf().unwrap_err();
    let mut done = Completions::with_capacity(16);
    while a.poll(&mut done).unwrap() < 6 {}
    let mut views = Vec::new();
    for completion in done.drain() {
        match completion.context {
            Context(10..) => {
                // The bytes belong to all holders: the buffer of the completion has none of them.
                let mut buf = completion.buf;
                assert_eq!((buf.capacity(), buf.set_len(1)), (0, Err(Errno::TooSmall)));
            }
            _ => views.push(completion.into_view().unwrap().0),
        }
    }
    for view in &views {
        assert_eq!(view.to_vec().unwrap(), b"for all");
    }
    assert_eq!(views.len(), 3);
    let buf = shared.into_buf().expect("no operation uses the buffer");
    assert_eq!(&buf[..], b"for all");
}

#[test]
fn a_refused_post_gives_a_shared_buffer_back_without_its_bytes() {
    let net = Net::new();
    net.set(|settings| settings.depth = 0);
    let (a, a_addr) = net.polled();
    let pool = net.pool(1);
    let shared = SharedBuf::from(filled(&pool, b"for all"));
    let refused = a.lend_shared(&shared, a_addr, Context(1)).unwrap_err();
    assert_eq!((refused.errno, refused.buf.capacity()), (Errno::Again, 0));
    let shared = shared.into_buf().unwrap_err();
    drop(refused);
    assert_eq!(&shared.into_buf().unwrap()[..], b"for all");
}

#[test]
fn lent_messages_are_awaited() {
    under_watchdog(|| {
        let net = Net::new();
        let ((a, _), (b, b_addr)) = (net.awaited(), net.awaited());
        let pool = net.pool(4);
        let shared = SharedBuf::from(filled(&pool, b"shared"));
        let all = async {
            let lend = a.tlend(filled(&pool, b"lent"), b_addr, 1);
            let receive = b.trecv_lent(pool.take().unwrap(), FiAddr::UNSPEC, 1);
            let (sent, (view, received)) = futures::try_join!(lend, receive).unwrap();
            assert_eq!((&sent[..], received.len), (&b"lent"[..], 4));
            assert_eq!(view.to_vec().unwrap(), b"lent");
            let lend = a.lend_shared(&shared, b_addr);
            let receive = b.recv_lent(pool.take().unwrap(), FiAddr::UNSPEC);
            let (sent, (view, _)) = futures::try_join!(lend, receive).unwrap();
            assert_eq!((sent.capacity(), view.len()), (0, 6));
        };
        futures::executor::block_on(all);
    });
}
