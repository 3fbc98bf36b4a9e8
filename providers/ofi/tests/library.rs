//! The provider over the system's libfabric, if there is one.

#![expect(unsafe_code, reason = "tests post through the raw layer")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{self, Entry};
use selvedge::eq::Event;
use selvedge::info::{EpType, Version};
use selvedge::mr::HmemIface;
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::param::Params;
use selvedge::tagged::TagMatch;
use selvedge::{
    Caps, Context, Desc, Domain, Errno, EventQueue, FiAddr, Hints, Info, InfoFlags, Iov, IovMut,
    MrAccess, MrMode, MsgExt, OpFlags, Registry, TaggedExt, av, eq, mr, msg, tagged, wait,
};
use selvedge_testkit::domain::Recv;
use selvedge_testkit::local::{LocalEndpoint, open_domain, until};
use selvedge_testkit::skip::{Need, skip};

/// The longest time for which a test waits.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A registry with only this provider, and a library.
fn registry(library: &str) -> Registry {
    let params: Params = [("FI_OFI_LIBRARY", library)].into_iter().collect();
    Registry::new()
        .with(&selvedge_ofi::PROVIDER)
        .with_params(params)
}

/// A registry with the system's library. Reports a skipped test if there is none.
fn system_registry(test: &str) -> Option<Registry> {
    let registry = registry("system");
    match registry.infos(&Hints::anything()) {
        Ok(_) => Some(registry),
        Err(error) => {
            skip(Need::Libfabric, format_args!("for {test}: {error}"));
            None
        }
    }
}

fn hints(provider: &str, caps: Caps) -> Hints {
    let mr_modes = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
    let hints = Hints::new().provider(provider).caps(caps);
    hints.ep_type(EpType::Rdm).mr_mode(mr_modes)
}

/// Opens an endpoint with a small queue.
fn open(info: &Info) -> LocalEndpoint {
    LocalEndpoint::open_with(info, |domain, config| {
        config.rx = Some(domain.queue(64).unwrap());
    })
}

/// Reads both queues until each endpoint has one entry.
fn read_one_from_each(a: &LocalEndpoint, b: &LocalEndpoint) -> [Entry; 2] {
    let mut found = [None, None];
    until(|| {
        for (endpoint, slot) in [a, b].into_iter().zip(&mut found) {
            match slot {
                None => *slot = endpoint.poll(),
                Some(_) => endpoint.progress(),
            }
        }
        found.iter().all(Option::is_some).then_some(())
    });
    found.map(|outcome| outcome.unwrap().unwrap())
}

fn exchange_messages(provider: &str) {
    let Some(registry) = system_registry(provider) else {
        return;
    };
    let Ok(infos) = registry.infos(&hints(provider, Caps::TAGGED)) else {
        return skip(Need::Libfabric, format_args!("it has no {provider}"));
    };
    assert_eq!(infos[0].fabric_attr.prov_name, provider);
    let (a, b) = (open(&infos[0]), open(&infos[0]));
    let (to_b, _) = (a.insert_endpoint(&b), b.insert_endpoint(&a));
    for len in [0, 8, 100_000] {
        let sent: Vec<u8> = (0..len).map(|index| index as u8).collect();
        let mut got = vec![0xee_u8; len + 1];
        let buffer = IovMut::new(&mut got[..len]);
        let any = TagMatch::exact(0x1234);
        // SAFETY: `got` is not accessed until the receive is complete.
        unsafe {
            b.ep.trecv(buffer, Desc::NONE, FiAddr::UNSPEC, any, Context(7))
        }
        .unwrap();
        let bytes = Iov::new(&sent);
        a.post_retrying(&[&b], || {
            // SAFETY: `sent` is not written until the send is complete.
            unsafe { a.ep.tsend(bytes, Desc::NONE, to_b, 0x1234, Context(9)) }
        });
        let [send, receive] = read_one_from_each(&a, &b);
        assert_eq!((send.context, receive.context), (Context(9), Context(7)));
        assert_eq!((receive.len, receive.tag), (len, 0x1234));
        assert_eq!((&got[..len], got[len]), (&sent[..], 0xee));
    }
    assert_eq!(
        a.ep.tinject(b"x", FiAddr(1 << 40), 0, None),
        Err(Errno::Inval)
    );
    let large = vec![0; infos[0].tx_attr.inject_size + 1];
    assert_eq!(a.ep.tinject(&large, to_b, 0, None), Err(Errno::MsgSize));
    assert_eq!(a.av.lookup(to_b), Ok(b.address()));
    assert_eq!(a.av.lookup(FiAddr(77)), Err(Errno::Inval));
    a.av.remove(&[to_b]).unwrap();
    assert_eq!(a.av.remove(&[to_b]), Err(Errno::Inval));
}

