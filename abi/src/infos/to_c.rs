//! Converts infos of the object model to a list of C. The C library allocates the list's memory.

#![expect(unsafe_code, reason = "links of a list in C")]

use std::ptr;

use selvedge::info::Nic;
use selvedge::{Address, Info, Result};

use super::attributes::Attributes;
use super::copy::{free, nic_handle};
use crate as abi;
use crate::addr::encode;
use crate::heap::{allocate, allocate_zeroed, copy_bytes, copy_str};
use crate::{Fid, number};

/// Allocates a list of these infos, in their order, each with this handle; NULL for none.
///
/// # Errors
/// [`selvedge::Errno::NoMem`]; nothing stays allocated.
pub fn allocate_list(infos: &[Info], handle: *mut Fid) -> Result<*mut abi::Info> {
    let mut first = ptr::null_mut();
    for info in infos.iter().rev() {
        match allocate_info(info, handle) {
            Ok(info_c) => {
                // SAFETY: the info was allocated just now.
                unsafe { (*info_c).next = first };
                first = info_c;
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
/// As [`allocate_list`].
pub fn allocate_info(info: &Info, handle: *mut Fid) -> Result<*mut abi::Info> {
    let info_c = allocate_zeroed::<abi::Info>()?;
    // SAFETY: the info was allocated just now; zeros are an info without parts.
    let filled = fill(unsafe { &mut *info_c }, info, handle);
    if let Err(errno) = filled {
        // SAFETY: as above; `fill` allocated the parts.
        unsafe { free(info_c) };
        return Err(errno);
    }
    Ok(info_c)
}

fn fill(info_c: &mut abi::Info, info: &Info, handle: *mut Fid) -> Result {
    info_c.caps = info.caps.bits();
    info_c.mode = info.mode.bits();
    info_c.addr_format = info.addr_format as u32;
    info_c.handle = handle;
    (info_c.src_addr, info_c.src_addrlen) = copy_address(info.src_addr.as_ref())?;
    (info_c.dest_addr, info_c.dest_addrlen) = copy_address(info.dest_addr.as_ref())?;
    info_c.tx_attr = allocate(info.tx_attr.write()?)?;
    info_c.rx_attr = allocate(info.rx_attr.write()?)?;
    info_c.ep_attr = allocate(info.ep_attr.write()?)?;
    info_c.domain_attr = allocate(info.domain_attr.write()?)?;
    info_c.fabric_attr = allocate(info.fabric_attr.write()?)?;
    if let Some(nic) = &info.nic {
        info_c.nic = allocate_nic(nic)?;
    }
    Ok(())
}

fn copy_address(addr: Option<&Address>) -> Result<(*mut std::ffi::c_void, usize)> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let encoded = encode(addr);
    Ok((copy_bytes(&encoded)?.cast(), encoded.len()))
}

fn allocate_nic(nic: &Nic) -> Result<*mut abi::Nic> {
    let device = allocate(abi::DeviceAttr {
        name: copy_str(&nic.name)?,
        device_id: copy_str(&nic.device_id)?,
        device_version: copy_str(&nic.device_version)?,
        vendor_id: copy_str(&nic.vendor_id)?,
        driver: copy_str(&nic.driver)?,
        firmware: copy_str(&nic.firmware)?,
    })?;
    let pci = nic.pci.unwrap_or_default();
    let bus = allocate(abi::BusAttr {
        bus_type: match nic.pci {
            Some(_) => number::bus::PCI,
            None => number::bus::UNSPEC,
        },
        pci: abi::PciAttr {
            domain_id: pci.domain_id,
            bus_id: pci.bus_id,
            device_id: pci.device_id,
            function_id: pci.function_id,
        },
    })?;
    let link = allocate(abi::LinkAttr {
        address: copy_str(&nic.address)?,
        mtu: nic.mtu,
        speed: usize::try_from(nic.speed).unwrap_or(usize::MAX),
        state: if nic.up {
            number::link::UP
        } else {
            number::link::DOWN
        },
        network_type: copy_str(&nic.network_type)?,
    })?;
    allocate(nic_handle(device, bus, link))
}
