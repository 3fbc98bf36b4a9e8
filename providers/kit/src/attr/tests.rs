//! Tests of the matching: hints that match an provider_info, and the attribute that refuses others.

use selvedge::info::{EpType, MemTagFormat, Protocol, Version};
use selvedge::param::Params;
use selvedge::{Hints, MrMode, MsgOrder, OpFlags, av};

use super::*;

const CAPS: Caps = Caps::MSG
    .union(Caps::TAGGED)
    .union(Caps::RMA)
    .union(Caps::DIRECTIONS)
    .union(Caps::DIRECTED_RECV)
    .union(Caps::MULTI_RECV)
    .union(Caps::SOURCE)
    .union(Caps::LOCAL_COMM);

pub(super) fn offered() -> Info {
    let mut info = Info::default();
    info.caps = CAPS;
    info.addr_format = AddrFormat::Str;
    info.fabric_attr.name = "demo-fabric".into();
    info.ep_attr = EpAttr {
        ep_type: EpType::Rdm,
        protocol: Protocol::Shm,
        protocol_version: 2,
        max_msg_size: 1 << 20,
        max_order_raw_size: 64,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        ..EpAttr::default()
    };
    info.domain_attr = DomainAttr {
        name: "demo-domain".into(),
        threading: Threading::Safe,
        control_progress: Progress::Auto,
        data_progress: Progress::Manual,
        resource_mgmt: ResourceMgmt::Enabled,
        mr_mode: MrMode::VIRT_ADDR,
        mr_key_size: 8,
        cq_data_size: 8,
        cntr_cnt: 16,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        caps: Caps::LOCAL_COMM,
        ..DomainAttr::default()
    };
    info.tx_attr = TxAttr {
        caps: CAPS & !(Caps::RECV | Caps::SOURCE | Caps::DIRECTED_RECV | Caps::MULTI_RECV),
        op_flags: OpFlags::COMPLETION | OpFlags::INJECT,
        msg_order: MsgOrder::SAS | MsgOrder::WAW,
        inject_size: 4096,
        size: 1024,
        iov_limit: 4,
        rma_iov_limit: 4,
        ..TxAttr::default()
    };
    info.rx_attr = RxAttr {
        caps: CAPS & !Caps::SEND,
        op_flags: OpFlags::COMPLETION,
        msg_order: MsgOrder::SAS,
        size: 512,
        iov_limit: 4,
        ..RxAttr::default()
    };
    info
}

fn discover_with_version(offered: &Info, hints: &Hints, version: Version) -> Candidate {
    let params = Params::default();
    let mut query = Query::new(hints, &params);
    query.version = version;
    check(offered, &query)
}

fn discover(hints: &Hints) -> Candidate {
    discover_with_version(&offered(), hints, Version::API)
}

/// Hints that accept the mode that the demo provider requires.
fn hints() -> Hints {
    Hints::new().mr_mode(MrMode::VIRT_ADDR)
}

fn refusal(edit: impl FnOnce(&mut Info)) -> String {
    match discover(&hints().edit(edit)) {
        Ok(info) => panic!("not refused: {info:?}"),
        Err(mismatch) => {
            assert_eq!(mismatch.candidate.as_deref(), Some(&offered()));
            mismatch.to_string()
        }
    }
}