#[test]
fn messages_pass_over_net() {
    exchange_messages("net;ofi");
}

#[test]
fn messages_pass_over_tcp_with_a_layer() {
    exchange_messages("tcp;ofi_rxm;ofi");
}

#[test]
fn messages_pass_over_shm() {
    exchange_messages("shm;ofi");
}

#[test]
fn a_lent_message_is_an_ordinary_one_over_the_library() {
    let Some(registry) = system_registry("tcp;ofi_rxm;ofi") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("tcp;ofi_rxm;ofi", Caps::MSG | Caps::TAGGED)) else {
        return skip(Need::Libfabric, format_args!("it has no tcp;ofi_rxm"));
    };
    let domain = infos[0].open().unwrap();
    let av = domain.av(&av::Attr::default()).unwrap();
    let [a, b] = [(); 2].map(|()| Endpoint::open(&*domain, &infos[0], Arc::clone(&av)).unwrap());
    let to_b = av.insert_one(&b.address().unwrap()).unwrap();
    let pool = Pool::new(&*domain, 100, 2).unwrap();
    b.trecv_lent(pool.take().unwrap(), FiAddr::UNSPEC, 3, Context(1))
        .unwrap();
    let mut message = pool.take().unwrap();
    message.write(b"lent").unwrap();
    let (mut done, mut failed) = (Completions::with_capacity(1), Some(message));
    let view = until(|| {
        if let Some(message) = failed.take() {
            failed = a.tlend(message, to_b, 3, Context(2)).err().map(|e| e.buf);
        }
        a.poll(&mut done).unwrap();
        assert!(done.drain().all(|sent| sent.result.is_ok()));
        b.poll(&mut done).unwrap();
        done.drain().next().map(|it| it.into_view().unwrap().0)
    });
    assert_eq!(
        (view.is_lent(), view.to_vec().unwrap()),
        (false, b"lent".to_vec())
    );
}

#[test]
fn the_flag_of_lent_messages_does_not_reach_the_library() {
    let Some(registry) = system_registry("tcp;ofi_rxm;ofi") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("tcp;ofi_rxm;ofi", Caps::MSG | Caps::TAGGED)) else {
        return skip(Need::Libfabric, format_args!("it has no tcp;ofi_rxm"));
    };
    let endpoint = open(&infos[0]);
    let (ep, dest) = (&endpoint.ep, endpoint.insert_endpoint(&endpoint));
    assert!(ep.lending().is_none());
    let (bytes, mut buf) = ([7; 8], [0; 8]);
    let (context, desc, data, tag) = (Context(1), &[][..], 0, 0);
    for flags in [OpFlags::LEND, OpFlags::LEND | OpFlags::DEFAULT] {
        let (src, any) = (FiAddr::UNSPEC, TagMatch::ANY);
        let (iov, into) = (&[Iov::new(&bytes)][..], &[IovMut::new(&mut buf)][..]);
        let send = msg::SendMsg {
            iov,
            desc,
            dest,
            context,
            data,
        };
        let tagged_send = tagged::SendMsg {
            iov,
            desc,
            dest,
            tag,
            context,
            data,
        };
        let recv = msg::RecvMsg {
            iov: into,
            desc,
            src,
            context,
        };
        let tagged_recv = tagged::RecvMsg {
            iov: into,
            desc,
            src,
            tag: any,
            context,
        };
        let posts = [
            // SAFETY: the post fails, so that nothing accesses the buffer.
            unsafe { ep.sendmsg(&send, flags) },
            // SAFETY: as above.
            unsafe { ep.tsendmsg(&tagged_send, flags) },
            // SAFETY: as above.
            unsafe { ep.recvmsg(&recv, flags) },
            // SAFETY: as above.
            unsafe { ep.trecvmsg(&tagged_recv, flags) },
        ];
        assert_eq!(posts, [Err(Errno::BadFlags); 4]);
    }
}

