//! Copies and frees infos of C, whichever library has made them.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate as abi;
use crate::{Abi, Fid, Ops, fclass, number};
use selvedge::{Errno, Result};

use crate::heap::{self, allocated, duplicate_string, zeroed};
use crate::pointer::{list, prefix, put, required};

/// Allocates an info of zeros with all of its parts, for `fi_allocinfo`.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn fresh() -> Result<*mut abi::Info> {
    let own = zeroed::<abi::Info>()?;
    // SAFETY: it was allocated just now.
    let filled = fill_fresh(unsafe { &mut *own });
    // SAFETY: as above; its parts were allocated by `fill_fresh`.
    filled.map(|()| own).inspect_err(|_| unsafe { free(own) })
}

fn fill_fresh(own: &mut abi::Info) -> Result {
    own.tx_attr = zeroed()?;
    own.rx_attr = zeroed()?;
    own.ep_attr = zeroed()?;
    own.domain_attr = zeroed()?;
    own.fabric_attr = zeroed()?;
    Ok(())
}

/// Copies one info, without the rest of its list, from some layout to the newest one.
///
/// # Errors
/// [`Errno::NoMem`]; [`Errno::Inval`] for NULL and impossible lengths.
///
/// # Safety
/// As [`super::read`].
pub unsafe fn copy(at: *const abi::Info, abi: Abi) -> Result<*mut abi::Info> {
    // SAFETY: passed on from the caller.
    let from = unsafe { prefix(at, abi.layout().info) }?;
    let own = allocated(without_parts(from))?;
    // SAFETY: it was allocated just now.
    let whole = unsafe { &mut *own };
    // SAFETY: passed on from the caller.
    let filled = unsafe { fill(whole, &from, abi) };
    // SAFETY: as above; all parts that it has already are copies.
    filled.map(|()| own).inspect_err(|_| unsafe { free(own) })
}

fn without_parts(mut info: abi::Info) -> abi::Info {
    info.next = ptr::null_mut();
    info.src_addr = ptr::null_mut();
    info.dest_addr = ptr::null_mut();
    info.tx_attr = ptr::null_mut();
    info.rx_attr = ptr::null_mut();
    info.ep_attr = ptr::null_mut();
    info.domain_attr = ptr::null_mut();
    info.fabric_attr = ptr::null_mut();
    info.nic = ptr::null_mut();
    info
}

/// # Safety
/// As [`copy`], for the pointers in `from`.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one info"
)]
unsafe fn fill(own: &mut abi::Info, from: &abi::Info, abi: Abi) -> Result {
    let layout = abi.layout();
    // SAFETY: the caller vouches for every pointer of `from` and of its parts.
    unsafe {
        own.src_addr = duplicate_bytes(from.src_addr, from.src_addrlen)?;
        own.dest_addr = duplicate_bytes(from.dest_addr, from.dest_addrlen)?;
        own.tx_attr = part(from.tx_attr, layout.tx)?;
        own.rx_attr = part(from.rx_attr, layout.rx)?;
        if let Ok(mut ep) = prefix(from.ep_attr, layout.ep) {
            ep.auth_key = duplicate_bytes(ep.auth_key.cast(), ep.auth_key_size)?.cast();
            own.ep_attr = allocated(ep)?;
        }
        if let Ok(mut domain) = prefix(from.domain_attr, layout.domain) {
            domain.name = duplicate_string(domain.name)?;
            domain.auth_key = duplicate_bytes(domain.auth_key.cast(), domain.auth_key_size)?.cast();
            own.domain_attr = allocated(domain)?;
        }
        if let Ok(mut fabric) = prefix(from.fabric_attr, layout.fabric) {
            fabric.name = duplicate_string(fabric.name)?;
            fabric.prov_name = duplicate_string(fabric.prov_name)?;
            own.fabric_attr = allocated(fabric)?;
        }
        if !from.nic.is_null() {
            own.nic = duplicate_nic(from.nic)?;
        }
    }
    Ok(())
}

/// # Safety
/// `at` is NULL or points to `size` bytes of a `T`, which has no pointers.
unsafe fn part<T: Copy>(at: *const T, size: usize) -> Result<*mut T> {
    // SAFETY: passed on from the caller.
    match unsafe { prefix(at, size) } {
        Ok(own) => allocated(own),
        Err(_) => Ok(ptr::null_mut()),
    }
}

/// # Safety
/// `at` is NULL or points to `len` bytes.
unsafe fn duplicate_bytes(at: *const c_void, len: usize) -> Result<*mut c_void> {
    if at.is_null() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: passed on from the caller.
    let from = unsafe { list(at.cast::<u8>(), len) }?;
    heap::bytes(from).map(<*mut u8>::cast)
}

/// The handle of a network interface that this library closes.
pub(super) fn nic_handle(
    device_attr: *mut abi::DeviceAttr,
    bus_attr: *mut abi::BusAttr,
    link_attr: *mut abi::LinkAttr,
) -> abi::Nic {
    abi::Nic {
        fid: Fid {
            fclass: fclass::NIC,
            context: ptr::null_mut(),
            ops: &NIC,
        },
        device_attr,
        bus_attr,
        link_attr,
        prov_attr: ptr::null_mut(),
    }
}

