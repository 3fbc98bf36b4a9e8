//! Poll sets and wait sets: which of several queues and counters are ready.

use std::fs;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::poll::{Member, Set};
use selvedge::{CompletionFlags, Context, Counter, Errno, cntr, cq, wait};
use selvedge_testkit::domain::DomainContext;

use crate::common::{MessageEndpoint, Rx, Tx, pattern, received};
use crate::provider;

/// A wait that takes longer fails the test.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An endpoint whose receives complete at a separate queue and are counted.
struct Listener {
    endpoint: MessageEndpoint,
    recv_cntr: Arc<dyn Counter>,
}

/// Opens a listener whose queue and counter have this wait object.
fn open_listener(domain: &Arc<DomainContext>, object: wait::Object) -> Listener {
    let mut attr = cq::Attr::default();
    attr.wait_obj = object;
    let mut cntr_attr = cntr::Attr::default();
    cntr_attr.wait_obj = object;
    let queue = || domain.queue_with(&attr).unwrap();
    let recv_cntr = domain.domain().cntr(&cntr_attr).unwrap();
    let endpoint = MessageEndpoint::open_with(domain, |_, config| {
        (config.tx, config.rx) = (Some(queue()), Some(queue()));
        config.counters.recv = Some(Arc::clone(&recv_cntr));
    });
    Listener {
        endpoint,
        recv_cntr,
    }
}

fn cq_member(listener: &Listener) -> Member {
    Member::Cq(Arc::clone(listener.endpoint.cq()))
}

fn cntr_member(listener: &Listener) -> Member {
    Member::Cntr(Arc::clone(&listener.recv_cntr))
}

/// Progresses the sender and the set until a member is ready.
fn wait_for_ready(set: &Set, sender: &MessageEndpoint, max: usize) -> Vec<u64> {
    let (mut out, start) = (vec![Context(0); max], Instant::now());
    loop {
        assert!(
            start.elapsed() < TIMEOUT,
            "timed out without a ready member"
        );
        let count = set.poll(&mut out);
        if count > 0 {
            return out[..count].iter().map(|context| context.0).collect();
        }
        sender.progress();
    }
}

#[test]
fn a_poll_set_names_ready_members_until_they_are_read() {
    let domain = provider::with_defaults().open_domain();
    let all: Vec<_> = (0..3)
        .map(|_| open_listener(&domain, wait::Object::None))
        .collect();
    let sender = provider::with_defaults().endpoint();
    let set = Set::new();
    for (context, one) in (1..).zip(&all) {
        set.add(cq_member(one), Context(context)).unwrap();
        set.add(cntr_member(one), Context(10 * context)).unwrap();
        assert_eq!(set.add(cq_member(one), Context(99)), Err(Errno::Inval));
    }
    assert_eq!(set.poll(&mut [Context(0); 8]), 0);
    let second = &all[1];
    second.endpoint.recv(&Rx::msg(8).context(7));
    sender.send(&Tx::msg(
        sender.insert_endpoint(&second.endpoint),
        &pattern(7, 8),
    ));
    let mut found = wait_for_ready(&set, &sender, 8);
    while found.len() < 2 {
        found = wait_for_ready(&set, &sender, 8);
    }
    assert_eq!(found, [2, 20]);
    assert_eq!(
        wait_for_ready(&set, &sender, 1),
        [2],
        "at most as many as the array holds"
    );
    second
        .endpoint
        .wait(&[])
        .assert_entry(received(CompletionFlags::MSG, 7, 8, 0));
    assert_eq!(wait_for_ready(&set, &sender, 8), [20]);
    assert_eq!(second.recv_cntr.read(), 1);
    assert_eq!(set.poll(&mut [Context(0); 8]), 0);
    assert_eq!(set.remove(&cq_member(second)), Ok(()));
    assert_eq!(set.remove(&cq_member(second)), Err(Errno::Inval));
}

#[test]
fn a_wait_for_a_set_ends_with_a_ready_member_or_the_timeout() {
    let domain = provider::with_defaults().open_domain();
    let all: Vec<_> = (0..2)
        .map(|_| open_listener(&domain, wait::Object::Fd))
        .collect();
    let sender = provider::with_defaults().endpoint();
    let to: Vec<_> = all
        .iter()
        .map(|one| sender.insert_endpoint(&one.endpoint))
        .collect();
    let set = Set::new();
    for one in &all {
        set.add(cq_member(one), Context(0)).unwrap();
    }
    let early = set.wait(Some(Duration::from_millis(20)));
    assert_eq!(early, Err(Errno::TimedOut));
    for round in 0..20 {
        let index = round as usize % 2;
        all[index].endpoint.recv(&Rx::msg(8).context(round));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| set.wait(Some(TIMEOUT)));
            sender.send(&Tx::msg(to[index], &pattern(round, 8)));
            while !waiter.is_finished() {
                sender.progress();
                thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
        let done = all[index].endpoint.wait(&[&sender]);
        done.assert_entry(received(CompletionFlags::MSG, round, 8, 0));
    }
    set.add(
        cntr_member(&open_listener(&domain, wait::Object::None)),
        Context(0),
    )
    .unwrap();
    assert_eq!(
        set.wait(Some(Duration::from_secs(1))).err(),
        Some(Errno::NoSys)
    );
}

#[test]
fn a_wait_for_a_set_ends_with_a_member_that_is_added_meanwhile() {
    let domain = provider::with_defaults().open_domain();
    let [first, second] = [(); 2].map(|()| open_listener(&domain, wait::Object::Fd));
    let sender = provider::with_defaults().endpoint();
    let to = sender.insert_endpoint(&second.endpoint);
    second.endpoint.recv(&Rx::msg(8).context(1));
    let set = Set::new();
    set.add(cq_member(&first), Context(0)).unwrap();
    let (tid_sender, tid_receiver) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            tid_sender.send(nix::unistd::gettid()).unwrap();
            set.wait(Some(TIMEOUT / 3))
        });
        let stat = format!("/proc/self/task/{}/stat", tid_receiver.recv().unwrap());
        while !fs::read_to_string(&stat).unwrap().contains(") S ") {
            thread::yield_now();
        }
        set.add(cq_member(&second), Context(1)).unwrap();
        sender.send(&Tx::msg(to, &pattern(1, 8)));
        while !waiter.is_finished() {
            sender.progress();
            thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}