#[test]
fn a_wait_without_room_returns_when_the_queue_has_an_entry() {
    let Some(registry) = system_registry("tcp;ofi_rxm;ofi") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("tcp;ofi_rxm;ofi", Caps::MSG)) else {
        return skip(Need::Libfabric, format_args!("it has no tcp;ofi_rxm"));
    };
    let endpoint = LocalEndpoint::open_with(&infos[0], |domain, config| {
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        config.rx = Some(domain.queue_with(&attr).unwrap());
    });
    let brief = Some(Duration::from_millis(10));
    assert_eq!(endpoint.cq().wait(&mut [], brief), Err(Errno::Again));
    let itself = endpoint.insert_endpoint(&endpoint);
    let _received = endpoint.recv_new(8, &Recv::new(1));
    endpoint.post_retrying(&[&endpoint], || {
        endpoint.ep.inject(b"8 bytes.", itself, None)
    });
    for _ in 0..2 {
        assert_eq!(endpoint.cq().wait(&mut [], Some(TIMEOUT)), Ok(0));
    }
    assert_eq!(endpoint.poll().unwrap().unwrap().context, Context(1));
}

#[test]
fn the_provider_is_off_until_a_library_is_named() {
    let error = registry("").infos(&Hints::anything()).unwrap_err();
    assert_eq!(error.errno(), Errno::NoData);
    assert!(!error.to_string().contains("ofi:"), "{error}");
}

#[test]
fn the_error_for_a_library_that_cannot_be_loaded_has_the_reason() {
    let table = [
        ("/no/such/library.so", "/no/such/library.so: cannot open"),
        (
            "libc.so.6",
            "libc.so.6: not a libfabric: it has no symbol fi_getinfo",
        ),
    ];
    for (library, message) in table {
        let error = registry(library).infos(&Hints::anything()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn a_discovery_error_names_the_mismatched_field() {
    let Some(registry) = system_registry("a refusal") else {
        return;
    };
    let hints = hints("net;ofi", Caps::TAGGED).tx_size(1 << 40);
    let error = registry.infos(&hints).unwrap_err().to_string();
    assert!(error.contains("tx_attr.size"), "{error}");
}

#[test]
fn errors_have_the_librarys_text() {
    let Some(registry) = system_registry("an error") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("shm;ofi", Caps::TAGGED)) else {
        return;
    };
    let side = open(&infos[0]);
    let mut attr = cq::Attr::with_size(usize::MAX);
    attr.wait_obj = wait::Object::Fd;
    let refused = side.domain().cq(&attr).unwrap_err().to_string();
    assert!(
        refused.contains("libfabric 1.") || refused.contains("libfabric 2."),
        "{refused}"
    );
    assert!(
        refused.contains("completion queue of ofi domain"),
        "{refused}"
    );
}

#[test]
fn keys_of_regions_without_remote_access_do_not_collide() {
    let Some(registry) = system_registry("registration") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("net;ofi", Caps::RMA | Caps::MSG)) else {
        return;
    };
    let domain = infos[0].open().unwrap();
    let mut memory = [0_u8; 64];
    let region = [IovMut::new(&mut memory)];
    let mut remote = mr::Attr::default();
    remote.access = MrAccess::REMOTE_READ;
    remote.requested_key = 5;
    // SAFETY: the regions are dropped before the memory, which no operation names.
    let keyed = unsafe { domain.reg(&region, &remote) }.unwrap();
    assert_eq!(keyed.key(), 5);
    // SAFETY: as above.
    let again = unsafe { domain.reg(&region, &remote) }.unwrap_err();
    assert_eq!(again.errno(), Errno::NoKey);
    let local = mr::Attr::default();
    // SAFETY: as above.
    let first = unsafe { domain.reg(&region, &local) }.unwrap();
    // SAFETY: as above.
    let second = unsafe { domain.reg(&region, &local) }.unwrap();
    assert_ne!(first.key(), second.key());
}

/// The library has no device, so it refuses the memory of one, if it learns the interface.
#[test]
fn the_interface_of_a_device_reaches_a_domain_with_hmem() {
    let Some(registry) = system_registry("memory of devices") else {
        return;
    };
    let caps = Caps::MSG | Caps::HMEM;
    let request = hints("shm;ofi", caps).mr_mode(MrMode::HMEM | MrMode::VIRT_ADDR);
    let Ok(infos) = registry.infos(&request) else {
        return skip(Need::Libfabric, "its shm has no FI_HMEM");
    };
    assert!(infos[0].caps.contains(Caps::HMEM));
    let mut memory = [0_u8; 64];
    let region = [IovMut::new(&mut memory)];
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::SEND;
    let mut of_device = attr.clone();
    (of_device.iface, of_device.device) = (HmemIface::Cuda, 3);
    let domain = infos[0].open().unwrap();
    // SAFETY: the region is dropped before the memory, which no operation names.
    drop(unsafe { domain.reg(&region, &attr) }.unwrap());
    // SAFETY: as above.
    let refused = unsafe { domain.reg(&region, &of_device) }.unwrap_err();
    assert!(
        !refused.to_string().contains("reports no FI_HMEM"),
        "{refused}"
    );
    let without = registry.infos(&hints("shm;ofi", Caps::MSG)).unwrap();
    let domain = without[0].open().unwrap();
    // SAFETY: as above.
    let refused = unsafe { domain.reg(&region, &of_device) }.unwrap_err();
    assert_eq!(refused.errno(), Errno::OpNotSupp);
    for part in ["FI_HMEM_CUDA", "device 3", "reports no FI_HMEM"] {
        assert!(refused.to_string().contains(part), "{part}: {refused}");
    }
}

#[test]
fn events_are_written_peeked_and_read() {
    let Some(registry) = system_registry("an event queue") else {
        return;
    };
    let Ok(infos) = registry.infos(&hints("net;ofi", Caps::TAGGED)) else {
        return;
    };
    let eq = infos[0].fabric().unwrap().eq(&eq::Attr::default()).unwrap();
    assert_eq!(eq.read().unwrap_err(), Errno::Again);
    let event = Event::Notify {
        context: Context(3),
        data: 4,
        handle: 5,
    };
    eq.write(event).unwrap();
    for is_peek in [true, false] {
        let event = if is_peek { eq.peek() } else { eq.read() }.unwrap();
        let Event::Notify {
            context,
            data,
            handle,
        } = event
        else {
            panic!("{event:?}");
        };
        assert_eq!((context, data, handle), (Context(3), 4, 5));
    }
    assert_eq!(eq.read().unwrap_err(), Errno::Again);
    assert_eq!(eq.wait(None).unwrap_err(), Errno::NoSys);
}

/// Waits for the next event of `eq`, and makes `drive` progress meanwhile.
fn next_event(eq: &dyn EventQueue, drive: &dyn EventQueue) -> Event {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < deadline, "no event within {TIMEOUT:?}");
        let _ = drive.peek();
        match eq.read() {
            Ok(event) => return event,
            Err(Errno::Again) => {}
            Err(errno) => panic!("{errno}: {:?}", eq.read_err()),
        }
    }
}

