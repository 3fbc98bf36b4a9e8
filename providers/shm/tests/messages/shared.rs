//! Shared receive contexts: receives that several endpoints of a domain take from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use selvedge::info::RxAttr;
use selvedge::{
    Bindings, Caps, CompletionFlags, CompletionQueue, Context, Domain, Errno, FiAddr, Info,
    OpFlags, SharedReceives, av, cq,
};

use crate::common::{Queue, Rx, Side, Tx, pattern, received, settle};
use crate::provider;

/// Endpoints of one domain, with one queue and shared receives. The first side keeps the buffers of
/// all receives.
struct Hall {
    domain: Arc<dyn Domain>,
    info: Info,
    cq: Arc<dyn CompletionQueue>,
    members: Vec<Side>,
    srx: Arc<dyn SharedReceives>,
}

impl Hall {
    fn open(count: usize) -> Self {
        let info = provider::plain().info();
        let domain = info.open().unwrap();
        let srx = domain.srx(&RxAttr::default()).unwrap();
        let mut hall = Self {
            cq: domain.cq(&cq::Attr::default()).unwrap(),
            members: Vec::new(),
            domain,
            info,
            srx,
        };
        (0..count).for_each(|_| hall.add());
        hall
    }

    fn add(&mut self) {
        let av = self.domain.av(&av::Attr::default()).unwrap();
        let mut bind = Bindings::new(Arc::clone(&self.cq), Arc::clone(&av));
        bind.srx = Some(Arc::clone(&self.srx));
        let ep = self.domain.endpoint(&self.info, bind).unwrap();
        self.members.push(Side::around(ep, &self.cq, &av));
    }

    fn host(&self) -> &Side {
        &self.members[0]
    }

    fn post(&self, rx: &Rx) {
        self.host().try_recv_at(&*self.srx, rx).unwrap();
    }
}

/// Somebody who knows all members.
fn sender(hall: &Hall) -> (Side, Vec<FiAddr>) {
    let sender = provider::plain().side_with(&Queue {
        tx_selective: true,
        ..Queue::default()
    });
    let to = hall.members.iter().map(|member| sender.knows(member));
    let to = to.collect();
    (sender, to)
}

fn quiet(tx: Tx) -> Tx {
    tx.flags(OpFlags::empty())
}

#[test]
fn shared_receives_take_messages_of_any_endpoint_in_the_order_of_their_posts() {
    let hall = Hall::open(3);
    let (sender, to) = sender(&hall);
    for (round, len) in provider::SIZES.into_iter().enumerate() {
        // Every second round the messages come first.
        let messages_first = round % 2 == 1;
        let send = || {
            for (number, &dest) in to.iter().enumerate() {
                let bytes = pattern(number as u64, len);
                sender.send_patiently(&quiet(Tx::msg(dest, &bytes)), &[hall.host()]);
            }
        };
        if messages_first {
            send();
            settle(&[&sender, hall.host()]);
        }
        for context in 0..3 {
            hall.post(&Rx::msg(len).context(context));
        }
        if !messages_first {
            settle(&[&sender, hall.host()]);
            send();
        }
        let mut all: Vec<_> = (0..3).map(|_| hall.host().wait(&[&sender])).collect();
        all.sort_by_key(|done| done.context());
        let mut bytes: Vec<_> = all.iter().map(|done| done.bytes.clone()).collect();
        for (context, done) in all.iter().enumerate() {
            done.assert_entry(received(CompletionFlags::MSG, context as u64, len, 0));
        }
        bytes.sort();
        let mut expected: Vec<_> = (0..3).map(|number| pattern(number, len)).collect();
        expected.sort();
        assert!(
            bytes == expected,
            "{len} bytes, messages first: {messages_first}"
        );
    }
}

#[test]
fn shared_receives_are_found_by_their_tags() {
    let hall = Hall::open(2);
    let (sender, to) = sender(&hall);
    for messages_first in [false, true] {
        let send = || {
            for (number, tag) in [7, 5, 6].into_iter().enumerate() {
                let tx = Tx::tagged(to[number % 2], tag, &pattern(tag, 100));
                sender.send_patiently(&quiet(tx), &[hall.host()]);
            }
        };
        if messages_first {
            send();
            settle(&[&sender, hall.host()]);
        }
        for tag in [5, 6, 7] {
            hall.post(&Rx::tagged(tag, 100).context(tag));
        }
        if !messages_first {
            send();
        }
        let mut contexts = Vec::new();
        for _ in 0..3 {
            let done = hall.host().wait(&[&sender]);
            let tag = done.context();
            done.assert_entry(received(CompletionFlags::TAGGED, tag, 100, tag));
            assert!(done.bytes == pattern(tag, 100));
            contexts.push(tag);
        }
        contexts.sort_unstable();
        assert_eq!(contexts, [5, 6, 7]);
    }
}

