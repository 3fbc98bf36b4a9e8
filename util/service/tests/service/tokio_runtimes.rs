//! Futures in the runtimes of tokio.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use selvedge_service::{Connection, Error, Event, Listener, connect};
use tokio::runtime::{Builder, Runtime};

use crate::{addresses, bounded, name};

fn runtimes() -> [Runtime; 2] {
    let current = Builder::new_current_thread().enable_all().build();
    let multi = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    [current.unwrap(), multi.unwrap()]
}

/// Responds to requests in a task, until the listener is the only one left.
async fn echo(listener: Arc<Listener>) {
    let served = listener.serve(async |request| {
        tokio::task::yield_now().await;
        request.respond(&request);
    });
    served.await.unwrap();
}

#[test]
fn tasks_exchange_requests_and_responses_beside_other_tasks() {
    for address in addresses() {
        for runtime in runtimes() {
            bounded(|| {
                runtime.block_on(async {
                    let listener = Arc::new(Listener::bind(&address).unwrap());
                    let address = listener.addresses().unwrap().remove(0);
                    let server = tokio::spawn(echo(Arc::clone(&listener)));
                    let connection = Arc::new(connect(&address).await.unwrap());
                    let ticking = tokio::spawn(async {
                        let mut interval = tokio::time::interval(Duration::from_millis(1));
                        for _ in 0..50 {
                            interval.tick().await;
                        }
                    });
                    let tasks = (0..20_u64).map(|task| {
                        let connection = Arc::clone(&connection);
                        tokio::spawn(async move {
                            for number in 0..50 {
                                let request = (task * 1000 + number).to_le_bytes().repeat(300);
                                let response = connection.request(&request).await.unwrap();
                                assert_eq!(*response, *request);
                            }
                        })
                    });
                    for task in tasks.collect::<Vec<_>>() {
                        task.await.unwrap();
                    }
                    ticking.await.unwrap();
                    server.abort();
                });
            });
        }
    }
}

#[test]
fn futures_that_are_dropped_at_any_point_lose_no_message_and_no_other_request() {
    for address in addresses() {
        for runtime in runtimes() {
            bounded(|| {
                runtime.block_on(async {
                    let listener = Arc::new(Listener::bind(&address).unwrap());
                    let address = listener.addresses().unwrap().remove(0);
                    let server = tokio::spawn(numbers_and_echo(Arc::clone(&listener)));
                    let connection = connect(&address).await.unwrap();
                    connection.send(b"numbers").await.unwrap();
                    let mut received = 0_u32;
                    for micros in 0..400_u64 {
                        let limit = Duration::from_micros(micros % 97);
                        let request = micros.to_le_bytes().repeat(1 + 20 * (micros as usize % 50));
                        let dropped = connection.request(&request);
                        let _ = tokio::time::timeout(limit, dropped).await;
                        let message = tokio::time::timeout(limit, connection.receive()).await;
                        if let Ok(message) = message {
                            assert_eq!(*message.unwrap(), received.to_le_bytes());
                            received += 1;
                        }
                        if micros % 40 == 0 {
                            let kept = connection.request(&request).await.unwrap();
                            assert_eq!(*kept, *request);
                        }
                    }
                    while received < 500 {
                        let message = connection.receive().await.unwrap();
                        assert_eq!(*message, received.to_le_bytes());
                        received += 1;
                    }
                    drop(connection);
                    server.await.unwrap();
                });
            });
        }
    }
}

/// Sends numbers for a message, and responds to requests. Each wait for an event is dropped many
/// times.
async fn numbers_and_echo(listener: Arc<Listener>) {
    let mut tasks = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_micros(50), listener.event());
        match event.await {
            Err(_) => {}
            Ok(Ok(Event::Message(peer, _))) => tasks.push(tokio::spawn(async move {
                for number in 0..500_u32 {
                    peer.send(&number.to_le_bytes()).await.unwrap();
                }
            })),
            Ok(Ok(Event::Request(request))) => {
                let response = request.to_vec();
                request.respond(&response);
            }
            Ok(Ok(Event::Lost(..))) => break,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => panic!("{error}"),
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn a_deadline_ends_a_request_in_a_task() {
    for runtime in runtimes() {
        bounded(|| {
            let name = name();
            let listener = Listener::bind(&name).unwrap();
            runtime.block_on(async {
                let connecting = tokio::spawn(async move { connect(&name).await.unwrap() });
                listener.event().await.unwrap();
                let connection: Connection = connecting.await.unwrap();
                let short = Duration::from_millis(20);
                let result = connection.request(b"never").timeout(short).await;
                assert_eq!(result.unwrap_err(), Error::Timeout(short));
            });
        });
    }
}

#[test]
fn a_connection_moves_from_a_runtime_to_a_thread() {
    bounded(|| {
        let name = name();
        let listener = Listener::bind(&name).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let [first, second] = runtimes();
                let connection = first.block_on(async { connect(&name).await.unwrap() });
                assert_eq!(&*connection.request(b"thread").wait().unwrap(), b"thread");
                drop(first);
                assert_eq!(&*connection.request(b"again").wait().unwrap(), b"again");
                second.block_on(async {
                    assert_eq!(&*connection.request(b"task").await.unwrap(), b"task");
                });
            });
            crate::serve_until_lost(&listener, <[u8]>::to_vec);
        });
    });
}
