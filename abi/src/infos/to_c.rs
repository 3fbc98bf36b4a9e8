//! Converts infos of the object model to a list of C. The C library allocates the list's memory.

#![expect(unsafe_code, reason = "links of a list in C")]

use std::ptr;

use crate as abi;
use crate::{Fid, number};
use selvedge::info::{DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr};
use selvedge::{Address, Info, Result};

use super::copy::{free, nic_handle};
use crate::addr::encode;
use crate::heap::{allocate, allocate_zeroed, copy_bytes, copy_str};

/// Allocates a list of these infos, in their order, each with this handle; NULL for none.
///
/// # Errors
/// [`selvedge::Errno::NoMem`]; nothing stays allocated.
pub fn allocate_list(infos: &[Info], handle: *mut Fid) -> Result<*mut abi::Info> {
    let mut first = ptr::null_mut();
    for info in infos.iter().rev() {
        match allocate_info(info, handle) {
            Ok(info_c) => {
                // SAFETY: the info was allocated just now.
                unsafe { (*info_c).next = first };
                first = info_c;
            }
            Err(errno) => {
                // SAFETY: the list was allocated by this function and has not left it.
                unsafe { free(first) };
                return Err(errno);
            }
        }
    }
    Ok(first)
}

/// Allocates one info, with the handle of a connection request or of a passive endpoint.
///
/// # Errors
/// As [`allocate_list`].
pub fn allocate_info(info: &Info, handle: *mut Fid) -> Result<*mut abi::Info> {
    let info_c = allocate_zeroed::<abi::Info>()?;
    // SAFETY: the info was allocated just now; zeros are an info without parts.
    let filled = fill(unsafe { &mut *info_c }, info, handle);
    if let Err(errno) = filled {
        // SAFETY: as above; `fill` allocated the parts.
        unsafe { free(info_c) };
        return Err(errno);
    }
    Ok(info_c)
}

fn fill(info_c: &mut abi::Info, info: &Info, handle: *mut Fid) -> Result {
    info_c.caps = info.caps.bits();
    info_c.mode = info.mode.bits();
    info_c.addr_format = info.addr_format as u32;
    info_c.handle = handle;
    (info_c.src_addr, info_c.src_addrlen) = copy_address(info.src_addr.as_ref())?;
    (info_c.dest_addr, info_c.dest_addrlen) = copy_address(info.dest_addr.as_ref())?;
    info_c.tx_attr = allocate(tx_attr(&info.tx_attr))?;
    info_c.rx_attr = allocate(rx_attr(&info.rx_attr))?;
    info_c.ep_attr = allocate(ep_attr(&info.ep_attr)?)?;
    info_c.domain_attr = allocate(domain_attr(&info.domain_attr)?)?;
    info_c.fabric_attr = allocate(fabric_attr(&info.fabric_attr)?)?;
    if let Some(nic) = &info.nic {
        info_c.nic = allocate_nic(nic)?;
    }
    Ok(())
}

fn copy_address(addr: Option<&Address>) -> Result<(*mut std::ffi::c_void, usize)> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let encoded = encode(addr);
    Ok((copy_bytes(&encoded)?.cast(), encoded.len()))
}

fn tx_attr(attr: &TxAttr) -> abi::TxAttr {
    abi::TxAttr {
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        op_flags: attr.op_flags.bits(),
        msg_order: attr.msg_order.bits(),
        comp_order: attr.comp_order,
        inject_size: attr.inject_size,
        size: attr.size,
        iov_limit: attr.iov_limit,
        rma_iov_limit: attr.rma_iov_limit,
        tclass: attr.tclass as u32,
    }
}

fn rx_attr(attr: &RxAttr) -> abi::RxAttr {
    abi::RxAttr {
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        op_flags: attr.op_flags.bits(),
        msg_order: attr.msg_order.bits(),
        comp_order: attr.comp_order,
        total_buffered_recv: attr.total_buffered_recv,
        size: attr.size,
        iov_limit: attr.iov_limit,
    }
}

fn ep_attr(attr: &EpAttr) -> Result<abi::EpAttr> {
    Ok(abi::EpAttr {
        ep_type: attr.ep_type as u32,
        protocol: attr.protocol as u32,
        protocol_version: attr.protocol_version,
        max_msg_size: attr.max_msg_size,
        msg_prefix_size: attr.msg_prefix_size,
        max_order_raw_size: attr.max_order_raw_size,
        max_order_war_size: attr.max_order_war_size,
        max_order_waw_size: attr.max_order_waw_size,
        mem_tag_format: attr.mem_tag_format.0,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        auth_key_size: attr.auth_key.len(),
        auth_key: copy_bytes(&attr.auth_key)?,
        xpu_ctx: ptr::null_mut(),
    })
}

fn domain_attr(attr: &DomainAttr) -> Result<abi::DomainAttr> {
    Ok(abi::DomainAttr {
        domain: ptr::null_mut(),
        name: copy_str(&attr.name)?,
        threading: attr.threading as u32,
        control_progress: attr.control_progress as u32,
        data_progress: attr.data_progress as u32,
        resource_mgmt: attr.resource_mgmt as u32,
        av_type: attr.av_type as u32,
        mr_mode: attr.mr_mode.bits().cast_signed(),
        mr_key_size: attr.mr_key_size,
        cq_data_size: attr.cq_data_size,
        cq_cnt: attr.cq_cnt,
        ep_cnt: attr.ep_cnt,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        max_ep_tx_ctx: attr.max_ep_tx_ctx,
        max_ep_rx_ctx: attr.max_ep_rx_ctx,
        max_ep_stx_ctx: attr.max_ep_stx_ctx,
        max_ep_srx_ctx: attr.max_ep_srx_ctx,
        cntr_cnt: attr.cntr_cnt,
        mr_iov_limit: attr.mr_iov_limit,
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        auth_key: copy_bytes(&attr.auth_key)?,
        auth_key_size: attr.auth_key.len(),
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: attr.tclass as u32,
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
        max_xpu_ctx_cnt: 0,
    })
}

fn fabric_attr(attr: &FabricAttr) -> Result<abi::FabricAttr> {
    Ok(abi::FabricAttr {
        fabric: ptr::null_mut(),
        name: copy_str(&attr.name)?,
        prov_name: copy_str(&attr.prov_name)?,
        prov_version: attr.prov_version.as_raw(),
        api_version: attr.api_version.as_raw(),
    })
}

fn allocate_nic(nic: &Nic) -> Result<*mut abi::Nic> {
    let device = allocate_zeroed::<abi::DeviceAttr>()?;
    // SAFETY: the structure was allocated just now.
    unsafe { (*device).name = copy_str(&nic.name)? };
    let link = allocate(abi::LinkAttr {
        address: copy_str(&nic.address)?,
        mtu: nic.mtu,
        speed: usize::try_from(nic.speed).unwrap_or(usize::MAX),
        state: if nic.up {
            number::link::UP
        } else {
            number::link::DOWN
        },
        network_type: copy_str(&nic.network_type)?,
    })?;
    allocate(nic_handle(device, ptr::null_mut(), link))
}
