//! Names and connections of endpoints: `struct fi_ops_cm`.

#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::c_void;

use selvedge::{Address, ConnectionManagement, Endpoint, Errno, Result};
use selvedge_abi::OpsCm;

use super::endpoint::Ep;
use super::mc::Group;
use crate::object::Table;
use crate::pep::request::CM_DATA_SIZE;
use crate::pointer::{array, copy_out};
use crate::status::guarded_unit;
use crate::{addr, context};

pub(super) static CM: Table<OpsCm, Ep> = with_join(getname_table())
    .setname(|ep, addr_ptr, len| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_setname(3).
            let bytes = unsafe { array(addr_ptr.cast::<u8>(), len) }?;
            let addr = addr::decode(bytes, ep.shared.format)?;
            let mut draft = ep.shared.draft();
            if ep.shared.live.get().is_some() {
                return Err(Errno::OpBadState);
            }
            draft.info.src_addr = Some(addr);
            Ok(())
        })
    })
    .getpeer(|ep, addr_ptr, len| {
        guarded_unit(|| {
            let peer = connected(ep.live()?)?.peer()?;
            // SAFETY: the C caller follows fi_getpeer(3).
            unsafe { copy_out(addr_ptr.cast(), len, &addr::encode(&peer)) }
        })
    })
    // fi_connect(3) and fi_accept(3) enable an endpoint that is not enabled.
    .connect(|ep, addr_ptr, param, len| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_connect(3), here and below.
            let data = unsafe { private_data(param, len) }?;
            let cm = connected(ep.enable()?)?;
            let dest = if addr_ptr.is_null() {
                ep.shared.draft().info.dest_addr.clone()
            } else {
                // SAFETY: as above.
                Some(unsafe { addr::read(addr_ptr, ep.shared.format) }?.0)
            };
            cm.connect(&dest.ok_or(Errno::Inval)?, data)
        })
    })
    .accept(|ep, param, len| {
        guarded_unit(|| {
            // SAFETY: the C caller follows fi_accept(3).
            let data = unsafe { private_data(param, len) }?;
            connected(ep.enable()?)?.accept(data)
        })
    })
    // fi_shutdown(3)
    .shutdown(|ep, flags| {
        guarded_unit(|| match flags {
            0 => connected(ep.live()?)?.shutdown(),
            _ => Err(Errno::BadFlags),
        })
    });
// Collectives are posted to the transmit half, so that half joins groups.
pub(super) static TX_CM: Table<OpsCm, Ep> = with_join(getname_table());
pub(super) static RX_CM: Table<OpsCm, Ep> = getname_table();

const fn with_join(table: Table<OpsCm, Ep>) -> Table<OpsCm, Ep> {
    table.join(|ep, addr_ptr, flags, out, context| {
        let join = || {
            // SAFETY: the C caller follows fi_join(3) and fi_join_collective(3).
            let group = unsafe { Group::read(addr_ptr, flags, ep.format()) }?;
            group.join(ep.live()?, context::from_c(context))
        };
        // SAFETY: as above.
        guarded_unit(|| unsafe { ep.child(out, context, join) })
    })
}

const fn getname_table() -> Table<OpsCm, Ep> {
    Table::<OpsCm, Ep>::empty().getname(|ep, addr_ptr, len| {
        // SAFETY: the C caller follows fi_getname(3).
        guarded_unit(|| unsafe { copy_out(addr_ptr.cast(), len, &addr::encode(&ep.address()?)) })
    })
}

impl Ep {
    fn address(&self) -> Result<Address> {
        match (&self.half, self.shared.live.get()) {
            (Some(half), _) => half.address(),
            (None, Some(live)) => live.address(),
            (None, None) => {
                let addr = self.shared.draft().info.src_addr.clone();
                let is_final = |addr: &Address| addr.as_str().is_none_or(is_final_name);
                addr.filter(is_final).ok_or(Errno::AddrNotAvail)
            }
        }
    }
}

/// Returns whether an address of discovery is the endpoint's final one. An address of shm has a `*`
/// where enabling the endpoint inserts a name.
fn is_final_name(text: &str) -> bool {
    !text.contains('*')
}

fn connected(live: &dyn Endpoint) -> Result<&dyn ConnectionManagement> {
    live.cm().ok_or(Errno::NoSys)
}

/// # Safety
/// `param` is NULL or points to `len` bytes.
unsafe fn private_data<'a>(param: *const c_void, len: usize) -> Result<&'a [u8]> {
    if len > CM_DATA_SIZE {
        return Err(Errno::Inval);
    }
    // SAFETY: passed on from the caller.
    unsafe { array(param.cast::<u8>(), len) }
}
