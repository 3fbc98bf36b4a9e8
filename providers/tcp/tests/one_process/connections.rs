//! Connected endpoints: connections are requested, accepted, rejected and shut down.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{
    Address, CompletionFlags, Context, Endpoint, Errno, Error, EventQueue, Fabric, FiAddr, Info,
    PassiveEndpoint, wait,
};
use selvedge_testkit::domain::{DomainContext, EndpointConfig};
use selvedge_testkit::local::{LocalEndpoint, open_domain, until};

use crate::endpoint::{CopyingEndpoint, info, pattern, unlocked_info};
use crate::keys::keyed_info;

/// A listening passive endpoint, and its event queue.
struct Host {
    fabric: Arc<dyn Fabric>,
    eq: Arc<dyn EventQueue>,
    pep: Arc<dyn PassiveEndpoint>,
}

impl Host {
    fn new() -> Self {
        Self::of(&info(EpType::Msg, &[]))
    }

    fn of(info: &Info) -> Self {
        let fabric = info.fabric().unwrap();
        let eq = fabric.eq(&eq::Attr::default()).unwrap();
        let pep = fabric.passive_endpoint(info, Arc::clone(&eq)).unwrap();
        assert_eq!(pep.address().unwrap_err(), Errno::AddrNotAvail);
        pep.listen().unwrap();
        Self { fabric, eq, pep }
    }

    /// Waits for a connection request. Returns its info and its private data.
    fn request(&self, drive: impl Fn()) -> (Box<Info>, Vec<u8>) {
        match event(&*self.eq, drive) {
            Event::ConnReq { info, data, .. } => (info, data),
            other => panic!("{other:?}"),
        }
    }
}

/// Waits for an event, and calls `drive` meanwhile.
fn event(eq: &dyn EventQueue, drive: impl Fn()) -> Event {
    until(|| {
        drive();
        match eq.read() {
            Ok(event) => Some(event),
            Err(Errno::Again) => None,
            Err(errno) => panic!("{errno}: {:?}", eq.read_err()),
        }
    })
}

/// Opens an endpoint whose events go to `eq`.
fn open(info: &Info, eq: &Arc<dyn EventQueue>) -> CopyingEndpoint {
    CopyingEndpoint::open_with(info, |_, config| {
        config.eq = Some(Arc::clone(eq));
        config.without_av = true;
    })
}

/// Opens an endpoint with an address vector, which connected endpoints may have, too.
fn try_open(info: &Info, eq: &Arc<dyn EventQueue>) -> Result<LocalEndpoint, Error> {
    let configure = |_: &DomainContext, config: &mut EndpointConfig| {
        config.eq = Some(Arc::clone(eq));
    };
    LocalEndpoint::try_open(&open_domain(info).unwrap(), configure)
}

/// Two connected endpoints and their event queues. The events of `b` go to the queue of `host`.
struct Pair {
    a: CopyingEndpoint,
    a_eq: Arc<dyn EventQueue>,
    b: CopyingEndpoint,
    host: Host,
}

fn pair(request: &[u8], response: &[u8]) -> Pair {
    pair_of(&info(EpType::Msg, &[]), request, response)
}

fn pair_of(info: &Info, request: &[u8], response: &[u8]) -> Pair {
    let host = Host::of(info);
    let a_eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let a = open(info, &a_eq);
    let address = host.pep.address().unwrap();
    a.ep.cm().unwrap().connect(&address, request).unwrap();
    let (info, data) = host.request(|| a.progress());
    assert_eq!(data, request);
    let b = open(&info, &host.eq);
    b.ep.cm().unwrap().accept(response).unwrap();
    match event(&*a_eq, || b.progress()) {
        Event::Connected { ep, data } => {
            assert_eq!(data, response);
            assert!(std::ptr::addr_eq(Arc::as_ptr(&ep), Arc::as_ptr(&a.ep)));
        }
        other => panic!("{other:?}"),
    }
    match event(&*host.eq, || a.progress()) {
        Event::Connected { ep, data } => {
            assert_eq!(data, b"");
            assert!(std::ptr::addr_eq(Arc::as_ptr(&ep), Arc::as_ptr(&b.ep)));
        }
        other => panic!("{other:?}"),
    }
    Pair { a, a_eq, b, host }
}

