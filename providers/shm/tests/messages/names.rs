//! Names of endpoints, and the attributes that endpoints report.

use selvedge::{Address, EpOption, EpOptionName, Errno, FiAddr, InfoFlags};

use crate::common::{Queue, Rx, Side, Sut, Tx};
use crate::provider;

fn name(side: &Side) -> String {
    side.ep.address().unwrap().to_string()
}

/// A side with the name in `src_addr`.
fn named_side(src_addr: &str) -> Side {
    let hints = provider::hints().src_addr(Address::Str(src_addr.into()));
    provider::with(&[], &hints).side()
}

/// A name that no other test uses.
fn unique(purpose: &str) -> String {
    format!("{purpose}-{}", std::process::id())
}

fn exchange(a: &Side, b: &Side) {
    let (to_b, to_a) = (a.insert_endpoint(b), b.insert_endpoint(a));
    b.recv(&Rx::msg(8).from(to_a));
    a.send(&Tx::msg(to_b, b"hello"));
    let done = b.wait(&[a]);
    done.assert_bytes(b"hello");
    assert_eq!(done.src, to_a);
    a.wait(&[b]);
}

#[test]
fn default_names_count_processes_domains_and_endpoints() {
    let info = provider::plain().info();
    let domains = [info.open().unwrap(), info.open().unwrap()];
    let mut indices = Vec::new();
    for domain in &domains {
        for endpoint in 0..2 {
            let side = Side::open(domain, &info, &Queue::default());
            let name = name(&side);
            let plain = name.strip_prefix("fi_shm://").expect("the scheme");
            let parts: Vec<u32> = plain.split(':').map(|part| part.parse().unwrap()).collect();
            assert_eq!((parts[0], parts[2]), (std::process::id(), endpoint));
            indices.push(parts[1]);
        }
    }
    assert_eq!((indices[0], indices[2]), (indices[1], indices[3]));
    assert_ne!(indices[0], indices[2]);
}

#[test]
fn endpoints_are_named_by_their_local_address() {
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let plain = unique("named");
        let side = named_side(&format!("{scheme}{plain}"));
        assert_eq!(name(&side), format!("fi_shm://{plain}"));
        let other = provider::plain().side();
        exchange(&other, &side);
        exchange(&side, &other);
    }
}

#[test]
fn a_name_may_be_inserted_in_every_spelling() {
    let plain = unique("spelt");
    let side = named_side(&plain);
    let other = provider::plain().side();
    let to = other.insert_endpoint(&side);
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let spelt = Address::Str(format!("{scheme}{plain}"));
        assert_eq!(other.av.insert_one(&spelt).unwrap(), to);
    }
    assert_eq!(other.av.lookup(to).unwrap().to_string(), name(&side));
}

#[test]
fn node_and_service_name_the_local_endpoint() {
    let (hints, node) = (provider::hints(), unique("node"));
    let registry = selvedge::Registry::new().with(&selvedge_shm::PROVIDER);
    let api = selvedge::info::Version::API;
    let infos = registry
        .getinfo(api, Some(&node), Some("7"), InfoFlags::SOURCE, &hints)
        .unwrap();
    let domain = infos[0].open().unwrap();
    let side = Side::open(&domain, &infos[0], &Queue::default());
    assert_eq!(name(&side), format!("fi_shm://{node}:7"));
}

fn source(node: Option<&str>) -> selvedge::Info {
    let flags = match node {
        Some(_) => InfoFlags::SOURCE,
        None => InfoFlags::empty(),
    };
    let registry = selvedge::Registry::new().with(&selvedge_shm::PROVIDER);
    let api = selvedge::info::Version::API;
    let infos = registry.getinfo(api, node, None, flags, &provider::hints());
    infos.unwrap().remove(0)
}

#[test]
fn a_node_without_a_service_names_as_many_endpoints_as_are_opened() {
    let node = unique("node");
    let info = source(Some(&node));
    let domains = [info.open().unwrap(), info.open().unwrap()];
    let sides = [0, 0, 1].map(|at| Side::open(&domains[at], &info, &Queue::default()));
    for side in &sides {
        let prefix = format!("fi_shm://{node}:{}:", std::process::id());
        assert!(name(side).starts_with(&prefix), "{}", name(side));
    }
    exchange(&sides[0], &sides[1]);
    exchange(&sides[1], &sides[2]);
}

