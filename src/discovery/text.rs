//! Formats descriptions as text of several lines, in libfabric's layout (fi_tostr(3)).
//!
//! The printed lengths of addresses are the lengths of their C representation.

use std::fmt::{Display, Write};

use crate::info::{
    COMP_ORDER_DATA, COMP_ORDER_STRICT, DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr,
};
use crate::{Address, Info};

/// Formats an [`Info`].
pub fn info(info: &Info) -> String {
    format_block("fi_info", |text| write_info(text, info))
}

fn write_info(text: &mut Fields, info: &Info) {
    text.list("caps", info.caps.names());
    text.list("mode", info.mode.names());
    text.field("addr_format", info.addr_format);
    text.field("src_addrlen", address_len(info.src_addr.as_ref()));
    text.field("dest_addrlen", address_len(info.dest_addr.as_ref()));
    text.field("src_addr", format_address(info.src_addr.as_ref()));
    text.field("dest_addr", format_address(info.dest_addr.as_ref()));
    text.field("handle", format_pointer(info.handle));
    text.block("fi_tx_attr", |text| write_tx(text, &info.tx_attr));
    text.block("fi_rx_attr", |text| write_rx(text, &info.rx_attr));
    text.block("fi_ep_attr", |text| write_ep(text, &info.ep_attr));
    text.block("fi_domain_attr", |text| {
        write_domain(text, &info.domain_attr)
    });
    text.block("fi_fabric_attr", |text| {
        write_fabric(text, &info.fabric_attr)
    });
    match &info.nic {
        None => text.field("nic", "(nil)"),
        Some(nic) => text.block("nic", |text| write_nic(text, nic)),
    }
}

/// Formats transmit attributes.
pub fn tx_attr(attr: &TxAttr) -> String {
    format_block("fi_tx_attr", |text| write_tx(text, attr))
}

/// Formats receive attributes.
pub fn rx_attr(attr: &RxAttr) -> String {
    format_block("fi_rx_attr", |text| write_rx(text, attr))
}

/// Formats endpoint attributes.
pub fn ep_attr(attr: &EpAttr) -> String {
    format_block("fi_ep_attr", |text| write_ep(text, attr))
}

/// Formats domain attributes.
pub fn domain_attr(attr: &DomainAttr) -> String {
    format_block("fi_domain_attr", |text| write_domain(text, attr))
}

/// Formats domain attributes, with the fields of libfabric 1.9.
pub fn domain_attr_1_9(attr: &DomainAttr) -> String {
    format_block("fi_domain_attr", |text| write_domain_1_9(text, attr))
}

/// Formats fabric attributes.
pub fn fabric_attr(attr: &FabricAttr) -> String {
    format_block("fi_fabric_attr", |text| write_fabric(text, attr))
}

fn format_block(name: &str, fields: impl FnOnce(&mut Fields)) -> String {
    let mut text = Fields::new();
    text.block(name, fields);
    text.lines
}

fn write_tx(text: &mut Fields, tx: &TxAttr) {
    text.list("caps", tx.caps.names());
    text.list("mode", tx.mode.names());
    text.list("op_flags", tx.op_flags.names());
    text.list("msg_order", tx.msg_order.names());
    text.list("comp_order", comp_order_names(tx.comp_order));
    text.field("inject_size", tx.inject_size);
    text.field("size", tx.size);
    text.field("iov_limit", tx.iov_limit);
    text.field("rma_iov_limit", tx.rma_iov_limit);
    text.field("tclass", format_args!("{:#x}", tx.tclass as u32));
}

fn write_rx(text: &mut Fields, rx: &RxAttr) {
    text.list("caps", rx.caps.names());
    text.list("mode", rx.mode.names());
    text.list("op_flags", rx.op_flags.names());
    text.list("msg_order", rx.msg_order.names());
    text.list("comp_order", comp_order_names(rx.comp_order));
    text.field("total_buffered_recv", rx.total_buffered_recv);
    text.field("size", rx.size);
    text.field("iov_limit", rx.iov_limit);
}

fn write_ep(text: &mut Fields, ep: &EpAttr) {
    text.field("type", ep.ep_type);
    text.field("protocol", ep.protocol);
    text.field("protocol_version", ep.protocol_version);
    text.field("max_msg_size", ep.max_msg_size);
    text.field("msg_prefix_size", ep.msg_prefix_size);
    text.field("max_order_raw_size", ep.max_order_raw_size);
    text.field("max_order_war_size", ep.max_order_war_size);
    text.field("max_order_waw_size", ep.max_order_waw_size);
    text.field(
        "mem_tag_format",
        format_args!("{:#018x}", ep.mem_tag_format.0),
    );
    text.field("tx_ctx_cnt", ep.tx_ctx_cnt);
    text.field("rx_ctx_cnt", ep.rx_ctx_cnt);
    text.field("auth_key_size", ep.auth_key.len());
}

fn write_domain(text: &mut Fields, domain: &DomainAttr) {
    write_domain_1_9(text, domain);
    text.field("max_ep_auth_key", domain.max_ep_auth_key);
    text.field("max_group_id", domain.max_group_id);
    text.field("max_cntr_value", domain.max_cntr_value);
    text.field("max_err_cntr_value", domain.max_err_cntr_value);
}

