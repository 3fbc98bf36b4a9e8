//! Allocates, copies and frees infos of C. An info may come from this library or from another one.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate as abi;
use crate::{Abi, Fid, Ops, fclass, number};
use selvedge::{Errno, Result};

use crate::heap::{self, allocate, allocate_zeroed, duplicate_string};
use crate::pointer::{array, prefix, put, required};

/// Allocates a zeroed info with zeroed attributes, for `fi_allocinfo`.
///
/// # Errors
/// [`Errno::NoMem`].
pub fn allocate_zeroed_info() -> Result<*mut abi::Info> {
    let info = allocate_zeroed::<abi::Info>()?;
    // SAFETY: the info was allocated just now.
    let filled = allocate_attributes(unsafe { &mut *info });
    // SAFETY: as above; `allocate_attributes` allocated the attributes.
    filled.map(|()| info).inspect_err(|_| unsafe { free(info) })
}

fn allocate_attributes(info: &mut abi::Info) -> Result {
    info.tx_attr = allocate_zeroed()?;
    info.rx_attr = allocate_zeroed()?;
    info.ep_attr = allocate_zeroed()?;
    info.domain_attr = allocate_zeroed()?;
    info.fabric_attr = allocate_zeroed()?;
    Ok(())
}

/// Copies one info, without the rest of its list, from the layout of `abi` to the newest one.
///
/// # Errors
/// [`Errno::NoMem`]; [`Errno::Inval`] for NULL and impossible lengths.
///
/// # Safety
/// As [`super::read`].
pub unsafe fn copy(ptr: *const abi::Info, abi: Abi) -> Result<*mut abi::Info> {
    // SAFETY: passed on from the caller.
    let from = unsafe { prefix(ptr, abi.layout().info) }?;
    let copy = allocate(without_pointers(from))?;
    // SAFETY: the copy was allocated just now.
    let copy_ref = unsafe { &mut *copy };
    // SAFETY: passed on from the caller.
    let filled = unsafe { fill(copy_ref, &from, abi) };
    // SAFETY: as above; every pointer of the copy is NULL or points to a copy.
    filled.map(|()| copy).inspect_err(|_| unsafe { free(copy) })
}

fn without_pointers(mut info: abi::Info) -> abi::Info {
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
unsafe fn fill(copy: &mut abi::Info, from: &abi::Info, abi: Abi) -> Result {
    let layout = abi.layout();
    // SAFETY: the caller vouches for every pointer of `from` and of its parts.
    unsafe {
        copy.src_addr = duplicate_bytes(from.src_addr, from.src_addrlen)?;
        copy.dest_addr = duplicate_bytes(from.dest_addr, from.dest_addrlen)?;
        copy.tx_attr = copy_attributes(from.tx_attr, layout.tx)?;
        copy.rx_attr = copy_attributes(from.rx_attr, layout.rx)?;
        if let Ok(mut ep) = prefix(from.ep_attr, layout.ep) {
            ep.auth_key = duplicate_bytes(ep.auth_key.cast(), ep.auth_key_size)?.cast();
            copy.ep_attr = allocate(ep)?;
        }
        if let Ok(mut domain) = prefix(from.domain_attr, layout.domain) {
            domain.name = duplicate_string(domain.name)?;
            domain.auth_key = duplicate_bytes(domain.auth_key.cast(), domain.auth_key_size)?.cast();
            copy.domain_attr = allocate(domain)?;
        }
        if let Ok(mut fabric) = prefix(from.fabric_attr, layout.fabric) {
            fabric.name = duplicate_string(fabric.name)?;
            fabric.prov_name = duplicate_string(fabric.prov_name)?;
            copy.fabric_attr = allocate(fabric)?;
        }
        if !from.nic.is_null() {
            copy.nic = duplicate_nic(from.nic)?;
        }
    }
    Ok(())
}

/// # Safety
/// `ptr` is NULL or points to `size` bytes of a `T` without pointers.
unsafe fn copy_attributes<T: Copy>(ptr: *const T, size: usize) -> Result<*mut T> {
    // SAFETY: passed on from the caller.
    match unsafe { prefix(ptr, size) } {
        Ok(value) => allocate(value),
        Err(_) => Ok(ptr::null_mut()),
    }
}

/// # Safety
/// `ptr` is NULL or points to `len` bytes.
unsafe fn duplicate_bytes(ptr: *const c_void, len: usize) -> Result<*mut c_void> {
    if ptr.is_null() {
        return Ok(ptr::null_mut());
    }
    // SAFETY: passed on from the caller.
    let from = unsafe { array(ptr.cast::<u8>(), len) }?;
    heap::copy_bytes(from).map(<*mut u8>::cast)
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
/// As for [`close_nic`]; `arg` has the type that the command requires.
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
/// `ptr` points to a network interface whose pointers are NULL or valid.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one nic"
)]
unsafe fn duplicate_nic(ptr: *const abi::Nic) -> Result<*mut abi::Nic> {
    // SAFETY: the caller vouches for every pointer of the interface.
    unsafe {
        let from = required(ptr)?;
        let mut device = ptr::null_mut();
        if let Ok(attr) = required(from.device_attr) {
            device = allocate(abi::DeviceAttr {
                name: duplicate_string(attr.name)?,
                device_id: duplicate_string(attr.device_id)?,
                device_version: duplicate_string(attr.device_version)?,
                vendor_id: duplicate_string(attr.vendor_id)?,
                driver: duplicate_string(attr.driver)?,
                firmware: duplicate_string(attr.firmware)?,
            })?;
        }
        let bus = copy_attributes(from.bus_attr, size_of::<abi::BusAttr>())?;
        let mut link = ptr::null_mut();
        if let Ok(attr) = required(from.link_attr) {
            link = allocate(abi::LinkAttr {
                address: duplicate_string(attr.address)?,
                network_type: duplicate_string(attr.network_type)?,
                ..*attr
            })?;
        }
        allocate(nic_handle(device, bus, link))
    }
}

