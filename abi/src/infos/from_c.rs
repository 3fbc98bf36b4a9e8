//! Converts `struct fi_info` of C to an [`Info`] of the object model.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::c_void;

use crate as abi;
use crate::{Abi, Fid};
use selvedge::info::{
    DomainAttr, EpAttr, EpType, FabricAttr, MemTagFormat, Progress, Protocol, ResourceMgmt, RxAttr,
    Threading, TrafficClass, TxAttr, Version,
};
use selvedge::{
    AddrFormat, Address, Caps, Errno, Info, Mode, MrMode, MsgOrder, OpFlags, Result, av,
};

use crate::addr;
use crate::pointer::{array, prefix, text};

/// An info that was read from C, with the members that [`Info`] lacks.
#[derive(Debug)]
pub struct ParsedInfo {
    pub info: Info,
    /// The application's promise about its threads.
    pub threading: Threading,
    /// A connection request or a passive endpoint.
    pub handle: *mut Fid,
}

/// Reads an info that a program has filled in. A missing attribute has its default value.
///
/// # Errors
/// [`Errno::Inval`] for NULL, for a malformed address, and for a text that is not UTF-8;
/// [`Errno::NoData`] for a number that names no value of its type.
///
/// # Safety
/// - `ptr` is NULL or points to an info whose parts have the sizes of `abi`.
/// - Every pointer of the info is NULL or valid for the length that the member beside it states.
pub unsafe fn read(ptr: *const abi::Info, abi: Abi) -> Result<ParsedInfo> {
    let layout = abi.layout();
    // SAFETY: passed on from the caller.
    let head = unsafe { prefix(ptr, layout.info) }?;
    let mut info = Info::default();
    info.caps = Caps::from_bits_retain(head.caps);
    info.mode = Mode::from_bits_retain(head.mode);
    info.addr_format = addr_format(head.addr_format)?;
    let format = info.addr_format;
    // SAFETY: passed on from the caller.
    info.src_addr = unsafe { read_address(head.src_addr, head.src_addrlen, format) }?;
    // SAFETY: passed on from the caller.
    info.dest_addr = unsafe { read_address(head.dest_addr, head.dest_addrlen, format) }?;
    // SAFETY: passed on from the caller.
    info.tx_attr = unsafe { part(head.tx_attr, layout.tx) }.map_or_else(Default::default, tx_attr);
    // SAFETY: passed on from the caller.
    info.rx_attr = unsafe { part(head.rx_attr, layout.rx) }.map_or_else(Default::default, rx_attr);
    // SAFETY: passed on from the caller.
    if let Some(attr) = unsafe { part(head.ep_attr, layout.ep) } {
        // SAFETY: passed on from the caller.
        info.ep_attr = unsafe { ep_attr(&attr) }?;
    }
    let mut threading = Threading::Unspec;
    // SAFETY: passed on from the caller.
    if let Some(attr) = unsafe { part(head.domain_attr, layout.domain) } {
        // SAFETY: passed on from the caller.
        info.domain_attr = unsafe { domain_attr(&attr) }?;
        threading = info.domain_attr.threading;
    }
    // SAFETY: passed on from the caller.
    if let Some(attr) = unsafe { part(head.fabric_attr, layout.fabric) } {
        // SAFETY: passed on from the caller.
        info.fabric_attr = unsafe { fabric_attr(&attr) }?;
    }
    Ok(ParsedInfo {
        info,
        threading,
        handle: head.handle,
    })
}

/// # Safety
/// As [`prefix`].
unsafe fn part<T: Copy>(ptr: *const T, size: usize) -> Option<T> {
    // SAFETY: passed on from the caller.
    unsafe { prefix(ptr, size) }.ok()
}

/// Fails with [`Errno::NoData`], not [`Errno::Inval`], for an unknown value: no provider matches
/// it.
fn supported<T>(value: Option<T>) -> Result<T> {
    value.ok_or(Errno::NoData)
}

fn addr_format(raw: u32) -> Result<AddrFormat> {
    let all = AddrFormat::ALL.iter().copied();
    supported(all.into_iter().find(|&format| format as u32 == raw))
}

/// # Safety
/// `ptr` is NULL or points to `len` bytes.
unsafe fn read_address(
    ptr: *const c_void,
    len: usize,
    format: AddrFormat,
) -> Result<Option<Address>> {
    if ptr.is_null() || len == 0 {
        return Ok(None);
    }
    // SAFETY: passed on from the caller.
    let bytes = unsafe { array(ptr.cast::<u8>(), len) }?;
    addr::decode(bytes, format).map(Some)
}

