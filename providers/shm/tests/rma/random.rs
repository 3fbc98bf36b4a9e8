//! Random operations against a model: one array of bytes.

use selvedge::OpFlags;
use selvedge::rma::RmaIov;

use crate::common::{Pair, Random, WAYS, Write, patiently};

const LEN: usize = 200_000;

/// Up to four places that do not overlap, and their bytes in all.
fn places(random: &mut Random, pair: &Pair) -> (Vec<RmaIov>, usize) {
    let count = 1 + random.below(4);
    let stripe = LEN / count;
    let most = [8, 100, 5000, stripe][random.below(4)];
    let places: Vec<_> = (0..count)
        .map(|n| {
            let len = random.below(most.min(stripe)) + usize::from(n == 0);
            let at = n * stripe + random.below(stripe - len);
            pair.place(at as u64, len)
        })
        .collect();
    let len = places.iter().map(|place| place.len).sum();
    (places, len)
}

fn cut(random: &mut Random, len: usize) -> Vec<usize> {
    let mut rest = len;
    let mut sizes: Vec<_> = (0..random.below(4))
        .map(|_| {
            let size = random.below(rest + 1);
            rest -= size;
            size
        })
        .collect();
    sizes.push(rest);
    sizes
}

#[test]
fn random_reads_and_writes_agree_with_a_byte_array() {
    for way in WAYS.into_iter().chain(["auto"]) {
        let pair = Pair::new(way, LEN);
        let (mut random, mut model) = (Random::new(77), vec![0; LEN]);
        for round in 0..600 {
            let (places, len) = places(&mut random, &pair);
            let sizes = cut(&mut random, len);
            if random.below(2) == 0 {
                let read = pair.read(&places, &sizes).unwrap();
                let expected: Vec<_> = places
                    .iter()
                    .flat_map(|p| model[p.addr as usize..][..p.len].to_vec())
                    .collect();
                assert!(read == expected, "{way} {round}");
                continue;
            }
            let bytes = random.bytes(len);
            let mut rest = &bytes[..];
            let pieces: Vec<&[u8]> = sizes
                .iter()
                .map(|&size| {
                    let (piece, behind) = rest.split_at(size);
                    rest = behind;
                    piece
                })
                .collect();
            let write = Write {
                flags: OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION,
                data: (random.below(2) == 0).then_some(round),
                ..Write::new(&pieces, &places)
            };
            patiently(&pair.b, || write.post(&pair.a.ep, pair.to_b));
            if write.data.is_some() {
                assert_eq!(pair.b.wait(&pair.a).unwrap().data, round);
            }
            pair.a.wait(&pair.b).unwrap();
            let mut at = 0;
            for place in &places {
                let to = &mut model[place.addr as usize..][..place.len];
                to.copy_from_slice(&bytes[at..at + place.len]);
                at += place.len;
            }
        }
        assert!(pair.memory.get() == model, "{way}");
    }
}