static NIC: Ops = Ops {
    close: Some(close_nic),
    control: Some(control_nic),
    ..Ops::failing::<{ libc::ENOSYS }>()
};

/// # Safety
/// `fid` was made by [`nic_handle`], in memory of [`heap`].
unsafe extern "C" fn close_nic(fid: *mut Fid) -> c_int {
    // SAFETY: passed on from the caller.
    unsafe { free_nic(fid.cast()) };
    0
}

/// # Safety
/// As [`close_nic`]; `arg` has the type that the command requires.
unsafe extern "C" fn control_nic(fid: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    if command != number::control::DUP {
        return -Errno::NoSys.as_raw();
    }
    // SAFETY: passed on from the caller.
    let copied = unsafe { duplicate_nic(fid.cast()) };
    // SAFETY: passed on from the caller.
    match copied.and_then(|copy| unsafe { put(arg.cast::<*mut abi::Nic>(), copy) }) {
        Ok(()) => 0,
        Err(errno) => -errno.as_raw(),
    }
}

/// # Safety
/// `at` points to an interface whose pointers are NULL or valid.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one nic"
)]
unsafe fn duplicate_nic(at: *const abi::Nic) -> Result<*mut abi::Nic> {
    // SAFETY: the caller vouches for every pointer of the interface.
    unsafe {
        let from = required(at)?;
        let mut device = ptr::null_mut();
        if let Ok(own) = required(from.device_attr) {
            device = allocated(abi::DeviceAttr {
                name: duplicate_string(own.name)?,
                device_id: duplicate_string(own.device_id)?,
                device_version: duplicate_string(own.device_version)?,
                vendor_id: duplicate_string(own.vendor_id)?,
                driver: duplicate_string(own.driver)?,
                firmware: duplicate_string(own.firmware)?,
            })?;
        }
        let bus = part(from.bus_attr, size_of::<abi::BusAttr>())?;
        let mut link = ptr::null_mut();
        if let Ok(own) = required(from.link_attr) {
            link = allocated(abi::LinkAttr {
                address: duplicate_string(own.address)?,
                network_type: duplicate_string(own.network_type)?,
                ..*own
            })?;
        }
        allocated(nic_handle(device, bus, link))
    }
}

/// Frees a whole list.
///
/// # Safety
/// `at` is NULL or the first info of a list that is not used any more. Every part of the list is
/// NULL or memory of the C library.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one info"
)]
pub unsafe fn free(mut at: *mut abi::Info) {
    while !at.is_null() {
        // SAFETY: the caller vouches for every pointer of the list.
        unsafe {
            let own = at.read();
            heap::free(own.src_addr);
            heap::free(own.dest_addr);
            heap::free(own.tx_attr);
            heap::free(own.rx_attr);
            if let Some(ep) = own.ep_attr.as_ref() {
                heap::free(ep.auth_key);
                heap::free(own.ep_attr);
            }
            if let Some(domain) = own.domain_attr.as_ref() {
                heap::free(domain.auth_key);
                heap::free(domain.name);
                heap::free(own.domain_attr);
            }
            if let Some(fabric) = own.fabric_attr.as_ref() {
                heap::free(fabric.name);
                heap::free(fabric.prov_name);
                heap::free(own.fabric_attr);
            }
            close_interface(own.nic);
            heap::free(at);
            at = own.next;
        }
    }
}

/// Closes an interface by the table of the library that has made it.
///
/// # Safety
/// `nic` is NULL or an interface that is not used any more.
unsafe fn close_interface(nic: *mut abi::Nic) {
    // SAFETY: passed on from the caller.
    let Some(own) = (unsafe { nic.as_ref() }) else {
        return;
    };
    // SAFETY: passed on from the caller.
    let close = unsafe { own.fid.ops.as_ref() }.and_then(|ops| ops.close);
    if let Some(close) = close {
        // SAFETY: the function is of the interface's own table.
        unsafe { close(nic.cast()) };
    }
}

/// # Safety
/// `nic` was made by [`nic_handle`] and is not used any more.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one nic"
)]
unsafe fn free_nic(nic: *mut abi::Nic) {
    // SAFETY: the caller vouches for it, and every part was allocated by `heap`.
    unsafe {
        let own = nic.read();
        if let Some(device) = own.device_attr.as_ref() {
            let texts: [*mut c_char; 6] = [
                device.name,
                device.device_id,
                device.device_version,
                device.vendor_id,
                device.driver,
                device.firmware,
            ];
            texts.into_iter().for_each(|text| heap::free(text));
            heap::free(own.device_attr);
        }
        heap::free(own.bus_attr);
        if let Some(link) = own.link_attr.as_ref() {
            heap::free(link.address);
            heap::free(link.network_type);
            heap::free(own.link_attr);
        }
        heap::free(nic);
    }
}