fn open_connected(info: &Info, eq: &Arc<dyn EventQueue>) -> LocalEndpoint {
    LocalEndpoint::open_with(info, |domain, config| {
        config.rx = Some(domain.queue(64).unwrap());
        config.eq = Some(Arc::clone(eq));
        config.without_av = true;
    })
}

#[test]
fn a_connection_is_requested_and_accepted_over_tcp() {
    a_connection_is_requested_and_accepted("tcp;ofi");
}

/// This library's provider drives only objects of the queue's own fabric object.
#[test]
fn a_connection_is_requested_and_accepted_over_net() {
    a_connection_is_requested_and_accepted("net;ofi");
}

/// The request's info opens the endpoint that accepts it, like an info of discovery. Each domain
/// opens its fabric again.
fn a_connection_is_requested_and_accepted(provider: &str) {
    let Some(registry) = system_registry("a connection") else {
        return;
    };
    let hints = hints(provider, Caps::MSG).ep_type(EpType::Msg);
    let localhost = Some("127.0.0.1");
    let result = registry.getinfo(Version::API, localhost, None, InfoFlags::SOURCE, &hints);
    let Ok(infos) = result else {
        return skip(
            Need::Libfabric,
            format_args!("it has no connections over {provider}"),
        );
    };
    let fabric = infos[0].fabric().unwrap();
    let [eq, client_eq] = [(); 2].map(|()| fabric.eq(&eq::Attr::default()).unwrap());
    let pep = fabric.passive_endpoint(&infos[0], Arc::clone(&eq)).unwrap();
    pep.listen().unwrap();
    let a = open_connected(&infos[0], &client_eq);
    let cm = a.ep.cm().unwrap();
    cm.connect(&pep.address().unwrap(), b"please").unwrap();
    let Event::ConnReq { info, data, .. } = next_event(&*eq, &*client_eq) else {
        panic!("no request");
    };
    assert_eq!(data, b"please");
    assert!(info.dest_addr.is_some(), "{info:?}");
    let b = open_connected(&info, &eq);
    b.ep.cm().unwrap().accept(b"gladly").unwrap();
    match next_event(&*client_eq, &*eq) {
        Event::Connected { data, .. } => assert_eq!(data, b"gladly"),
        other => panic!("{other:?}"),
    }
    let mut got = [0; 5];
    let (buffer, bytes) = (IovMut::new(&mut got), Iov::new(b"hello"));
    let any = FiAddr::UNSPEC;
    // SAFETY: `got` is not accessed until the receive is complete.
    unsafe { b.ep.recv(buffer, Desc::NONE, any, Context(7)) }.unwrap();
    // SAFETY: the bytes are constant.
    unsafe { a.ep.send(bytes, Desc::NONE, any, Context(9)) }.unwrap();
    let [sent, received] = read_one_from_each(&a, &b);
    assert_eq!((sent.context, received.context), (Context(9), Context(7)));
    assert_eq!(&got, b"hello");
}

