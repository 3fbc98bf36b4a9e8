//! Requests: outstanding ones, deadlines, cancellation, failures.

use std::cell::Cell;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use futures::future::{join_all, select};
use selvedge_service::{Error, Event, Listener, Request, connect, run};

use crate::{addresses, bounded, connected, name, pattern};

#[test]
fn many_outstanding_requests_have_their_own_responses() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let responses = (0..500_usize).map(|number| {
                        let connection = &connection;
                        async move {
                            let request = pattern(number * 37, number);
                            let response = connection.request(&request).await.unwrap();
                            assert!(response.iter().eq(request.iter().rev()), "{number}");
                        }
                    });
                    run(join_all(responses)).unwrap();
                });
                crate::serve_until_lost(&listener, |request| {
                    request.iter().rev().copied().collect()
                });
            });
        });
    }
}

#[test]
fn a_request_without_a_response_times_out_and_the_server_learns_of_it() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            thread::scope(|scope| {
                scope.spawn(move || {
                    let short = Duration::from_millis(50);
                    let result = connection.request(b"slow").timeout(short).wait();
                    assert_eq!(result.unwrap_err(), Error::Timeout(short));
                    assert_eq!(&*connection.request(b"fast").wait().unwrap(), b"fast");
                });
                let slow = next_request(&listener);
                assert!(slow.deadline().is_some());
                let fast = next_request(&listener);
                // The cancellation came before the next request.
                assert!(slow.is_cancelled());
                slow.respond(b"too late");
                assert!(!fast.is_cancelled());
                fast.respond(b"fast");
                let event = listener.event().wait().unwrap();
                assert!(matches!(event, Event::Lost(..)), "{event:?}");
            });
        });
    }
}

fn next_request(listener: &Listener) -> Request {
    match listener.event().wait().unwrap() {
        Event::Request(request) => request,
        event => panic!("{event:?}"),
    }
}

#[test]
fn a_dropped_request_is_cancelled_and_its_response_is_dropped() {
    bounded(|| {
        let (listener, connection) = connected(&name());
        thread::scope(|scope| {
            scope.spawn(move || {
                run(async {
                    let dropped = connection.request(b"dropped");
                    let kept = connection.request(b"kept");
                    // The server responds to the second request alone.
                    let first = select(dropped, kept).await;
                    let futures::future::Either::Right((kept, dropped)) = first else {
                        panic!("the first request has a response");
                    };
                    assert_eq!(&*kept.unwrap(), b"kept");
                    drop(dropped);
                    assert_eq!(&*connection.request(b"after").await.unwrap(), b"after");
                })
            });
            let dropped = next_request(&listener);
            next_request(&listener).respond(b"kept");
            let after = next_request(&listener);
            assert!(dropped.is_cancelled());
            dropped.respond(b"dropped");
            after.respond(b"after");
        });
    });
}

#[test]
fn a_failed_or_dropped_request_fails_at_the_client() {
    bounded(|| {
        let (listener, connection) = connected(&name());
        thread::scope(|scope| {
            scope.spawn(move || {
                let error = connection.request(b"fail").wait().unwrap_err();
                assert_eq!(error, Error::Failed("no such key".into()));
                let error = connection.request(b"drop").wait().unwrap_err();
                assert!(
                    error.to_string().contains("has dropped the request"),
                    "{error}"
                );
            });
            next_request(&listener).fail("no such key");
            drop(next_request(&listener));
            let event = listener.event().wait().unwrap();
            assert!(matches!(event, Event::Lost(..)), "{event:?}");
        });
    });
}

