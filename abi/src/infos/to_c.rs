//! Converts infos of the object model to a list of C. All of its memory is the C library's.

#![expect(unsafe_code, reason = "links of a list of C's")]

use std::ptr;

use crate as abi;
use crate::{Fid, number};
use selvedge::info::{DomainAttr, EpAttr, FabricAttr, Nic, RxAttr, TxAttr};
use selvedge::{Address, Info, Result};

use super::copy::{free, nic_handle};
use crate::addr::encode;
use crate::heap::{allocated, bytes, string, zeroed};

/// Allocates a list of these infos, in their order, each with this handle; NULL for none.
///
/// # Errors
/// [`selvedge::Errno::NoMem`]; nothing stays allocated.
pub fn list(infos: &[Info], handle: *mut Fid) -> Result<*mut abi::Info> {
    let mut first = ptr::null_mut();
    for info in infos.iter().rev() {
        match one(info, handle) {
            Ok(own) => {
                // SAFETY: it was allocated just now.
                unsafe { (*own).next = first };
                first = own;
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
/// As [`list`].
pub fn one(info: &Info, handle: *mut Fid) -> Result<*mut abi::Info> {
    let own = zeroed::<abi::Info>()?;
    // SAFETY: it was allocated just now, as zeros, which are an info without parts.
    let filled = fill(unsafe { &mut *own }, info, handle);
    if let Err(errno) = filled {
        // SAFETY: as above; its parts were allocated by `fill`.
        unsafe { free(own) };
        return Err(errno);
    }
    Ok(own)
}

fn fill(own: &mut abi::Info, info: &Info, handle: *mut Fid) -> Result {
    own.caps = info.caps.bits();
    own.mode = info.mode.bits();
    own.addr_format = info.addr_format as u32;
    own.handle = handle;
    (own.src_addr, own.src_addrlen) = address(info.src_addr.as_ref())?;
    (own.dest_addr, own.dest_addrlen) = address(info.dest_addr.as_ref())?;
    own.tx_attr = allocated(tx(&info.tx_attr))?;
    own.rx_attr = allocated(rx(&info.rx_attr))?;
    own.ep_attr = allocated(ep(&info.ep_attr)?)?;
    own.domain_attr = allocated(domain(&info.domain_attr)?)?;
    own.fabric_attr = allocated(fabric(&info.fabric_attr)?)?;
    if let Some(nic) = &info.nic {
        own.nic = interface(nic)?;
    }
    Ok(())
}

fn address(addr: Option<&Address>) -> Result<(*mut std::ffi::c_void, usize)> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let encoded = encode(addr);
    Ok((bytes(&encoded)?.cast(), encoded.len()))
}

fn tx(own: &TxAttr) -> abi::TxAttr {
    abi::TxAttr {
        caps: own.caps.bits(),
        mode: own.mode.bits(),
        op_flags: own.op_flags.bits(),
        msg_order: own.msg_order.bits(),
        comp_order: own.comp_order,
        inject_size: own.inject_size,
        size: own.size,
        iov_limit: own.iov_limit,
        rma_iov_limit: own.rma_iov_limit,
        tclass: own.tclass as u32,
    }
}

fn rx(own: &RxAttr) -> abi::RxAttr {
    abi::RxAttr {
        caps: own.caps.bits(),
        mode: own.mode.bits(),
        op_flags: own.op_flags.bits(),
        msg_order: own.msg_order.bits(),
        comp_order: own.comp_order,
        total_buffered_recv: own.total_buffered_recv,
        size: own.size,
        iov_limit: own.iov_limit,
    }
}

fn ep(own: &EpAttr) -> Result<abi::EpAttr> {
    Ok(abi::EpAttr {
        ep_type: own.ep_type as u32,
        protocol: own.protocol as u32,
        protocol_version: own.protocol_version,
        max_msg_size: own.max_msg_size,
        msg_prefix_size: own.msg_prefix_size,
        max_order_raw_size: own.max_order_raw_size,
        max_order_war_size: own.max_order_war_size,
        max_order_waw_size: own.max_order_waw_size,
        mem_tag_format: own.mem_tag_format.0,
        tx_ctx_cnt: own.tx_ctx_cnt,
        rx_ctx_cnt: own.rx_ctx_cnt,
        auth_key_size: own.auth_key.len(),
        auth_key: bytes(&own.auth_key)?,
        xpu_ctx: ptr::null_mut(),
    })
}

fn domain(own: &DomainAttr) -> Result<abi::DomainAttr> {
    Ok(abi::DomainAttr {
        domain: ptr::null_mut(),
        name: string(&own.name)?,
        threading: own.threading as u32,
        control_progress: own.control_progress as u32,
        data_progress: own.data_progress as u32,
        resource_mgmt: own.resource_mgmt as u32,
        av_type: own.av_type as u32,
        mr_mode: own.mr_mode.bits().cast_signed(),
        mr_key_size: own.mr_key_size,
        cq_data_size: own.cq_data_size,
        cq_cnt: own.cq_cnt,
        ep_cnt: own.ep_cnt,
        tx_ctx_cnt: own.tx_ctx_cnt,
        rx_ctx_cnt: own.rx_ctx_cnt,
        max_ep_tx_ctx: own.max_ep_tx_ctx,
        max_ep_rx_ctx: own.max_ep_rx_ctx,
        max_ep_stx_ctx: own.max_ep_stx_ctx,
        max_ep_srx_ctx: own.max_ep_srx_ctx,
        cntr_cnt: own.cntr_cnt,
        mr_iov_limit: own.mr_iov_limit,
        caps: own.caps.bits(),
        mode: own.mode.bits(),
        auth_key: bytes(&own.auth_key)?,
        auth_key_size: own.auth_key.len(),
        max_err_data: own.max_err_data,
        mr_cnt: own.mr_cnt,
        tclass: own.tclass as u32,
        max_ep_auth_key: own.max_ep_auth_key,
        max_group_id: own.max_group_id,
        max_cntr_value: own.max_cntr_value,
        max_err_cntr_value: own.max_err_cntr_value,
        max_xpu_ctx_cnt: 0,
    })
}

fn fabric(own: &FabricAttr) -> Result<abi::FabricAttr> {
    Ok(abi::FabricAttr {
        fabric: ptr::null_mut(),
        name: string(&own.name)?,
        prov_name: string(&own.prov_name)?,
        prov_version: own.prov_version.as_raw(),
        api_version: own.api_version.as_raw(),
    })
}

fn interface(own: &Nic) -> Result<*mut abi::Nic> {
    let device = zeroed::<abi::DeviceAttr>()?;
    // SAFETY: it was allocated just now.
    unsafe { (*device).name = string(&own.name)? };
    let link = allocated(abi::LinkAttr {
        address: string(&own.address)?,
        mtu: own.mtu,
        speed: usize::try_from(own.speed).unwrap_or(usize::MAX),
        state: if own.up {
            number::link::UP
        } else {
            number::link::DOWN
        },
        network_type: string(&own.network_type)?,
    })?;
    allocated(nic_handle(device, ptr::null_mut(), link))
}