#[test]
fn discovery_reports_a_local_address_where_none_was_named() {
    let info = source(None);
    assert!(info.src_addr.is_some());
    let domain = info.open().unwrap();
    let sides = [(); 2].map(|()| Side::open(&domain, &info, &Queue::default()));
    let own = format!("fi_shm://{}:", std::process::id());
    assert!(name(&sides[0]).starts_with(&own), "{}", name(&sides[0]));
    exchange(&sides[0], &sides[1]);
}

#[test]
fn a_name_that_is_taken_is_refused_until_it_is_free() {
    let plain = unique("taken");
    let first = named_side(&plain);
    let hints = provider::hints().src_addr(Address::Str(plain.clone()));
    let info = provider::with(&[], &hints).info();
    let again = || {
        let domain = info.open().unwrap();
        let cq = domain.cq(&selvedge::cq::Attr::default()).unwrap();
        let av = domain.av(&selvedge::av::Attr::default()).unwrap();
        domain.endpoint(&info, selvedge::Bindings::new(cq, av))
    };
    let error = again().unwrap_err();
    assert_eq!(error.errno(), Errno::AddrInUse);
    assert!(error.to_string().contains(&plain), "{error}");
    drop(first);
    again().unwrap();
}

#[test]
fn limits_can_be_queried() {
    let sut: Sut = provider::plain();
    let (info, side) = (sut.info(), sut.side());
    let (max, inject) = (info.ep_attr.max_msg_size, info.tx_attr.inject_size);
    let expected = [
        (EpOptionName::MaxMsgSize, EpOption::MaxMsgSize(max)),
        (EpOptionName::MaxTaggedSize, EpOption::MaxTaggedSize(max)),
        (EpOptionName::InjectMsgSize, EpOption::InjectMsgSize(inject)),
        (
            EpOptionName::InjectTaggedSize,
            EpOption::InjectTaggedSize(inject),
        ),
    ];
    for (name, value) in expected {
        assert_eq!(side.ep.option(name), Ok(value));
    }
    assert_eq!(
        side.ep.option(EpOptionName::CmDataSize),
        Err(Errno::NoProtoOpt)
    );
}

#[test]
fn services_and_ranges_of_them_are_inserted_as_they_are_named() {
    let Side { av, .. } = provider::plain().side();
    let name = |addr| av.lookup(addr).unwrap().to_string();
    let addr = av.insert_service("host", "7").unwrap();
    assert_eq!(name(addr), "fi_shm://host:7");
    assert_eq!(av.insert_service("host:7", "").unwrap(), addr);
    assert_eq!(av.insert_service("", "fi_ns://host:7").unwrap(), addr);
    for (node, service, why) in [
        ("", "", "the node and the service are empty"),
        ("a b", "", "a b"),
        ("fi_tcp://x", "1", "fi_tcp://x"),
    ] {
        let error = av.insert_service(node, service).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.message().contains(why), "{error}");
    }
    let mut out = [FiAddr::NOTAVAIL; 5];
    let inserted = av.insert_symmetric("host9", 2, "08", 2, &mut out);
    assert_eq!(inserted.unwrap(), 4);
    let names = out.map(|addr| av.lookup(addr).map(|address| address.to_string()).ok());
    let expected = ["host9:08", "host9:09", "host10:08", "host10:09"];
    for (name, expected) in names.iter().zip(expected) {
        assert_eq!(name.as_deref(), Some(&*format!("fi_shm://{expected}")));
    }
    assert_eq!(out[4], FiAddr::NOTAVAIL);
    // An inserted address keeps its index.
    let mut again = [FiAddr::NOTAVAIL; 2];
    let inserted = av.insert_symmetric("host10", 1, "09", 2, &mut again);
    assert_eq!(inserted.unwrap(), 2);
    assert_eq!(again[0], out[3]);
    let before = av.insert_service("none", "1").unwrap();
    for (node, nodes, service, services) in [
        ("host9", 3, "1", 2),
        ("host", 2, "1", 1),
        ("host9", 1, "x", 2),
        ("host9", usize::MAX, "1", 2),
    ] {
        let result = av.insert_symmetric(node, nodes, service, services, &mut out);
        assert_eq!(result.unwrap_err().errno(), Errno::Inval);
    }
    let next = av.insert_service("none", "2").unwrap();
    assert_eq!(
        next.0,
        before.0 + 1,
        "a range that is refused inserts nothing"
    );
    let inserted = av.insert_symmetric("host9", 0, "1", 5, &mut []);
    assert_eq!(inserted.unwrap(), 0);
}