#[test]
fn every_attribute_can_refuse() {
    type Edit = fn(&mut Info);
    let table: &[(Edit, &str)] = &[
        (
            |i| i.fabric_attr.name = "other".into(),
            "fabric_attr.name: requested other, has demo-fabric",
        ),
        (
            |i| i.domain_attr.name = "other".into(),
            "domain_attr.name: requested other, has demo-domain",
        ),
        (
            |i| i.ep_attr.ep_type = EpType::Msg,
            "ep_type: requested FI_EP_MSG, has FI_EP_RDM",
        ),
        (
            |i| i.ep_attr.protocol = Protocol::Xnet,
            "protocol: requested FI_PROTO_XNET, has FI_PROTO_SHM",
        ),
        (
            |i| i.ep_attr.protocol_version = 3,
            "protocol_version: requested 3, has 2",
        ),
        (
            |i| i.ep_attr.max_msg_size = 1 << 21,
            "max_msg_size: requested 2097152, has 1048576",
        ),
        (
            |i| i.ep_attr.tx_ctx_cnt = 2,
            "tx_ctx_cnt: requested 2, has 1",
        ),
        (
            |i| i.ep_attr.rx_ctx_cnt = 2,
            "rx_ctx_cnt: requested 2, has 1",
        ),
        (
            |i| i.ep_attr.tx_ctx_cnt = usize::MAX,
            "max_ep_stx_ctx: requested 1, has 0",
        ),
        (
            |i| i.ep_attr.rx_ctx_cnt = usize::MAX,
            "max_ep_srx_ctx: requested 1, has 0",
        ),
        (
            |i| i.ep_attr.auth_key = vec![1, 2],
            "auth_key_size: requested 2, has 0",
        ),
        (|i| i.caps = Caps::MSG | Caps::HMEM, CAPS_REFUSAL),
        (
            |i| i.addr_format = AddrFormat::SockaddrIn,
            "addr_format: requested FI_SOCKADDR_IN, has FI_ADDR_STR",
        ),
        (
            |i| i.dest_addr = "127.0.0.1:1".parse().ok(),
            "dest_addr: requested FI_SOCKADDR_IN, has FI_ADDR_STR",
        ),
        (
            |i| i.src_addr = "[::1]:1".parse().ok(),
            "src_addr: requested FI_SOCKADDR_IN6, has FI_ADDR_STR",
        ),
        (
            |i| i.domain_attr.data_progress = Progress::Auto,
            "data_progress: requested FI_PROGRESS_AUTO, has FI_PROGRESS_MANUAL",
        ),
        (
            |i| i.domain_attr.caps = Caps::REMOTE_COMM,
            "domain_attr.caps: requested FI_REMOTE_COMM, has FI_LOCAL_COMM",
        ),
        (
            |i| i.domain_attr.cq_data_size = 9,
            "cq_data_size: requested 9, has 8",
        ),
        (
            |i| i.domain_attr.cntr_cnt = 17,
            "cntr_cnt: requested 17, has 16",
        ),
        (
            |i| i.domain_attr.mr_iov_limit = 1,
            "mr_iov_limit: requested 1, has 0",
        ),
        (
            |i| i.domain_attr.max_err_data = 1,
            "max_err_data: requested 1, has 0",
        ),
        (|i| i.tx_attr.caps = Caps::RECV, TX_CAPS_REFUSAL),
        (
            |i| i.tx_attr.op_flags = OpFlags::FENCE,
            "tx_attr.op_flags: requested FI_FENCE, has FI_COMPLETION | FI_INJECT",
        ),
        (
            |i| i.tx_attr.msg_order = MsgOrder::RAR,
            "tx_attr.msg_order: requested FI_ORDER_RAR, has FI_ORDER_WAW | FI_ORDER_SAS",
        ),
        (
            |i| i.tx_attr.comp_order = 1,
            "tx_attr.comp_order: requested 1, has 0",
        ),
        (
            |i| i.tx_attr.inject_size = 4097,
            "tx_attr.inject_size: requested 4097, has 4096",
        ),
        (
            |i| i.tx_attr.size = 1025,
            "tx_attr.size: requested 1025, has 1024",
        ),
        (
            |i| i.tx_attr.iov_limit = 5,
            "tx_attr.iov_limit: requested 5, has 4",
        ),
        (
            |i| i.tx_attr.rma_iov_limit = 5,
            "tx_attr.rma_iov_limit: requested 5, has 4",
        ),
        (
            |i| i.rx_attr.op_flags = OpFlags::MULTI_RECV,
            "rx_attr.op_flags: requested FI_MULTI_RECV, has FI_COMPLETION",
        ),
        (
            |i| i.rx_attr.msg_order = MsgOrder::WAW,
            "rx_attr.msg_order: requested FI_ORDER_WAW, has FI_ORDER_SAS",
        ),
        (
            |i| i.rx_attr.comp_order = 1,
            "rx_attr.comp_order: requested 1, has 0",
        ),
        (
            |i| i.rx_attr.size = 513,
            "rx_attr.size: requested 513, has 512",
        ),
        (
            |i| i.rx_attr.iov_limit = 5,
            "rx_attr.iov_limit: requested 5, has 4",
        ),
        (
            |i| i.domain_attr.mr_mode = MrMode::LOCAL,
            "mr_mode: requested FI_MR_LOCAL, has FI_MR_VIRT_ADDR",
        ),
    ];
    for (edit, text) in table {
        assert_eq!(refusal(edit), *text);
    }
}

