//! Lent messages over a provider that cannot lend: the safe layer sends ordinary messages, which
//! views own. The raw flag is refused.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use selvedge::owned::{
    AsyncEndpoint, Buf, Completion, Completions, Endpoint, OpError, Pool, Received, SharedBuf, View,
};
use selvedge::{AddressVector, Context, Domain, Errno, FiAddr, Info, OpFlags, alloc, av};
use selvedge_testkit::timeout::until;

use crate::common::{MessagePair, Rx, Tx};
use crate::provider;

/// Lengths of messages: inline, eager, and by a rendezvous where the provider has one.
const LENGTHS: [usize; 4] = [1, 64, 4096, 1 << 20];

/// A domain with the objects of one endpoint.
struct Side {
    info: Info,
    domain: Arc<dyn Domain>,
    av: Arc<dyn AddressVector>,
    /// Memory that a provider with special memory would lend.
    pool: Pool,
}

impl Side {
    fn open() -> Self {
        let info = provider::with_defaults().info();
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        Self {
            pool: Pool::special(&*domain, 1 << 20, 4, &alloc::Attr::default()).unwrap(),
            info,
            domain,
            av,
        }
    }

    fn polled(&self) -> Endpoint {
        Endpoint::open(&*self.domain, &self.info, Arc::clone(&self.av)).unwrap()
    }

    fn awaited(&self) -> AsyncEndpoint {
        AsyncEndpoint::open(&*self.domain, &self.info, Arc::clone(&self.av)).unwrap()
    }

    fn message(&self, len: usize) -> Buf {
        let mut buf = self.pool.take().unwrap();
        buf.set_len(len).unwrap();
        for (at, byte) in buf.iter_mut().enumerate() {
            *byte = byte_at(at, len);
        }
        buf
    }
}

fn byte_at(at: usize, len: usize) -> u8 {
    (at * 7 + at / 251 + len) as u8
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| byte_at(at, len)).collect()
}

/// Posts until the peer has connected and has room.
#[track_caller]
fn post(ep: &Endpoint, mut post: impl FnMut() -> Result<(), Errno>) {
    until("room for a post", || match post() {
        Ok(()) => Ok(Some(())),
        Err(Errno::Again) => {
            assert_eq!(ep.poll(&mut Completions::with_capacity(0)), Ok(0));
            Ok(None)
        }
        Err(errno) => panic!("the post fails: {errno}"),
    })
    .unwrap();
}

/// Polls a send and a receive until both are complete.
#[track_caller]
fn complete_both(
    send: impl Future<Output = Result<Buf, OpError>>,
    receive: impl Future<Output = Result<(View, Received), OpError>>,
) -> (Buf, View) {
    let (mut send, mut receive) = (pin!(send), pin!(receive));
    let mut cx = TaskContext::from_waker(Waker::noop());
    let (mut sent, mut received) = (None, None);
    until("a send and a receive", || {
        if sent.is_none()
            && let Poll::Ready(done) = send.as_mut().poll(&mut cx)
        {
            sent = Some(done.unwrap());
        }
        if received.is_none()
            && let Poll::Ready(done) = receive.as_mut().poll(&mut cx)
        {
            received = Some(done.unwrap().0);
        }
        Ok((sent.is_some() && received.is_some()).then_some(()))
    })
    .unwrap();
    (sent.unwrap(), received.unwrap())
}

/// Polls both endpoints until each has a completion.
#[track_caller]
fn complete(a: &Endpoint, b: &Endpoint) -> [Completion; 2] {
    let mut done = [(); 2].map(|()| Completions::with_capacity(1));
    let mut found = [None, None];
    until("a completion of each endpoint", || {
        for ((ep, done), found) in [a, b].into_iter().zip(&mut done).zip(&mut found) {
            if found.is_none() {
                ep.poll(done).unwrap();
                *found = done.drain().next();
            }
        }
        Ok(found.iter().all(Option::is_some).then_some(()))
    })
    .unwrap();
    found.map(Option::unwrap)
}

