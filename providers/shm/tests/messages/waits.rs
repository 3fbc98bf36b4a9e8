//! Threads of one process that park at queues and counters, and the threads that wake them.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::cq::Entry;
use selvedge::{CompletionQueue, Context, Counter, Errno, cntr, cq, eq, wait};
use selvedge_testkit::domain::{DomainContext, Queue};

use crate::common::{MessageEndpoint, MessagePair, Rx, Tx, pattern};
use crate::provider::{self, PROTOCOLS};

/// One length for each protocol.
const LENGTHS: [usize; 6] = [0, 48, 49, 4096, 4097, 200_000];

/// Runs `work` in a thread. Returns when that thread is parked in the kernel.
fn spawn_parked<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (sender, receiver) = channel();
    let thread = thread::spawn(move || {
        sender.send(nix::unistd::gettid()).unwrap();
        work()
    });
    let path = format!("/proc/self/task/{}/syscall", receiver.recv().unwrap());
    let call = libc::SYS_ppoll.to_string();
    let is_parked = || {
        let state = std::fs::read_to_string(&path).unwrap_or_default();
        state.split(' ').next() == Some(&call)
    };
    while !is_parked() && !thread.is_finished() {
        thread::yield_now();
    }
    thread
}

/// Opens a queue whose readers park at once.
fn open_queue(domain: &DomainContext, wait_obj: wait::Object) -> Queue {
    let mut attr = cq::Attr::default();
    attr.wait_obj = wait_obj;
    attr.spin_time = Some(Duration::ZERO);
    domain.queue_with(&attr).unwrap()
}

fn open_counter(domain: &DomainContext, wait_obj: wait::Object) -> Arc<dyn Counter> {
    let mut attr = cntr::Attr::default();
    attr.wait_obj = wait_obj;
    domain.domain().cntr(&attr).unwrap()
}

fn open_domain(protocol: &str) -> Arc<DomainContext> {
    provider::with_protocol(protocol).open_domain()
}

/// Opens an endpoint with one queue.
fn open_endpoint(protocol: &str, wait_obj: wait::Object) -> MessageEndpoint {
    MessageEndpoint::open_with(&open_domain(protocol), |domain, config| {
        config.rx = Some(open_queue(domain, wait_obj));
    })
}

fn wait_one(cq: &Arc<dyn CompletionQueue>) -> Entry {
    let mut entry = [Entry::default()];
    assert_eq!(cq.wait(&mut entry, None), Ok(1));
    entry[0]
}

#[test]
fn a_parked_thread_is_woken_by_messages_of_every_size() {
    for protocol in PROTOCOLS {
        let pair = MessagePair::connect(
            open_endpoint(protocol, wait::Object::None),
            open_endpoint(protocol, wait::Object::Unspec),
        );
        for len in LENGTHS {
            pair.b.recv(&Rx::tagged(1, len).context(7));
            let cq = Arc::clone(pair.b.cq());
            let waiter = spawn_parked(move || wait_one(&cq));
            pair.a.send(&Tx::tagged(pair.to_b, 1, &pattern(1, len)));
            assert_eq!(pair.a.wait(&[]).entry().len, 0);
            let entry = waiter.join().unwrap();
            assert_eq!((entry.context, entry.len), (Context(7), len));
        }
    }
}

#[test]
fn a_parked_thread_is_woken_by_posts_of_another_thread() {
    let pair = MessagePair::connect(
        open_endpoint("auto", wait::Object::Unspec),
        open_endpoint("auto", wait::Object::None),
    );
    // The completion of a send that completes at once.
    let cq = Arc::clone(pair.a.cq());
    let waiter = spawn_parked(move || wait_one(&cq));
    pair.a.send(&Tx::msg(pair.to_b, &[1; 8]).context(3));
    assert_eq!(waiter.join().unwrap().context, Context(3));
    // A receive that matches an unexpected large message.
    let message = pattern(2, 8 << 20);
    pair.b.send(&Tx::tagged(pair.to_a, 1, &message));
    pair.settle();
    let cq = Arc::clone(pair.a.cq());
    let waiter = spawn_parked(move || wait_one(&cq));
    pair.a.recv(&Rx::tagged(1, message.len()).context(4));
    pair.b.wait(&[]);
    assert_eq!(waiter.join().unwrap().context, Context(4));
    // A receive that is cancelled.
    pair.a.recv(&Rx::tagged(1, 8).context(5));
    let cq = Arc::clone(pair.a.cq());
    let waiter = spawn_parked(move || cq.wait(&mut [Entry::default()], None));
    pair.a.ep.cancel(Context(5)).unwrap();
    assert_eq!(waiter.join().unwrap(), Err(Errno::Avail));
}