#[test]
fn serve_drops_the_handler_of_a_cancelled_request_and_handles_others_meanwhile() {
    /// Notes that a handler was dropped.
    struct Dropped(Rc<Cell<bool>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    bounded(|| {
        let (listener, connection) = connected(&name());
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                let short = Duration::from_millis(50);
                let result = connection.request(b"never").timeout(short).wait();
                assert_eq!(result.unwrap_err(), Error::Timeout(short));
                while &*connection.request(b"is it dropped?").wait().unwrap() != b"yes" {}
            });
            let is_dropped = Rc::new(Cell::new(false));
            let serve = listener.serve(async |request| {
                if &*request == b"never" {
                    let _dropped = Dropped(Rc::clone(&is_dropped));
                    std::future::pending::<()>().await;
                }
                request.respond(if is_dropped.get() { b"yes" } else { b"no" });
            });
            let is_done = std::future::poll_fn(|cx| {
                if client.is_finished() {
                    return std::task::Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                std::task::Poll::Pending
            });
            let serve = std::pin::pin!(serve);
            run(select(serve, is_done)).unwrap();
            client.join().unwrap();
        });
    });
}

#[test]
fn threads_share_a_connection() {
    for address in addresses() {
        bounded(|| {
            let (listener, connection) = connected(&address);
            thread::scope(|scope| {
                let connection = &connection;
                let clients: Vec<_> = (0..4_u8)
                    .map(|thread| {
                        scope.spawn(move || {
                            for number in 0..200_u8 {
                                let request = [thread, number];
                                assert_eq!(*connection.request(&request).wait().unwrap(), request);
                            }
                        })
                    })
                    .collect();
                for _ in 0..800 {
                    let request = next_request(&listener);
                    let response = request.to_vec();
                    request.respond(&response);
                }
                clients
                    .into_iter()
                    .for_each(|client| client.join().unwrap());
            });
        });
    }
}

#[test]
fn a_run_drives_every_listener_and_connection_of_its_future() {
    bounded(|| {
        let list = addresses().map(|address| Listener::bind(&address).unwrap());
        let clients = list.iter().map(async |listener| {
            let connection = connect(&listener.addresses().unwrap()[0]).await.unwrap();
            for number in 0..50_u8 {
                let response = connection.request(&[number]).await.unwrap();
                assert_eq!(*response, [number]);
            }
        });
        let servers = list
            .iter()
            .map(|listener| Box::pin(listener.serve(async |request| request.respond(&request))));
        let finished = run(select(
            join_all(clients),
            futures::future::select_all(servers),
        ));
        assert!(matches!(finished, Ok(futures::future::Either::Left(_))));
        // Another thread wakes the future of a run that drives nothing.
        let (sender, receiver) = futures::channel::oneshot::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(7).unwrap());
            assert_eq!(run(receiver).unwrap(), Ok(7));
        });
    });
}

#[test]
fn a_future_without_an_executor_says_so() {
    bounded(|| {
        let (listener, connection) = connected(&name());
        let mut response = std::pin::pin!(connection.request(b"ping"));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let polled = response.as_mut().poll(&mut cx);
        assert_eq!(
            polled.map(|it| it.unwrap_err()),
            std::task::Poll::Ready(Error::NoDriver)
        );
        drop(listener);
    });
}

#[test]
fn a_driver_makes_futures_work_under_any_executor() {
    bounded(|| {
        let (listener, connection) = connected(&name());
        thread::scope(|scope| {
            scope.spawn(move || {
                let driver = connection.driver();
                let is_done = std::sync::atomic::AtomicBool::new(false);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        use std::os::fd::AsFd;
                        while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                            if driver.drive().unwrap() {
                                let fd = nix::poll::PollFd::new(
                                    driver.as_fd(),
                                    nix::poll::PollFlags::POLLIN,
                                );
                                nix::poll::poll(&mut [fd], 50_u8).unwrap();
                            }
                        }
                    });
                    let response = futures::executor::block_on(connection.request(b"ping"));
                    assert_eq!(&*response.unwrap(), b"ping");
                    is_done.store(true, std::sync::atomic::Ordering::Release);
                });
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
        assert!(connect("shm://").wait().is_err());
    });
}
