//! The limits that discovery grants: the maxima of libfabric's providers of the same names, and
//! longer queues.

use selvedge::info::{COMP_ORDER_DATA, COMP_ORDER_STRICT, EpType};
use selvedge::{Caps, Hints, Info, Registry};

/// The largest values that a provider of libfabric 1.17 or 2.x grants, except the values in
/// [`REJECTED`].
struct GrantedLimits {
    /// The provider's name, or an alias.
    name: &'static str,
    ep_type: EpType,
    /// The sizes of the send and receive queues.
    queues: [usize; 2],
    inject: usize,
    message: usize,
    /// Segments of a local list, of a remote list, and of a region.
    iov_limits: [usize; 3],
    /// Order of completions, of sends and of receives.
    comp_order: [u64; 2],
    /// The maximum length in bytes of ordered reads after writes, writes after reads, and writes
    /// after writes.
    ordered: [usize; 3],
    /// Queues, endpoints, contexts of each direction, counters, and regions in a domain.
    domain: [usize; 5],
    /// Contexts of a scalable endpoint, and shared contexts of an endpoint, for sends and receives.
    contexts: [usize; 3],
    err_data: usize,
}

/// Defaults for the fields that an entry does not set.
const EMPTY: GrantedLimits = GrantedLimits {
    name: "",
    ep_type: EpType::Rdm,
    queues: [0; 2],
    inject: 0,
    message: usize::MAX,
    iov_limits: [4, 4, 1],
    comp_order: [0; 2],
    ordered: [0; 3],
    domain: [0; 5],
    contexts: [1, 0, 0],
    err_data: 0,
};

const STRICT: [u64; 2] = [COMP_ORDER_STRICT; 2];
/// The longest message of the sockets provider.
const SOCKETS_LONGEST: usize = usize::MAX - 4096;

const LIBFABRIC: [GrantedLimits; 8] = [
    GrantedLimits {
        name: "shm",
        queues: [1024, 1024],
        inject: 4096,
        domain: [1024, 256, 1024, 0, 0],
        ..EMPTY
    },
    // The values of 2.x, or of 1.17's `tcp;ofi_rxm` where larger; in 1.17 `tcp` selected that
    // provider for RDM endpoints.
    GrantedLimits {
        name: "tcp",
        queues: [65536, 65536],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 256, 0, 0],
        ..EMPTY
    },
    GrantedLimits {
        name: "tcp;ofi_rxm",
        queues: [2048, 2048],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 1, 0, 0],
        ..EMPTY
    },
    GrantedLimits {
        name: "net;ofi_rxm",
        queues: [2048, 2048],
        inject: 16384,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [65536, 32768, 1, 0, 0],
        ..EMPTY
    },
    GrantedLimits {
        name: "net",
        queues: [256, 256],
        inject: 128,
        comp_order: STRICT,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [256, 256, 256, 0, 0],
        ..EMPTY
    },
    GrantedLimits {
        name: "sockets",
        queues: [256, 256],
        inject: 255,
        message: SOCKETS_LONGEST,
        comp_order: [0, COMP_ORDER_STRICT],
        ordered: [SOCKETS_LONGEST, 0, SOCKETS_LONGEST],
        domain: [32, 128, 16, 128, 65535],
        contexts: [16, 128, 128],
        err_data: 256,
        ..EMPTY
    },
    GrantedLimits {
        name: "tcp",
        ep_type: EpType::Msg,
        queues: [1024, 65536],
        inject: 128,
        comp_order: STRICT,
        ordered: [usize::MAX, 0, usize::MAX],
        domain: [256, 8192, 8192, 0, 0],
        contexts: [1, 0, 8192],
        ..EMPTY
    },
    GrantedLimits {
        name: "udp",
        ep_type: EpType::Dgram,
        queues: [1024, 1024],
        inject: 1472,
        message: 1472,
        iov_limits: [4, 0, 0],
        comp_order: STRICT,
        domain: [256, 256, 256, 0, 0],
        ..EMPTY
    },
];

/// A value that a provider of libfabric 1.17 grants and Selvedge rejects.
struct RejectedLimit {
    name: &'static str,
    /// The field, as the error names it.
    field: &'static str,
    set: fn(&mut Info),
}

const REJECTED: [RejectedLimit; 8] = [
    RejectedLimit {
        name: "shm",
        field: "mr_iov_limit",
        set: |info| info.domain_attr.mr_iov_limit = 4,
    },
    RejectedLimit {
        name: "shm",
        field: "rx_attr.comp_order",
        set: |info| info.rx_attr.comp_order = COMP_ORDER_STRICT,
    },
    RejectedLimit {
        name: "shm",
        field: "max_order_waw_size",
        set: |info| info.ep_attr.max_order_waw_size = 4096,
    },
    RejectedLimit {
        name: "sockets",
        field: "tx_attr.iov_limit",
        set: |info| info.tx_attr.iov_limit = 8,
    },
    RejectedLimit {
        name: "sockets",
        field: "tx_attr.rma_iov_limit",
        set: |info| info.tx_attr.rma_iov_limit = 8,
    },
    RejectedLimit {
        name: "sockets",
        field: "mr_iov_limit",
        set: |info| info.domain_attr.mr_iov_limit = 4,
    },
    RejectedLimit {
        name: "sockets",
        field: "rx_attr.comp_order",
        set: |info| info.rx_attr.comp_order = COMP_ORDER_STRICT | COMP_ORDER_DATA,
    },
    RejectedLimit {
        name: "sockets",
        field: "max_order_war_size",
        set: |info| info.ep_attr.max_order_war_size = 4096,
    },
];

