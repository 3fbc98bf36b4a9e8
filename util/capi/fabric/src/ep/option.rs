//! Options of endpoints: `FI_OPT_*`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::{EpOption, EpOptionName, Errno, Result};
use selvedge_abi::Fid;

use super::Ep;
use crate::answer::done;
use crate::given::{fill, list};
use crate::object::of_own_fid;

/// Bytes of private data with a connection.
pub(crate) const CM_DATA_SIZE: usize = 256;

const LEVEL_ENDPOINT: c_int = 0;
const MIN_MULTI_RECV: c_int = 0;
const TX_SIZE: c_int = 6;
const RX_SIZE: c_int = 7;
const HMEM_P2P: c_int = 8;
const SHARED_MEMORY_PERMITTED: c_int = 15;

/// `FI_HMEM_P2P_DISABLED`: there is no memory of devices.
const P2P_DISABLED: c_int = 3;

/// `FI_OPT_CM_DATA_SIZE`.
pub(crate) const CM_DATA_SIZE_NAME: c_int = 1;

/// The options that are sizes of the object model's.
fn named(number: c_int) -> Option<EpOptionName> {
    Some(match number {
        MIN_MULTI_RECV => EpOptionName::MinMultiRecv,
        CM_DATA_SIZE_NAME => EpOptionName::CmDataSize,
        16 => EpOptionName::MaxMsgSize,
        17 => EpOptionName::MaxTaggedSize,
        18 => EpOptionName::MaxRmaSize,
        19 => EpOptionName::MaxAtomicSize,
        20 => EpOptionName::InjectMsgSize,
        21 => EpOptionName::InjectTaggedSize,
        22 => EpOptionName::InjectRmaSize,
        23 => EpOptionName::InjectAtomicSize,
        _ => return None,
    })
}

fn with_value(name: EpOptionName, value: usize) -> Option<EpOption> {
    Some(match name {
        EpOptionName::MinMultiRecv => EpOption::MinMultiRecv(value),
        EpOptionName::MaxMsgSize => EpOption::MaxMsgSize(value),
        EpOptionName::MaxTaggedSize => EpOption::MaxTaggedSize(value),
        EpOptionName::MaxRmaSize => EpOption::MaxRmaSize(value),
        EpOptionName::MaxAtomicSize => EpOption::MaxAtomicSize(value),
        EpOptionName::InjectMsgSize => EpOption::InjectMsgSize(value),
        EpOptionName::InjectTaggedSize => EpOption::InjectTaggedSize(value),
        EpOptionName::InjectRmaSize => EpOption::InjectRmaSize(value),
        EpOptionName::InjectAtomicSize => EpOption::InjectAtomicSize(value),
        _ => return None,
    })
}

fn value(option: EpOption) -> Option<usize> {
    Some(match option {
        EpOption::MinMultiRecv(value)
        | EpOption::CmDataSize(value)
        | EpOption::MaxMsgSize(value)
        | EpOption::MaxTaggedSize(value)
        | EpOption::MaxRmaSize(value)
        | EpOption::MaxAtomicSize(value)
        | EpOption::InjectMsgSize(value)
        | EpOption::InjectTaggedSize(value)
        | EpOption::InjectRmaSize(value)
        | EpOption::InjectAtomicSize(value) => value,
        _ => return None,
    })
}

/// # Safety
/// As fi_getopt(3) has it.
pub(super) unsafe extern "C" fn getopt(
    fid: *mut Fid,
    level: c_int,
    number: c_int,
    at: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { of_own_fid(fid) };
    done(|| {
        if level != LEVEL_ENDPOINT {
            return Err(Errno::NoProtoOpt);
        }
        let bytes = match number {
            HMEM_P2P => P2P_DISABLED.to_ne_bytes().to_vec(),
            SHARED_MEMORY_PERMITTED => vec![1],
            _ => ep.size(number)?.to_ne_bytes().to_vec(),
        };
        // SAFETY: passed on from the caller.
        unsafe { fill(at.cast(), len, &bytes) }
    })
}

impl Ep {
    /// An option that is a size.
    fn size(&self, number: c_int) -> Result<usize> {
        match number {
            TX_SIZE => return Ok(self.shared.draft().info.tx_attr.size),
            RX_SIZE => return Ok(self.shared.draft().info.rx_attr.size),
            _ => {}
        }
        let name = named(number).ok_or(Errno::NoProtoOpt)?;
        // Without the lock of the draft, which opening a context takes.
        if let Ok(live) = self.live() {
            let known = live.option(name);
            return value(known?).ok_or(Errno::NoProtoOpt);
        }
        let draft = self.shared.draft();
        // What the description says of an endpoint that is not there yet.
        match name {
            EpOptionName::MinMultiRecv => draft.min_multi_recv.ok_or(Errno::OpBadState),
            EpOptionName::CmDataSize => Ok(CM_DATA_SIZE),
            EpOptionName::MaxMsgSize | EpOptionName::MaxTaggedSize => {
                Ok(draft.info.ep_attr.max_msg_size)
            }
            EpOptionName::InjectMsgSize | EpOptionName::InjectTaggedSize => {
                Ok(draft.info.tx_attr.inject_size)
            }
            _ => Err(Errno::OpBadState),
        }
    }
}

/// # Safety
/// As fi_setopt(3) has it.
pub(super) unsafe extern "C" fn setopt(
    fid: *mut Fid,
    level: c_int,
    number: c_int,
    at: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: passed on from the caller.
    let ep: &Ep = unsafe { of_own_fid(fid) };
    done(|| {
        if level != LEVEL_ENDPOINT {
            return Err(Errno::NoProtoOpt);
        }
        if [SHARED_MEMORY_PERMITTED, HMEM_P2P].contains(&number) {
            // The way of bytes was chosen with the provider.
            return Err(Errno::OpNotSupp);
        }
        let name = named(number).ok_or(Errno::NoProtoOpt)?;
        if len != size_of::<usize>() {
            return Err(Errno::Inval);
        }
        // SAFETY: passed on from the caller; the bytes are copied, wherever they lie.
        let bytes = unsafe { list(at.cast::<u8>(), len) }?;
        let size = bytes
            .try_into()
            .map(usize::from_ne_bytes)
            .map_err(|_| Errno::Inval)?;
        let option = with_value(name, size).ok_or(Errno::NoProtoOpt)?;
        match ep.live() {
            Ok(live) => live.set(option),
            Err(_) if name == EpOptionName::MinMultiRecv => {
                ep.shared.draft().min_multi_recv = Some(size);
                Ok(())
            }
            // Limits are the provider's to give.
            Err(_) => Err(Errno::NoProtoOpt),
        }
    })
}
