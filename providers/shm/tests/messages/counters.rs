//! Counters of sends and receives. Reading a counter makes progress.

use std::sync::Arc;
use std::time::Duration;

use selvedge::cntr::{self, Events};
use selvedge::{Context, Counter, Domain, Errno, OpFlags, wait};
use selvedge_testkit::local::until;

use crate::common::{MessageEndpoint, MessagePair, Rx, Tx, pattern};
use crate::provider::{self, PROTOCOLS};

/// Lengths on both sides of the limits of inline and injected messages, zero, and a length beyond.
const LENGTHS: [usize; 6] = [0, 48, 49, 4096, 4097, 200_000];

/// An endpoint whose completion queue reports only errors, and its counters.
struct CountedEndpoint {
    endpoint: MessageEndpoint,
    sent: Arc<dyn Counter>,
    received: Arc<dyn Counter>,
}

impl CountedEndpoint {
    fn open(protocol: &str, events: Events) -> Self {
        let domain = provider::with_protocol(protocol).open_domain();
        let [sent, received] = [(); 2].map(|()| open_counter(domain.domain(), events));
        let endpoint = MessageEndpoint::open_with(&domain, |_, config| {
            (config.tx_selective, config.rx_selective) = (true, true);
            config.counters.send = Some(Arc::clone(&sent));
            config.counters.recv = Some(Arc::clone(&received));
        });
        Self {
            endpoint,
            sent,
            received,
        }
    }
}

fn open_counter(domain: &dyn Domain, events: Events) -> Arc<dyn Counter> {
    let mut attr = cntr::Attr::default();
    attr.events = events;
    attr.wait_obj = wait::Object::Unspec;
    domain.cntr(&attr).unwrap()
}

/// Reads both counters, which makes progress, until they have the expected values.
fn wait_for_values(counters: [(&Arc<dyn Counter>, u64); 2]) {
    until(|| {
        let have_values = counters.map(|(cntr, value)| cntr.read() == value);
        (have_values == [true; 2]).then_some(())
    });
}

/// Sends messages of each length by every kind of send, to posted receives. Returns the number of
/// messages and the sum of their lengths.
fn exchange(a: &MessageEndpoint, b: &MessageEndpoint, lengths: &[usize]) -> (u64, u64) {
    let to_b = a.insert_endpoint(b);
    let (mut count, mut bytes) = (0, 0);
    for &len in lengths {
        let message = pattern(1, len);
        for tag in [None, Some(7)] {
            let tx = Tx::msg(to_b, &message);
            for flags in [OpFlags::empty(), OpFlags::DELIVERY_COMPLETE] {
                b.recv(&rx(tag, len));
                let mut tx = tx.clone().flags(flags);
                tx.tag = tag;
                a.send_retrying(&tx, &[b]);
                count += 1;
            }
            if len <= 4096 {
                b.recv(&rx(tag, len));
                let mut tx = tx.clone();
                tx.tag = tag;
                a.inject_retrying(&tx, &[b]);
                count += 1;
            }
        }
        bytes += len as u64 * if len <= 4096 { 6 } else { 4 };
    }
    (count, bytes)
}

fn rx(tag: Option<u64>, len: usize) -> Rx {
    match tag {
        None => Rx::msg(len),
        Some(tag) => Rx::tagged(tag, len),
    }
}

#[test]
fn counters_count_every_send_and_receive_though_no_queue_reports_them() {
    for protocol in PROTOCOLS {
        let (a, b) = (
            CountedEndpoint::open(protocol, Events::Comp),
            CountedEndpoint::open(protocol, Events::Comp),
        );
        let (count, _) = exchange(&a.endpoint, &b.endpoint, &LENGTHS);
        wait_for_values([(&a.sent, count), (&b.received, count)]);
        assert_eq!((b.sent.read(), a.received.read()), (0, 0));
        assert!(a.endpoint.poll().is_none() && b.endpoint.poll().is_none());
    }
}

#[test]
fn counters_of_bytes_count_bytes_of_messages_of_every_size() {
    for protocol in PROTOCOLS {
        let (a, b) = (
            CountedEndpoint::open(protocol, Events::Bytes),
            CountedEndpoint::open(protocol, Events::Bytes),
        );
        let (_, bytes) = exchange(&a.endpoint, &b.endpoint, &LENGTHS);
        wait_for_values([(&a.sent, bytes), (&b.received, bytes)]);
    }
}

#[test]
fn counters_count_errors_separately_and_each_error_as_one() {
    let (a, b) = (
        CountedEndpoint::open("auto", Events::Bytes),
        CountedEndpoint::open("auto", Events::Bytes),
    );
    let pair = MessagePair::connect(a.endpoint, b.endpoint);
    pair.b.recv(&Rx::msg(8).context(1));
    pair.b.ep.cancel(Context(1)).unwrap();
    pair.b.recv(&Rx::msg(8).context(2));
    pair.a.send(&Tx::msg(pair.to_b, &pattern(1, 20)));
    for errno in [Errno::Canceled, Errno::Trunc] {
        assert_eq!(pair.wait_at_b().error().errno, errno);
    }
    assert_eq!((b.received.read(), b.received.read_err()), (0, 2));
    assert_eq!((a.sent.read(), a.sent.read_err()), (20, 0));
}

#[test]
fn a_wait_for_a_counter_makes_the_progress_that_it_needs() {
    let (a, b) = (
        CountedEndpoint::open("auto", Events::Comp),
        CountedEndpoint::open("auto", Events::Comp),
    );
    let sender = std::thread::spawn(move || {
        let (count, _) = exchange(&a.endpoint, &b.endpoint, &[0, 48, 4096]);
        (a, b, count)
    });
    let (a, b, count) = sender.join().unwrap();
    let timeout = Some(Duration::from_secs(20));
    std::thread::scope(|scope| {
        scope.spawn(|| b.received.wait(count, timeout).unwrap());
        a.sent.wait(count, timeout).unwrap();
    });
}
