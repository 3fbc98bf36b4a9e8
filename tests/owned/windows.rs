//! Windows that peers write to.

use selvedge::owned::SharedRegion;
use selvedge::{Errno, MrAccess, MrMode};

use crate::loopback::Net;

const KEY: u64 = 42;

fn window(net: &Net, len: usize) -> SharedRegion {
    SharedRegion::new(&*net.domain, len, MrAccess::REMOTE_WRITE, KEY).unwrap()
}

#[test]
fn a_peers_write_is_copied_out() {
    let net = Net::new();
    let window = window(&net, 100);
    net.wire()
        .write(window.key(), window.addr(3), b"from a peer");
    let mut bytes = [0; 13];
    window.copy_to(2, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0from a peer\0");
}

#[test]
fn every_stretch_is_copied_exactly() {
    let net = Net::new();
    let len = 24;
    let window = window(&net, len);
    for start in 0..len {
        for end in start..=len {
            window.copy_from(0, &[0xee; 24]).unwrap();
            let bytes: Vec<u8> = (1..).take(end - start).collect();
            window.copy_from(start, &bytes).unwrap();
            let mut all = [0; 24];
            window.copy_to(0, &mut all).unwrap();
            let mut expected = [0xee; 24];
            expected[start..end].copy_from_slice(&bytes);
            assert_eq!(all, expected);
            let mut back = vec![0; end - start];
            window.copy_to(start, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
    }
}

#[test]
fn words_are_in_native_order() {
    let net = Net::new();
    let window = window(&net, 16);
    window.store_u64(8, 0x0102_0304_0506_0708).unwrap();
    let mut bytes = [0; 8];
    window.copy_to(8, &mut bytes).unwrap();
    assert_eq!(u64::from_ne_bytes(bytes), 0x0102_0304_0506_0708);
    net.wire().write(KEY, 0, &9u64.to_ne_bytes());
    assert_eq!(window.load_u64(0), Ok(9));
}

#[test]
fn what_lies_outside_is_refused() {
    let net = Net::new();
    let window = window(&net, 20);
    assert_eq!(window.copy_from(19, &[1, 2]), Err(Errno::Inval));
    assert_eq!(window.copy_to(usize::MAX, &mut [0; 2]), Err(Errno::Inval));
    assert_eq!(window.load_u64(4), Err(Errno::Inval));
    assert_eq!(window.load_u64(16), Err(Errno::Inval));
    assert_eq!(window.store_u64(24, 0), Err(Errno::Inval));
    assert_eq!(window.copy_from(20, &[]), Ok(()));
}

#[test]
fn rights_end_with_the_window() {
    let net = Net::new();
    let window = window(&net, 8);
    assert_eq!(net.wire().regions(), 1);
    drop(window);
    assert_eq!(net.wire().regions(), 0);
}

#[test]
fn an_empty_window_and_a_taken_key_are_refused() {
    let net = Net::new();
    let _window = window(&net, 8);
    let open = |len| SharedRegion::new(&*net.domain, len, MrAccess::REMOTE_READ, KEY).unwrap_err();
    assert_eq!(open(0).errno(), Errno::Inval);
    assert_eq!(open(8).errno(), Errno::NoKey);
}

#[test]
fn peers_address_it_as_the_domain_asks() {
    let net = Net::new();
    assert_eq!(window(&net, 8).addr(3), 3);
    let domain = net.domain.with_mr_mode(MrMode::VIRT_ADDR);
    let window = SharedRegion::new(&domain, 8, MrAccess::REMOTE_READ, KEY).unwrap();
    assert_ne!(window.addr(0), 0);
    assert_eq!(window.addr(3), window.addr(0) + 3);
}
