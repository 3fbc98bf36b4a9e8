//! Tests of `fi_info`: the output for accepted and refused candidates, and for parameters.

use std::sync::Arc;

use selvedge::info::{Candidate, EpType, Mismatch, Nic, PciAddress, Protocol};
use selvedge::param::{Params, Spec};
use selvedge::{
    AddrFormat, Address, Caps, Fabric, Mode, MrMode, MsgOrder, OpFlags, Provider, Query,
};
use serde_json::Value;

use super::*;

static PARAMS: [Spec; 2] = [
    Spec::size("FI_DEMO_TX_SIZE", 1024, "sends that may be outstanding"),
    Spec::flag("FI_DEMO_FAST", true, "whether to use the fast path"),
];

#[derive(Debug)]
struct Demo;

impl Provider for Demo {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn version(&self) -> Version {
        Version::new(117, 0)
    }

    fn params(&self) -> &'static [Spec] {
        &PARAMS
    }

    fn getinfo(&self, query: &Query<'_>) -> Result<Vec<Candidate>, Error> {
        let requested = query.hints.info().ep_attr.ep_type;
        let candidate = |ep_type: EpType| {
            let mut info = demo_info();
            info.ep_attr.ep_type = ep_type;
            if let Some(node) = query.node {
                let addr = Some(Address::Str(node.to_owned()));
                if query.flags.contains(InfoFlags::SOURCE) {
                    info.src_addr = addr;
                } else {
                    info.dest_addr = addr;
                }
            }
            if requested == EpType::Unspec || requested == ep_type {
                Ok(info)
            } else {
                Err(Mismatch::new("ep_type", requested, ep_type).of(&info))
            }
        };
        Ok(vec![candidate(EpType::Rdm), candidate(EpType::Dgram)])
    }

    fn fabric(&self, info: &Info) -> Result<Arc<dyn Fabric>, Error> {
        Err(Error::new(
            Errno::NoSys,
            format!("no {}", info.fabric_attr.name),
        ))
    }
}

fn demo_info() -> Info {
    let mut info = Info::default();
    info.caps = Caps::MSG | Caps::SEND | Caps::RECV;
    info.addr_format = AddrFormat::Str;
    info.fabric_attr.name = "net".into();
    info.domain_attr.name = "card".into();
    info.domain_attr.mr_mode = MrMode::VIRT_ADDR;
    info.ep_attr.protocol = Protocol::Shm;
    info.tx_attr.msg_order = MsgOrder::SAS;
    info.tx_attr.op_flags = OpFlags::COMPLETION;
    info.tx_attr.size = 64;
    info
}

fn run_in(env: &[(&str, &str)], args: &[&str]) -> Output {
    let params: Params = env.iter().copied().collect();
    let registry = Registry::new().with(&Demo).with_params(params);
    let args = std::iter::once("fi_info").chain(args.iter().copied());
    super::run(
        &parse(args.map(Into::into)).expect("good options"),
        &registry,
    )
}

fn run(args: &[&str]) -> Output {
    run_in(&[], args)
}

fn run_json(args: &[&str]) -> Value {
    serde_json::from_str(&run(args).text).expect("JSON")
}

const SHORT: &str = "\
provider: demo
    fabric: net
    domain: card
    version: 117.0
    type: FI_EP_RDM
    protocol: FI_PROTO_SHM
";

#[test]
fn results_are_short_by_default() {
    let expected = SHORT.to_owned() + &SHORT.replace("RDM", "DGRAM");
    assert_eq!(run(&[]), Output::success(expected));
    assert_eq!(run(&["-t", "fi_ep_rdm"]), Output::success(SHORT.to_owned()));
}