fn registry() -> Registry {
    selvedge_providers::builtin().with_params([("FI_TCP_IFACE", "lo")].into_iter().collect())
}

/// Hints for a provider, with RMA where its endpoints support it.
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

fn hints_for(limits: &GrantedLimits) -> Info {
    let mut info = hints(limits.name, limits.ep_type);
    let ep = &mut info.ep_attr;
    ep.max_msg_size = limits.message;
    let [raw, war, waw] = limits.ordered;
    (ep.max_order_raw_size, ep.max_order_war_size) = (raw, war);
    ep.max_order_waw_size = waw;
    [info.tx_attr.size, info.rx_attr.size] = limits.queues;
    [info.tx_attr.comp_order, info.rx_attr.comp_order] = limits.comp_order;
    info.tx_attr.inject_size = limits.inject;
    let [local, remote, region] = limits.iov_limits;
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
    ] = limits.domain;
    domain.rx_ctx_cnt = domain.tx_ctx_cnt;
    let [per_endpoint, stx, srx] = limits.contexts;
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (per_endpoint, per_endpoint);
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx) = (stx, srx);
    domain.max_err_data = limits.err_data;
    info
}

#[test]
fn limits_of_libfabric_providers_are_granted() {
    for limits in &LIBFABRIC {
        let infos = registry().infos(&Hints::from(hints_for(limits)));
        let info = infos.unwrap_or_else(|error| panic!("{error}")).remove(0);
        let (tx, rx) = (&info.tx_attr, &info.rx_attr);
        assert_eq!([tx.size, rx.size], limits.queues);
        assert_eq!([tx.comp_order, rx.comp_order], limits.comp_order);
        assert_eq!(tx.inject_size, limits.inject);
    }
}

#[test]
fn rejected_libfabric_limits_are_documented() {
    let page = include_str!("../../docs/FEATURES.md");
    for limit in &REJECTED {
        let mut info = hints(limit.name, EpType::Rdm);
        (limit.set)(&mut info);
        let Err(error) = registry().infos(&Hints::from(info)) else {
            panic!("{} grants {}", limit.name, limit.field);
        };
        assert!(error.to_string().contains(limit.field), "{error}");
        let row = format!("| `{}` | `{}` |", limit.name, limit.field);
        assert!(page.contains(&row), "the page has no row {row}");
    }
}

#[test]
fn strict_completion_order_is_granted_only_on_request() {
    let infos = registry().infos(&Hints::from(hints("tcp", EpType::Rdm)));
    let info = infos.unwrap_or_else(|error| panic!("{error}")).remove(0);
    assert_eq!([info.tx_attr.comp_order, info.rx_attr.comp_order], [0, 0]);
}

#[test]
fn inject_size_is_granted_up_to_a_maximum() {
    let query = |size| {
        let mut info = hints("tcp", EpType::Rdm);
        info.tx_attr.inject_size = size;
        registry().infos(&Hints::from(info))
    };
    let info = query(1 << 20).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(info[0].tx_attr.inject_size, 1 << 20);
    let Err(error) = query((1 << 20) + 1) else {
        panic!("tcp grants more than it documents");
    };
    assert!(error.to_string().contains("inject_size"), "{error}");
}

#[test]
fn queue_sizes_are_granted_up_to_a_maximum() {
    let table = [
        ("shm", EpType::Rdm, 1 << 20),
        ("tcp", EpType::Rdm, 1 << 20),
        ("tcp", EpType::Msg, 1 << 20),
        ("udp", EpType::Dgram, 1 << 16),
        ("lnx", EpType::Rdm, 1 << 20),
    ];
    for (provider, ep_type, max) in table {
        let hints = Hints::new().provider(provider).ep_type(ep_type);
        let default = registry()
            .infos(&hints)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(default[0].tx_attr.size, 1024, "{provider}");
        let longest = hints.clone().tx_size(max).rx_size(max);
        let longest = registry().infos(&longest);
        let info = longest.unwrap_or_else(|error| panic!("{error}")).remove(0);
        assert_eq!([info.tx_attr.size, info.rx_attr.size], [max; 2]);
        let Err(error) = registry().infos(&hints.tx_size(max + 1)) else {
            panic!("{provider} grants more than it documents");
        };
        assert!(error.to_string().contains("tx_attr.size"), "{error}");
    }
}
