//! Shared regions, to which peers write.

use selvedge::owned::SharedRegion;
use selvedge::{Errno, MrAccess, MrMode};

use crate::loopback::Net;

const KEY: u64 = 42;

fn region(net: &Net, len: usize) -> SharedRegion {
    SharedRegion::new(&*net.domain, len, MrAccess::REMOTE_WRITE, KEY).unwrap()
}

#[test]
fn a_write_by_a_peer_is_read() {
    let net = Net::new();
    let region = region(&net, 100);
    net.wire()
        .write(region.key(), region.addr(3), b"from a peer");
    let mut bytes = [0; 13];
    region.copy_to(2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0from a peer\0");
}

#[test]
fn every_range_is_copied_exactly() {
    let net = Net::new();
    let len = 24;
    let region = region(&net, len);
    for start in 0..len {
        for end in start..=len {
            region.copy_from(0, &[0xee; 24]).unwrap();
            let bytes: Vec<u8> = (1..).take(end - start).collect();
            region.copy_from(start, &bytes).unwrap();
            let mut all = [0; 24];
            region.copy_to(0, &mut all).unwrap();
            let mut expected = [0xee; 24];
            expected[start..end].copy_from_slice(&bytes);
            assert_eq!(all, expected);
            let mut copied = vec![0; end - start];
            region.copy_to(start, &mut copied).unwrap();
            assert_eq!(copied, bytes);
        }
    }
}

#[test]
fn words_are_in_native_order() {
    let net = Net::new();
    let region = region(&net, 16);
    region.store_u64(8, 0x0102_0304_0506_0708).unwrap();
    let mut bytes = [0; 8];
    region.copy_to(8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
    net.wire().write(KEY, 0, &9u64.to_ne_bytes());
    assert_eq!(region.load_u64(0), Ok(9));
}

#[test]
fn accesses_outside_the_region_fail() {
    let net = Net::new();
    let region = region(&net, 20);
    assert_eq!(region.copy_from(19, &[1, 2]), Err(Errno::Inval));
    assert_eq!(region.copy_to(usize::MAX, &mut [0; 2]), Err(Errno::Inval));
    assert_eq!(region.load_u64(4), Err(Errno::Inval));
    assert_eq!(region.load_u64(16), Err(Errno::Inval));
    assert_eq!(region.store_u64(24, 0), Err(Errno::Inval));
    assert_eq!(region.copy_from(20, &[]), Ok(()));
}

#[test]
fn dropping_a_shared_region_deregisters_it() {
    let net = Net::new();
    let region = region(&net, 8);
    assert_eq!(net.wire().regions(), 1);
    drop(region);
    assert_eq!(net.wire().regions(), 0);
}

#[test]
fn an_empty_region_and_a_key_in_use_fail() {
    let net = Net::new();
    let _first = region(&net, 8);
    let open = |len| SharedRegion::new(&*net.domain, len, MrAccess::REMOTE_READ, KEY).unwrap_err();
    assert_eq!(open(0).errno(), Errno::Inval);
    assert_eq!(open(8).errno(), Errno::NoKey);
}

#[test]
fn remote_addresses_follow_the_mr_mode_of_the_domain() {
    let net = Net::new();
    assert_eq!(region(&net, 8).addr(3), 3);
    let domain = net.domain.with_mr_mode(MrMode::VIRT_ADDR);
    let region = SharedRegion::new(&domain, 8, MrAccess::REMOTE_READ, KEY).unwrap();
    assert_ne!(region.addr(0), 0);
    assert_eq!(region.addr(3), region.addr(0) + 3);
}