const LONG: &str = "\
---
fi_info:
    caps: [ FI_MSG, FI_RECV, FI_SEND ]
    mode: [  ]
    addr_format: FI_ADDR_STR
    src_addrlen: 0
    dest_addrlen: 15
    src_addr: (null)
    dest_addr: fi_shm://1:2:3
    handle: (nil)
    fi_tx_attr:
        caps: [  ]
        mode: [  ]
        op_flags: [ FI_COMPLETION ]
        msg_order: [ FI_ORDER_SAS ]
        comp_order: [ FI_ORDER_NONE ]
        inject_size: 0
        size: 64
        iov_limit: 0
        rma_iov_limit: 0
        tclass: 0x0
    fi_rx_attr:
        caps: [  ]
        mode: [  ]
        op_flags: [  ]
        msg_order: [  ]
        comp_order: [ FI_ORDER_NONE ]
        total_buffered_recv: 0
        size: 0
        iov_limit: 0
    fi_ep_attr:
        type: FI_EP_RDM
        protocol: FI_PROTO_SHM
        protocol_version: 0
        max_msg_size: 0
        msg_prefix_size: 0
        max_order_raw_size: 0
        max_order_war_size: 0
        max_order_waw_size: 0
        mem_tag_format: 0x0000000000000000
        tx_ctx_cnt: 0
        rx_ctx_cnt: 0
        auth_key_size: 0
    fi_domain_attr:
        domain: 0x0
        name: card
        threading: FI_THREAD_UNSPEC
        control_progress: FI_PROGRESS_UNSPEC
        data_progress: FI_PROGRESS_UNSPEC
        resource_mgmt: FI_RM_UNSPEC
        av_type: FI_AV_UNSPEC
        mr_mode: [ FI_MR_VIRT_ADDR ]
        mr_key_size: 0
        cq_data_size: 0
        cq_cnt: 0
        ep_cnt: 0
        tx_ctx_cnt: 0
        rx_ctx_cnt: 0
        max_ep_tx_ctx: 0
        max_ep_rx_ctx: 0
        max_ep_stx_ctx: 0
        max_ep_srx_ctx: 0
        cntr_cnt: 0
        mr_iov_limit: 0
        caps: [  ]
        mode: [  ]
        auth_key_size: 0
        max_err_data: 0
        mr_cnt: 0
        tclass: 0x0
        max_ep_auth_key: 0
        max_group_id: 0
        max_cntr_value: 0
        max_err_cntr_value: 0
    fi_fabric_attr:
        name: net
        prov_name: demo
        prov_version: 117.0
        api_version: 2.6
    nic: (nil)
";

#[test]
fn verbose_results_have_the_layout_of_libfabric() {
    let args = ["-v", "-t", "FI_EP_RDM", "-n", "fi_shm://1:2:3"];
    assert_eq!(run(&args), Output::success(LONG.to_owned()));
}

#[test]
fn ip_addresses_and_interfaces_are_printed_as_by_libfabric() {
    let mut info = demo_info();
    info.src_addr = "127.0.0.1:5".parse().ok();
    info.dest_addr = "[::1]:6".parse().ok();
    info.handle = 16;
    let mut nic = Nic::default();
    nic.name = "eth0".into();
    nic.vendor_id = "0x15b3".into();
    nic.pci = PciAddress::parse("0000:3b:00.1");
    nic.numa_node = Some(1);
    nic.up = true;
    info.nic = Some(nic);
    let text = long(&info);
    for part in [
        "    src_addrlen: 16\n    dest_addrlen: 28\n",
        "    src_addr: fi_sockaddr_in://127.0.0.1:5\n    dest_addr: fi_sockaddr_in6://[::1]:6\n",
        "    handle: 0x10\n",
        "    nic:\n        fi_device_attr:\n            name: eth0\n            device_id: (null)\n",
        "            vendor_id: 0x15b3\n            driver: (null)\n            firmware: (null)\n",
        "        fi_bus_attr:\n            bus_type: FI_BUS_PCI\n            fi_pci_attr:\n",
        "                domain_id: 0\n                bus_id: 59\n                device_id: 0\n",
        "                function_id: 1\n        numa_node: 1\n        fi_link_attr:\n",
        "            state: FI_LINK_UP\n",
    ] {
        assert!(text.contains(part), "{part}{text}");
    }
}

#[test]
fn a_source_address_is_the_local_address() {
    let infos = run_json(&["--json", "-s", "fi_shm://me", "-t", "FI_EP_RDM"]);
    assert_eq!(infos["infos"][0]["src_addr"], "fi_shm://me");
    assert_eq!(infos["infos"][0]["dest_addr"], Value::Null);
}

