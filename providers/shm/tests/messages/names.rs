//! What endpoints are called, and what they say of themselves.

use selvedge::{Address, EpOption, EpOptionName, Errno, InfoFlags};

use crate::common::{Queue, Rx, Side, Sut, Tx};
use crate::shm;

fn name(side: &Side) -> String {
    side.ep.address().unwrap().to_string()
}

/// A side called by what `src_addr` says.
fn called(src_addr: &str) -> Side {
    let hints = shm::hints().src_addr(Address::Str(src_addr.into()));
    shm::with(&[], &hints).side()
}

/// A name that no other test uses.
fn unique(what: &str) -> String {
    format!("{what}-{}", std::process::id())
}

fn exchange(a: &Side, b: &Side) {
    let (to_b, to_a) = (a.knows(b), b.knows(a));
    b.recv(&Rx::msg(8).from(to_a));
    a.send(&Tx::msg(to_b, b"hello"));
    let done = b.wait(&[a]);
    done.assert_bytes(b"hello");
    assert_eq!(done.src, to_a);
    a.wait(&[b]);
}

#[test]
fn default_names_count_processes_domains_and_endpoints() {
    let info = shm::plain().info();
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
fn endpoints_are_called_what_their_local_address_says() {
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let plain = unique("named");
        let side = called(&format!("{scheme}{plain}"));
        assert_eq!(name(&side), format!("fi_shm://{plain}"));
        let other = shm::plain().side();
        exchange(&other, &side);
        exchange(&side, &other);
    }
}

#[test]
fn a_name_may_be_inserted_in_every_spelling() {
    let plain = unique("spelt");
    let side = called(&plain);
    let other = shm::plain().side();
    let to = other.knows(&side);
    for scheme in ["fi_shm://", "fi_ns://", ""] {
        let spelt = Address::Str(format!("{scheme}{plain}"));
        assert_eq!(other.av.insert_one(&spelt), Ok(to));
    }
    assert_eq!(other.av.lookup(to).unwrap().to_string(), name(&side));
}

#[test]
fn node_and_service_name_the_local_endpoint() {
    let (hints, node) = (shm::hints(), unique("node"));
    let registry = selvedge::Registry::new().with(&selvedge_shm::PROVIDER);
    let api = selvedge::info::Version::API;
    let infos = registry
        .getinfo(api, Some(&node), Some("7"), InfoFlags::SOURCE, &hints)
        .unwrap();
    let domain = infos[0].open().unwrap();
    let side = Side::open(&domain, &infos[0], &Queue::default());
    assert_eq!(name(&side), format!("fi_shm://{node}:7"));
}

#[test]
fn a_name_that_is_taken_is_refused_until_it_is_free() {
    let plain = unique("taken");
    let first = called(&plain);
    let hints = shm::hints().src_addr(Address::Str(plain.clone()));
    let info = shm::with(&[], &hints).info();
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
fn limits_can_be_asked_for() {
    let sut: Sut = shm::plain();
    let (info, side) = (sut.info(), sut.side());
    let (most, inject) = (info.ep_attr.max_msg_size, info.tx_attr.inject_size);
    let expected = [
        (EpOptionName::MaxMsgSize, EpOption::MaxMsgSize(most)),
        (EpOptionName::MaxTaggedSize, EpOption::MaxTaggedSize(most)),
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
