//! What libfabric's providers of the same names grant at most, and longer queues.

use selvedge::info::{COMP_ORDER_DATA, COMP_ORDER_STRICT, EpType};
use selvedge::{Caps, Hints, Info, Registry};

/// The largest values that a provider of libfabric 1.17 or 2.x grants, which a program may ask for.
/// What of them is refused here is in [`REFUSED`].
struct Largest {
    /// The provider, or another name that means it.
    name: &'static str,
    ep_type: EpType,
    queues: [usize; 2],
    inject: usize,
    message: usize,
    /// Pieces of a local list, of a remote one, and of a region.
    pieces: [usize; 3],
    /// Order of completions, of sends and of receives.
    comp_order: [u64; 2],
    /// Bytes up to which a read after a write, a write after a read, and a write after a write keep
    /// their order.
    ordered: [usize; 3],
    /// Queues, endpoints, contexts of each direction, counters, and regions in a domain.
    domain: [usize; 5],
    /// Contexts of a scalable endpoint, and shared contexts of an endpoint, for sends and receives.
    contexts: [usize; 3],
    err_data: usize,
}

/// A row of which nothing but names and queues is filled in.
const NOTHING: Largest = Largest {
    name: "",
    ep_type: EpType::Rdm,
    queues: [0; 2],
    inject: 0,
    message: usize::MAX,
    pieces: [4, 4, 1],
    comp_order: [0; 2],
    ordered: [0; 3],
    domain: [0; 5],
    contexts: [1, 0, 0],
    err_data: 0,
};

const STRICT: [u64; 2] = [COMP_ORDER_STRICT; 2];
/// The longest message of the sockets provider.
const SOCKETS_LONGEST: usize = usize::MAX - 4096;

const LIBFABRIC: [Largest; 8] = [
    Largest {
        name: "shm",
        queues: [1024, 1024],
        inject: 4096,
        domain: [1024, 256, 1024, 0, 0],
        ..NOTHING
    },
    // 2.x's, with the larger values of 1.17's `tcp;ofi_rxm`, which `tcp` meant for these endpoints.
    Largest {
        name: "tcp",
        queues: [65536, 65536],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 256, 0, 0],
        ..NOTHING
    },
    Largest {
        name: "tcp;ofi_rxm",
        queues: [2048, 2048],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 1, 0, 0],
        ..NOTHING
    },
    Largest {
        name: "net;ofi_rxm",
        queues: [2048, 2048],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 1, 0, 0],
        ..NOTHING
    },
    Largest {
        name: "net",
        queues: [256, 256],
        inject: 128,
        comp_order: STRICT,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [256, 256, 256, 0, 0],
        ..NOTHING
    },
    Largest {
        name: "sockets",
        queues: [256, 256],
        inject: 255,
        message: SOCKETS_LONGEST,
        comp_order: [0, COMP_ORDER_STRICT],
        ordered: [SOCKETS_LONGEST, 0, SOCKETS_LONGEST],
        domain: [32, 128, 16, 128, 65535],
        contexts: [16, 128, 128],
        err_data: 256,
        ..NOTHING
    },
    Largest {
        name: "tcp",
        ep_type: EpType::Msg,
        queues: [1024, 65536],
        inject: 128,
        comp_order: STRICT,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [256, 8192, 8192, 0, 0],
        contexts: [1, 0, 8192],
        ..NOTHING
    },
    Largest {
        name: "udp",
        ep_type: EpType::Dgram,
        queues: [1024, 1024],
        inject: 1472,
        message: 1472,
        pieces: [4, 0, 0],
        comp_order: STRICT,
        domain: [256, 256, 256, 0, 0],
        ..NOTHING
    },
];

/// A value that libfabric 1.17's provider of a name grants, and that is refused here.
struct Refused {
    name: &'static str,
    /// As the refusal has it.
    field: &'static str,
    ask: fn(&mut Info),
}

const REFUSED: [Refused; 8] = [
    Refused {
        name: "shm",
        field: "mr_iov_limit",
        ask: |info| info.domain_attr.mr_iov_limit = 4,
    },
    Refused {
        name: "shm",
        field: "rx_attr.comp_order",
        ask: |info| info.rx_attr.comp_order = COMP_ORDER_STRICT,
    },
    Refused {
        name: "shm",
        field: "max_order_waw_size",
        ask: |info| info.ep_attr.max_order_waw_size = 4096,
    },
    Refused {
        name: "sockets",
        field: "tx_attr.iov_limit",
        ask: |info| info.tx_attr.iov_limit = 8,
    },
    Refused {
        name: "sockets",
        field: "tx_attr.rma_iov_limit",
        ask: |info| info.tx_attr.rma_iov_limit = 8,
    },
    Refused {
        name: "sockets",
        field: "mr_iov_limit",
        ask: |info| info.domain_attr.mr_iov_limit = 4,
    },
    Refused {
        name: "sockets",
        field: "rx_attr.comp_order",
        ask: |info| info.rx_attr.comp_order = COMP_ORDER_STRICT | COMP_ORDER_DATA,
    },
    Refused {
        name: "sockets",
        field: "max_order_war_size",
        ask: |info| info.ep_attr.max_order_war_size = 4096,
    },
];

