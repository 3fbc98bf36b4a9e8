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
use crate::pointer::{list, prefix, text};

/// An info that was read, with the members that [`Info`] lacks.
#[derive(Debug)]
pub struct ParsedInfo {
    pub info: Info,
    /// The application's promise about its threads.
    pub threading: Threading,
    /// A connection request or a passive endpoint.
    pub handle: *mut Fid,
}

/// Reads an info that a program of some layout has filled in. Missing attributes are defaults.
///
/// # Errors
/// [`Errno::Inval`] for NULL, and for a text that is not UTF-8; [`Errno::NoData`] for a number
/// without a meaning.
///
/// # Safety
/// `at` is NULL or points to an info whose parts have the sizes of `abi`, and whose pointers are
/// NULL or valid for the lengths that their members state.
pub unsafe fn read(at: *const abi::Info, abi: Abi) -> Result<ParsedInfo> {
    let layout = abi.layout();
    // SAFETY: passed on from the caller.
    let head = unsafe { prefix(at, layout.info) }?;
    let mut info = Info::default();
    info.caps = Caps::from_bits_retain(head.caps);
    info.mode = Mode::from_bits_retain(head.mode);
    info.addr_format = addr_format(head.addr_format)?;
    let format = info.addr_format;
    // SAFETY: passed on from the caller.
    info.src_addr = unsafe { address(head.src_addr, head.src_addrlen, format) }?;
    // SAFETY: passed on from the caller.
    info.dest_addr = unsafe { address(head.dest_addr, head.dest_addrlen, format) }?;
    // SAFETY: passed on from the caller.
    info.tx_attr = unsafe { part(head.tx_attr, layout.tx) }.map_or_else(Default::default, tx);
    // SAFETY: passed on from the caller.
    info.rx_attr = unsafe { part(head.rx_attr, layout.rx) }.map_or_else(Default::default, rx);
    // SAFETY: passed on from the caller.
    if let Some(own) = unsafe { part(head.ep_attr, layout.ep) } {
        // SAFETY: passed on from the caller.
        info.ep_attr = unsafe { ep(&own) }?;
    }
    let mut threading = Threading::Unspec;
    // SAFETY: passed on from the caller.
    if let Some(own) = unsafe { part(head.domain_attr, layout.domain) } {
        // SAFETY: passed on from the caller.
        info.domain_attr = unsafe { domain(&own) }?;
        threading = info.domain_attr.threading;
    }
    // SAFETY: passed on from the caller.
    if let Some(own) = unsafe { part(head.fabric_attr, layout.fabric) } {
        // SAFETY: passed on from the caller.
        info.fabric_attr = unsafe { fabric(&own) }?;
    }
    Ok(ParsedInfo {
        info,
        threading,
        handle: head.handle,
    })
}

/// # Safety
/// As [`prefix`].
unsafe fn part<T: Copy>(at: *const T, size: usize) -> Option<T> {
    // SAFETY: passed on from the caller.
    unsafe { prefix(at, size) }.ok()
}

/// A value that no provider supports is no invalid argument: it matches nothing.
fn supported<T>(value: Option<T>) -> Result<T> {
    value.ok_or(Errno::NoData)
}

fn addr_format(raw: u32) -> Result<AddrFormat> {
    let all = AddrFormat::ALL.iter().copied();
    supported(all.into_iter().find(|&format| format as u32 == raw))
}

/// # Safety
/// `at` is NULL or points to `len` bytes.
unsafe fn address(at: *const c_void, len: usize, format: AddrFormat) -> Result<Option<Address>> {
    if at.is_null() || len == 0 {
        return Ok(None);
    }
    // SAFETY: passed on from the caller.
    let bytes = unsafe { list(at.cast::<u8>(), len) }?;
    addr::decode(bytes, format).map(Some)
}

/// # Safety
/// `at` is NULL or points to `len` bytes.
unsafe fn key(at: *const u8, len: usize) -> Result<Vec<u8>> {
    // SAFETY: passed on from the caller.
    Ok(unsafe { list(at, len) }?.to_vec())
}

/// # Safety
/// As [`text`].
unsafe fn name(at: *const std::ffi::c_char) -> Result<String> {
    // SAFETY: passed on from the caller.
    Ok(unsafe { text(at) }?.unwrap_or_default().to_owned())
}