const CAPS_REFUSAL: &str = "caps: requested FI_MSG | FI_RECV | FI_SEND | FI_HMEM, has FI_MSG | \
    FI_RMA | FI_TAGGED | FI_READ | FI_WRITE | FI_RECV | FI_SEND | FI_REMOTE_READ | \
    FI_REMOTE_WRITE | FI_MULTI_RECV | FI_LOCAL_COMM | FI_SOURCE | FI_DIRECTED_RECV";

const TX_CAPS_REFUSAL: &str = "tx_attr.caps: requested FI_RECV, has FI_MSG | FI_RMA | FI_TAGGED | \
    FI_READ | FI_WRITE | FI_SEND | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_LOCAL_COMM";

#[test]
fn required_modes_must_be_accepted_by_the_part_or_the_whole() {
    let mut provider_info = offered();
    provider_info.mode = Mode::CONTEXT;
    provider_info.rx_attr.mode = Mode::RX_CQ_DATA;
    let discover = |hints: &Hints| {
        discover_with_version(&provider_info, hints, Version::API).map_err(|m| m.to_string())
    };
    assert_eq!(
        discover(&hints()).unwrap_err(),
        "mode: requested nothing, has FI_CONTEXT"
    );
    let context = hints().mode(Mode::CONTEXT);
    assert_eq!(
        discover(&context).unwrap_err(),
        "rx_attr.mode: requested FI_CONTEXT, has FI_RX_CQ_DATA"
    );
    discover(&hints().mode(Mode::CONTEXT | Mode::RX_CQ_DATA)).unwrap();
    discover(&context.edit(|info| info.rx_attr.mode = Mode::RX_CQ_DATA)).unwrap();
    discover(&Hints::anything()).unwrap();
}

#[test]
fn hints_for_anything_leave_the_candidate_as_it_is() {
    let mut unreduced = offered();
    unreduced.tx_attr.op_flags = OpFlags::empty();
    unreduced.rx_attr.op_flags = OpFlags::empty();
    assert_eq!(discover(&Hints::anything()), Ok(unreduced));
}

#[test]
fn capabilities_are_reduced_to_the_requested_and_the_free() {
    let free = Caps::MULTI_RECV | Caps::LOCAL_COMM;
    let both = Caps::SEND | Caps::RECV;
    let table = [
        (Caps::MSG, Caps::MSG | both | free),
        (Caps::MSG | Caps::SEND, Caps::MSG | Caps::SEND | free),
        (
            Caps::TAGGED | Caps::SOURCE,
            Caps::TAGGED | Caps::SOURCE | both | free,
        ),
        (Caps::RMA | Caps::WRITE, Caps::RMA | Caps::WRITE | free),
        (Caps::SOURCE, CAPS & !Caps::DIRECTED_RECV),
        (Caps::empty(), CAPS),
    ];
    for (asked, given) in table {
        assert_eq!(
            discover(&hints().caps(asked)).unwrap().caps,
            given,
            "{asked}"
        );
    }
}

