//! `struct fi_info`: conversion to and from the object model, copying and freeing.

mod attributes;
mod copy;
mod from_c;
mod to_c;

pub use attributes::av_type;
pub use copy::{allocate_zeroed_info, copy, free};
pub use from_c::{ParsedInfo, read};
pub use to_c::{allocate_info, allocate_list};

use std::ptr;

/// An info without attributes, addresses and network interface.
pub const EMPTY: crate::Info = crate::Info {
    next: ptr::null_mut(),
    caps: 0,
    mode: 0,
    addr_format: 0,
    src_addrlen: 0,
    dest_addrlen: 0,
    src_addr: ptr::null_mut(),
    dest_addr: ptr::null_mut(),
    handle: ptr::null_mut(),
    tx_attr: ptr::null_mut(),
    rx_attr: ptr::null_mut(),
    ep_attr: ptr::null_mut(),
    domain_attr: ptr::null_mut(),
    fabric_attr: ptr::null_mut(),
    nic: ptr::null_mut(),
};

#[cfg(test)]
mod tests;
