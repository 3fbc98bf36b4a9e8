//! Shared receive contexts: receives that several endpoints of a domain take from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use selvedge::info::RxAttr;
use selvedge::{Caps, CompletionFlags, Context, Errno, FiAddr, OpFlags, SharedReceives};
use selvedge_testkit::domain::{DomainContext, Queue};
use selvedge_testkit::local::settle;

use crate::common::{MessageEndpoint, Rx, Tx, pattern, received};
use crate::provider;

/// Endpoints of one domain, with one queue and shared receives. The first side keeps the buffers of
/// all receives.
struct SharedReceiveEndpoints {
    domain: Arc<DomainContext>,
    queue: Queue,
    members: Vec<MessageEndpoint>,
    srx: Arc<dyn SharedReceives>,
}

impl SharedReceiveEndpoints {
    fn open(count: usize) -> Self {
        let domain = provider::with_defaults().open_domain();
        let mut endpoints = Self {
            queue: domain.queue(0).unwrap(),
            members: Vec::new(),
            srx: domain.domain().srx(&RxAttr::default()).unwrap(),
            domain,
        };
        (0..count).for_each(|_| endpoints.add());
        endpoints
    }

    fn add(&mut self) {
        let member = MessageEndpoint::open_with(&self.domain, |_, config| {
            config.rx = Some(self.queue.clone());
            config.srx = Some(Arc::clone(&self.srx));
        });
        self.members.push(member);
    }

    fn host(&self) -> &MessageEndpoint {
        &self.members[0]
    }

    fn post(&self, rx: &Rx) {
        self.host().try_recv_at(&*self.srx, rx).unwrap();
    }
}

/// Opens a sender with the addresses of all endpoints.
fn open_sender(endpoints: &SharedReceiveEndpoints) -> (MessageEndpoint, Vec<FiAddr>) {
    let sender = provider::with_defaults().endpoint_with(|_, config| config.tx_selective = true);
    let to = endpoints
        .members
        .iter()
        .map(|member| sender.insert_endpoint(member));
    let to = to.collect();
    (sender, to)
}

fn without_completion(tx: Tx) -> Tx {
    tx.flags(OpFlags::empty())
}