#[test]
fn parts_have_the_capabilities_of_the_whole() {
    let info = discover(&hints().caps(Caps::MSG)).unwrap();
    assert_eq!(info.tx_attr.caps, Caps::MSG | Caps::SEND | Caps::LOCAL_COMM);
    let rx = Caps::MSG | Caps::RECV | Caps::MULTI_RECV | Caps::LOCAL_COMM;
    assert_eq!(info.rx_attr.caps, rx);
}

#[test]
fn limits_are_lowered_to_the_requested_ones() {
    let hints = hints()
        .tx_size(7)
        .rx_size(8)
        .inject_size(9)
        .iov_limit(2)
        .edit(|info| info.tx_attr.op_flags = OpFlags::INJECT);
    let info = discover(&hints).unwrap();
    assert_eq!((info.tx_attr.size, info.rx_attr.size), (7, 8));
    assert_eq!(info.tx_attr.inject_size, 9);
    assert_eq!((info.tx_attr.iov_limit, info.rx_attr.iov_limit), (2, 2));
    assert_eq!(info.tx_attr.rma_iov_limit, 4);
    assert_eq!(info.tx_attr.op_flags, OpFlags::INJECT);
}

#[test]
fn ordered_sizes_count_for_memory_access_only() {
    let ordered = |caps| {
        hints()
            .caps(caps)
            .edit(|i| i.ep_attr.max_order_raw_size = 65)
    };
    discover(&ordered(Caps::MSG)).unwrap();
    let mismatch = discover(&ordered(Caps::RMA)).unwrap_err();
    assert_eq!(
        mismatch.to_string(),
        "max_order_raw_size: requested 65, has 64"
    );
}

#[test]
fn names_match_in_any_case() {
    discover(&hints().fabric("DEMO-fabric").domain("Demo-Domain")).unwrap();
}

#[test]
fn weaker_guarantees_are_granted_and_reported() {
    let hints = hints()
        .control_progress(Progress::ControlUnified)
        .resource_mgmt(ResourceMgmt::Disabled)
        .av_type(av::Type::Table)
        .edit(|info| info.domain_attr.threading = Threading::Domain);
    let domain = discover(&hints).unwrap().domain_attr;
    assert_eq!(domain.control_progress, Progress::ControlUnified);
    assert_eq!(domain.resource_mgmt, ResourceMgmt::Disabled);
    assert_eq!(domain.av_type, av::Type::Table);
    assert_eq!(domain.threading, Threading::Domain);
}

#[test]
fn a_provider_that_needs_serialized_threads_refuses_others() {
    let mut serial = offered();
    serial.domain_attr.threading = Threading::Domain;
    let safe = hints().edit(|info| info.domain_attr.threading = Threading::Safe);
    assert_eq!(
        discover_with_version(&serial, &safe, Version::API)
            .unwrap_err()
            .to_string(),
        "threading: requested FI_THREAD_SAFE, has FI_THREAD_DOMAIN"
    );
    discover_with_version(&serial, &hints(), Version::API).unwrap();
}

