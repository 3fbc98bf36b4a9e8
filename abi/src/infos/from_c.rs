//! Converts `struct fi_info` of C to an [`Info`] of the object model.

#![expect(unsafe_code, reason = "structures of C")]

use std::ffi::c_void;

use selvedge::info::{Nic, PciAddress, Threading};
use selvedge::{AddrFormat, Address, Caps, Info, Mode, Result};

use super::attributes::{Attributes, supported};
use crate as abi;
use crate::addr;
use crate::pointer::{array, prefix, required, text};
use crate::{Abi, Fid, number};

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
/// [`selvedge::Errno::Inval`] for NULL, for a malformed address, and for a text that is not UTF-8;
/// [`selvedge::Errno::NoData`] for a number that names no value of its type.
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
    // SAFETY: passed on from the caller, here and below.
    info.tx_attr = unsafe { attributes(head.tx_attr, layout.tx) }?;
    // SAFETY: as above.
    info.rx_attr = unsafe { attributes(head.rx_attr, layout.rx) }?;
    // SAFETY: as above.
    info.ep_attr = unsafe { attributes(head.ep_attr, layout.ep) }?;
    // SAFETY: as above.
    info.domain_attr = unsafe { attributes(head.domain_attr, layout.domain) }?;
    // SAFETY: as above.
    info.fabric_attr = unsafe { attributes(head.fabric_attr, layout.fabric) }?;
    // SAFETY: as above.
    info.nic = unsafe { read_nic(head.nic) }?;
    let threading = info.domain_attr.threading;
    Ok(ParsedInfo {
        info,
        threading,
        handle: head.handle,
    })
}

/// Reads a network interface; `None` for NULL.
///
/// # Safety
/// As [`read`].
unsafe fn read_nic(ptr: *const abi::Nic) -> Result<Option<Nic>> {
    // SAFETY: passed on from the caller.
    let Ok(from) = (unsafe { required(ptr) }) else {
        return Ok(None);
    };
    let owned = |ptr| -> Result<String> {
        // SAFETY: passed on from the caller.
        Ok(unsafe { text(ptr) }?.unwrap_or_default().to_owned())
    };
    let mut nic = Nic::default();
    // SAFETY: passed on from the caller.
    if let Ok(device) = unsafe { required(from.device_attr) } {
        nic.name = owned(device.name)?;
        nic.device_id = owned(device.device_id)?;
        nic.device_version = owned(device.device_version)?;
        nic.vendor_id = owned(device.vendor_id)?;
        nic.driver = owned(device.driver)?;
        nic.firmware = owned(device.firmware)?;
    }
    // SAFETY: passed on from the caller.
    if let Ok(bus) = unsafe { required(from.bus_attr) } {
        nic.pci = (bus.bus_type == number::bus::PCI).then_some(PciAddress {
            domain_id: bus.pci.domain_id,
            bus_id: bus.pci.bus_id,
            device_id: bus.pci.device_id,
            function_id: bus.pci.function_id,
        });
    }
    // SAFETY: passed on from the caller.
    if let Ok(link) = unsafe { required(from.link_attr) } {
        nic.address = owned(link.address)?;
        nic.network_type = owned(link.network_type)?;
        nic.mtu = link.mtu;
        nic.speed = link.speed as u64;
        nic.up = link.state == number::link::UP;
    }
    Ok(Some(nic))
}

/// Reads attributes; for NULL, their default values.
///
/// # Safety
/// As [`read`], for attributes of this size.
unsafe fn attributes<A: Attributes>(ptr: *const A::Struct, size: usize) -> Result<A> {
    // SAFETY: passed on from the caller.
    let Ok(attr) = (unsafe { prefix(ptr, size) }) else {
        return Ok(A::default());
    };
    // SAFETY: passed on from the caller.
    unsafe { A::read(&attr) }
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
