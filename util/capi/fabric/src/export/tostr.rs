//! The texts that `fi_tostr` prints, for each kind of data.

#![expect(unsafe_code, reason = "data of C")]

use std::ffi::c_void;

use selvedge::info::{EpType, Progress, Protocol, Threading, Version};
use selvedge::{
    AddrFormat, Caps, CompletionFlags, Errno, Mode, MrMode, MsgOrder, OpFlags, Result, text,
};
use selvedge_abi as abi;
use selvedge_abi::number::kind;
use selvedge_abi::{Abi, Fid};

use crate::info;
use crate::pointer::{prefix, required};

/// Formats data of C.
///
/// # Errors
/// [`Errno::Inval`] for an unknown kind, and for NULL.
///
/// # Safety
/// `data` is NULL or points to data of this kind; structures have the newest layout.
pub(crate) unsafe fn text_of(data: *const c_void, kind: u32) -> Result<String> {
    if let Some(names) = names(kind) {
        // SAFETY: passed on from the caller: data of these kinds is an enumerator, which has four
        // bytes.
        let number = *unsafe { required(data.cast::<u32>()) }?;
        return Ok(match (kind, number) {
            (kind::ATOMIC_TYPE, VOID_OR_NOOP) => "FI_VOID".to_owned(),
            (kind::ATOMIC_OP, VOID_OR_NOOP) => "FI_NOOP".to_owned(),
            _ => enumerator_name(names, number),
        });
    }
    if let Some(flags) = flags(kind) {
        // SAFETY: passed on from the caller: data of these kinds is a set of flags in eight bytes.
        let bits = *unsafe { required(data.cast::<u64>()) }?;
        return Ok(flags(bits));
    }
    // SAFETY: passed on from the caller.
    unsafe { structure_text(data, kind) }
}

/// `FI_VOID` and `FI_NOOP`, which have the same number.
const VOID_OR_NOOP: u32 = 256;

/// # Safety
/// As [`text_of`].
unsafe fn structure_text(data: *const c_void, kind: u32) -> Result<String> {
    match kind {
        // SAFETY: passed on from the caller.
        kind::INFO => unsafe { info_text(data.cast()) },
        kind::TX_ATTR | kind::RX_ATTR | kind::EP_ATTR | kind::DOMAIN_ATTR | kind::FABRIC_ATTR => {
            // SAFETY: passed on from the caller.
            unsafe { attr_text(data.cast_mut(), kind) }
        }
        kind::MR_MODE => {
            // SAFETY: passed on from the caller.
            let bits = *unsafe { required(data.cast::<u32>()) }?;
            Ok(join_names(MrMode::from_bits_retain(bits).names()))
        }
        kind::VERSION => Ok(format!(
            "{}.0-selvedge-{}",
            Version::API,
            env!("CARGO_PKG_VERSION")
        )),
        kind::FID => {
            // SAFETY: passed on from the caller.
            let fid = unsafe { required(data.cast::<Fid>()) }?;
            let class = u32::try_from(fid.fclass).unwrap_or(u32::MAX);
            Ok(format!(
                "fid: {data:p}, class: {}\n",
                enumerator_name(CLASSES, class)
            ))
        }
        // SAFETY: passed on from the caller.
        kind::AV_ATTR => Ok(av_attr(unsafe { required(data.cast()) }?)),
        // SAFETY: passed on from the caller.
        kind::CQ_ATTR => Ok(cq_attr(unsafe { required(data.cast()) }?)),
        // SAFETY: passed on from the caller.
        kind::CNTR_ATTR => Ok(cntr_attr(unsafe { required(data.cast()) }?)),
        // SAFETY: passed on from the caller.
        kind::MR_ATTR => Ok(mr_attr(&unsafe { prefix(data.cast(), MR_ATTR_1_9) }?)),
        // SAFETY: passed on from the caller.
        kind::CQ_ERR_ENTRY => Ok(cq_err_entry(unsafe { required(data.cast()) }?)),
        _ => Err(Errno::Inval),
    }
}

/// Bytes of `struct fi_mr_attr` in every version whose `fi_tostr` prints that structure.
const MR_ATTR_1_9: usize = 80;

/// # Safety
/// `info` points to an info.
unsafe fn info_text(info: *const abi::Info) -> Result<String> {
    // SAFETY: passed on from the caller.
    let layout = unsafe { layout_of(info) };
    // SAFETY: passed on from the caller.
    let parsed = unsafe { info::read(info, layout) }?;
    let mut printed = parsed.info;
    printed.handle = parsed.handle.addr() as u64;
    Ok(text::info(&printed))
}