/// Sets a flag when it is dropped, also by a failed check: the flag ends the loop of another
/// thread.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn any_thread_may_read_an_event_queue_with_any_threading_promise() {
    #[expect(unsafe_code, reason = "the promise about threads")]
    // SAFETY: the other thread reads only an event queue, which belongs to the fabric and to no
    // domain.
    let info = unsafe { unlocked_info() };
    let pair = pair_of(&info, b"", b"");
    let (a, b, eq) = (&pair.a, &pair.b, &*pair.a_eq);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(eq.read().unwrap_err(), Errno::Again);
            }
        });
        for number in 0..3000 {
            let bytes = pattern(number, 64);
            let buffer = b.recv(64, 2);
            a.send(UNUSED, &bytes, 1).unwrap();
            b.wait_for(2, &[a]);
            a.wait_for(1, &[b]);
            assert_eq!(buffer.bytes(), bytes);
        }
    });
}

#[test]
fn only_endpoints_with_the_same_key_connect() {
    let info = keyed_info(EpType::Msg, b"secret");
    let pair = pair_of(&info, b"request", b"answer");
    let (a, b) = (&pair.a, &pair.b);
    let buffer = b.recv(5, 2);
    a.send(UNUSED, b"hello", 1).unwrap();
    b.wait_for(2, &[a]);
    assert_eq!(buffer.bytes(), b"hello");
    for key in [&b""[..], b"secret2"] {
        let eq = pair.host.fabric.eq(&eq::Attr::default()).unwrap();
        let c = open(&keyed_info(EpType::Msg, key), &eq);
        let address = pair.host.pep.address().unwrap();
        c.ep.cm().unwrap().connect(&address, b"let me in").unwrap();
        let error = until(|| {
            c.progress();
            // The host reports no connection request.
            assert_eq!(pair.host.eq.read().unwrap_err(), Errno::Again);
            match eq.read() {
                Err(Errno::Avail) => eq.read_err().ok(),
                other => {
                    assert_eq!(other.unwrap_err(), Errno::Again);
                    None
                }
            }
        });
        assert_eq!(error.errno, Errno::ConnRefused, "{error:?}");
        assert!(
            key.is_empty() || error.detail.contains("auth_key"),
            "{error:?}"
        );
    }
}

/// The destination of sends of connected endpoints, which ignore it.
const UNUSED: FiAddr = FiAddr::UNSPEC;

#[test]
fn private_data_is_exchanged_before_messages() {
    for (request, response) in [(0, 0), (1, 256), (256, 1)] {
        let pair = pair(&pattern(1, request), &pattern(2, response));
        let (a, b) = (&pair.a, &pair.b);
        for len in [0, 8, 4096, 200_000] {
            let bytes = pattern(len, len);
            let buffer = b.recv(len, 2);
            a.send(UNUSED, &bytes, 1).unwrap();
            let entry = b.wait_for(2, &[a]);
            assert_eq!(entry.flags, CompletionFlags::MSG | CompletionFlags::RECV);
            a.wait_for(1, &[b]);
            assert_eq!(buffer.bytes(), bytes);
        }
        let peer = a.ep.cm().unwrap().peer().unwrap();
        assert_eq!(peer, pair.host.pep.address().unwrap());
        let peer = b.ep.cm().unwrap().peer().unwrap();
        assert_eq!(peer, a.ep.address().unwrap());
    }
}

#[test]
fn oversized_private_data_is_rejected_before_sending() {
    let host = Host::new();
    let a = open(&info(EpType::Msg, &[]), &host.eq);
    let address = host.pep.address().unwrap();
    let cm = a.ep.cm().unwrap();
    assert_eq!(cm.connect(&address, &[0; 257]), Err(Errno::Inval));
    assert_eq!(cm.accept(&[]), Err(Errno::Inval));
    assert_eq!(cm.shutdown(), Err(Errno::NotConn));
    assert_eq!(cm.peer(), Err(Errno::NotConn));
    assert_eq!(a.send(UNUSED, b"x", 1), Err(Errno::NotConn));
    cm.connect(&address, &[0; 256]).unwrap();
    assert_eq!(cm.connect(&address, &[]), Err(Errno::Already));
    let (info, _) = host.request(|| a.progress());
    assert_eq!(host.pep.reject(info.handle, &[0; 257]), Err(Errno::Inval));
    host.pep.reject(info.handle, &[]).unwrap();
    assert_eq!(host.pep.reject(info.handle, &[]), Err(Errno::Inval));
}

