//! `struct fi_info` and its parts, in the newest layout.

use std::ffi::{c_char, c_int, c_void};

use super::fid::Fid;
use crate::declare::structs::c_structs;

c_structs! {
    /// `struct fi_info`.
    Info = 120 {
        next: *mut Info,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: usize,
        dest_addrlen: usize,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut Fid,
        tx_attr: *mut TxAttr,
        rx_attr: *mut RxAttr,
        ep_attr: *mut EpAttr,
        domain_attr: *mut DomainAttr,
        fabric_attr: *mut FabricAttr,
        nic: *mut Nic,
    }
    /// `struct fi_tx_attr`.
    TxAttr = 80 {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        inject_size: usize,
        size: usize,
        iov_limit: usize,
        rma_iov_limit: usize,
        tclass: u32,
    }
    /// `struct fi_rx_attr`.
    RxAttr = 64 {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        total_buffered_recv: usize,
        size: usize,
        iov_limit: usize,
    }
    /// `struct fi_ep_attr`; `ep_type` is its `type`.
    EpAttr = 104 {
        ep_type: u32,
        protocol: u32,
        protocol_version: u32,
        max_msg_size: usize,
        msg_prefix_size: usize,
        max_order_raw_size: usize,
        max_order_war_size: usize,
        max_order_waw_size: usize,
        mem_tag_format: u64,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        auth_key_size: usize,
        auth_key: *mut u8,
        xpu_ctx: *mut c_void,
    }
    /// `struct fi_domain_attr`.
    DomainAttr = 232 {
        /// A `struct fid_domain`, by its fid.
        domain: *mut Fid,
        name: *mut c_char,
        threading: u32,
        control_progress: u32,
        data_progress: u32,
        resource_mgmt: u32,
        av_type: u32,
        mr_mode: c_int,
        mr_key_size: usize,
        cq_data_size: usize,
        cq_cnt: usize,
        ep_cnt: usize,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize,
        max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize,
        cntr_cnt: usize,
        mr_iov_limit: usize,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: usize,
        max_err_data: usize,
        mr_cnt: usize,
        tclass: u32,
        max_ep_auth_key: usize,
        max_group_id: u32,
        max_cntr_value: u64,
        max_err_cntr_value: u64,
        max_xpu_ctx_cnt: usize,
    }
    /// `struct fi_fabric_attr`.
    FabricAttr = 32 {
        /// A `struct fid_fabric`, by its fid.
        fabric: *mut Fid,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }
    /// `struct fid_nic`.
    Nic = 56 {
        fid: Fid,
        device_attr: *mut DeviceAttr,
        bus_attr: *mut BusAttr,
        link_attr: *mut LinkAttr,
        prov_attr: *mut c_void,
    }
    /// `struct fi_device_attr`.
    DeviceAttr = 48 {
        name: *mut c_char,
        device_id: *mut c_char,
        device_version: *mut c_char,
        vendor_id: *mut c_char,
        driver: *mut c_char,
        firmware: *mut c_char,
    }
    /// `struct fi_pci_attr`.
    PciAttr = 6 {
        domain_id: u16,
        bus_id: u8,
        device_id: u8,
        function_id: u8,
    }
    /// `struct fi_bus_attr`.
    BusAttr = 12 {
        bus_type: u32,
        pci: PciAttr,
    }
    /// `struct fi_link_attr`.
    LinkAttr = 40 {
        address: *mut c_char,
        mtu: usize,
        speed: usize,
        state: u32,
        network_type: *mut c_char,
    }
}