#[test]
fn threads_parked_at_two_queues_of_an_endpoint_are_both_woken() {
    let domain = open_domain("auto");
    let a = MessageEndpoint::open_with(&domain, |domain, config| {
        config.tx = Some(open_queue(domain, wait::Object::Unspec));
        config.rx = Some(open_queue(domain, wait::Object::Unspec));
    });
    let b = open_endpoint("auto", wait::Object::None);
    let (to_b, to_a) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    for round in 0..20 {
        a.recv(&Rx::tagged(1, 8).context(round));
        let rx = {
            let cq = Arc::clone(a.rx.cq());
            spawn_parked(move || wait_one(&cq))
        };
        let tx = {
            let cq = Arc::clone(a.tx.cq());
            spawn_parked(move || wait_one(&cq))
        };
        b.send(&Tx::tagged(to_a, 1, &[0; 8]));
        assert_eq!(rx.join().unwrap().context, Context(round));
        a.send(&Tx::tagged(to_b, 2, &[0; 8]).context(round));
        assert_eq!(tx.join().unwrap().context, Context(round));
        b.recv(&Rx::tagged(2, 8));
        b.drain(&[]);
    }
}

#[test]
fn no_wake_up_is_lost_when_another_thread_polls_and_stops() {
    let domain = open_domain("auto");
    let polled = open_queue(&domain, wait::Object::None);
    let parked_at = open_queue(&domain, wait::Object::Unspec);
    let a = MessageEndpoint::open_with(&domain, |_, config| {
        config.tx = Some(polled.clone());
        config.rx = Some(parked_at.clone());
    });
    let b = open_endpoint("auto", wait::Object::None);
    let (_, to_a) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    for round in 0..60 {
        a.recv(&Rx::tagged(1, 8).context(round));
        let cq = Arc::clone(parked_at.cq());
        let waiter = spawn_parked(move || wait_one(&cq));
        for _ in 0..round {
            assert_eq!(polled.cq().read(&mut []), Ok(0));
        }
        b.send(&Tx::tagged(to_a, 1, &[0; 8]));
        assert_eq!(waiter.join().unwrap().context, Context(round));
        b.drain(&[]);
    }
}

#[test]
fn many_threads_parked_at_one_queue_read_one_entry_each() {
    const THREADS: u64 = 6;
    let pair = MessagePair::connect(
        open_endpoint("auto", wait::Object::None),
        open_endpoint("auto", wait::Object::Unspec),
    );
    for _ in 0..10 {
        let waiters: Vec<_> = (0..THREADS)
            .map(|number| {
                pair.b.recv(&Rx::msg(8).context(number));
                let cq = Arc::clone(pair.b.cq());
                spawn_parked(move || wait_one(&cq).context.0)
            })
            .collect();
        for _ in 0..THREADS {
            pair.a.send(&Tx::msg(pair.to_b, &[0; 8]));
        }
        let mut woken: Vec<_> = waiters.into_iter().map(|s| s.join().unwrap()).collect();
        woken.sort_unstable();
        assert_eq!(woken, Vec::from_iter(0..THREADS));
        pair.a.drain(&[]);
    }
}

#[test]
fn a_signal_wakes_a_parked_thread() {
    let side = open_endpoint("auto", wait::Object::Unspec);
    let cq = Arc::clone(side.cq());
    let waiter = spawn_parked(move || cq.wait(&mut [Entry::default()], None));
    side.cq().signal().unwrap();
    assert_eq!(waiter.join().unwrap(), Err(Errno::Again));
}