#[test]
fn options_become_hints() {
    let args = [
        "fi_info",
        "-c",
        "FI_MSG|FI_TAGGED",
        "-m",
        "FI_CONTEXT",
        "-t",
        "FI_EP_DGRAM",
        "-a",
        "FI_ADDR_STR",
        "-p",
        "p",
        "-d",
        "d",
        "-f",
        "f",
        "-n",
        "n",
        "-P",
        "s",
    ];
    let query = parse(args.map(Into::into)).unwrap().query().unwrap();
    let info = query.hints.info();
    assert_eq!(info.caps, Caps::MSG | Caps::TAGGED);
    assert_eq!(info.mode, Mode::CONTEXT);
    assert_eq!(info.ep_attr.ep_type, EpType::Dgram);
    assert_eq!(info.addr_format, AddrFormat::Str);
    assert_eq!(info.fabric_attr.prov_name, "p");
    assert_eq!(
        (
            info.domain_attr.name.as_str(),
            info.fabric_attr.name.as_str()
        ),
        ("d", "f")
    );
    assert_eq!(
        (query.node.as_deref(), query.service.as_deref()),
        (Some("n"), Some("s"))
    );
    assert_eq!(query.flags, InfoFlags::empty());
}

#[test]
fn an_invalid_option_is_named_in_the_error() {
    let table = [
        (
            ["-c", "FI_BOGUS"],
            "option -c: \"FI_BOGUS\" is no name that is known here",
        ),
        (
            ["-m", "x"],
            "option -m: \"x\" is no name that is known here",
        ),
        (
            ["-t", "rdm"],
            "option -t: \"rdm\" is no name that is known here",
        ),
        (
            ["-a", "ip"],
            "option -a: \"ip\" is no name that is known here",
        ),
    ];
    for (args, text) in table {
        let output = run(&args);
        assert_eq!(
            output.errors,
            format!("fi_info: {text}: Invalid argument\n")
        );
        assert_eq!((output.text.as_str(), output.code), ("", 22));
    }
    let usage = parse(["fi_info", "--bogus"].map(Into::into)).unwrap_err();
    assert!(
        usage.code == 1 && usage.text.contains("--bogus"),
        "{}",
        usage.text
    );
    assert_eq!(
        parse(["fi_info", "-h"].map(Into::into)).unwrap_err().code,
        0
    );
}

#[test]
fn a_query_without_a_result_is_explained_and_fails() {
    let output = run_in(&[("FI_PROVIDER", "^demo")], &[]);
    assert_eq!(
        output.errors,
        "fi_info: no provider matches the request: No data available\n\
         demo: excluded by FI_PROVIDER=^demo\n"
    );
    assert_eq!((output.text.as_str(), output.code), ("", 61));
    let json: Value = serde_json::from_str(&run(&["--json", "-p", "x"]).text).unwrap();
    assert_eq!(json["error"]["errno"], 61);
    let text = "no provider matches the request\ndemo: prov_name: requested x, has demo\n\
                prov_name names \"x\", which is not a provider of this library; the providers are demo";
    assert_eq!(json["error"]["text"], text);
}

#[test]
fn explanations_show_accepted_and_refused_candidates() {
    let output = run_in(
        &[("FI_DEMO_FSAT", "1")],
        &["--explain", "-t", "FI_EP_DGRAM"],
    );
    assert_eq!(
        output,
        Output::success(
            "demo FI_EP_RDM FI_PROTO_SHM in card: refused: ep_type: requested FI_EP_DGRAM, has \
             FI_EP_RDM\n\
             demo FI_EP_DGRAM FI_PROTO_SHM in card: taken\n\
             environment: FI_DEMO_FSAT=\"1\" is not a parameter; did you mean FI_DEMO_FAST?\n"
                .to_owned()
        )
    );
    let output = run(&["--explain", "-t", "FI_EP_MSG"]);
    assert_eq!(output.code, 61);
    let output = run_in(&[("FI_PROVIDER", "tcp")], &["--explain"]);
    assert_eq!(output.text, "demo: excluded by FI_PROVIDER=tcp\n");
}

