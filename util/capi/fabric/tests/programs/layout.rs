//! Compares the layouts of structures with Selvedge's headers and with the system's.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use selvedge_abi as abi;

use crate::harness::{
    Built, SYSTEM_HEADERS, compile, create_once, has, header_folder, output_of, with_selvedge,
};

/// Members that headers of an older version lack.
const NEWER: [&str; 15] = [
    "max_ep_auth_key",
    "max_group_id",
    "max_cntr_value",
    "max_err_cntr_value",
    "max_xpu_ctx_cnt",
    "xpu_ctx",
    "hmem_data",
    "page_size",
    "base_mr",
    "sub_mr_cnt",
    "export_xpu",
    "insert_auth_key",
    "lookup_auth_key",
    "set_user_id",
    "lookup2",
];

macro_rules! structures {
    ($($name:literal $kind:ident $(as [$($selvedge:literal = $header:literal),*])?;)+) => {
        &[$(($name, abi::$kind::MEMBERS, size_of::<abi::$kind>(), &[$($(($selvedge, $header)),*)?])),+]
    };
}

pub(crate) type Structure = (
    &'static str,
    &'static [(&'static str, usize)],
    usize,
    &'static [(&'static str, &'static str)],
);

pub(crate) const STRUCTURES: &[Structure] = structures! {
    "fi_info" Info;
    "fi_tx_attr" TxAttr;
    "fi_rx_attr" RxAttr;
    "fi_ep_attr" EpAttr as ["ep_type" = "type"];
    "fi_domain_attr" DomainAttr;
    "fi_fabric_attr" FabricAttr;
    "fid_nic" Nic;
    "fi_device_attr" DeviceAttr;
    "fi_bus_attr" BusAttr as ["pci" = "attr"];
    "fi_link_attr" LinkAttr;
    "fid" Fid;
    "fi_ops" Ops;
    "fi_alias" Alias;
    "fi_mr_raw_attr" MrRawAttr;
    "fi_mr_map_raw" MrMapRaw;
    "fid_fabric" FidFabric;
    "fi_ops_fabric" OpsFabric;
    "fid_domain" FidDomain;
    "fi_ops_domain" OpsDomain;
    "fi_ops_mr" OpsMr;
    "fid_ep" FidEp;
    "fid_pep" FidPep;
    "fi_ops_ep" OpsEp;
    "fi_ops_cm" OpsCm;
    "fi_ops_msg" OpsMsg;
    "fi_ops_tagged" OpsTagged;
    "fi_ops_rma" OpsRma;
    "fi_ops_atomic" OpsAtomic;
    "fi_ops_collective" OpsCollective;
    "fi_triggered_context" TriggeredContext as ["cntr" = "trigger.threshold.cntr", "threshold" = "trigger.threshold.threshold", "internal" = "trigger.internal[2]"];
    "fi_deferred_work" DeferredWork as ["op" = "op.msg"];
    "fi_op_msg" OpMsg;
    "fi_op_tagged" OpTagged;
    "fi_op_rma" OpRma;
    "fi_op_atomic" OpAtomic;
    "fi_op_fetch_atomic" OpFetchAtomic;
    "fi_op_compare_atomic" OpCompareAtomic;
    "fi_op_cntr" OpCntrChange;
    "fi_msg_fetch" MsgElements;
    "fi_pci_attr" PciAttr;
    "fid_stx" FidStx;
    "fid_av_set" FidAvSet;
    "fi_ops_av_set" OpsAvSet;
    "fid_mc" FidMc;
    "fi_mr_modify" MrModify;
    "fid_av" FidAv;
    "fi_ops_av" OpsAv;
    "fi_av_set_attr" AvSetAttr;
    "fi_collective_attr" CollectiveAttr;
    "fi_collective_addr" CollectiveAddr;
    "fi_msg_collective" MsgCollective;
    "fi_av_attr" AvAttr as ["av_type" = "type"];
    "fid_mr" FidMr;
    "fi_mr_attr" MrAttr;
    "fid_cq" FidCq;
    "fi_ops_cq" OpsCq;
    "fi_cq_attr" CqAttr;
    "fi_cq_err_entry" CqErrEntry;
    "fid_cntr" FidCntr;
    "fi_ops_cntr" OpsCntr;
    "fi_cntr_attr" CntrAttr;
    "fid_wait" FidWait;
    "fi_ops_wait" OpsWait;
    "fi_wait_attr" WaitAttr;
    "fid_poll" FidPoll;
    "fi_ops_poll" OpsPoll;
    "fi_poll_attr" PollAttr;
    "fid_eq" FidEq;
    "fi_ops_eq" OpsEq;
    "fi_eq_attr" EqAttr;
    "fi_eq_entry" EqEntry;
    "fi_eq_cm_entry" EqCmEntry;
    "fi_eq_err_entry" EqErrEntry;
    "fi_msg" Msg;
    "fi_msg_tagged" MsgTagged;
    "fi_msg_rma" MsgRma;
    "fi_msg_atomic" MsgAtomic;
    "fi_ioc" Ioc;
    "fi_rma_iov" RmaIov;
    "fi_rma_ioc" RmaIoc;
    "fi_atomic_attr" AtomicAttr;
    "fi_param" Param as ["param_type" = "type"];
};