#[test]
fn registration_modes_are_reduced_to_those_that_the_capabilities_need() {
    let three = MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY;
    let templates = MrMode::BASIC | MrMode::SCALABLE;
    let (old, new) = (Version::new(1, 4), Version::API);
    let none = MrMode::empty();
    let local = MrMode::LOCAL | MrMode::ALLOCATED;
    let cases = [
        (new, Caps::RMA, three, three, Some(three)),
        (new, Caps::RMA, three, three | MrMode::LOCAL, Some(three)),
        (new, Caps::RMA, three, MrMode::VIRT_ADDR, None),
        (new, Caps::MSG, three, none, Some(none)),
        (new, Caps::MSG, MrMode::LOCAL, none, None),
        (new, Caps::MSG, MrMode::LOCAL | three, local, Some(local)),
        (new, Caps::MSG, MrMode::LOCAL | three, MrMode::all(), None),
        (new, Caps::RMA, MrMode::HMEM, none, Some(none)),
        (new, Caps::RMA, three, MrMode::BASIC, Some(MrMode::BASIC)),
        (new, Caps::RMA, none, MrMode::BASIC, None),
        (
            new,
            Caps::RMA,
            none,
            MrMode::SCALABLE,
            Some(MrMode::SCALABLE),
        ),
        (new, Caps::RMA, three, MrMode::SCALABLE, None),
        (new, Caps::RMA, none, MrMode::SCALABLE | MrMode::LOCAL, None),
        (new, Caps::RMA, templates, none, Some(none)),
        (new, Caps::RMA, templates, MrMode::VIRT_ADDR, Some(none)),
        (old, Caps::RMA, none, none, Some(MrMode::SCALABLE)),
        (old, Caps::RMA, three, none, Some(MrMode::BASIC)),
        (old, Caps::RMA, MrMode::RAW, none, None),
    ];
    for (version, caps, has, accepted, result) in cases {
        let mut provider_info = offered();
        provider_info.domain_attr.mr_mode = has;
        let hints = Hints::new().caps(caps).mr_mode(accepted);
        let mode = discover_with_version(&provider_info, &hints, version)
            .map(|info| info.domain_attr.mr_mode);
        assert_eq!(mode.ok(), result, "{version} {caps}: {has} for {accepted}");
    }
}

#[test]
fn tag_formats_fit_generic_tags_and_wider_masks() {
    let table = [
        (0, 0, true),
        (0xff_ffff, 0, true),
        (0, 0xff_ffff, true),
        (1, 2, false),
        (2, 2, true),
        (0xff_ffff, 0xffff_ffff, true),
        (0xffff_ffff, 0xff_ffff, false),
        (1, 0xffff_ffff, false),
    ];
    for (asked, has, fits) in table {
        let mut provider_info = offered();
        provider_info.ep_attr.mem_tag_format = MemTagFormat(has);
        let hints = hints().edit(|info| info.ep_attr.mem_tag_format = MemTagFormat(asked));
        let result = discover_with_version(&provider_info, &hints, Version::API);
        assert_eq!(result.is_ok(), fits, "{asked:#x} {has:#x}");
    }
}

#[test]
fn address_formats_of_one_family_are_compatible() {
    use AddrFormat::{Sockaddr, SockaddrIn, SockaddrIn6, SockaddrIp, Str};
    let table = [
        (Sockaddr, SockaddrIn, true),
        (SockaddrIp, SockaddrIn6, true),
        (SockaddrIn, SockaddrIp, true),
        (SockaddrIn, SockaddrIn6, false),
        (Str, Sockaddr, false),
    ];
    for (asked, has, fits) in table {
        let mut provider_info = offered();
        provider_info.addr_format = has;
        let result =
            discover_with_version(&provider_info, &hints().addr_format(asked), Version::API);
        assert_eq!(result.is_ok(), fits, "{asked} {has}");
    }
}

#[test]
fn addresses_of_the_hints_reach_the_result() {
    let peer = Address::Str("fi_shm://1:2:3".into());
    let info = discover(&hints().dest_addr(peer.clone()).edit(|info| info.handle = 5)).unwrap();
    assert_eq!(info.dest_addr, Some(peer));
    assert_eq!((info.src_addr, info.handle), (None, 5));
}