#[test]
fn a_rejection_is_an_error_with_the_peers_data() {
    let host = Host::new();
    let a_eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let a = open(&info(EpType::Msg, &[]), &a_eq);
    let address = host.pep.address().unwrap();
    a.ep.cm().unwrap().connect(&address, b"please").unwrap();
    let (info, data) = host.request(|| a.progress());
    assert_eq!(data, b"please");
    host.pep.reject(info.handle, b"no").unwrap();
    let error = until(|| match a_eq.read() {
        Err(Errno::Avail) => Some(a_eq.read_err().unwrap()),
        Err(Errno::Again) => None,
        other => panic!("{other:?}"),
    });
    assert_eq!(
        (error.errno, &error.data[..]),
        (Errno::ConnRefused, &b"no"[..])
    );
    let error = try_open(&info, &host.eq).unwrap_err();
    assert_eq!(
        error.errno(),
        Errno::Inval,
        "the request was rejected before: {error}"
    );
}

/// Drives an endpoint for 50 times its connect timeout.
fn drive_beyond(side: &CopyingEndpoint, timeout: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < 50 * timeout {
        side.progress();
    }
}

#[test]
fn a_late_accept_still_connects() {
    let timeout = Duration::from_millis(2);
    let info = info(EpType::Msg, &[("FI_TCP_CONNECT_TIMEOUT", "2ms")]);
    let host = Host::new();
    let a_eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let a = open(&info, &a_eq);
    let address = host.pep.address().unwrap();
    a.ep.cm().unwrap().connect(&address, b"please").unwrap();
    // First the event queue is not read, then the request is not answered.
    drive_beyond(&a, timeout);
    let (request, _) = host.request(|| a.progress());
    drive_beyond(&a, timeout);
    assert_eq!(a_eq.read().unwrap_err(), Errno::Again);
    let b = open(&request, &host.eq);
    b.ep.cm().unwrap().accept(b"yes").unwrap();
    for (eq, other) in [(&a_eq, &b), (&host.eq, &a)] {
        let connected = event(&**eq, || other.progress());
        assert!(
            matches!(connected, Event::Connected { .. }),
            "{connected:?}"
        );
    }
}

#[test]
fn a_thread_parked_at_the_event_queue_gets_the_timeout_of_another_threads_request() {
    const LIMIT: Duration = Duration::from_secs(10);
    // Fills the backlog of a listener that accepts nobody. The kernel drops further connection
    // attempts, so they time out.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(200)).ok();
    let fillers: Vec<_> = std::iter::from_fn(connect).collect();
    let info = info(EpType::Msg, &[("FI_TCP_CONNECT_TIMEOUT", "500ms")]);
    let mut attr = eq::Attr::default();
    attr.wait_obj = wait::Object::Unspec;
    let eq = info.fabric().unwrap().eq(&attr).unwrap();
    let a = open(&info, &eq);
    let start = Instant::now();
    thread::scope(|scope| {
        let parked = scope.spawn(|| eq.wait(Some(LIMIT)));
        thread::sleep(Duration::from_millis(20));
        a.ep.cm().unwrap().connect(&Address::Ip(to), &[]).unwrap();
        assert_eq!(parked.join().unwrap().unwrap_err(), Errno::Avail);
    });
    assert_eq!(eq.read_err().unwrap().errno, Errno::TimedOut);
    assert!(start.elapsed() < LIMIT, "the wait ended without the event");
    drop(fillers);
}

#[test]
fn connecting_without_a_listener_is_an_error() {
    let host = Host::new();
    let a_eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let a = open(&info(EpType::Msg, &[]), &a_eq);
    let address = host.pep.address().unwrap();
    drop(host);
    match a.ep.cm().unwrap().connect(&address, &[]) {
        // The system may report the refusal at once.
        Err(errno) => assert_eq!(errno, Errno::ConnRefused),
        Ok(()) => {
            let errno = until(|| match a_eq.read() {
                Err(Errno::Avail) => Some(a_eq.read_err().unwrap().errno),
                Err(Errno::Again) => None,
                other => panic!("{other:?}"),
            });
            assert_eq!(errno, Errno::ConnRefused);
        }
    }
}

#[test]
fn a_shutdown_is_an_event_at_the_peer_and_cancels_posted_receives() {
    let Pair { a, a_eq, b, host } = pair(&[], &[]);
    b.recv(8, 9);
    a.recv(8, 8);
    a.ep.cm().unwrap().shutdown().unwrap();
    a.ep.cm().unwrap().shutdown().unwrap();
    expect_shutdown(&*host.eq, &b);
    expect_shutdown(&*a_eq, &a);
    for (side, context) in [(&a, 8), (&b, 9)] {
        let error = side.wait(&[]).unwrap_err();
        assert_eq!(
            (error.errno, error.entry.context),
            (Errno::Canceled, Context(context))
        );
        assert_eq!(side.send(UNUSED, b"x", 1), Err(Errno::NotConn));
    }
    for eq in [&a_eq, &host.eq] {
        assert_eq!(
            eq.read().unwrap_err(),
            Errno::Again,
            "each side reports one shutdown"
        );
    }
}

