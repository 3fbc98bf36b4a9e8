//! Compares every collective, for every type and operation, on 1 to 8 members, with the oracle.

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::collective::{self, CollectiveMsg, Query};
use selvedge::{Context, Domain, FiAddr, Membership};
use selvedge_kit::atomic::{Kernel, query};
use selvedge_testkit::long::part;
use std::sync::Arc;

use crate::members::Members;
use crate::oracle::{counted, expected};

const REDUCTIONS: [Op; 10] = [
    Op::Min,
    Op::Max,
    Op::Sum,
    Op::Prod,
    Op::Lor,
    Op::Land,
    Op::Bor,
    Op::Band,
    Op::Lxor,
    Op::Bxor,
];

/// Pseudo-random numbers.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Returns elements for which the operation has the same result in any order: arbitrary bits
    /// for integers, and small values that other types represent exactly.
    fn elements(&mut self, datatype: Datatype, op: Op, count: usize) -> Vec<u8> {
        let has_bits = query(Family::Base, datatype, Op::Band).is_ok();
        // Elements that are only moved may have any bits.
        if has_bits || query(Family::Base, datatype, op).is_err() {
            return (0..count * datatype.size())
                .map(|_| self.next() as u8)
                .collect();
        }
        let element = |random: u64| match op {
            Op::Sum => counted(datatype, (random % 2) as usize),
            Op::Prod => counted(datatype, 1 + (random % 2) as usize),
            _ => counted(datatype, (random % 4) as usize),
        };
        (0..count).flat_map(|_| element(self.next())).collect()
    }
}

/// A group of all members, and the collectives that were posted in it.
pub(crate) struct GroupRun {
    members: Members,
    groups: Vec<Arc<dyn Membership>>,
    ranks: Vec<usize>,
    random: Random,
    number: u64,
    begun: Vec<PostedCollective>,
}

/// A posted collective of all members.
struct PostedCollective {
    case: String,
    inputs: Vec<Vec<u8>>,
    results: Vec<Vec<u8>>,
    wanted: Vec<Vec<u8>>,
}

impl GroupRun {
    fn of(ranks: usize) -> Self {
        Self::among(Members::connect(ranks))
    }

    pub(crate) fn among(members: Members) -> Self {
        let ranks = members.members.len();
        // Ranks of the group differ from those of `Members`.
        let order: Vec<_> = (0..ranks).rev().collect();
        Self {
            groups: members.join(&order),
            members,
            ranks: order,
            random: Random(fastrand::Rng::with_seed(ranks as u64)),
            number: 0,
            begun: Vec::new(),
        }
    }

    /// Posts one collective of all members.
    fn begin(&mut self, coll: collective::Op, datatype: Datatype, op: Op, count: usize) {
        let (ranks, size) = (self.ranks.len(), datatype.size());
        let len = count * size;
        self.number += 1;
        let root = self.number as usize % ranks;
        let kernel: Option<Kernel> = coll
            .reduces()
            .then(|| query(Family::Base, datatype, op).unwrap());
        let inputs: Vec<_> = (0..ranks)
            .map(|_| self.random.elements(datatype, op, count * ranks))
            .collect();
        let wanted: Vec<_> = (0..ranks)
            .map(|rank| expected(coll, kernel.as_ref(), &inputs, (rank, root), len))
            .collect();
        let mut results: Vec<_> = wanted
            .iter()
            .map(|wanted| vec![0xdd; wanted.len()])
            .collect();
        if coll == collective::Op::Broadcast {
            results[root].copy_from_slice(&inputs[root][..len]);
        }
        for rank in 0..ranks {
            let member = self.members.member(self.ranks[rank]);
            let context = Context(self.number);
            let mut msg = CollectiveMsg::new(coll, self.groups[rank].addr(), datatype, context);
            msg.root = if coll.has_root() {
                member.addrs[self.ranks[root]]
            } else {
                FiAddr::NOTAVAIL
            };
            (msg.op, msg.count) = (op, count);
            msg.buf = inputs[rank].as_ptr().cast();
            msg.result = results[rank].as_mut_ptr().cast();
            member.post(&msg).unwrap();
        }
        self.begun.push(PostedCollective {
            case: format!("{coll:?} {op:?} of {count} {datatype:?}"),
            inputs,
            results,
            wanted,
        });
    }