/// The layout of an info. An info that the library has filled in has the newest layout and a
/// provider version. An info without a provider version was built by a program, in the layout of
/// its API version.
///
/// # Safety
/// As [`info_text`].
unsafe fn layout_of(info: *const abi::Info) -> Abi {
    // SAFETY: passed on from the caller.
    let Ok(info) = (unsafe { required(info) }) else {
        return Abi::V3;
    };
    // SAFETY: passed on from the caller.
    match unsafe { required(info.fabric_attr) } {
        Ok(fabric) if fabric.prov_version != 0 => Abi::NEWEST,
        Ok(fabric) => {
            let version = Version::from_raw(fabric.api_version);
            Abi::of_api(version.major.into(), version.minor.into()).max(Abi::V3)
        }
        Err(_) => Abi::V3,
    }
}

/// Formats one attribute structure, which is read as the only part of an info.
///
/// # Safety
/// `attr` points to a structure of this kind.
unsafe fn attr_text(attr: *mut c_void, kind: u32) -> Result<String> {
    let mut info_c = info::EMPTY;
    match kind {
        kind::TX_ATTR => info_c.tx_attr = attr.cast(),
        kind::RX_ATTR => info_c.rx_attr = attr.cast(),
        kind::EP_ATTR => info_c.ep_attr = attr.cast(),
        kind::DOMAIN_ATTR => info_c.domain_attr = attr.cast(),
        _ => info_c.fabric_attr = attr.cast(),
    }
    // SAFETY: passed on from the caller.
    let parsed = unsafe { info::read(&raw const info_c, Abi::V3) }?.info;
    Ok(match kind {
        kind::TX_ATTR => text::tx_attr(&parsed.tx_attr),
        kind::RX_ATTR => text::rx_attr(&parsed.rx_attr),
        kind::EP_ATTR => text::ep_attr(&parsed.ep_attr),
        // The structure's version is unknown, so members that 1.9 lacks are omitted.
        kind::DOMAIN_ATTR => text::domain_attr_1_9(&parsed.domain_attr),
        _ => text::fabric_attr(&parsed.fabric_attr),
    })
}

type Names = &'static [(u32, &'static str)];

fn enumerator_name(names: Names, number: u32) -> String {
    let found = names.iter().find(|(value, _)| *value == number);
    found.map_or("Unknown", |(_, name)| name).to_owned()
}

/// The names of an enumeration.
fn names(kind: u32) -> Option<Names> {
    Some(match kind {
        kind::EP_TYPE => EP_TYPES,
        kind::ADDR_FORMAT => ADDR_FORMATS,
        kind::THREADING => THREADINGS,
        kind::PROGRESS => PROGRESSES,
        kind::PROTOCOL => PROTOCOLS,
        kind::AV_TYPE => AV_TYPES,
        kind::ATOMIC_TYPE => ATOMIC_TYPES,
        kind::ATOMIC_OP => ATOMIC_OPS,
        kind::EQ_EVENT => EQ_EVENTS,
        kind::OP_TYPE => OP_TYPES,
        kind::COLLECTIVE_OP => COLLECTIVE_OPS,
        kind::HMEM_IFACE => HMEM_IFACES,
        kind::CQ_FORMAT => CQ_FORMATS,
        kind::LOG_LEVEL => LOG_LEVELS,
        kind::LOG_SUBSYS => LOG_SUBSYSTEMS,
        kind::CQ_WAIT_COND => CQ_WAIT_CONDS,
        kind::WAIT_OBJ => WAIT_OBJS,
        _ => return None,
    })
}

/// The function that prints a set of flags.
fn flags(kind: u32) -> Option<fn(u64) -> String> {
    Some(match kind {
        kind::CAPS => |bits| join_names(Caps::from_bits_retain(bits).names()),
        kind::OP_FLAGS => |bits| join_names(OpFlags::from_bits_retain(bits).names()),
        kind::MSG_ORDER => |bits| join_names(MsgOrder::from_bits_retain(bits).names()),
        kind::MODE => |bits| join_names(Mode::from_bits_retain(bits).names()),
        kind::CQ_EVENT_FLAGS => |bits| join_names(CompletionFlags::from_bits_retain(bits).names()),
        _ => return None,
    })
}

