//! Fuzzing of the parser for packets of peers.

use std::mem::discriminant;
use std::os::fd::OwnedFd;

use selvedge_testkit::fuzz::fuzz;

use super::{MAGIC, VERSION, parse};

/// The first byte of an input gives the number of descriptors, and whether a valid magic number and
/// version precede the other bytes.
#[test]
fn packets_of_any_bytes_are_parsed_or_refused() {
    let null: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let head = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes()].concat();
    let corpus = include_str!("../../../corpus/packets.txt");
    fuzz("packets", corpus, |input| {
        let (&[first], bytes) = input.split_first_chunk()?;
        let has_head = first & 0x80 == 0;
        let packet = [if has_head { &head[..] } else { &[] }, bytes].concat();
        let fds = (0..first & 3).map(|_| null.try_clone().unwrap()).collect();
        Some(match parse(&packet, fds) {
            Ok(packet) => (Some(discriminant(&packet)), String::new()),
            Err(error) => (None, error.to_string().chars().take(80).collect()),
        })
    });
}