/// Frees a list of infos.
///
/// # Safety
/// `ptr` is NULL or the first info of a list that is not used any more. Every part of the list is
/// NULL or memory of the C library.
#[expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one promise for all parts of one info"
)]
pub unsafe fn free(mut ptr: *mut abi::Info) {
    while !ptr.is_null() {
        // SAFETY: the caller vouches for every pointer of the list.
        unsafe {
            let info = ptr.read();
            heap::free(info.src_addr);
            heap::free(info.dest_addr);
            heap::free(info.tx_attr);
            heap::free(info.rx_attr);
            if let Some(ep) = info.ep_attr.as_ref() {
                heap::free(ep.auth_key);
                heap::free(info.ep_attr);
            }
            if let Some(domain) = info.domain_attr.as_ref() {
                heap::free(domain.auth_key);
                heap::free(domain.name);
                heap::free(info.domain_attr);
            }
            if let Some(fabric) = info.fabric_attr.as_ref() {
                heap::free(fabric.name);
                heap::free(fabric.prov_name);
                heap::free(info.fabric_attr);
            }
            close_interface(info.nic);
            heap::free(ptr);
            ptr = info.next;
        }
    }
}

/// Closes a network interface by its own table, which the library that made it has filled.
///
/// # Safety
/// `nic` is NULL or a network interface that is not used any more.
unsafe fn close_interface(nic: *mut abi::Nic) {
    // SAFETY: passed on from the caller.
    let Some(handle) = (unsafe { nic.as_ref() }) else {
        return;
    };
    // SAFETY: passed on from the caller.
    let close = unsafe { handle.fid.ops.as_ref() }.and_then(|ops| ops.close);
    if let Some(close) = close {
        // SAFETY: the function comes from the table of the same network interface.
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
    // SAFETY: the caller vouches for `nic`, and `heap` allocated every part.
    unsafe {
        let handle = nic.read();
        if let Some(device) = handle.device_attr.as_ref() {
            let texts: [*mut c_char; 6] = [
                device.name,
                device.device_id,
                device.device_version,
                device.vendor_id,
                device.driver,
                device.firmware,
            ];
            texts.into_iter().for_each(|text| heap::free(text));
            heap::free(handle.device_attr);
        }
        heap::free(handle.bus_attr);
        if let Some(link) = handle.link_attr.as_ref() {
            heap::free(link.address);
            heap::free(link.network_type);
            heap::free(handle.link_attr);
        }
        heap::free(nic);
    }
}
