//! `Endpoint::wait` over a provider whose waits end with the events of a test.

use selvedge::cq::Entry;
use selvedge::owned::{Completions, Endpoint};
use selvedge::{CompletionFlags, Context, Errno, FiAddr, wait};

use crate::loopback::{Net, Settings, info};
use crate::under_watchdog;

/// A net whose messages are transferred by an event of a wait alone.
fn stopped_net() -> Net {
    let net = Net::new();
    net.set(|settings| settings.budget = 0);
    net
}

/// Posts a message to the endpoint itself and its receive. Returns a list for both completions.
fn post_to_self(net: &Net, ep: &Endpoint, own_addr: FiAddr) -> Completions {
    let pool = net.pool(2);
    ep.recv(pool.take().unwrap(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    ep.send(pool.take().unwrap(), own_addr, Context(2)).unwrap();
    Completions::with_capacity(2)
}

#[test]
fn a_wait_goes_on_after_an_access_of_a_peer() {
    under_watchdog(|| {
        let net = stopped_net();
        let (ep, own_addr) = net.polled();
        let mut done = post_to_self(&net, &ep, own_addr);
        let access = Entry {
            flags: CompletionFlags::REMOTE_WRITE,
            ..Entry::default()
        };
        net.wire().push_stray_entry(access);
        net.set(|settings| {
            settings.waits.push_back(|wire| {
                wire.push_stray_entry(Entry {
                    flags: CompletionFlags::REMOTE_READ,
                    ..Entry::default()
                });
            });
            settings.waits.push_back(|wire| wire.settings.budget = 1);
        });
        assert_eq!(ep.wait(&mut done, None), Ok(2));
    });
}

#[test]
fn a_wait_delivers_an_error() {
    under_watchdog(|| {
        let net = stopped_net();
        let (ep, own_addr) = net.polled();
        let mut done = post_to_self(&net, &ep, own_addr);
        net.set(|settings| {
            settings.completion_errors.push_back(Errno::ConnReset);
            settings.waits.push_back(|wire| wire.settings.budget = 1);
        });
        assert_eq!(ep.wait(&mut done, None), Ok(1));
        let failed = done.drain().next().unwrap();
        assert_eq!(failed.result.unwrap_err().errno, Errno::ConnReset);
    });
}

#[test]
fn a_wait_with_completions_or_a_full_list_does_not_park() {
    let net = Net::new();
    let (ep, own_addr) = net.polled();
    let mut done = post_to_self(&net, &ep, own_addr);
    // A wait at the queue would fail: it has no event.
    assert_eq!(ep.wait(&mut done, None), Ok(2));
    assert_eq!(ep.wait(&mut done, None), Ok(2));
    drop(done.drain());
    assert_eq!(ep.wait(&mut done, None), Err(Errno::NoSys));
}

#[test]
fn an_error_of_the_wait_is_returned() {
    let net = stopped_net();
    let (ep, own_addr) = net.polled();
    let mut done = post_to_self(&net, &ep, own_addr);
    let fail = |settings: &mut Settings| settings.read_error = Some(Errno::Io);
    net.set(|settings| settings.waits.push_back(|_| {}));
    assert_eq!(ep.wait(&mut done, None), Ok(0), "the wait has ended");
    net.set(fail);
    assert_eq!(ep.wait(&mut done, None), Err(Errno::Io));
}

#[test]
fn an_endpoint_without_a_descriptor_names_the_reason_and_the_remedy() {
    let net = Net::new();
    let (polled, _) = net.polled();
    let error = polled.wait_fd().unwrap_err();
    assert_eq!(error.errno(), Errno::NoSys);
    let text = error.to_string();
    assert!(text.contains("wait object None"), "{text}");
    assert!(text.contains("open it with `open_waiting`"), "{text}");
    assert_eq!(polled.try_wait(), Err(Errno::NoSys));
    assert_eq!(polled.signal(), Err(Errno::NoSys));

    let object = wait::Object::Fd;
    let opened = Endpoint::open_waiting(&*net.domain, &info(), net.av.clone(), object).unwrap();
    let text = opened.wait_fd().unwrap_err().to_string();
    assert!(text.contains("its provider has none"), "{text}");
}