#[test]
fn lent_messages_of_every_size_are_received_into_the_buffers_of_their_receives() {
    let (a, b) = (Side::open(), Side::open());
    let (sender, receiver) = (a.polled(), b.polled());
    let to = a.av.insert_one(&receiver.address().unwrap()).unwrap();
    for (len, is_tagged) in LENGTHS
        .into_iter()
        .flat_map(|len| [(len, false), (len, true)])
    {
        let buf = b.pool.take().unwrap();
        let memory = buf.as_ptr();
        let posted = if is_tagged {
            receiver.trecv_lent(buf, FiAddr::UNSPEC, 3, Context(1))
        } else {
            receiver.recv_lent(buf, FiAddr::UNSPEC, Context(1))
        };
        posted.unwrap();
        let mut message = Some(a.message(len));
        let source = message.as_ref().unwrap().as_ptr();
        post(&sender, || {
            let buf = message.take().unwrap();
            let posted = if is_tagged {
                sender.tlend(buf, to, 3, Context(2))
            } else {
                sender.lend(buf, to, Context(2))
            };
            posted.map(drop).map_err(|refused| {
                message = Some(refused.buf);
                refused.errno
            })
        });
        let [sent, received] = complete(&sender, &receiver);
        sent.result.unwrap();
        assert_eq!(sent.buf.as_ptr(), source, "the sender's own buffer");
        let (view, received) = received.into_view().unwrap();
        assert!(!view.is_lent() && received.len == len);
        assert!(view.to_vec().unwrap() == bytes(len), "{len} bytes");
        assert_eq!(b.pool.available(), 3, "the view owns the buffer");
        assert_eq!(view.into_buf().unwrap().as_ptr(), memory);
        assert_eq!(b.pool.available(), 4);
    }
}

#[test]
fn shared_and_lent_messages_are_awaited_as_ordinary_ones() {
    let (a, b) = (Side::open(), Side::open());
    let (sender, receiver) = (a.awaited(), b.awaited());
    let to = a.av.insert_one(&receiver.address().unwrap()).unwrap();
    for len in LENGTHS {
        let lend = sender.lend(a.message(len), to);
        let receive = receiver.recv_lent(b.pool.take().unwrap(), FiAddr::UNSPEC);
        let (sent, view) = complete_both(lend, receive);
        assert_eq!(sent.len(), len);
        assert!(!view.is_lent() && view.to_vec().unwrap() == bytes(len));
        drop((sent, view));
        let shared = SharedBuf::from(a.message(len));
        let lend = sender.tlend_shared(&shared, to, 3);
        let receive = receiver.trecv_lent(b.pool.take().unwrap(), FiAddr::UNSPEC, 3);
        let (sent, view) = complete_both(lend, receive);
        assert_eq!(sent.capacity(), 0);
        assert!(!view.is_lent() && view.to_vec().unwrap() == bytes(len));
        drop(sent);
        let buf = shared.into_buf().expect("no operation uses the buffer");
        assert!(buf[..] == bytes(len));
    }
    assert_eq!((a.pool.available(), b.pool.available()), (4, 4));
}

#[test]
fn the_flag_of_lent_messages_is_refused() {
    let MessagePair { a, b, to_b, .. } = provider::with_defaults().pair();
    assert!(a.ep.lending().is_none());
    for flags in [OpFlags::LEND, OpFlags::LEND | OpFlags::DEFAULT] {
        for tx in [Tx::msg(to_b, b"x"), Tx::tagged(to_b, 7, b"x")] {
            assert_eq!(a.try_send(&tx.flags(flags)), Err(Errno::BadFlags));
        }
        for rx in [Rx::msg(8), Rx::tagged(7, 8)] {
            assert_eq!(b.try_recv(&rx.flags(flags)), Err(Errno::BadFlags));
        }
    }
}
