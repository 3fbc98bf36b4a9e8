//! Results as JSON: fi_info's fields by their names; flags as lists of names, unset addresses as
//! `null`.

use selvedge::info::{DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr};
use selvedge::{Address, Info, MsgOrder};
use serde_json::{Map, Value, json};

/// Returns a value as indented text.
pub(super) fn format(value: &Value) -> String {
    format!("{value:#}\n")
}

pub(super) fn info(info: &Info) -> Value {
    json!({
        "caps": names(info.caps.names()),
        "mode": names(info.mode.names()),
        "addr_format": info.addr_format.text(),
        "src_addr": info.src_addr.as_ref().map(Address::to_string),
        "dest_addr": info.dest_addr.as_ref().map(Address::to_string),
        "tx_attr": tx(&info.tx_attr),
        "rx_attr": rx(&info.rx_attr),
        "ep_attr": ep(&info.ep_attr),
        "domain_attr": domain(&info.domain_attr),
        "fabric_attr": fabric(&info.fabric_attr),
        "nic": info.nic.as_ref().map(nic),
    })
}

pub(super) fn provider(info: &Info) -> Value {
    let fabric = &info.fabric_attr;
    json!({ "name": fabric.prov_name, "version": fabric.prov_version.to_string() })
}

fn tx(tx: &TxAttr) -> Value {
    json!({
        "caps": names(tx.caps.names()),
        "mode": names(tx.mode.names()),
        "op_flags": names(tx.op_flags.names()),
        "msg_order": names(tx.msg_order.names()),
        "comp_order": names(MsgOrder::from_bits_retain(tx.comp_order).names()),
        "inject_size": tx.inject_size,
        "size": tx.size,
        "iov_limit": tx.iov_limit,
        "rma_iov_limit": tx.rma_iov_limit,
        "tclass": tx.tclass.text(),
    })
}

fn rx(rx: &RxAttr) -> Value {
    json!({
        "caps": names(rx.caps.names()),
        "mode": names(rx.mode.names()),
        "op_flags": names(rx.op_flags.names()),
        "msg_order": names(rx.msg_order.names()),
        "comp_order": names(MsgOrder::from_bits_retain(rx.comp_order).names()),
        "total_buffered_recv": rx.total_buffered_recv,
        "size": rx.size,
        "iov_limit": rx.iov_limit,
    })
}

fn ep(ep: &EpAttr) -> Value {
    json!({
        "type": ep.ep_type.text(),
        "protocol": ep.protocol.text(),
        "protocol_version": ep.protocol_version,
        "max_msg_size": ep.max_msg_size,
        "msg_prefix_size": ep.msg_prefix_size,
        "max_order_raw_size": ep.max_order_raw_size,
        "max_order_war_size": ep.max_order_war_size,
        "max_order_waw_size": ep.max_order_waw_size,
        "mem_tag_format": ep.mem_tag_format.0,
        "tx_ctx_cnt": ep.tx_ctx_cnt,
        "rx_ctx_cnt": ep.rx_ctx_cnt,
        "auth_key_size": ep.auth_key.len(),
    })
}

fn domain(domain: &DomainAttr) -> Value {
    let mut fields = domain_limits(domain);
    let texts = [
        ("name", domain.name.as_str()),
        ("threading", domain.threading.text()),
        ("control_progress", domain.control_progress.text()),
        ("data_progress", domain.data_progress.text()),
        ("resource_mgmt", domain.resource_mgmt.text()),
        ("av_type", domain.av_type.text()),
        ("tclass", domain.tclass.text()),
    ];
    fields.extend(texts.map(|(name, text)| (name.to_owned(), json!(text))));
    let lists = [
        ("mr_mode", names(domain.mr_mode.names())),
        ("caps", names(domain.caps.names())),
        ("mode", names(domain.mode.names())),
    ];
    fields.extend(lists.map(|(name, list)| (name.to_owned(), list)));
    Value::Object(fields)
}

fn domain_limits(domain: &DomainAttr) -> Map<String, Value> {
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
        ("auth_key_size", domain.auth_key.len()),
        ("max_err_data", domain.max_err_data),
        ("mr_cnt", domain.mr_cnt),
        ("max_ep_auth_key", domain.max_ep_auth_key),
    ];
    let values = [
        ("max_group_id", u64::from(domain.max_group_id)),
        ("max_cntr_value", domain.max_cntr_value),
        ("max_err_cntr_value", domain.max_err_cntr_value),
    ];
    let sizes = sizes.map(|(name, size)| (name.to_owned(), json!(size)));
    let values = values.map(|(name, value)| (name.to_owned(), json!(value)));
    sizes.into_iter().chain(values).collect()
}

fn fabric(fabric: &FabricAttr) -> Value {
    json!({
        "name": fabric.name,
        "prov_name": fabric.prov_name,
        "prov_version": fabric.prov_version.to_string(),
        "api_version": fabric.api_version.to_string(),
    })
}

fn nic(nic: &Nic) -> Value {
    json!({
        "name": nic.name,
        "device_id": nic.device_id,
        "device_version": nic.device_version,
        "vendor_id": nic.vendor_id,
        "driver": nic.driver,
        "firmware": nic.firmware,
        "pci": nic.pci.map(|pci| {
            json!({
                "domain_id": pci.domain_id,
                "bus_id": pci.bus_id,
                "device_id": pci.device_id,
                "function_id": pci.function_id,
            })
        }),
        "numa_node": nic.numa_node,
        "address": nic.address,
        "mtu": nic.mtu,
        "speed": nic.speed,
        "up": nic.up,
        "network_type": nic.network_type,
    })
}

fn names(names: impl Iterator<Item = String>) -> Value {
    names.map(Value::String).collect()
}