fn registry() -> Registry {
    selvedge_providers::builtin().with_params([("FI_TCP_IFACE", "lo")].into_iter().collect())
}

/// Hints for a provider, and for remote memory where its endpoints have it.
fn hints(name: &str, ep_type: EpType) -> Info {
    let mut info = Info::default();
    info.fabric_attr.prov_name = name.to_owned();
    info.ep_attr.ep_type = ep_type;
    info.caps = match ep_type {
        EpType::Dgram => Caps::MSG,
        _ => Caps::MSG | Caps::RMA,
    };
    info
}

fn asked(it: &Largest) -> Info {
    let mut info = hints(it.name, it.ep_type);
    let ep = &mut info.ep_attr;
    ep.max_msg_size = it.message;
    let [raw, war, waw] = it.ordered;
    (ep.max_order_raw_size, ep.max_order_war_size) = (raw, war);
    ep.max_order_waw_size = waw;
    [info.tx_attr.size, info.rx_attr.size] = it.queues;
    [info.tx_attr.comp_order, info.rx_attr.comp_order] = it.comp_order;
    info.tx_attr.inject_size = it.inject;
    let [local, remote, region] = it.pieces;
    (info.tx_attr.iov_limit, info.rx_attr.iov_limit) = (local, local);
    info.tx_attr.rma_iov_limit = remote;
    let domain = &mut info.domain_attr;
    domain.mr_iov_limit = region;
    [
        domain.cq_cnt,
        domain.ep_cnt,
        domain.tx_ctx_cnt,
        domain.cntr_cnt,
        domain.mr_cnt,
    ] = it.domain;
    domain.rx_ctx_cnt = domain.tx_ctx_cnt;
    let [own, stx, srx] = it.contexts;
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (own, own);
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (stx, srx);
    domain.max_err_data = it.err_data;
    info
}

#[test]
fn what_libfabric_s_provider_of_a_name_grants_is_granted() {
    for it in &LIBFABRIC {
        let infos = registry().infos(&Hints::from(asked(it)));
        let info = infos.unwrap_or_else(|error| panic!("{error}")).remove(0);
        let (tx, rx) = (&info.tx_attr, &info.rx_attr);
        assert_eq!([tx.size, rx.size], it.queues);
        assert_eq!([tx.comp_order, rx.comp_order], it.comp_order);
        assert_eq!(tx.inject_size, it.inject);
    }
}

#[test]
fn what_is_refused_all_the_same_is_documented_with_its_reason() {
    let page = include_str!("../../docs/FEATURES.md");
    for it in &REFUSED {
        let mut info = hints(it.name, EpType::Rdm);
        (it.ask)(&mut info);
        let Err(refusal) = registry().infos(&Hints::from(info)) else {
            panic!("{} grants {}", it.name, it.field);
        };
        assert!(refusal.to_string().contains(it.field), "{refusal}");
        let row = format!("| `{}` | `{}` |", it.name, it.field);
        assert!(page.contains(&row), "no row {row}");
    }
}

#[test]
fn an_order_of_completions_is_returned_to_programs_that_ask_for_it() {
    let infos = registry().infos(&Hints::from(hints("tcp", EpType::Rdm)));
    let info = infos.unwrap_or_else(|error| panic!("{error}")).remove(0);
    assert_eq!([info.tx_attr.comp_order, info.rx_attr.comp_order], [0, 0]);
}

#[test]
fn injects_are_as_long_as_is_asked_for_up_to_a_maximum() {
    let ask = |size| {
        let mut info = hints("tcp", EpType::Rdm);
        info.tx_attr.inject_size = size;
        registry().infos(&Hints::from(info))
    };
    let info = ask(1 << 20).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(info[0].tx_attr.inject_size, 1 << 20);
    let Err(refusal) = ask((1 << 20) + 1) else {
        panic!("tcp grants more than it documents");
    };
    assert!(refusal.to_string().contains("inject_size"), "{refusal}");
}

#[test]
fn queues_are_as_long_as_is_asked_for_up_to_a_maximum() {
    let names = [
        ("shm", EpType::Rdm, 1 << 20),
        ("tcp", EpType::Rdm, 1 << 20),
        ("tcp", EpType::Msg, 1 << 20),
        ("udp", EpType::Dgram, 1 << 16),
        ("lnx", EpType::Rdm, 1 << 20),
    ];
    for (provider, ep_type, most) in names {
        let hints = Hints::new().provider(provider).ep_type(ep_type);
        let usual = registry()
            .infos(&hints)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(usual[0].tx_attr.size, 1024, "{provider}");
        let longest = hints.clone().tx_size(most).rx_size(most);
        let longest = registry().infos(&longest);
        let info = longest.unwrap_or_else(|error| panic!("{error}")).remove(0);
        assert_eq!([info.tx_attr.size, info.rx_attr.size], [most; 2]);
        let Err(refusal) = registry().infos(&hints.tx_size(most + 1)) else {
            panic!("{provider} grants more than it documents");
        };
        assert!(refusal.to_string().contains("tx_attr.size"), "{refusal}");
    }
}