/// # Safety
/// `ptr` is NULL or points to `len` bytes.
unsafe fn read_key(ptr: *const u8, len: usize) -> Result<Vec<u8>> {
    // SAFETY: passed on from the caller.
    Ok(unsafe { array(ptr, len) }?.to_vec())
}

/// # Safety
/// As [`text`].
unsafe fn read_name(ptr: *const std::ffi::c_char) -> Result<String> {
    // SAFETY: passed on from the caller.
    Ok(unsafe { text(ptr) }?.unwrap_or_default().to_owned())
}

fn tx_attr(attr: abi::TxAttr) -> TxAttr {
    TxAttr {
        caps: Caps::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        op_flags: op_flags(attr.op_flags),
        msg_order: MsgOrder::from_bits_retain(attr.msg_order),
        comp_order: attr.comp_order,
        inject_size: attr.inject_size,
        size: attr.size,
        iov_limit: attr.iov_limit,
        rma_iov_limit: attr.rma_iov_limit,
        tclass: TrafficClass::from_raw(attr.tclass).unwrap_or_default(),
    }
}

fn rx_attr(attr: abi::RxAttr) -> RxAttr {
    RxAttr {
        caps: Caps::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        op_flags: op_flags(attr.op_flags),
        msg_order: MsgOrder::from_bits_retain(attr.msg_order),
        comp_order: attr.comp_order,
        total_buffered_recv: attr.total_buffered_recv,
        size: attr.size,
        iov_limit: attr.iov_limit,
    }
}

/// The flags of C without [`OpFlags::DEFAULT`], a bit that only the object model uses.
fn op_flags(raw: u64) -> OpFlags {
    OpFlags::from_bits_retain(raw) - OpFlags::DEFAULT
}

/// # Safety
/// Every pointer is NULL or valid for the length that the member beside it states.
unsafe fn ep_attr(attr: &abi::EpAttr) -> Result<EpAttr> {
    Ok(EpAttr {
        ep_type: supported(EpType::from_raw(attr.ep_type))?,
        protocol: supported(Protocol::from_raw(attr.protocol))?,
        protocol_version: attr.protocol_version,
        max_msg_size: attr.max_msg_size,
        msg_prefix_size: attr.msg_prefix_size,
        max_order_raw_size: attr.max_order_raw_size,
        max_order_war_size: attr.max_order_war_size,
        max_order_waw_size: attr.max_order_waw_size,
        mem_tag_format: MemTagFormat(attr.mem_tag_format),
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        // SAFETY: passed on from the caller.
        auth_key: unsafe { read_key(attr.auth_key, attr.auth_key_size) }?,
    })
}

/// # Safety
/// As [`ep_attr`].
unsafe fn domain_attr(attr: &abi::DomainAttr) -> Result<DomainAttr> {
    let progress = |raw| supported(Progress::from_raw(raw));
    Ok(DomainAttr {
        // SAFETY: passed on from the caller.
        name: unsafe { read_name(attr.name) }?,
        threading: supported(Threading::from_raw(attr.threading))?,
        control_progress: progress(attr.control_progress)?,
        data_progress: progress(attr.data_progress)?,
        resource_mgmt: supported(ResourceMgmt::from_raw(attr.resource_mgmt))?,
        av_type: supported(av_type(attr.av_type))?,
        mr_mode: MrMode::from_bits_retain(attr.mr_mode.cast_unsigned()),
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
        caps: Caps::from_bits_retain(attr.caps),
        mode: Mode::from_bits_retain(attr.mode),
        // SAFETY: passed on from the caller.
        auth_key: unsafe { read_key(attr.auth_key, attr.auth_key_size) }?,
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: TrafficClass::from_raw(attr.tclass).unwrap_or_default(),
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
    })
}

/// The type of an address vector, from its number in C; `None` for an unknown number.
pub fn av_type(raw: u32) -> Option<av::Type> {
    match raw {
        0 => Some(av::Type::Unspec),
        1 => Some(av::Type::Map),
        2 => Some(av::Type::Table),
        _ => None,
    }
}

/// # Safety
/// As [`ep_attr`].
unsafe fn fabric_attr(attr: &abi::FabricAttr) -> Result<FabricAttr> {
    Ok(FabricAttr {
        // SAFETY: passed on from the caller.
        name: unsafe { read_name(attr.name) }?,
        // SAFETY: passed on from the caller.
        prov_name: unsafe { read_name(attr.prov_name) }?,
        prov_version: Version::from_raw(attr.prov_version),
        api_version: Version::from_raw(attr.api_version),
    })
}
