//! What libfabric's providers of the same names grant at most, and longer queues.

use selvedge::info::EpType;
use selvedge::{Hints, Info, Registry};

/// The largest numbers that a provider of libfabric offers, which a program may ask for.
struct Largest {
    provider: &'static str,
    ep_type: EpType,
    queues: [usize; 2],
    inject: usize,
    message: usize,
    pieces: usize,
    /// Queues, endpoints, contexts of each direction in a domain.
    domain: [usize; 3],
}

const LIBFABRIC: [Largest; 4] = [
    Largest {
        provider: "shm",
        ep_type: EpType::Rdm,
        queues: [1024, 1024],
        inject: 4096,
        message: usize::MAX,
        pieces: 4,
        domain: [1024, 256, 1024],
    },
    Largest {
        provider: "tcp",
        ep_type: EpType::Rdm,
        queues: [65536, 65536],
        inject: 128,
        message: usize::MAX,
        pieces: 4,
        domain: [256, 256, 256],
    },
    Largest {
        provider: "tcp",
        ep_type: EpType::Msg,
        queues: [1024, 65536],
        inject: 128,
        message: usize::MAX,
        pieces: 4,
        domain: [256, 8192, 8192],
    },
    Largest {
        provider: "udp",
        ep_type: EpType::Dgram,
        queues: [1024, 1024],
        inject: 1472,
        message: 1472,
        pieces: 4,
        domain: [256, 256, 256],
    },
];

fn registry() -> Registry {
    selvedge_providers::builtin().with_params([("FI_TCP_IFACE", "lo")].into_iter().collect())
}

fn asked(it: &Largest) -> Info {
    let mut info = Info::default();
    info.fabric_attr.prov_name = it.provider.to_owned();
    info.ep_attr.ep_type = it.ep_type;
    info.ep_attr.max_msg_size = it.message;
    [info.tx_attr.size, info.rx_attr.size] = it.queues;
    info.tx_attr.inject_size = it.inject;
    info.tx_attr.iov_limit = it.pieces;
    info.rx_attr.iov_limit = it.pieces;
    let domain = &mut info.domain_attr;
    [domain.cq_cnt, domain.ep_cnt, domain.tx_ctx_cnt] = it.domain;
    domain.rx_ctx_cnt = domain.tx_ctx_cnt;
    (domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (1, 1);
    info
}

#[test]
fn what_libfabric_s_provider_of_a_name_grants_is_granted() {
    for it in &LIBFABRIC {
        let infos = registry().infos(&Hints::from(asked(it)));
        let info = infos.unwrap_or_else(|error| panic!("{error}")).remove(0);
        assert_eq!([info.tx_attr.size, info.rx_attr.size], it.queues);
    }
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