fn join_names(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn av_attr(attr: &abi::AvAttr) -> String {
    format!(
        "fi_av_attr:\n    type: {}\n    rx_ctx_bits: {}\n    count: {}\n    ep_per_node: {}\n    \
         name: {:p}\n    map_addr: {:p}\n    flags: {:#x}\n",
        enumerator_name(AV_TYPES, attr.av_type),
        attr.rx_ctx_bits,
        attr.count,
        attr.ep_per_node,
        attr.name,
        attr.map_addr,
        attr.flags
    )
}

fn cq_attr(attr: &abi::CqAttr) -> String {
    format!(
        "fi_cq_attr:\n    size: {}\n    flags: {:#x}\n    format: {}\n    wait_obj: {}\n    \
         signaling_vector: {}\n    wait_cond: {}\n    wait_set: {:p}\n",
        attr.size,
        attr.flags,
        enumerator_name(CQ_FORMATS, attr.format),
        enumerator_name(WAIT_OBJS, attr.wait_obj),
        attr.signaling_vector,
        enumerator_name(CQ_WAIT_CONDS, attr.wait_cond),
        attr.wait_set
    )
}

fn cntr_attr(attr: &abi::CntrAttr) -> String {
    let events = if attr.events == 0 {
        "FI_CNTR_EVENTS_COMP"
    } else {
        "FI_CNTR_EVENTS_BYTES"
    };
    format!(
        "fi_cntr_attr:\n    events: {events}\n    wait_obj: {}\n    wait_set: {:p}\n    \
         flags: {:#x}\n",
        enumerator_name(WAIT_OBJS, attr.wait_obj),
        attr.wait_set,
        attr.flags
    )
}

fn mr_attr(attr: &abi::MrAttr) -> String {
    format!(
        "fi_mr_attr:\n    mr_iov: {:p}\n    iov_count: {}\n    access: {}\n    offset: {}\n    \
         requested_key: {}\n    context: {:p}\n    auth_key_size: {}\n    iface: {}\n",
        attr.mr_iov,
        attr.iov_count,
        join_names(selvedge::MrAccess::from_bits_retain(attr.access).names()),
        attr.offset,
        attr.requested_key,
        attr.context,
        attr.auth_key_size,
        enumerator_name(HMEM_IFACES, attr.iface)
    )
}

fn cq_err_entry(entry: &abi::CqErrEntry) -> String {
    format!(
        "fi_cq_err_entry:\n    op_context: {:p}\n    flags: {}\n    len: {}\n    buf: {:p}\n    \
         data: {}\n    tag: {:#x}\n    olen: {}\n    err: {}\n    prov_errno: {}\n    \
         err_data: {:p}\n    err_data_size: {}\n",
        entry.op_context,
        join_names(CompletionFlags::from_bits_retain(entry.flags).names()),
        entry.len,
        entry.buf,
        entry.data,
        entry.tag,
        entry.olen,
        entry.err,
        entry.prov_errno,
        entry.err_data,
        entry.err_data_size
    )
}

/// Defines tables of enumerators whose numbers begin at zero.
macro_rules! numbered_enumerators {
    ($($table:ident: $($name:literal)+;)+) => {$(
        const $table: Names = &{
            let names = [$($name),+];
            let mut table = [(0, ""); [$($name),+].len()];
            let mut index = 0;
            while index < names.len() {
                table[index] = (index as u32, names[index]);
                index += 1;
            }
            table
        };
    )+};
}

numbered_enumerators! {
    ATOMIC_TYPES: "FI_INT8" "FI_UINT8" "FI_INT16" "FI_UINT16" "FI_INT32" "FI_UINT32" "FI_INT64"
        "FI_UINT64" "FI_FLOAT" "FI_DOUBLE" "FI_FLOAT_COMPLEX" "FI_DOUBLE_COMPLEX" "FI_LONG_DOUBLE"
        "FI_LONG_DOUBLE_COMPLEX" "FI_INT128" "FI_UINT128" "FI_FLOAT16" "FI_BFLOAT16"
        "FI_FLOAT8_E4M3" "FI_FLOAT8_E5M2";
    ATOMIC_OPS: "FI_MIN" "FI_MAX" "FI_SUM" "FI_PROD" "FI_LOR" "FI_LAND" "FI_BOR" "FI_BAND" "FI_LXOR"
        "FI_BXOR" "FI_ATOMIC_READ" "FI_ATOMIC_WRITE" "FI_CSWAP" "FI_CSWAP_NE" "FI_CSWAP_LE"
        "FI_CSWAP_LT" "FI_CSWAP_GE" "FI_CSWAP_GT" "FI_MSWAP" "FI_DIFF";
    EQ_EVENTS: "FI_NOTIFY" "FI_CONNREQ" "FI_CONNECTED" "FI_SHUTDOWN" "FI_MR_COMPLETE"
        "FI_AV_COMPLETE" "FI_JOIN_COMPLETE";
    OP_TYPES: "FI_OP_RECV" "FI_OP_SEND" "FI_OP_TRECV" "FI_OP_TSEND" "FI_OP_READ" "FI_OP_WRITE"
        "FI_OP_ATOMIC" "FI_OP_FETCH_ATOMIC" "FI_OP_COMPARE_ATOMIC" "FI_OP_CNTR_SET"
        "FI_OP_CNTR_ADD";
    COLLECTIVE_OPS: "FI_BARRIER" "FI_BROADCAST" "FI_ALLTOALL" "FI_ALLREDUCE" "FI_ALLGATHER"
        "FI_REDUCE_SCATTER" "FI_REDUCE" "FI_SCATTER" "FI_GATHER";
    HMEM_IFACES: "FI_HMEM_SYSTEM" "FI_HMEM_CUDA" "FI_HMEM_ROCR" "FI_HMEM_ZE" "FI_HMEM_NEURON"
        "FI_HMEM_SYNAPSEAI";
    CQ_FORMATS: "FI_CQ_FORMAT_UNSPEC" "FI_CQ_FORMAT_CONTEXT" "FI_CQ_FORMAT_MSG" "FI_CQ_FORMAT_DATA"
        "FI_CQ_FORMAT_TAGGED";
    LOG_LEVELS: "FI_LOG_WARN" "FI_LOG_TRACE" "FI_LOG_INFO" "FI_LOG_DEBUG";
    LOG_SUBSYSTEMS: "FI_LOG_CORE" "FI_LOG_FABRIC" "FI_LOG_DOMAIN" "FI_LOG_EP_CTRL" "FI_LOG_EP_DATA"
        "FI_LOG_AV" "FI_LOG_CQ" "FI_LOG_EQ" "FI_LOG_MR" "FI_LOG_CNTR";
    CQ_WAIT_CONDS: "FI_CQ_COND_NONE" "FI_CQ_COND_THRESHOLD";
    WAIT_OBJS: "FI_WAIT_NONE" "FI_WAIT_UNSPEC" "FI_WAIT_SET" "FI_WAIT_FD" "FI_WAIT_MUTEX_COND"
        "FI_WAIT_YIELD" "FI_WAIT_POLLFD";
    CLASSES: "FI_CLASS_UNSPEC" "FI_CLASS_FABRIC" "FI_CLASS_DOMAIN" "FI_CLASS_EP" "FI_CLASS_SEP"
        "FI_CLASS_RX_CTX" "FI_CLASS_SRX_CTX" "FI_CLASS_TX_CTX" "FI_CLASS_STX_CTX" "FI_CLASS_PEP"
        "FI_CLASS_INTERFACE" "FI_CLASS_AV" "FI_CLASS_MR" "FI_CLASS_EQ" "FI_CLASS_CQ"
        "FI_CLASS_CNTR" "FI_CLASS_WAIT" "FI_CLASS_POLL" "FI_CLASS_CONNREQ" "FI_CLASS_MC"
        "FI_CLASS_NIC" "FI_CLASS_AV_SET" "FI_CLASS_MR_CACHE" "FI_CLASS_MEM_MONITOR"
        "FI_CLASS_PEER_CQ" "FI_CLASS_PEER_SRX" "FI_CLASS_LOG" "FI_CLASS_PEER_AV"
        "FI_CLASS_PEER_AV_SET" "FI_CLASS_PEER_CNTR" "FI_CLASS_PROFILE" "FI_CLASS_XPU_CTX";
}

/// Defines tables of enumerators of the object model.
macro_rules! model_enumerators {
    ($($table:ident: $kind:ty;)+) => {$(
        const $table: Names = &{
            let mut table = [(0, ""); <$kind>::ALL.len()];
            let mut index = 0;
            while index < table.len() {
                let value = <$kind>::ALL[index];
                table[index] = (value as u32, value.text());
                index += 1;
            }
            table
        };
    )+};
}

model_enumerators! {
    EP_TYPES: EpType;
    THREADINGS: Threading;
    PROGRESSES: Progress;
    PROTOCOLS: Protocol;
    ADDR_FORMATS: AddrFormat;
}

numbered_enumerators! {
    AV_TYPES: "FI_AV_UNSPEC" "FI_AV_MAP" "FI_AV_TABLE";
}