#[test]
fn explanations_are_structured_in_json() {
    let json = run_json(&["--explain", "--json", "-t", "FI_EP_DGRAM"]);
    let refused = &json["verdicts"][0];
    assert_eq!(refused["outcome"], "refused");
    assert_eq!(refused["field"], "ep_type");
    assert_eq!(refused["asked"], "FI_EP_DGRAM");
    assert_eq!(refused["has"], "FI_EP_RDM");
    assert_eq!(json["verdicts"][1]["outcome"], "taken");
    assert_eq!(
        json["verdicts"][1]["info"]["ep_attr"]["type"],
        "FI_EP_DGRAM"
    );
}

#[test]
fn json_has_every_attribute() {
    let json = run_json(&["--json"]);
    let info = &json["infos"][0];
    assert_eq!(info["caps"], json!(["FI_MSG", "FI_RECV", "FI_SEND"]));
    assert_eq!(info["domain_attr"]["mr_mode"], json!(["FI_MR_VIRT_ADDR"]));
    assert_eq!(info["fabric_attr"]["prov_version"], "117.0");
    for line in LONG.lines().filter(|line| line.starts_with("        ")) {
        let name = line.trim().split(':').next().unwrap_or_default();
        let parts = [
            "tx_attr",
            "rx_attr",
            "ep_attr",
            "domain_attr",
            "fabric_attr",
        ];
        let found = parts.iter().any(|part| info[part].get(name).is_some());
        assert!(found || name == "domain", "{name}");
    }
}

#[test]
fn parameters_show_type_default_value_and_meaning() {
    let env = [("FI_DEMO_TX_SIZE", "2k"), ("FI_DEMO_TX_SZIE", "1")];
    assert_eq!(
        run_in(&env, &["-g", "DEMO"]).text,
        "# FI_DEMO_TX_SIZE: size_t\n\
         # demo: sends that may be outstanding (default: 1024)\n\
         FI_DEMO_TX_SIZE=2k\n\
         \n\
         # FI_DEMO_FAST: Boolean (0/1, on/off, true/false, yes/no)\n\
         # demo: whether to use the fast path (default: 1)\n\
         \n\
         # FI_DEMO_TX_SZIE=\"1\" is not a parameter; did you mean FI_DEMO_TX_SIZE?\n"
    );
    let all = run(&["-e"]).text;
    assert!(
        all.starts_with("# FI_PROVIDER: String\n# comma-separated providers"),
        "{all}"
    );
    assert!(all.contains("\n# FI_DEMO_FAST: "), "{all}");
}

#[test]
fn a_bad_parameter_is_shown_with_the_expected_values() {
    let text = run_in(&[("FI_DEMO_TX_SIZE", "banana")], &["-g", "TX_SIZE"]).text;
    assert!(
        text.contains(
            "\nFI_DEMO_TX_SIZE=banana\n\
             # error: FI_DEMO_TX_SIZE=\"banana\": expected a size such as 4096, 64k or 1m\n"
        ),
        "{text}"
    );
}

#[test]
fn parameters_are_structured_in_json() {
    let json = run_json(&["-e", "--json"]);
    let params = json["params"].as_array().expect("a list");
    let size = params
        .iter()
        .find(|one| one["name"] == "FI_DEMO_TX_SIZE")
        .expect("declared");
    assert_eq!(size["provider"], "demo");
    assert_eq!(size["type"], "size_t");
    assert_eq!(
        (&size["default"], &size["value"]),
        (&json!("1024"), &json!("1024"))
    );
    assert_eq!(
        (&size["set"], &size["error"]),
        (&json!(false), &Value::Null)
    );
}

#[test]
fn the_list_has_names_and_versions() {
    assert_eq!(run(&["-l"]).text, "demo:\n    version: 117.0\n");
    let json = json!({ "providers": [{ "name": "demo", "version": "117.0" }] });
    assert_eq!(run_json(&["-l", "--json"]), json);
}

#[test]
fn a_part_of_the_text_selects_results() {
    let text = run(&["-i", "FI_EP_DGRAM"]).text;
    assert_eq!(text.matches("---\n").count(), 1);
    assert!(text.contains("type: FI_EP_DGRAM"), "{text}");
    assert_eq!(run(&["-i", "nowhere"]), Output::default());
}

#[test]
fn versions_are_three_lines() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        run(&["--version"]).text,
        format!("fi_info: {version}\nselvedge: {version}\nlibfabric api: 2.6\n")
    );
}
