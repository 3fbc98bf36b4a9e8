//! Parts of inputs: packets, and numbers for malformed fields, which are the ends of every range
//! that a parser might check.

use selvedge_shm::smr::layout::VERSION;
use selvedge_testkit::random::Random;
use selvedge_testkit::shm_peer::{self, PACKET_SIZE};

/// Ends of ranges.
const BOUNDARIES: [u64; 30] = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    39,
    40,
    41,
    48,
    49,
    63,
    64,
    127,
    128,
    129,
    255,
    256,
    512,
    4095,
    4096,
    65_535,
    65_536,
    1 << 20,
    i32::MAX as u64,
    u32::MAX as u64,
    i64::MAX as u64,
    u64::MAX,
];

/// Returns a number at the end of a range, next to it, or any number.
pub(super) fn number(random: &mut Random) -> u64 {
    let boundary = *random.pick(&BOUNDARIES);
    match random.below(8) {
        0..4 => boundary,
        4 => boundary.wrapping_add(1),
        5 => boundary.wrapping_sub(1),
        6 => boundary << random.below(64),
        _ => random.word() >> random.below(64),
    }
}

/// Changes a number a little or completely.
pub(super) fn mutate(random: &mut Random, value: u64) -> u64 {
    match random.below(6) {
        0 => value ^ 1 << random.below(64),
        1 => value.wrapping_add(1 << random.below(13)),
        2 => value.wrapping_sub(1 << random.below(13)),
        3 => value.swap_bytes(),
        _ => number(random),
    }
}

/// Returns a packet of this version with these fields.
pub(super) fn packet(kind: u32, fields: &[u64]) -> Vec<u8> {
    let mut bytes = shm_peer::packet(VERSION, kind);
    bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
    bytes.resize(PACKET_SIZE, 0);
    bytes
}