#[test]
fn shared_receives_take_messages_of_any_endpoint_in_the_order_of_their_posts() {
    let endpoints = SharedReceiveEndpoints::open(3);
    let (sender, to) = open_sender(&endpoints);
    for (round, len) in provider::SIZES.into_iter().enumerate() {
        // Every second round the messages come first.
        let messages_first = round % 2 == 1;
        let send = || {
            for (number, &dest) in to.iter().enumerate() {
                let bytes = pattern(number as u64, len);
                sender.send_retrying(
                    &without_completion(Tx::msg(dest, &bytes)),
                    &[endpoints.host()],
                );
            }
        };
        if messages_first {
            send();
            settle(&[&sender, endpoints.host()]);
        }
        for context in 0..3 {
            endpoints.post(&Rx::msg(len).context(context));
        }
        if !messages_first {
            settle(&[&sender, endpoints.host()]);
            send();
        }
        let mut all: Vec<_> = (0..3).map(|_| endpoints.host().wait(&[&sender])).collect();
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
    let endpoints = SharedReceiveEndpoints::open(2);
    let (sender, to) = open_sender(&endpoints);
    for messages_first in [false, true] {
        let send = || {
            for (number, tag) in [7, 5, 6].into_iter().enumerate() {
                let tx = Tx::tagged(to[number % 2], tag, &pattern(tag, 100));
                sender.send_retrying(&without_completion(tx), &[endpoints.host()]);
            }
        };
        if messages_first {
            send();
            settle(&[&sender, endpoints.host()]);
        }
        for tag in [5, 6, 7] {
            endpoints.post(&Rx::tagged(tag, 100).context(tag));
        }
        if !messages_first {
            send();
        }
        let mut contexts = Vec::new();
        for _ in 0..3 {
            let done = endpoints.host().wait(&[&sender]);
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
    let endpoints = SharedReceiveEndpoints::open(2);
    let (sender, to) = open_sender(&endpoints);
    endpoints.post(&Rx::msg(10).context(1));
    sender.send(&without_completion(Tx::msg(to[1], &pattern(1, 30))));
    let done = endpoints.host().wait(&[&sender]);
    assert_eq!((done.error().errno, done.error().olen), (Errno::Trunc, 20));
    assert!(done.bytes == pattern(1, 30)[..10]);
}

#[test]
fn an_endpoint_s_own_receives_come_before_shared_ones() {
    let endpoints = SharedReceiveEndpoints::open(1);
    let (sender, to) = open_sender(&endpoints);
    endpoints.post(&Rx::msg(8).context(1));
    endpoints.host().recv(&Rx::msg(8).context(2));
    for context in [2, 1] {
        sender.send(&without_completion(Tx::msg(to[0], &pattern(context, 8))));
        let done = endpoints.host().wait(&[&sender]);
        done.assert_entry(received(CompletionFlags::MSG, context, 8, 0));
    }
}

#[test]
fn a_cancelled_shared_receive_is_reported_once() {
    let endpoints = SharedReceiveEndpoints::open(2);
    let (sender, to) = open_sender(&endpoints);
    for context in 1..=3 {
        endpoints.post(&Rx::msg(8).context(context));
    }
    assert_eq!(endpoints.srx.cancel(Context(2)), Ok(()));
    assert_eq!(endpoints.srx.cancel(Context(2)), Err(Errno::NoEnt));
    let done = endpoints.host().wait(&[]);
    assert_eq!(done.error().errno, Errno::Canceled);
    assert_eq!(done.context(), 2);
    for context in [1, 3] {
        sender.send(&without_completion(Tx::msg(to[1], &pattern(context, 8))));
        assert_eq!(endpoints.host().wait(&[&sender]).context(), context);
    }
}

#[test]
fn shared_receives_outlive_an_endpoint_that_takes_from_them() {
    let mut endpoints = SharedReceiveEndpoints::open(2);
    endpoints.post(&Rx::msg(8).context(1));
    drop(endpoints.members.pop());
    endpoints.add();
    let (sender, to) = open_sender(&endpoints);
    sender.send(&without_completion(Tx::msg(to[1], &pattern(1, 8))));
    let done = endpoints.host().wait(&[&sender]);
    done.assert_entry(received(CompletionFlags::MSG, 1, 8, 0));
}

#[test]
fn unsupported_shared_receives_are_refused() {
    let endpoints = SharedReceiveEndpoints::open(1);
    let refused = |rx: &Rx| endpoints.host().try_recv_at(&*endpoints.srx, rx);
    let multi = Rx::msg(64).flags(OpFlags::MULTI_RECV);
    assert_eq!(refused(&multi), Err(Errno::BadFlags));
    let peek = Rx::tagged(1, 8).flags(OpFlags::PEEK);
    assert_eq!(refused(&peek), Err(Errno::BadFlags));
    let segments = Rx::msg(5).cut(&[1, 1, 1, 1]);
    assert_eq!(refused(&segments), Err(Errno::Inval));
    let attr = RxAttr {
        caps: Caps::MSG | Caps::DIRECTED_RECV,
        ..RxAttr::default()
    };
    let directed = endpoints.domain.domain().srx(&attr).unwrap();
    let directed_rx = Rx::msg(8).from(FiAddr(0));
    let result = endpoints.host().try_recv_at(&*directed, &directed_rx);
    assert_eq!(result, Err(Errno::NoSys));
    // A shared receive context of another domain, without an endpoint.
    let other = provider::with_defaults().info().open().unwrap();
    let empty = other.srx(&RxAttr::default()).unwrap();
    assert_eq!(empty.cancel(Context(0)), Err(Errno::NoCq));
}

#[test]
fn a_shared_receive_matches_its_message_in_every_race() {
    const MESSAGES: u64 = 2000;
    let endpoints = SharedReceiveEndpoints::open(2);
    let (sender, to) = open_sender(&endpoints);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..MESSAGES {
                let tx = Tx::msg(to[(number % 2) as usize], &number.to_le_bytes());
                sender.send_retrying(&without_completion(tx), &[]);
            }
            while !is_over.load(Ordering::Relaxed) {
                sender.progress();
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            for context in 0..MESSAGES {
                endpoints.post(&Rx::msg(8).context(context));
            }
        });
        let mut numbers = Vec::new();
        for _ in 0..MESSAGES {
            let done = endpoints.host().wait(&[]);
            numbers.push(u64::from_le_bytes(done.bytes[..8].try_into().unwrap()));
        }
        is_over.store(true, Ordering::Relaxed);
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..MESSAGES));
    });
}