fn expect_shutdown(eq: &dyn EventQueue, side: &CopyingEndpoint) {
    match event(eq, || side.progress()) {
        Event::Shutdown { ep } => {
            assert!(std::ptr::addr_eq(Arc::as_ptr(&ep), Arc::as_ptr(&side.ep)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn simultaneous_shutdowns_are_events_on_both_sides() {
    let Pair { a, a_eq, b, host } = pair(&[], &[]);
    a.ep.cm().unwrap().shutdown().unwrap();
    b.ep.cm().unwrap().shutdown().unwrap();
    expect_shutdown(&*a_eq, &a);
    expect_shutdown(&*host.eq, &b);
    for eq in [&a_eq, &host.eq] {
        assert_eq!(
            eq.read().unwrap_err(),
            Errno::Again,
            "each side reports one shutdown"
        );
    }
}

#[test]
fn messages_sent_before_a_shutdown_arrive() {
    let Pair { a, b, .. } = pair(&[], &[]);
    let bytes = pattern(3, 100);
    let buffers: Vec<_> = (0..50).map(|n| b.recv(100, n)).collect();
    for n in 0..50 {
        a.send(UNUSED, &bytes, n).unwrap();
    }
    a.ep.cm().unwrap().shutdown().unwrap();
    for (n, buffer) in buffers.iter().enumerate() {
        b.wait_for(n as u64, &[]);
        assert_eq!(buffer.bytes(), bytes);
    }
}

#[test]
fn handles_are_dropped_in_any_order() {
    let Pair { a, a_eq, b, host } = pair(&[], &[]);
    let ep: Arc<dyn Endpoint> = Arc::clone(&b.ep);
    drop((host, a_eq));
    drop(b);
    a.progress();
    drop(a);
    drop(ep);
    // The same while a connection request is unanswered.
    let host = Host::new();
    let a = open(&info(EpType::Msg, &[]), &host.eq);
    let address: Address = host.pep.address().unwrap();
    a.ep.cm().unwrap().connect(&address, &[]).unwrap();
    host.request(|| a.progress());
    drop(host);
    drop(a);
}

#[test]
fn a_shutdown_event_precedes_the_next_connection_request() {
    let Pair { a, a_eq, b, host } = pair(b"", b"");
    a.ep.cm().unwrap().shutdown().unwrap();
    let next = open(&info(EpType::Msg, &[]), &a_eq);
    let address = host.pep.address().unwrap();
    next.ep.cm().unwrap().connect(&address, b"next").unwrap();
    // The request arrives before the event queue is read.
    for _ in 0..1000 {
        next.progress();
    }
    match event(&*host.eq, || next.progress()) {
        Event::Shutdown { ep } => assert!(std::ptr::addr_eq(Arc::as_ptr(&ep), Arc::as_ptr(&b.ep))),
        other => panic!("{other:?}"),
    }
    let (_, data) = host.request(|| next.progress());
    assert_eq!(data, b"next");
    expect_shutdown(&*a_eq, &a);
}

/// A passive endpoint without an address.
fn unbound(host: &Host, eq: &Arc<dyn EventQueue>) -> Arc<dyn PassiveEndpoint> {
    let mut info = info(EpType::Msg, &[]);
    info.src_addr = None;
    let pep = host.fabric.passive_endpoint(&info, Arc::clone(eq)).unwrap();
    assert_eq!(pep.address(), Err(Errno::AddrNotAvail));
    assert_eq!(pep.listen(), Err(Errno::AddrNotAvail));
    pep
}

fn loopback() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

/// The error of opening an endpoint with the handle of a passive endpoint.
fn open_error(host: &Host, handle: u64) -> Error {
    let mut info = info(EpType::Msg, &[]);
    info.handle = handle;
    try_open(&info, &host.eq).unwrap_err()
}

#[test]
fn an_endpoint_connects_from_the_address_of_a_passive_endpoint() {
    let host = Host::new();
    let eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let pep = unbound(&host, &eq);
    let handle = pep.handle().unwrap();
    assert_eq!(open_error(&host, handle).errno(), Errno::AddrNotAvail);
    pep.set_address(&loopback()).unwrap();
    let own_address = pep.address().unwrap();
    assert!(matches!(own_address, Address::Ip(ip) if ip.port() != 0));
    let second_set = pep.set_address(&loopback()).unwrap_err();
    assert_eq!(second_set.errno(), Errno::OpBadState);
    let mut info_with_handle = info(EpType::Msg, &[]);
    info_with_handle.handle = handle;
    let a = open(&info_with_handle, &eq);
    assert_eq!(a.ep.address(), Ok(own_address.clone()));
    assert_eq!(pep.listen(), Err(Errno::OpBadState));
    assert_eq!(pep.address(), Err(Errno::AddrNotAvail));
    assert_eq!(open_error(&host, handle).errno(), Errno::OpBadState);
    drop(pep);
    let closed = open_error(&host, handle);
    assert_eq!(closed.errno(), Errno::Inval);
    assert!(closed.message().contains(&handle.to_string()), "{closed}");
    let address = host.pep.address().unwrap();
    a.ep.cm().unwrap().connect(&address, &[]).unwrap();
    assert_eq!(a.ep.address(), Ok(own_address.clone()));
    let (request, _) = host.request(|| a.progress());
    assert_eq!(request.dest_addr, Some(own_address.clone()));
    let b = open(&request, &host.eq);
    b.ep.cm().unwrap().accept(&[]).unwrap();
    let connected = event(&*eq, || b.progress());
    assert!(matches!(connected, Event::Connected { .. }));
    assert_eq!(a.ep.address(), Ok(own_address.clone()));
    assert_eq!(b.ep.cm().unwrap().peer(), Ok(own_address));
    assert_eq!(b.ep.address(), Ok(address));
}

#[test]
fn a_passive_endpoint_listens_at_its_own_address_or_at_one_it_takes_over() {
    let host = Host::new();
    let first = unbound(&host, &host.eq);
    first.set_address(&loopback()).unwrap();
    let own_address = first.address().unwrap();
    let mut info_with_handle = info(EpType::Msg, &[]);
    info_with_handle.handle = first.handle().unwrap();
    let eq = Arc::clone(&host.eq);
    let second = host.fabric.passive_endpoint(&info_with_handle, eq).unwrap();
    drop(first);
    assert_eq!(second.address(), Ok(own_address.clone()));
    second.listen().unwrap();
    assert_eq!(second.listen(), Err(Errno::OpBadState));
    assert_eq!(second.address(), Ok(own_address.clone()));
    let error = open_error(&host, second.handle().unwrap());
    assert_eq!(error.errno(), Errno::OpBadState);
    assert!(error.message().contains("listens"), "{error}");
    // A connection arrives.
    let a_eq = host.fabric.eq(&eq::Attr::default()).unwrap();
    let a = open(&info(EpType::Msg, &[]), &a_eq);
    a.ep.cm().unwrap().connect(&own_address, b"here").unwrap();
    let (_, data) = host.request(|| a.progress());
    assert_eq!(data, b"here");
    // An address that is in use and an address of another format are rejected.
    let third = unbound(&host, &host.eq);
    let in_use = third.set_address(&own_address).unwrap_err();
    assert_eq!(in_use.errno(), Errno::AddrInUse);
    assert!(
        in_use.message().contains(&own_address.to_string()),
        "{in_use}"
    );
    let other_format = third.set_address(&Address::Str("fi_shm://here".into()));
    assert_eq!(other_format.unwrap_err().errno(), Errno::Inval);
    third.set_address(&loopback()).unwrap();
    third.listen().unwrap();
}

#[test]
fn unanswered_requests_are_kept_up_to_a_limit_and_further_ones_wait() {
    const MAX_REQUESTS: usize = 4;
    let info = info(EpType::Msg, &[("FI_TCP_REQUESTS", "4")]);
    let host = Host::of(&info);
    let address = host.pep.address().unwrap();
    let clients: Vec<_> = (0..2 * MAX_REQUESTS)
        .map(|_| {
            let eq = host.fabric.eq(&eq::Attr::default()).unwrap();
            let client = open(&info, &eq);
            client.ep.cm().unwrap().connect(&address, b"").unwrap();
            client
        })
        .collect();
    let drive = || clients.iter().for_each(|endpoint| endpoint.progress());
    let mut requests: Vec<_> = (0..MAX_REQUESTS).map(|_| host.request(drive).0).collect();
    for _ in 0..1000 {
        drive();
        assert_eq!(host.eq.read().unwrap_err(), Errno::Again);
    }
    // Each answered request makes room for another.
    for _ in 0..MAX_REQUESTS {
        host.pep.reject(requests.remove(0).handle, b"").unwrap();
        requests.push(host.request(drive).0);
    }
}