#[test]
fn a_node_replaces_the_address_of_the_hints() {
    let named = |scheme: &str| Some(Address::Str(format!("{scheme}://x")));
    let mut provider_info = offered();
    provider_info.src_addr = named("own-src");
    provider_info.dest_addr = named("own-dest");
    let hints = hints().edit(|info| {
        info.src_addr = named("src");
        info.dest_addr = named("dest");
    });
    let params = Params::default();
    let mut query = Query::new(&hints, &params);
    let mut addresses = |node, flags| {
        (query.node, query.flags) = (node, flags);
        let info = check(&provider_info, &query).unwrap();
        (info.src_addr, info.dest_addr)
    };
    let none = InfoFlags::empty();
    assert_eq!(addresses(None, none), (named("src"), named("dest")));
    assert_eq!(
        addresses(Some("n"), none),
        (named("src"), named("own-dest"))
    );
    assert_eq!(
        addresses(Some("n"), InfoFlags::SOURCE),
        (named("own-src"), named("dest"))
    );
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    /// Generates subsets of `all`.
    fn subset_of(all: Caps) -> impl Strategy<Value = Caps> {
        any::<u64>().prop_map(move |bits| Caps::from_bits_truncate(bits) & all)
    }

    prop_compose! {
        fn satisfiable()(
            whole in subset_of(CAPS),
            tx in subset_of(offered().tx_attr.caps),
            rx in subset_of(offered().rx_attr.caps),
            sizes in prop::array::uniform5(0_usize..=512),
            order in any::<u64>(),
            mr_mode in any::<u32>(),
            ep_type in prop::sample::select(vec![EpType::Unspec, EpType::Rdm]),
            version in prop::sample::select(vec![Version::new(1, 5), Version::API]),
        ) -> (Hints, Version) {
            let hints = Hints::new()
                .caps(whole)
                .ep_type(ep_type)
                .tx_size(sizes[0])
                .rx_size(sizes[1])
                .inject_size(sizes[2])
                .max_msg_size(sizes[3])
                .iov_limit(sizes[4] % 5)
                .mr_mode(MrMode::from_bits_truncate(mr_mode << 2) | MrMode::VIRT_ADDR)
                .edit(|info| {
                    info.tx_attr.caps = tx;
                    info.rx_attr.caps = rx;
                    info.tx_attr.msg_order = MsgOrder::from_bits_truncate(order)
                        & offered().tx_attr.msg_order;
                });
            (hints, version)
        }
    }

    fn granted(asked: usize, offered: usize) -> usize {
        if asked == 0 { offered } else { asked }
    }

    proptest! {
        #[test]
        fn results_satisfy_their_hints((hints, version) in satisfiable()) {
            let provider_info = offered();
            let info = discover_with_version(&provider_info, &hints, version).expect("satisfiable");
            let asked = hints.info();
            prop_assert!(info.caps.contains(asked.caps));
            prop_assert!(info.caps.contains(asked.tx_attr.caps | asked.rx_attr.caps));
            prop_assert!(provider_info.caps.contains(info.caps));
            prop_assert!(info.tx_attr.caps.contains(asked.tx_attr.caps));
            prop_assert!(info.caps.contains(info.tx_attr.caps | info.rx_attr.caps));
            prop_assert!(info.tx_attr.msg_order.contains(asked.tx_attr.msg_order));
            prop_assert_eq!(info.tx_attr.size, granted(asked.tx_attr.size, provider_info.tx_attr.size));
            prop_assert_eq!(info.rx_attr.size, granted(asked.rx_attr.size, provider_info.rx_attr.size));
            prop_assert!(info.tx_attr.inject_size >= asked.tx_attr.inject_size);
            prop_assert!(info.ep_attr.max_msg_size >= asked.ep_attr.max_msg_size);
            prop_assert!(asked.domain_attr.mr_mode.contains(info.domain_attr.mr_mode));
            prop_assert_eq!(info.ep_attr.ep_type, EpType::Rdm);
        }

        /// An application that passes a result back as its hints gets the same result, unless the
        /// capabilities of the parts contradicted those of the whole.
        #[test]
        fn results_are_hints_for_themselves((hints, version) in satisfiable()) {
            let provider_info = offered();
            let consistent = hints.edit(|info| {
                info.tx_attr.caps = Caps::empty();
                info.rx_attr.caps = Caps::empty();
            });
            let info = discover_with_version(&provider_info, &consistent, version).expect("satisfiable");
            prop_assert_eq!(discover_with_version(&provider_info, &Hints::from(info.clone()), version), Ok(info));
        }
    }
}
