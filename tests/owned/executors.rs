//! Futures under several executors.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use futures::future::join_all;
use selvedge::FiAddr;
use selvedge::owned::{AsyncEndpoint, Pool};

use crate::loopback::Net;
use crate::under_watchdog;

const MESSAGES: u64 = 40;

/// Sends and receives more messages than the queues hold, concurrently.
async fn flood(ep: &AsyncEndpoint, peer: FiAddr, pool: &Pool) {
    let sends = (0..MESSAGES).map(|tag| send(ep, peer, pool, tag));
    let receives = (0..MESSAGES).map(|tag| receive(ep, pool, tag));
    futures::join!(join_all(sends), join_all(receives));
}

async fn send(ep: &AsyncEndpoint, peer: FiAddr, pool: &Pool, tag: u64) {
    let mut buf = pool.take().unwrap();
    buf.write(&tag.to_ne_bytes()).unwrap();
    ep.tsend(buf, peer, tag).await.unwrap();
}

async fn receive(ep: &AsyncEndpoint, pool: &Pool, tag: u64) {
    let buf = pool.take().unwrap();
    let (buf, received) = ep.trecv(buf, FiAddr::UNSPEC, tag).await.unwrap();
    assert_eq!((&buf[..], received.tag), (&tag.to_ne_bytes()[..], tag));
}

/// Runs two endpoints that flood each other, under the executor `block_on`.
fn flood_under(block_on: impl FnOnce(Pin<&mut dyn Future<Output = ()>>) + Send + 'static) {
    under_watchdog(|| {
        let net = Net::new();
        net.set(|settings| settings.depth = 2);
        let (a, a_addr) = net.awaited();
        let (b, b_addr) = net.awaited();
        let pool = net.pool(4 * MESSAGES as usize);
        let both = async {
            futures::join!(flood(&a, b_addr, &pool), flood(&b, a_addr, &pool));
        };
        block_on(pin!(both));
        assert_eq!(pool.available(), 4 * MESSAGES as usize);
    });
}

/// Runs one future on this thread, which parks between wake-ups.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn futures_run_on_a_parking_thread() {
    flood_under(|both| block_on(both));
}

#[test]
fn futures_run_under_the_executor_of_the_futures_crate() {
    flood_under(|both| futures::executor::block_on(both));
}

#[test]
fn futures_run_under_tokio() {
    flood_under(|both| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(both);
    });
}

#[test]
fn tokio_tasks_share_an_endpoint() {
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.awaited();
        let (ep, pool) = (Arc::new(ep), net.pool(2 * MESSAGES as usize));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let tasks = (0..MESSAGES).map(|tag| {
            let (ep, pool) = (Arc::clone(&ep), pool.clone());
            runtime.spawn(async move {
                futures::join!(receive(&ep, &pool, tag), send(&ep, own_addr, &pool, tag));
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            runtime.block_on(task).unwrap();
        }
    });
}

type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// An executor that polls a task only after a wake-up of the task, and counts wake-ups.
#[derive(Default)]
struct CountingExecutor {
    woken: Mutex<VecDeque<usize>>,
    wakes: AtomicUsize,
}

struct TaskWaker {
    task: usize,
    executor: Arc<CountingExecutor>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.executor.wakes.fetch_add(1, Ordering::Relaxed);
        let mut woken = self.executor.woken.lock().unwrap();
        if !woken.contains(&self.task) {
            woken.push_back(self.task);
        }
    }
}

impl CountingExecutor {
    /// Runs the tasks until no task is woken. Returns the number of polls.
    fn run(self: &Arc<Self>, tasks: &mut [Option<Task<'_>>]) -> usize {
        self.woken.lock().unwrap().extend(0..tasks.len());
        let mut polls = 0;
        loop {
            let next = self.woken.lock().unwrap().pop_front();
            let Some(index) = next else {
                return polls;
            };
            let Some(task) = &mut tasks[index] else {
                continue;
            };
            let waker = TaskWaker {
                task: index,
                executor: Arc::clone(self),
            };
            polls += 1;
            let waker = Waker::from(Arc::new(waker));
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
            {
                tasks[index] = None;
            }
        }
    }
}

#[test]
fn no_wake_up_is_lost() {
    under_watchdog(|| {
        let net = Net::new();
        net.set(|settings| settings.depth = 3);
        let (ep, own_addr) = net.awaited();
        let pool = net.pool(2 * MESSAGES as usize);
        let mut tasks: Vec<Option<Task<'_>>> = Vec::new();
        for tag in 0..MESSAGES {
            tasks.push(Some(Box::pin(receive(&ep, &pool, tag))));
            tasks.push(Some(Box::pin(send(&ep, own_addr, &pool, tag))));
        }
        let executor = Arc::new(CountingExecutor::default());
        let polls = executor.run(&mut tasks);
        assert!(tasks.iter().all(Option::is_none), "a task is never woken");
        let wakes = executor.wakes.load(Ordering::Relaxed);
        assert!(
            polls <= wakes + tasks.len(),
            "{polls} polls, {wakes} wake-ups"
        );
    });
}

#[test]
fn threads_share_an_endpoint() {
    const THREADS: u64 = 4;
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.awaited();
        let pool = net.pool(2 * THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (ep, pool) = (&ep, &pool);
                scope.spawn(move || {
                    for i in 0..MESSAGES {
                        let tag = thread * MESSAGES + i;
                        let both = async {
                            futures::join!(receive(ep, pool, tag), send(ep, own_addr, pool, tag))
                        };
                        block_on(both);
                    }
                });
            }
        });
        assert_eq!(pool.available(), 2 * THREADS as usize);
    });
}

#[test]
fn a_dropped_branch_of_a_select_returns_its_buffer() {
    under_watchdog(|| {
        let net = Net::new();
        let (ep, own_addr) = net.awaited();
        let pool = net.pool(2);
        for tag in 0..MESSAGES {
            let race = futures::future::select(
                Box::pin(receive(&ep, &pool, tag + 1)),
                Box::pin(async {
                    ep.tinject(b"", own_addr, tag, None).unwrap();
                    let buf = pool.take().unwrap();
                    ep.trecv(buf, own_addr, tag).await.unwrap();
                }),
            );
            drop(block_on(race));
            assert_eq!(pool.available(), 2);
        }
    });
}
