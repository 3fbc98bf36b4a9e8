//! Futures under tokio, whose reactor waits for the descriptors of their endpoints.

#![expect(
    unsafe_code,
    reason = "tokio cannot check that a descriptor stays open"
)]

use std::future::Future;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{join, select};
use selvedge::owned::{AsyncEndpoint, Pool};
use selvedge::{Errno, FiAddr};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task;

use crate::{ROUNDS, over_each_provider};

/// Drives the futures of an endpoint. Returns the number of times that the task has blocked.
async fn drive(ep: Arc<AsyncEndpoint>, blocked: &mut u64) {
    let fd = ep.wait_fd().unwrap().try_clone_to_owned().unwrap();
    // SAFETY: the value owns the descriptor, which stays open and the same.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.unwrap();
    loop {
        ep.progress().unwrap();
        match ep.try_wait() {
            Ok(()) => {
                *blocked += 1;
                fd.readable().await.unwrap().clear_ready();
            }
            Err(errno) => {
                assert_eq!(errno, Errno::Again);
                task::yield_now().await;
            }
        }
    }
}

async fn send(ep: &AsyncEndpoint, peer: FiAddr, pool: &Pool, number: u64) {
    let mut buf = pool.take().unwrap();
    buf.write(&number.to_ne_bytes()).unwrap();
    ep.send(buf, peer).await.unwrap();
}

async fn receive(ep: &AsyncEndpoint, pool: &Pool) -> u64 {
    let received = ep.recv(pool.take().unwrap(), FiAddr::UNSPEC).await;
    let (message, _) = received.unwrap();
    u64::from_ne_bytes(message[..].try_into().unwrap())
}

/// Runs a future on one thread, beside a task for each endpoint that drives its futures. Returns
/// the number of times that the tasks have blocked.
fn run(eps: [&Arc<AsyncEndpoint>; 2], exchange: impl Future<Output = ()>) -> [u64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let mut blocked = [0; 2];
    {
        let [first, second] = &mut blocked;
        let both = join(
            drive(Arc::clone(eps[0]), first),
            drive(Arc::clone(eps[1]), second),
        );
        runtime.block_on(async {
            let (both, exchange) = (both.boxed_local(), exchange.boxed_local());
            select(both, exchange).await;
        });
    }
    blocked
}

#[test]
fn tokio_drives_futures_by_the_descriptors_of_their_endpoints() {
    over_each_provider(|transport| {
        let ((a, a_addr), (b, b_addr)) = (transport.awaited(), transport.awaited());
        let pool = transport.pool(4);
        let client = async {
            for number in 0..ROUNDS {
                let received = receive(&a, &pool);
                let sent = send(&a, b_addr, &pool, number);
                assert_eq!(join(sent, received).await.1, number + 1);
            }
        };
        let server = async {
            for _ in 0..ROUNDS {
                let number = receive(&b, &pool).await;
                send(&b, a_addr, &pool, number + 1).await;
            }
        };
        let blocked = run([&a, &b], join(client, server).map(|_| ()));
        assert!(blocked.iter().all(|&count| count > 0), "{blocked:?}");
    });
}

#[test]
fn a_future_that_is_polled_between_the_check_and_the_block_is_woken() {
    over_each_provider(|transport| {
        let ((a, a_addr), (b, b_addr)) = (transport.awaited(), transport.awaited());
        let pool = transport.pool(8);
        let exchange = async {
            for number in 0..ROUNDS {
                // The tasks that drive the endpoints run and block before the futures are posted.
                for _ in 0..4 {
                    task::yield_now().await;
                }
                let sends = join(
                    send(&a, b_addr, &pool, number),
                    send(&b, a_addr, &pool, number),
                );
                let receives = join(receive(&b, &pool), receive(&a, &pool));
                assert_eq!(join(sends, receives).await.1, (number, number));
            }
        };
        run([&a, &b], exchange);
    });
}