/// A change of an `Info`.
type Edit = fn(&mut Info);

/// An `Info` of the system's tcp provider.
fn system_info(test: &str) -> Option<Info> {
    let registry = system_registry(test)?;
    let infos = registry.infos(&hints("tcp;ofi_rxm;ofi", Caps::TAGGED));
    let infos = infos.or_else(|_| registry.infos(&hints("shm;ofi", Caps::TAGGED)));
    Some(infos.unwrap().remove(0))
}

#[test]
fn the_error_for_a_changed_info_names_the_field() {
    let Some(info) = system_info("a change of an Info") else {
        return;
    };
    let domain = open_domain(&info).unwrap();
    let open = |info: &Info| {
        let opened = LocalEndpoint::try_open(&domain, |domain, config| {
            config.rx = Some(domain.queue(64).unwrap());
            config.info = Some(info.clone());
        });
        opened.map(drop)
    };
    open(&info).unwrap();
    let edits: &[(&str, Edit)] = &[
        ("tx_attr.inject_size", |info| {
            info.tx_attr.inject_size = 1 << 20
        }),
        ("tx_attr.iov_limit", |info| info.tx_attr.iov_limit = 1000),
        ("rx_attr.iov_limit", |info| info.rx_attr.iov_limit = 1000),
        ("domain", |info| info.domain_attr.name = "another".into()),
    ];
    for &(field, edit) in edits {
        let mut changed = info.clone();
        edit(&mut changed);
        let error = open(&changed).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval, "{field}: {error}");
        assert!(error.message().contains(field), "{field}: {error}");
    }
}

#[test]
fn a_descriptor_of_another_domain_does_not_reach_the_library() {
    let Some(info) = system_info("descriptors of two domains") else {
        return;
    };
    let [local, other] = [(); 2].map(|()| open(&info));
    let dest = local.insert_endpoint(&local);
    let mut bytes = [0_u8; 64];
    let mut attr = mr::Attr::default();
    attr.access = MrAccess::SEND | MrAccess::RECV;
    let register = |domain: &dyn Domain, buffer: IovMut| {
        // SAFETY: the region is dropped before the bytes.
        unsafe { domain.reg(&[buffer], &attr) }.unwrap()
    };
    let buffer = IovMut::new(&mut bytes);
    let regions = [&local, &other].map(|side| register(&**side.domain(), buffer));
    let [local_desc, other_desc] = regions.each_ref().map(|region| region.desc());
    if other_desc == Desc::NONE {
        eprintln!("skipped: this library has no descriptors");
        return;
    }
    let post = |desc| {
        // SAFETY: the bytes are not accessed until the endpoint is dropped.
        unsafe {
            local
                .ep
                .trecv(buffer, desc, FiAddr::UNSPEC, TagMatch::exact(1), Context(1))
        }
    };
    assert_eq!(post(other_desc), Err(Errno::Inval));
    assert_eq!(post(local_desc), Ok(()));
    let sent = Iov::new(&[1; 64]);
    // SAFETY: the post is refused.
    let refused = unsafe { local.ep.tsend(sent, other_desc, dest, 1, Context(2)) };
    assert_eq!(refused, Err(Errno::Inval));
    drop(local);
    drop(regions);
}