fn tx(own: abi::TxAttr) -> TxAttr {
    TxAttr {
        caps: Caps::from_bits_retain(own.caps),
        mode: Mode::from_bits_retain(own.mode),
        op_flags: op_flags(own.op_flags),
        msg_order: MsgOrder::from_bits_retain(own.msg_order),
        comp_order: own.comp_order,
        inject_size: own.inject_size,
        size: own.size,
        iov_limit: own.iov_limit,
        rma_iov_limit: own.rma_iov_limit,
        tclass: TrafficClass::from_raw(own.tclass).unwrap_or_default(),
    }
}

fn rx(own: abi::RxAttr) -> RxAttr {
    RxAttr {
        caps: Caps::from_bits_retain(own.caps),
        mode: Mode::from_bits_retain(own.mode),
        op_flags: op_flags(own.op_flags),
        msg_order: MsgOrder::from_bits_retain(own.msg_order),
        comp_order: own.comp_order,
        total_buffered_recv: own.total_buffered_recv,
        size: own.size,
        iov_limit: own.iov_limit,
    }
}

/// The flags of C without the bit that only the object model uses.
fn op_flags(raw: u64) -> OpFlags {
    OpFlags::from_bits_retain(raw) - OpFlags::DEFAULT
}

/// # Safety
/// The pointers are NULL or valid for the lengths that the members beside them state.
unsafe fn ep(own: &abi::EpAttr) -> Result<EpAttr> {
    Ok(EpAttr {
        ep_type: supported(EpType::from_raw(own.ep_type))?,
        protocol: supported(Protocol::from_raw(own.protocol))?,
        protocol_version: own.protocol_version,
        max_msg_size: own.max_msg_size,
        msg_prefix_size: own.msg_prefix_size,
        max_order_raw_size: own.max_order_raw_size,
        max_order_war_size: own.max_order_war_size,
        max_order_waw_size: own.max_order_waw_size,
        mem_tag_format: MemTagFormat(own.mem_tag_format),
        tx_ctx_cnt: own.tx_ctx_cnt,
        rx_ctx_cnt: own.rx_ctx_cnt,
        // SAFETY: passed on from the caller.
        auth_key: unsafe { key(own.auth_key, own.auth_key_size) }?,
    })
}

/// # Safety
/// As [`ep`].
unsafe fn domain(own: &abi::DomainAttr) -> Result<DomainAttr> {
    let progress = |raw| supported(Progress::from_raw(raw));
    Ok(DomainAttr {
        // SAFETY: passed on from the caller.
        name: unsafe { name(own.name) }?,
        threading: supported(Threading::from_raw(own.threading))?,
        control_progress: progress(own.control_progress)?,
        data_progress: progress(own.data_progress)?,
        resource_mgmt: supported(ResourceMgmt::from_raw(own.resource_mgmt))?,
        av_type: supported(av_type(own.av_type))?,
        mr_mode: MrMode::from_bits_retain(own.mr_mode.cast_unsigned()),
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
        caps: Caps::from_bits_retain(own.caps),
        mode: Mode::from_bits_retain(own.mode),
        // SAFETY: passed on from the caller.
        auth_key: unsafe { key(own.auth_key, own.auth_key_size) }?,
        max_err_data: own.max_err_data,
        mr_cnt: own.mr_cnt,
        tclass: TrafficClass::from_raw(own.tclass).unwrap_or_default(),
        max_ep_auth_key: own.max_ep_auth_key,
        max_group_id: own.max_group_id,
        max_cntr_value: own.max_cntr_value,
        max_err_cntr_value: own.max_err_cntr_value,
    })
}

/// The type of an address vector, from its number in C.
pub fn av_type(raw: u32) -> Option<av::Type> {
    match raw {
        0 => Some(av::Type::Unspec),
        1 => Some(av::Type::Map),
        2 => Some(av::Type::Table),
        _ => None,
    }
}

/// # Safety
/// As [`ep`].
unsafe fn fabric(own: &abi::FabricAttr) -> Result<FabricAttr> {
    Ok(FabricAttr {
        // SAFETY: passed on from the caller.
        name: unsafe { name(own.name) }?,
        // SAFETY: passed on from the caller.
        prov_name: unsafe { name(own.prov_name) }?,
        prov_version: Version::from_raw(own.prov_version),
        api_version: Version::from_raw(own.api_version),
    })
}
