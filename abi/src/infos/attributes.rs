//! The attributes of an info. One description of each structure serves both directions.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{c_char, c_int};
use std::ptr;

use selvedge::info::{
    DomainAttr, EpAttr, EpType, FabricAttr, MemTagFormat, Progress, Protocol, ResourceMgmt, RxAttr,
    Threading, TrafficClass, TxAttr, Version,
};
use selvedge::{Caps, Errno, Mode, MrMode, MsgOrder, OpFlags, Result, av};

use crate as abi;
use crate::heap::{copy_bytes, copy_str};
use crate::pointer::{array, text};

/// Attributes of the object model that have a structure of C.
pub(super) trait Attributes: Default {
    /// The structure of C.
    type Struct: Copy;

    /// Reads a structure.
    ///
    /// # Errors
    /// [`Errno::NoData`] for a number that names no value of its type; [`Errno::Inval`] for a text
    /// that is not UTF-8.
    ///
    /// # Safety
    /// Every pointer is NULL or valid for the length that the member beside it states.
    unsafe fn read(attr: &Self::Struct) -> Result<Self>;

    /// Makes a structure, whose texts and keys are allocated.
    ///
    /// # Errors
    /// [`Errno::NoMem`].
    fn write(&self) -> Result<Self::Struct>;
}

/// Describes attributes: the members that both structures have, the key with its length, and the
/// members that only C has, with their values.
macro_rules! attributes {
    ($($name:ident {
        $($member:ident),*;
        $($key:ident[$key_len:ident])?;
        $($absent:ident = $value:expr),*
    })+) => {$(
        impl Attributes for $name {
            type Struct = abi::$name;

            unsafe fn read(attr: &abi::$name) -> Result<Self> {
                Ok(Self {
                    // SAFETY: passed on from the caller.
                    $($member: unsafe { Member::read(attr.$member) }?,)*
                    // SAFETY: passed on from the caller.
                    $($key: unsafe { array(attr.$key.cast_const(), attr.$key_len) }?.to_vec(),)?
                })
            }

            fn write(&self) -> Result<abi::$name> {
                Ok(abi::$name {
                    $($member: self.$member.write()?,)*
                    $($key: copy_bytes(&self.$key)?, $key_len: self.$key.len(),)?
                    $($absent: $value,)*
                })
            }
        }
    )+};
}

attributes! {
    TxAttr {
        caps, mode, op_flags, msg_order, comp_order, inject_size, size, iov_limit, rma_iov_limit,
        tclass;;
    }
    RxAttr {
        caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size, iov_limit;;
    }
    EpAttr {
        ep_type, protocol, protocol_version, max_msg_size, msg_prefix_size, max_order_raw_size,
        max_order_war_size, max_order_waw_size, mem_tag_format, tx_ctx_cnt, rx_ctx_cnt;
        auth_key[auth_key_size];
        xpu_ctx = ptr::null_mut()
    }
    DomainAttr {
        name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode,
        mr_key_size, cq_data_size, cq_cnt, ep_cnt, tx_ctx_cnt, rx_ctx_cnt, max_ep_tx_ctx,
        max_ep_rx_ctx, max_ep_stx_ctx, max_ep_srx_ctx, cntr_cnt, mr_iov_limit, caps, mode,
        max_err_data, mr_cnt, tclass, max_ep_auth_key, max_group_id, max_cntr_value,
        max_err_cntr_value;
        auth_key[auth_key_size];
        domain = ptr::null_mut(), max_xpu_ctx_cnt = 0
    }
    FabricAttr {
        name, prov_name, prov_version, api_version;
        ;
        fabric = ptr::null_mut()
    }
}

/// A member of attributes that C represents by a `C`.
trait Member<C>: Sized {
    /// # Errors
    /// As [`Attributes::read`].
    ///
    /// # Safety
    /// A pointer is NULL or points to a text.
    unsafe fn read(raw: C) -> Result<Self>;

    /// # Errors
    /// [`Errno::NoMem`].
    fn write(&self) -> Result<C>;
}

/// Implements [`Member`] by two conversions that need no memory.
macro_rules! members {
    ($($name:ty, $raw:ty: |$from:ident| $read:expr, |$this:ident| $write:expr;)+) => {$(
        impl Member<$raw> for $name {
            unsafe fn read($from: $raw) -> Result<Self> {
                $read
            }

            fn write(&self) -> Result<$raw> {
                let $this = *self;
                Ok($write)
            }
        }
    )+};
}

members! {
    usize, usize: |raw| Ok(raw), |number| number;
    u64, u64: |raw| Ok(raw), |number| number;
    u32, u32: |raw| Ok(raw), |number| number;
    Caps, u64: |raw| Ok(Self::from_bits_retain(raw)), |caps| caps.bits();
    Mode, u64: |raw| Ok(Self::from_bits_retain(raw)), |mode| mode.bits();
    MsgOrder, u64: |raw| Ok(Self::from_bits_retain(raw)), |order| order.bits();
    // Only the object model uses `DEFAULT`.
    OpFlags, u64: |raw| Ok(Self::from_bits_retain(raw) - Self::DEFAULT), |flags| flags.bits();
    MrMode, c_int:
        |raw| Ok(Self::from_bits_retain(raw.cast_unsigned())), |mode| mode.bits().cast_signed();
    MemTagFormat, u64: |raw| Ok(Self(raw)), |format| format.0;
    Version, u32: |raw| Ok(Self::from_raw(raw)), |version| version.as_raw();
    TrafficClass, u32: |raw| Ok(Self::from_raw(raw).unwrap_or_default()), |class| class as u32;
    EpType, u32: |raw| supported(Self::from_raw(raw)), |ep_type| ep_type as u32;
    Protocol, u32: |raw| supported(Self::from_raw(raw)), |protocol| protocol as u32;
    Threading, u32: |raw| supported(Self::from_raw(raw)), |threading| threading as u32;
    Progress, u32: |raw| supported(Self::from_raw(raw)), |progress| progress as u32;
    ResourceMgmt, u32: |raw| supported(Self::from_raw(raw)), |resource_mgmt| resource_mgmt as u32;
    av::Type, u32: |raw| supported(av_type(raw)), |av_type| av_type as u32;
}

impl Member<*mut c_char> for String {
    unsafe fn read(raw: *mut c_char) -> Result<Self> {
        // SAFETY: passed on from the caller.
        Ok(unsafe { text(raw) }?.unwrap_or_default().to_owned())
    }

    fn write(&self) -> Result<*mut c_char> {
        copy_str(self)
    }
}

/// Fails with [`Errno::NoData`], not [`Errno::Inval`], for an unknown value: no provider matches
/// it.
pub(super) fn supported<T>(value: Option<T>) -> Result<T> {
    value.ok_or(Errno::NoData)
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
