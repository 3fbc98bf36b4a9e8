//! Names of endpoints, and the attributes that endpoints report.

use std::sync::Arc;

use selvedge::{Address, EpOption, EpOptionName, Errno, FiAddr, InfoFlags};
use selvedge_testkit::local::{LocalEndpoint, open_domain};

use crate::common::{MessageEndpoint, Rx, Sut, Tx};
use crate::provider;

fn endpoint_name(side: &LocalEndpoint) -> String {
    side.address().to_string()
}

/// Opens a side with `src_addr` as its name.
fn named_side(src_addr: &str) -> MessageEndpoint {
    let hints = provider::hints().src_addr(Address::Str(src_addr.into()));
    provider::with_params(&[], &hints).endpoint()
}

/// Returns a name that no other test uses.
fn unique(purpose: &str) -> String {
    format!("{purpose}-{}", std::process::id())
}

fn exchange(a: &MessageEndpoint, b: &MessageEndpoint) {
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
    let sut = provider::with_defaults();
    let domains = [sut.open_domain(), sut.open_domain()];
    let mut indices = Vec::new();
    for domain in &domains {
        for endpoint in 0..2 {
            let side = MessageEndpoint::open(domain);
            let name = endpoint_name(&side);
            let bare_name = name.strip_prefix("fi_shm://").expect("the scheme");
            let numbers: Vec<u32> = bare_name
                .split(':')
                .map(|number| number.parse().unwrap())
                .collect();
            assert_eq!((numbers[0], numbers[2]), (std::process::id(), endpoint));
            indices.push(numbers[1]);
        }
    }
    assert_eq!((indices[0], indices[2]), (indices[1], indices[3]));
    assert_ne!(indices[0], indices[2]);
}

#[test]
fn endpoints_are_named_by_their_local_address() {
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let bare_name = unique("named");
        let side = named_side(&format!("{scheme}{bare_name}"));
        assert_eq!(endpoint_name(&side), format!("fi_shm://{bare_name}"));
        let other = provider::with_defaults().endpoint();
        exchange(&other, &side);
        exchange(&side, &other);
    }
}

#[test]
fn a_name_may_be_inserted_in_every_spelling() {
    let bare_name = unique("spelt");
    let side = named_side(&bare_name);
    let other = provider::with_defaults().endpoint();
    let to = other.insert_endpoint(&side);
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let address = Address::Str(format!("{scheme}{bare_name}"));
        assert_eq!(other.av.insert_one(&address).unwrap(), to);
    }
    assert_eq!(
        other.av.lookup(to).unwrap().to_string(),
        endpoint_name(&side)
    );
}

#[test]
fn node_and_service_name_the_local_endpoint() {
    let (hints, node) = (provider::hints(), unique("node"));
    let registry = selvedge::Registry::new().with(&selvedge_shm::PROVIDER);
    let api = selvedge::info::Version::API;
    let infos = registry
        .getinfo(api, Some(&node), Some("7"), InfoFlags::SOURCE, &hints)
        .unwrap();
    let side = LocalEndpoint::open(&infos[0]);
    assert_eq!(endpoint_name(&side), format!("fi_shm://{node}:7"));
}

/// Returns the first attributes for a local endpoint at `node`.
fn local_info(node: Option<&str>) -> selvedge::Info {
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
    let info = local_info(Some(&node));
    let domains = [(); 2].map(|()| open_domain(&info).unwrap());
    let sides = [0, 0, 1].map(|domain: usize| MessageEndpoint::open(&domains[domain]));
    for side in &sides {
        let prefix = format!("fi_shm://{node}:{}:", std::process::id());
        assert!(
            endpoint_name(side).starts_with(&prefix),
            "{}",
            endpoint_name(side)
        );
    }
    exchange(&sides[0], &sides[1]);
    exchange(&sides[1], &sides[2]);
}

#[test]
fn discovery_reports_a_local_address_where_none_was_named() {
    let info = local_info(None);
    assert!(info.src_addr.is_some());
    let domain = open_domain(&info).unwrap();
    let sides = [(); 2].map(|()| MessageEndpoint::open(&domain));
    let prefix = format!("fi_shm://{}:", std::process::id());
    assert!(
        endpoint_name(&sides[0]).starts_with(&prefix),
        "{}",
        endpoint_name(&sides[0])
    );
    exchange(&sides[0], &sides[1]);
}

#[test]
fn a_name_that_is_taken_is_refused_until_it_is_free() {
    let bare_name = unique("taken");
    let first = named_side(&bare_name);
    let hints = provider::hints().src_addr(Address::Str(bare_name.clone()));
    let info = provider::with_params(&[], &hints).info();
    let open_endpoint = || LocalEndpoint::try_open(&open_domain(&info).unwrap(), |_, _| ());
    let error = open_endpoint().unwrap_err();
    assert_eq!(error.errno(), Errno::AddrInUse);
    assert!(error.to_string().contains(&bare_name), "{error}");
    drop(first);
    open_endpoint().unwrap();
}

#[test]
fn limits_can_be_queried() {
    let sut: Sut = provider::with_defaults();
    let (info, side) = (sut.info(), sut.endpoint());
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
    let av = Arc::clone(&provider::with_defaults().endpoint().av);
    let address_text = |addr| av.lookup(addr).unwrap().to_string();
    let addr = av.insert_service("host", "7").unwrap();
    assert_eq!(address_text(addr), "fi_shm://host:7");
    assert_eq!(av.insert_service("host:7", "").unwrap(), addr);
    assert_eq!(av.insert_service("", "fi_ns://host:7").unwrap(), addr);
    for (node, service, reason) in [
        ("", "", "the node and the service are empty"),
        ("a b", "", "a b"),
        ("fi_tcp://x", "1", "fi_tcp://x"),
    ] {
        let error = av.insert_service(node, service).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.message().contains(reason), "{error}");
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
    let mut reinserted = [FiAddr::NOTAVAIL; 2];
    let inserted = av.insert_symmetric("host10", 1, "09", 2, &mut reinserted);
    assert_eq!(inserted.unwrap(), 2);
    assert_eq!(reinserted[0], out[3]);
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