/// The members that the headers in a folder have, by their names in C, with Selvedge's offsets.
fn expected(folder: &Path) -> Vec<(String, usize)> {
    let headers = fs::read_dir(folder.join("rdma")).unwrap();
    let paths = headers.map(|entry| entry.unwrap().path());
    let is_libfabric_header = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name == "fabric.h" || name.starts_with("fi_")
    };
    let files = paths.filter(is_libfabric_header);
    let text: String = files
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_declared = |member: &str| {
        text.contains(&format!("{member};")) || text.contains(&format!("(*{member})("))
    };
    let has = |member: &str| !NEWER.contains(&member) || is_declared(member);
    let mut lines = Vec::new();
    for (name, members, _, renamed) in STRUCTURES {
        for (member, offset) in *members {
            let renamed = renamed.iter().find(|(selvedge, _)| selvedge == member);
            let member = renamed.map_or(*member, |(_, header)| header);
            let is_newer = *name == "fi_cq_err_entry" && member == "src_addr" && !is_two(&text);
            let is_old_src = *name == "fi_info" && member == "src_addr";
            if is_old_src || (!is_newer && has(member)) {
                lines.push((format!("{name} {member}"), *offset));
            }
        }
    }
    lines
}

/// Returns whether headers are of version 2.0 or later.
fn is_two(text: &str) -> bool {
    text.contains("#define FI_MAJOR_VERSION 2")
}

#[test]
fn programs_in_c_see_the_same_layout() {
    if has(&["cc"]) {
        compare(&header_folder(), Built::ForSelvedge);
    }
    if has(&["cc", SYSTEM_HEADERS]) {
        compare(Path::new("/usr/include"), Built::WithSystemHeaders);
    }
}

fn compare(headers: &Path, built: Built) {
    let expected = expected(headers);
    let mut source = String::new();
    for (line, _) in &expected {
        writeln!(source, "M({});", line.replace(' ', ", ")).unwrap();
    }
    for (name, ..) in STRUCTURES {
        writeln!(source, "S({name});").unwrap();
    }
    let include = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("members-{built:?}"));
    fs::create_dir_all(&include).unwrap();
    create_once(include.join("members.h"), |file| {
        fs::write(file, source).unwrap();
    });
    let text = output_of(&mut with_selvedge(compile("layout", built, Some(&include))));
    for (line, offset) in expected {
        assert!(
            text.contains(&format!("{line} {offset}\n")),
            "{line} {offset}\n{text}"
        );
    }
    for (name, _, size, _) in STRUCTURES {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")));
        let header: usize = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(
            header <= *size,
            "{name}: {header} bytes in the headers, {size} in Selvedge"
        );
    }
}