    /// Runs every collective, with several numbers of elements.
    pub(crate) fn every_collective(&mut self) {
        for &coll in collective::Op::ALL {
            for count in [0, 1, 300] {
                self.begin(coll, Datatype::Uint64, Op::Sum, count);
            }
            if !coll.reduces() {
                // A type without arithmetic.
                self.begin(coll, Datatype::LongDoubleComplex, Op::Sum, 5);
            }
            self.end();
        }
    }

    /// Runs every collective, with more elements than the algorithms for few elements take.
    pub(crate) fn every_large_collective(&mut self) {
        for &coll in collective::Op::ALL {
            self.begin(coll, Datatype::Uint32, Op::Max, 9_001);
        }
        self.end();
    }

    /// Waits for all posted collectives, and checks their results.
    fn end(&mut self) {
        let count = self.begun.len();
        let first = self.number - count as u64 + 1;
        for ended in self.members.expect_many_successes(&self.ranks, count) {
            assert_eq!(ended, Vec::from_iter(first..=self.number));
        }
        for begun in self.begun.drain(..) {
            for (rank, (result, wanted)) in begun.results.iter().zip(&begun.wanted).enumerate() {
                assert!(
                    result == wanted,
                    "{}, rank {rank} of {}: {result:x?} in place of {wanted:x?}",
                    begun.case,
                    begun.inputs.len()
                );
            }
        }
    }
}

/// Whether the domain supports the queried collective.
fn is_supported(domain: &dyn Domain, query: Query) -> bool {
    let result = domain.query_collective(&query);
    if let Ok(attr) = result {
        assert!(attr.count > 1 << 20 && attr.max_members > 8);
    }
    result.is_ok()
}

/// The sizes of groups: 1, 2 and 5, or in the long form every size up to 8.
fn groups() -> impl Iterator<Item = usize> {
    (1..=8).filter(|ranks| part(&[1, 2, 5][..], &[1, 2, 3, 4, 5, 6, 7, 8]).contains(ranks))
}

#[test]
fn reductions_of_every_type_and_operation_agree_with_a_serial_oracle() {
    for ranks in groups() {
        let mut job = GroupRun::of(ranks);
        for &datatype in Datatype::ALL {
            for op in REDUCTIONS {
                let has_kernel = query(Family::Base, datatype, op).is_ok();
                if !has_kernel {
                    continue;
                }
                for coll in [
                    collective::Op::Allreduce,
                    collective::Op::Reduce,
                    collective::Op::ReduceScatter,
                ] {
                    job.begin(coll, datatype, op, 3);
                }
            }
            job.end();
        }
    }
}

#[test]
fn repeated_reductions_of_eight_bytes_agree_with_the_oracle() {
    for ranks in [2, 3, 4] {
        let mut job = GroupRun::of(ranks);
        for &datatype in Datatype::ALL {
            let count = 8 / datatype.size();
            let carried = |op: &Op| count > 0 && query(Family::Base, datatype, *op).is_ok();
            for op in REDUCTIONS.into_iter().filter(carried) {
                // The second all-reduce takes the fast path, because the group remembers the first
                // one and no other collective is outstanding.
                for _ in 0..2 {
                    job.begin(collective::Op::Allreduce, datatype, op, count);
                    job.end();
                }
            }
        }
    }
}

#[test]
fn a_query_agrees_with_the_reductions() {
    let infos = crate::registry().infos(&selvedge::Hints::new()).unwrap();
    let domain = infos[0].open().unwrap();
    for &datatype in Datatype::ALL {
        for &op in Op::ALL {
            let has_kernel = query(Family::Base, datatype, op).is_ok();
            let query = Query {
                coll: collective::Op::Allreduce,
                datatype: Some(datatype),
                op: Some(op),
            };
            let is_reduction = REDUCTIONS.contains(&op) && has_kernel;
            assert_eq!(
                is_supported(&*domain, query),
                is_reduction,
                "{datatype:?} {op:?}"
            );
        }
        let moved = Query {
            coll: collective::Op::Allgather,
            datatype: Some(datatype),
            op: None,
        };
        assert!(is_supported(&*domain, moved), "{datatype:?}");
    }
}

#[test]
fn data_of_every_size_is_placed_as_the_man_page_says() {
    for ranks in groups() {
        GroupRun::of(ranks).every_collective();
    }
}

#[test]
fn large_collectives_use_their_own_algorithms_and_agree() {
    for ranks in [2, 3, 5] {
        GroupRun::of(ranks).every_large_collective();
    }
}
