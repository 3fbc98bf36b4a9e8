//! Options of endpoints: `FI_OPT_*`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_void};

use selvedge::{EpOption, EpOptionName, Errno, Result};
use selvedge_abi::number::option as opt;

use super::endpoint::Ep;
use crate::pointer::{array, copy_out};

/// `FI_HMEM_P2P_DISABLED`: the provider copies with the processor.
const P2P_DISABLED: c_int = 3;

/// The name of the option that has this number.
fn option_name(option: c_int) -> Result<EpOptionName> {
    let mut names = EpOptionName::ALL.iter().copied();
    let name = names.find(|&name| (name as u32).cast_signed() == option);
    name.ok_or(Errno::NoProtoOpt)
}

impl Ep {
    /// # Safety
    /// The caller follows fi_getopt(3).
    pub(super) unsafe fn getopt(
        &self,
        level: c_int,
        option: c_int,
        value: *mut c_void,
        len: *mut usize,
    ) -> Result {
        if level != opt::ENDPOINT {
            return Err(Errno::NoProtoOpt);
        }
        let bytes = match option {
            opt::FI_HMEM_P2P => match self.size(option) {
                Ok(value) => (value as c_int).to_ne_bytes().to_vec(),
                Err(_) => P2P_DISABLED.to_ne_bytes().to_vec(),
            },
            opt::SHARED_MEMORY_PERMITTED => vec![1],
            _ => self.size(option)?.to_ne_bytes().to_vec(),
        };
        // SAFETY: passed on from the caller.
        unsafe { copy_out(value.cast(), len, &bytes) }
    }

    /// # Safety
    /// The caller follows fi_setopt(3).
    pub(super) unsafe fn setopt(
        &self,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: usize,
    ) -> Result {
        if level != opt::ENDPOINT {
            return Err(Errno::NoProtoOpt);
        }
        let name = match option {
            // This library does not call CUDA, so both values are accepted.
            opt::CUDA_API_PERMITTED => return Ok(()),
            // Discovery chose the provider, and thereby the protocol.
            opt::SHARED_MEMORY_PERMITTED | opt::TX_SIZE | opt::RX_SIZE => {
                return Err(Errno::OpNotSupp);
            }
            // SAFETY: passed on from the caller.
            opt::FI_HMEM_P2P => return self.set_hmem_p2p(unsafe { value_of(value, len) }?),
            _ => option_name(option)?,
        };
        // SAFETY: passed on from the caller.
        let size = usize::from_ne_bytes(unsafe { value_of(value, len) }?);
        match name {
            EpOptionName::MinMultiRecv | EpOptionName::EagerSize => {
                self.set(EpOption::new(name, size))
            }
            // Other sizes are read-only: the provider sets them.
            _ => Err(Errno::OpNotSupp),
        }
    }

    /// Sets `FI_OPT_FI_HMEM_P2P`, of providers that have the option.
    fn set_hmem_p2p(&self, value: [u8; size_of::<c_int>()]) -> Result {
        let value = u32::from_ne_bytes(value) as usize;
        match self.set(EpOption::FiHmemP2p(value)) {
            Err(Errno::NoProtoOpt) => Err(Errno::OpNotSupp),
            result => result,
        }
    }

    /// The value of an option that is a number.
    fn size(&self, option: c_int) -> Result<usize> {
        match option {
            opt::TX_SIZE => return Ok(self.shared.draft().info.tx_attr.size),
            opt::RX_SIZE => return Ok(self.shared.draft().info.rx_attr.size),
            _ => {}
        }
        let name = option_name(option)?;
        // Called before the draft is locked: opening a context locks the draft.
        if let Ok(live) = self.live() {
            return Ok(live.option(name)?.value());
        }
        let draft = self.shared.draft();
        let set = draft.options.iter().find(|option| option.name() == name);
        let option = match set {
            Some(&set) => set,
            None => self.shared.domain.option(&draft.info, name)?,
        };
        Ok(option.value())
    }

    /// Sets an option now, or when the endpoint is enabled.
    fn set(&self, option: EpOption) -> Result {
        if let Ok(live) = self.live() {
            return live.set(option);
        }
        let mut draft = self.shared.draft();
        // Fails if the provider does not have the option.
        self.shared.domain.option(&draft.info, option.name())?;
        draft.options.retain(|other| other.name() != option.name());
        draft.options.push(option);
        Ok(())
    }
}

/// Reads the value of an option, which has `N` bytes.
///
/// # Errors
/// [`Errno::Inval`] for NULL and for another length.
///
/// # Safety
/// `value` is NULL or points to `len` bytes.
unsafe fn value_of<const N: usize>(value: *const c_void, len: usize) -> Result<[u8; N]> {
    if len != N {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller; bytes need no alignment.
    let bytes = unsafe { array(value.cast::<u8>(), len) }?;
    bytes.try_into().map_err(|_| Errno::Inval)
}
