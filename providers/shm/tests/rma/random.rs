//! Random operations against a model: one array of bytes.

use selvedge::OpFlags;
use selvedge::rma::RmaIov;
use selvedge_testkit::random::Random;

use crate::common::{PROTOCOLS, RmaPair, Write};

const LEN: usize = 200_000;

/// Returns up to four disjoint remote segments, and their total length.
fn random_segments(random: &mut Random, pair: &RmaPair) -> (Vec<RmaIov>, usize) {
    let count = 1 + random.index(4);
    let stripe = LEN / count;
    let max_len = [8, 100, 5000, stripe][random.index(4)];
    let remote: Vec<_> = (0..count)
        .map(|n| {
            let len = random.index(max_len.min(stripe)) + usize::from(n == 0);
            let addr = n * stripe + random.index(stripe - len);
            pair.segment(addr as u64, len)
        })
        .collect();
    let len = remote.iter().map(|segment| segment.len).sum();
    (remote, len)
}

/// Returns the sizes of up to four local segments of `len` bytes in all.
fn random_sizes(random: &mut Random, len: usize) -> Vec<usize> {
    let mut rest = len;
    let mut sizes: Vec<_> = (0..random.index(4))
        .map(|_| {
            let size = random.index(rest + 1);
            rest -= size;
            size
        })
        .collect();
    sizes.push(rest);
    sizes
}

#[test]
fn random_reads_and_writes_agree_with_a_byte_array() {
    for protocol in PROTOCOLS.into_iter().chain(["auto"]) {
        let pair = RmaPair::new(protocol, LEN);
        let (mut random, mut model) = (Random::new(77), vec![0; LEN]);
        for round in 0..600 {
            let (remote, len) = random_segments(&mut random, &pair);
            let sizes = random_sizes(&mut random, len);
            if random.index(2) == 0 {
                let read = pair.read(&remote, &sizes).unwrap();
                let expected: Vec<_> = remote
                    .iter()
                    .flat_map(|segment| model[segment.addr as usize..][..segment.len].to_vec())
                    .collect();
                assert!(read == expected, "{protocol} {round}");
                continue;
            }
            let bytes = random.bytes(len);
            let mut rest = &bytes[..];
            let local: Vec<&[u8]> = sizes
                .iter()
                .map(|&size| {
                    let (bytes, after) = rest.split_at(size);
                    rest = after;
                    bytes
                })
                .collect();
            let write = Write {
                flags: OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION,
                data: (random.index(2) == 0).then_some(round),
                ..Write::new(&local, &remote)
            };
            pair.post(&write);
            if write.data.is_some() {
                assert_eq!(pair.wait_at_b().unwrap().data, round);
            }
            pair.wait_at_a().unwrap();
            let mut offset = 0;
            for segment in &remote {
                let dest = &mut model[segment.addr as usize..][..segment.len];
                dest.copy_from_slice(&bytes[offset..offset + segment.len]);
                offset += segment.len;
            }
        }
        assert!(pair.memory.bytes() == model, "{protocol}");
    }
}