fn write_domain_1_9(text: &mut Fields, domain: &DomainAttr) {
    text.field("domain", "0x0");
    text.field("name", &domain.name);
    text.field("threading", domain.threading);
    text.field("control_progress", domain.control_progress);
    text.field("data_progress", domain.data_progress);
    text.field("resource_mgmt", domain.resource_mgmt);
    text.field("av_type", domain.av_type);
    text.list("mr_mode", domain.mr_mode.names());
    let sizes = [
        ("mr_key_size", domain.mr_key_size),
        ("cq_data_size", domain.cq_data_size),
        ("cq_cnt", domain.cq_cnt),
        ("ep_cnt", domain.ep_cnt),
        ("tx_ctx_cnt", domain.tx_ctx_cnt),
        ("rx_ctx_cnt", domain.rx_ctx_cnt),
        ("max_ep_tx_ctx", domain.max_ep_tx_ctx),
        ("max_ep_rx_ctx", domain.max_ep_rx_ctx),
        ("max_ep_stx_ctx", domain.max_ep_stx_ctx),
        ("max_ep_srx_ctx", domain.max_ep_srx_ctx),
        ("cntr_cnt", domain.cntr_cnt),
        ("mr_iov_limit", domain.mr_iov_limit),
    ];
    for (name, size) in sizes {
        text.field(name, size);
    }
    text.list("caps", domain.caps.names());
    text.list("mode", domain.mode.names());
    text.field("auth_key_size", domain.auth_key.len());
    text.field("max_err_data", domain.max_err_data);
    text.field("mr_cnt", domain.mr_cnt);
    text.field("tclass", format_args!("{:#x}", domain.tclass as u32));
}

fn write_fabric(text: &mut Fields, fabric: &FabricAttr) {
    text.field("name", &fabric.name);
    text.field("prov_name", &fabric.prov_name);
    text.field("prov_version", fabric.prov_version);
    text.field("api_version", fabric.api_version);
}

fn write_nic(text: &mut Fields, nic: &Nic) {
    text.block("fi_device_attr", |text| {
        for (name, value) in [
            ("name", &nic.name),
            ("device_id", &nic.device_id),
            ("device_version", &nic.device_version),
            ("vendor_id", &nic.vendor_id),
            ("driver", &nic.driver),
            ("firmware", &nic.firmware),
        ] {
            text.field(name, text_or_null(value));
        }
    });
    text.block("fi_bus_attr", |text| match &nic.pci {
        None => text.field("bus_type", "FI_BUS_UNSPEC"),
        Some(pci) => {
            text.field("bus_type", "FI_BUS_PCI");
            text.block("fi_pci_attr", |text| {
                text.field("domain_id", pci.domain_id);
                text.field("bus_id", pci.bus_id);
                text.field("device_id", pci.device_id);
                text.field("function_id", pci.function_id);
            });
        }
    });
    if let Some(node) = nic.numa_node {
        text.field("numa_node", node);
    }
    text.block("fi_link_attr", |text| {
        text.field("address", &nic.address);
        text.field("mtu", nic.mtu);
        text.field("speed", nic.speed);
        text.field("state", if nic.up { "FI_LINK_UP" } else { "FI_LINK_DOWN" });
        text.field("network_type", &nic.network_type);
    });
}

fn text_or_null(text: &str) -> &str {
    if text.is_empty() { "(null)" } else { text }
}

fn comp_order_names(order: u64) -> Vec<String> {
    let bits = [
        (COMP_ORDER_STRICT, "FI_ORDER_STRICT"),
        (COMP_ORDER_DATA, "FI_ORDER_DATA"),
    ];
    match order {
        0 => vec!["FI_ORDER_NONE".to_owned()],
        order => {
            let named = bits.iter().filter(|(bits, _)| order & bits == *bits);
            named.map(|&(_, name)| name.to_owned()).collect()
        }
    }
}

/// Returns the length of the C representation: a string with its NUL, a `sockaddr_in` or
/// `sockaddr_in6`.
fn address_len(addr: Option<&Address>) -> usize {
    match addr {
        None => 0,
        Some(Address::Ip(ip)) if ip.is_ipv4() => size_of::<libc::sockaddr_in>(),
        Some(Address::Ip(_)) => size_of::<libc::sockaddr_in6>(),
        Some(Address::Raw(_, bytes)) => bytes.len(),
        Some(other) => other.to_string().len() + 1,
    }
}

fn format_address(addr: Option<&Address>) -> String {
    match addr {
        None => "(null)".to_owned(),
        Some(Address::Ip(ip)) if ip.is_ipv4() => format!("fi_sockaddr_in://{ip}"),
        Some(Address::Ip(ip)) => format!("fi_sockaddr_in6://{ip}"),
        Some(other) => other.to_string(),
    }
}

fn format_pointer(handle: u64) -> String {
    match handle {
        0 => "(nil)".to_owned(),
        handle => format!("{handle:#x}"),
    }
}

/// Lines `name: value`, indented by the nesting depth.
struct Fields {
    lines: String,
    depth: usize,
}

impl Fields {
    fn new() -> Self {
        Self {
            lines: String::new(),
            depth: 0,
        }
    }

    fn write_line(&mut self, line: &str, depth: usize) {
        writeln!(self.lines, "{:1$}{line}", "", depth * INDENT)
            .expect("writing to a string never fails");
    }

    fn field(&mut self, name: &str, value: impl Display) {
        self.write_line(&format!("{name}: {value}"), self.depth);
    }

    fn list(&mut self, name: &str, values: impl IntoIterator<Item = String>) {
        let values: Vec<_> = values.into_iter().collect();
        self.field(name, format_args!("[ {} ]", values.join(", ")));
    }

    fn block(&mut self, name: &str, fields: impl FnOnce(&mut Self)) {
        self.write_line(&format!("{name}:"), self.depth);
        self.depth += 1;
        fields(self);
        self.depth -= 1;
    }
}

const INDENT: usize = 4;
