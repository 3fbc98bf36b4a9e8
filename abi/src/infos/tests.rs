//! Tests of `struct fi_info`: the round trip through C preserves infos, and `free` frees all
//! memory.

#![expect(unsafe_code, reason = "structures of C")]

use std::ptr;

use crate::Abi;
use selvedge::info::{EpType, Nic, PciAddress, Threading};
use selvedge::{AddrFormat, Caps, Errno, Info};

use super::{allocate_info, allocate_list, allocate_zeroed_info, copy, free, read};

/// An info with a value in every part.
fn full_info() -> Info {
    let mut info = Info::default();
    info.caps = Caps::MSG | Caps::from_bits_retain(1 << 61);
    info.addr_format = AddrFormat::SockaddrIn;
    info.src_addr = "1.2.3.4:5".parse().ok();
    info.dest_addr = "5.6.7.8:9".parse().ok();
    info.tx_attr.inject_size = 7;
    info.rx_attr.total_buffered_recv = 8;
    info.ep_attr.ep_type = EpType::Msg;
    info.ep_attr.auth_key = vec![1, 2, 3];
    info.domain_attr.name = "card".into();
    info.domain_attr.threading = Threading::Completion;
    info.domain_attr.auth_key = vec![4];
    info.domain_attr.max_cntr_value = 10;
    info.fabric_attr.name = "net".into();
    info.fabric_attr.prov_name = "demo".into();
    let mut nic = Nic::default();
    nic.name = "eth0".into();
    nic.vendor_id = "0x15b3".into();
    nic.pci = PciAddress::parse("0001:3b:1f.7");
    nic.mtu = 1500;
    nic.up = true;
    info.nic = Some(nic);
    info
}

#[test]
fn infos_survive_the_round_trip_through_c() {
    let infos = [full_info(), Info::default()];
    let first = allocate_list(&infos, ptr::null_mut()).expect("memory");
    // SAFETY: the list was allocated by this test, in the newest layout.
    let read_first = unsafe { read(first, Abi::NEWEST) };
    // SAFETY: as above.
    let second = unsafe { (*first).next };
    let read_first = read_first.expect("an info of this test");
    assert_eq!(read_first.info, full_info());
    assert_eq!(read_first.threading, Threading::Completion);
    // SAFETY: as above.
    let read_second = unsafe { read(second, Abi::NEWEST) };
    assert_eq!(
        read_second.expect("an info of this test").info,
        Info::default()
    );
    // SAFETY: the list is not used any more.
    unsafe { free(first) };
}

#[test]
fn copies_are_whole_and_of_one_info_only() {
    let first = allocate_list(&[full_info(), full_info()], ptr::null_mut()).expect("memory");
    // SAFETY: the list was allocated by this test.
    let copy_c = unsafe { copy(first, Abi::NEWEST) }.expect("memory");
    // SAFETY: the list is not used any more; the copy shares no memory with it.
    unsafe { free(first) };
    // SAFETY: the copy was allocated by this test.
    let copied = unsafe { read(copy_c, Abi::NEWEST) };
    // SAFETY: as above.
    let next = unsafe { (*copy_c).next };
    assert_eq!(copied.expect("a copy of this test").info, full_info());
    assert_eq!(next, ptr::null_mut());
    // SAFETY: as above.
    let nic = unsafe { (*copy_c).nic };
    assert!(!nic.is_null());
    // SAFETY: the copy is not used any more.
    unsafe { free(copy_c) };
}

#[test]
fn infos_of_an_old_layout_are_read_up_to_their_size() {
    let info_c = allocate_info(&full_info(), ptr::null_mut()).expect("memory");
    // SAFETY: the info was allocated by this test; an older layout is shorter.
    let old = unsafe { read(info_c, Abi::V0) }
        .expect("an info of this test")
        .info;
    assert_eq!(old.ep_attr.ep_type, EpType::Msg);
    assert!(old.ep_attr.auth_key.is_empty());
    assert_eq!(old.domain_attr.max_cntr_value, 0);
    // SAFETY: as above.
    let newer = unsafe { read(info_c, Abi::V9) }
        .expect("an info of this test")
        .info;
    assert_eq!(newer.domain_attr.max_cntr_value, 10);
    // SAFETY: the info is not used any more.
    unsafe { free(info_c) };
}

#[test]
fn fresh_infos_have_all_parts_and_default_attributes() {
    let info_c = allocate_zeroed_info().expect("memory");
    // SAFETY: the info was allocated by this test.
    let parsed = unsafe { read(info_c, Abi::NEWEST) }.expect("zeros");
    assert_eq!(parsed.info, Info::default());
    // SAFETY: the info is not used any more.
    unsafe { free(info_c) };
}

#[test]
fn unsupported_numbers_match_nothing() {
    let info_c = allocate_zeroed_info().expect("memory");
    // SAFETY: the info was allocated by this test, with all parts.
    let ep = unsafe { (*info_c).ep_attr };
    // SAFETY: as above.
    unsafe { (*ep).ep_type = 77 };
    // SAFETY: as above.
    let unsupported = unsafe { read(info_c, Abi::NEWEST) };
    assert_eq!(unsupported.unwrap_err(), Errno::NoData);
    // SAFETY: the info is not used any more.
    unsafe { free(info_c) };
    // SAFETY: NULL is only compared.
    let null_info = unsafe { read(ptr::null(), Abi::NEWEST) };
    assert_eq!(null_info.unwrap_err(), Errno::Inval);
}
