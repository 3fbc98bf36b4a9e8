//! Futures that are dropped after each number of polls.

use std::pin::pin;
use std::task::Poll;

use futures::future::{poll_fn, select};
use selvedge_service::{Error, Event, Listener, Publisher, connect, run, subscribe};

use crate::{addresses, bounded, pattern};

/// Polls `future` at most `polls` times, when it is woken, and drops it then.
async fn polled<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Responds to requests, and sends each message back, by events that are dropped again and again.
async fn echo(listener: &Listener) -> Result<(), Error> {
    for turn in 0_u32.. {
        match polled(1 + turn % 3, listener.event()).await.transpose()? {
            Some(Event::Request(request)) => request.respond(&request),
            Some(Event::Message(peer, message)) => {
                let sent = peer.send(&message).await;
                assert!(matches!(sent, Ok(()) | Err(Error::Ended(_))), "{sent:?}");
            }
            _ => yield_once().await,
        }
    }
    Ok(())
}

#[test]
fn each_future_may_be_dropped_after_each_poll() {
    for address in addresses() {
        bounded(|| {
            let listener = Listener::bind(&address).unwrap();
            let address = listener.addresses().unwrap().remove(0);
            let client = async {
                for polls in 0..8 {
                    drop(polled(polls, connect(&address)).await);
                    let connection = connect(&address).await.unwrap();
                    for len in [8, 100_000] {
                        let bytes = pattern(len, polls as usize);
                        drop(polled(polls, connection.request(&bytes)).await);
                        let response = connection.request(&bytes).await.unwrap();
                        assert_eq!(*response, *bytes);
                        drop(polled(polls, connection.send(&bytes)).await);
                        connection.send(b"last").await.unwrap();
                        // The dropped send may have sent its message; a dropped receive takes none.
                        let mut next = polled(polls, connection.receive()).await;
                        loop {
                            let message = match next.take() {
                                Some(message) => message.unwrap(),
                                None => connection.receive().await.unwrap(),
                            };
                            if *message == *b"last" {
                                break;
                            }
                            assert_eq!(*message, *bytes);
                        }
                    }
                }
            };
            let (client, server) = (pin!(client), pin!(echo(&listener)));
            let finished = run(select(client, server));
            assert!(matches!(finished, Ok(futures::future::Either::Left(_))));
        });
    }
}

#[test]
fn a_subscription_may_be_dropped_after_each_poll() {
    for address in addresses() {
        bounded(|| {
            let publisher = Publisher::bind(&address, 100).unwrap();
            let address = publisher.addresses().unwrap().remove(0);
            let finished = run(async {
                let subscriber = async {
                    for polls in 0..8 {
                        drop(polled(polls, subscribe(&address)).await);
                    }
                    let mut subscriber = subscribe(&address).await.unwrap();
                    for number in 0..60_u64 {
                        publisher.publish(&number.to_le_bytes()).unwrap();
                        let next = polled(number as u32 % 5, subscriber.receive()).await;
                        let next = match next {
                            Some(next) => next.unwrap(),
                            None => subscriber.receive().await.unwrap(),
                        };
                        assert_eq!((next.number(), next.lost()), (number, 0));
                    }
                };
                let serve = pin!(publisher.serve());
                select(pin!(subscriber), serve).await;
            });
            assert_eq!(finished, Ok(()));
        });
    }
}

/// Lets other futures run once.
async fn yield_once() {
    let mut is_first = true;
    poll_fn(|cx| {
        if std::mem::take(&mut is_first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