#[test]
fn a_message_that_is_too_long_for_a_shared_receive_is_cut_off() {
    let hall = Hall::open(2);
    let (sender, to) = sender(&hall);
    hall.post(&Rx::msg(10).context(1));
    sender.send(&quiet(Tx::msg(to[1], &pattern(1, 30))));
    let done = hall.host().wait(&[&sender]);
    assert_eq!((done.error().errno, done.error().olen), (Errno::Trunc, 20));
    assert!(done.bytes == pattern(1, 30)[..10]);
}

#[test]
fn an_endpoint_s_own_receives_come_before_shared_ones() {
    let hall = Hall::open(1);
    let (sender, to) = sender(&hall);
    hall.post(&Rx::msg(8).context(1));
    hall.host().recv(&Rx::msg(8).context(2));
    for context in [2, 1] {
        sender.send(&quiet(Tx::msg(to[0], &pattern(context, 8))));
        let done = hall.host().wait(&[&sender]);
        done.assert_entry(received(CompletionFlags::MSG, context, 8, 0));
    }
}

#[test]
fn a_shared_receive_is_taken_back_and_reported_once() {
    let hall = Hall::open(2);
    let (sender, to) = sender(&hall);
    for context in 1..=3 {
        hall.post(&Rx::msg(8).context(context));
    }
    assert_eq!(hall.srx.cancel(Context(2)), Ok(()));
    assert_eq!(hall.srx.cancel(Context(2)), Err(Errno::NoEnt));
    let done = hall.host().wait(&[]);
    assert_eq!(done.error().errno, Errno::Canceled);
    assert_eq!(done.context(), 2);
    for context in [1, 3] {
        sender.send(&quiet(Tx::msg(to[1], &pattern(context, 8))));
        assert_eq!(hall.host().wait(&[&sender]).context(), context);
    }
}

#[test]
fn shared_receives_outlive_an_endpoint_that_takes_from_them() {
    let mut hall = Hall::open(2);
    hall.post(&Rx::msg(8).context(1));
    drop(hall.members.pop());
    hall.add();
    let (sender, to) = sender(&hall);
    sender.send(&quiet(Tx::msg(to[1], &pattern(1, 8))));
    let done = hall.host().wait(&[&sender]);
    done.assert_entry(received(CompletionFlags::MSG, 1, 8, 0));
}

#[test]
fn what_shared_receives_cannot_be_is_refused() {
    let hall = Hall::open(1);
    let refused = |rx: &Rx| hall.host().try_recv_at(&*hall.srx, rx);
    let many = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    assert_eq!(refused(&many), Err(Errno::BadFlags));
    let look = Rx::tagged(1, 8).flags(OpFlags::PEEK);
    assert_eq!(refused(&look), Err(Errno::BadFlags));
    let pieces = Rx::msg(5).cut(&[1, 1, 1, 1]);
    assert_eq!(refused(&pieces), Err(Errno::Inval));
    let attr = RxAttr {
        caps: Caps::MSG | Caps::DIRECTED_RECV,
        ..RxAttr::default()
    };
    let directed = hall.domain.srx(&attr).unwrap();
    let from_one = Rx::msg(8).from(FiAddr(0));
    let answer = hall.host().try_recv_at(&*directed, &from_one);
    assert_eq!(answer, Err(Errno::NoSys));
    // Somebody who has nothing to do with it.
    let other = provider::plain().info().open().unwrap();
    let empty = other.srx(&RxAttr::default()).unwrap();
    assert_eq!(empty.cancel(Context(0)), Err(Errno::NoCq));
}

#[test]
fn a_shared_receive_and_its_message_find_each_other_however_they_race() {
    const MESSAGES: u64 = 2000;
    let hall = Hall::open(2);
    let (sender, to) = sender(&hall);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                let tx = Tx::msg(to[(number % 2) as usize], &number.to_le_bytes());
                sender.send_patiently(&quiet(tx), &[]);
            }
            while !is_over.load(Ordering::Relaxed) {
                sender.drive();
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            for context in 0..MESSAGES {
                hall.post(&Rx::msg(8).context(context));
            }
        });
        let mut numbers = Vec::new();
        for _ in 0..MESSAGES {
            let done = hall.host().wait(&[]);
            numbers.push(u64::from_le_bytes(done.bytes[..8].try_into().unwrap()));
        }
        is_over.store(true, Ordering::Relaxed);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..MESSAGES));
    });
}