#[test]
fn a_counter_wakes_the_threads_that_wait_for_its_value() {
    let domain = open_domain("auto");
    let received = open_counter(&domain, wait::Object::Unspec);
    let b = MessageEndpoint::open_with(&domain, |domain, config| {
        config.rx = Some(open_queue(domain, wait::Object::None));
        config.rx_selective = true;
        config.counters.recv = Some(Arc::clone(&received));
    });
    let a = open_endpoint("auto", wait::Object::None);
    let (to_b, _) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    for round in 1..=8 {
        let waiters = [3, 1, 2].map(|count| {
            b.recv(&Rx::msg(8).context(round * 3 + count));
            let (cntr, threshold) = (Arc::clone(&received), round * 3 + count - 3);
            spawn_parked(move || cntr.wait(threshold, None))
        });
        for _ in 0..3 {
            a.send(&Tx::msg(to_b, &[0; 8]));
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        a.drain(&[]);
    }
}

/// Waits in `poll(2)` on the descriptor, as fi_trywait(3) describes, until `read` returns a value.
fn poll_for<T>(
    try_wait: impl Fn() -> selvedge::Result,
    fd: impl AsFd,
    read: impl Fn() -> Option<T>,
) -> T {
    loop {
        if let Some(found) = read() {
            return found;
        }
        match try_wait() {
            Ok(()) => {
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                assert_eq!(poll(&mut fds, PollTimeout::NONE), Ok(1));
            }
            Err(errno) => assert_eq!(errno, Errno::Again),
        }
    }
}

#[test]
fn the_descriptor_of_a_queue_is_ready_when_it_has_an_entry() {
    for protocol in PROTOCOLS {
        let (a, b) = (
            open_endpoint(protocol, wait::Object::None),
            open_endpoint(protocol, wait::Object::Fd),
        );
        let pair = MessagePair::connect(a, b);
        for len in LENGTHS {
            for _ in 0..5 {
                pair.b.recv(&Rx::tagged(1, len).context(7));
                let cq = Arc::clone(pair.b.cq());
                let reader = thread::spawn(move || {
                    let fd = cq.wait_fd().unwrap();
                    let read = || {
                        let mut entry = [Entry::default()];
                        (cq.read(&mut entry).unwrap() == 1).then_some(entry[0])
                    };
                    poll_for(|| cq.try_wait(), fd, read)
                });
                let tx = Tx::tagged(pair.to_b, 1, &pattern(1, len));
                pair.a.send_retrying(&tx, &[]);
                pair.a.wait(&[]);
                assert_eq!(reader.join().unwrap().context, Context(7));
            }
        }
    }
}

#[test]
fn trywait_refuses_a_park_while_the_queue_has_an_entry() {
    let pair = MessagePair::connect(
        open_endpoint("auto", wait::Object::None),
        open_endpoint("auto", wait::Object::Fd),
    );
    pair.b.recv(&Rx::msg(8));
    pair.settle();
    assert_eq!(pair.b.cq().try_wait(), Ok(()));
    pair.a.send(&Tx::msg(pair.to_b, &[0; 8]));
    assert_eq!(pair.b.cq().try_wait(), Err(Errno::Again));
    assert_eq!(
        pair.b.cq().try_wait(),
        Err(Errno::Again),
        "the entry is still in the queue"
    );
    pair.b.wait(&[]);
    pair.b.cq().signal().unwrap();
    assert_eq!(pair.b.cq().try_wait(), Err(Errno::Again));
    assert_eq!(pair.b.cq().try_wait(), Ok(()));
}

#[test]
fn the_descriptor_of_a_counter_is_ready_when_its_value_changes() {
    let domain = open_domain("auto");
    let sent = open_counter(&domain, wait::Object::Fd);
    let a = MessageEndpoint::open_with(&domain, |domain, config| {
        config.rx = Some(open_queue(domain, wait::Object::None));
        config.counters.send = Some(Arc::clone(&sent));
    });
    let b = open_endpoint("auto", wait::Object::None);
    let (to_b, _) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    let reader = {
        let cntr = Arc::clone(&sent);
        thread::spawn(move || {
            let fd = cntr.wait_fd().unwrap();
            poll_for(|| cntr.try_wait(), fd, || (cntr.read() == 5).then_some(()))
        })
    };
    for _ in 0..5 {
        a.send(&Tx::msg(to_b, &[0; 8]));
    }
    reader.join().unwrap();
    assert_eq!(sent.try_wait(), Ok(()));
    sent.set_err(1);
    assert_eq!(sent.try_wait(), Err(Errno::Again));
    assert_eq!(sent.read_err(), 1);
    assert_eq!(sent.try_wait(), Ok(()));
}

#[test]
fn an_endpoint_that_is_opened_later_wakes_threads_parked_before() {
    let domain = open_domain("auto");
    let queue = open_queue(&domain, wait::Object::Unspec);
    let cq = Arc::clone(queue.cq());
    let waiter = {
        let cq = Arc::clone(&cq);
        spawn_parked(move || wait_one(&cq))
    };
    let b = MessageEndpoint::open_with(&domain, |_, config| config.rx = Some(queue));
    let a = open_endpoint("auto", wait::Object::None);
    let to_b = a.insert_endpoint(&b);
    b.recv(&Rx::msg(8).context(9));
    a.send(&Tx::msg(to_b, &[0; 8]));
    assert_eq!(waiter.join().unwrap().context, Context(9));
    drop(b);
    let mut entry = [Entry::default()];
    let waited = cq.wait(&mut entry, Some(Duration::from_millis(1)));
    assert_eq!(
        waited,
        Err(Errno::Again),
        "a queue without an endpoint waits until the timeout"
    );
}

#[test]
fn events_of_the_application_go_through_the_fabric_s_queues() {
    let info = provider::with_defaults().info();
    let fabric = info.fabric().unwrap();
    let mut attr = eq::Attr::default();
    attr.wait_obj = wait::Object::Unspec;
    let events = fabric.eq(&attr).unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let reader = {
        let (events, received) = (Arc::clone(&events), Arc::clone(&received));
        spawn_parked(move || {
            for _ in 0..3 {
                let eq::Event::Notify { context, data, .. } = events.wait(None).unwrap() else {
                    panic!("not a notify event");
                };
                received.lock().unwrap().push((context.0, data));
            }
        })
    };
    for number in 0..3 {
        let context = Context(number);
        let data = number * 2;
        let event = eq::Event::Notify {
            context,
            data,
            handle: 0,
        };
        events.write(event).unwrap();
    }
    reader.join().unwrap();
    assert_eq!(*received.lock().unwrap(), [(0, 0), (1, 2), (2, 4)]);
}
