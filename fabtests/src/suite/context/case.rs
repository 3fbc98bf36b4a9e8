//! Collectives, with the result that each member expects.

use selvedge::OpFlags;
use selvedge::atomic::Op as Reduction;
use selvedge::collective::Op;
use selvedge_testkit::collectives::Collective;

use super::Result;
use super::check::{count, holds, same};
use super::group::{BLANK, CollectiveCall, Group, Joiner, Posted};

const REDUCTIONS: [Reduction; 4] = [
    Reduction::Sum,
    Reduction::Min,
    Reduction::Max,
    Reduction::Bxor,
];

/// One collective of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectiveCase {
    coll: Op,
    op: Reduction,
    /// Number of members.
    members: usize,
    root: usize,
    /// Elements of each member.
    count: usize,
    /// Varies the words.
    round: usize,
}

impl CollectiveCase {
    /// Every collective with every member as its root, for each number of elements, in rounds from
    /// `first` on.
    pub(crate) fn every(members: usize, counts: &[usize], first: usize) -> Vec<Self> {
        let mut cases = Vec::new();
        for &count in counts {
            for &coll in Op::ALL {
                let roots = if coll.has_root() { members } else { 1 };
                let reductions = if coll.reduces() { REDUCTIONS.len() } else { 1 };
                for root in 0..roots {
                    for &op in &REDUCTIONS[..reductions] {
                        cases.push(Self {
                            coll,
                            op,
                            members,
                            root,
                            count,
                            round: first + cases.len(),
                        });
                    }
                }
            }
        }
        cases
    }

    /// Posts the collective as member `own` of the group.
    ///
    /// # Errors
    /// As [`Joiner::post`].
    pub(crate) fn post(&self, own: usize, joiner: &Joiner, group: &Group) -> Result<Posted> {
        let call = CollectiveCall {
            coll: self.coll,
            op: self.op,
            root: group.members[self.root],
            count: self.count,
            input: self.input(own),
            // A member without a result has a buffer all the same, which must stay unchanged.
            result_len: self.count * self.members,
            flags: OpFlags::DEFAULT,
        };
        joiner.post(group, &call)
    }

    /// Checks the words that member `own` received.
    ///
    /// # Errors
    /// They differ from the expected ones.
    pub(crate) fn check(&self, own: usize, found: &[u64]) -> Result {
        let expected = self.expected(own);
        let call = format!(
            "{:?} by {:?} of {} elements in {} members, root {}",
            self.coll, self.op, self.count, self.members, self.root
        );
        let (result, rest) = found.split_at(expected.len());
        count(8 * expected.len());
        let mismatch = result.iter().zip(&expected).position(|(a, b)| a != b);
        if let Some(at) = mismatch {
            same(format!("{call}: word {at}"), result[at], expected[at])?;
        }
        let is_blank = rest.iter().all(|&word| word == BLANK);
        holds(format!("{call}: no other words are written"), is_blank)
    }

    /// The input of a member. In a broadcast, the root's input is its result, and the others have
    /// none.
    fn input(&self, own: usize) -> Vec<u64> {
        let words = match self.coll {
            Op::Broadcast if own == self.root => self.count,
            Op::Broadcast => 0,
            _ => self.count * self.members,
        };
        (0..words).map(|at| word(own, at, self.round)).collect()
    }

    /// The result of a member by the man page; empty if it has none.
    fn expected(&self, own: usize) -> Vec<u64> {
        let collective = Collective {
            coll: self.coll,
            members: self.members,
            root: self.root,
            count: self.count,
        };
        let reduce = |left: u64, right| match self.op {
            Reduction::Min => left.min(right),
            Reduction::Max => left.max(right),
            Reduction::Bxor => left ^ right,
            _ => left.wrapping_add(right),
        };
        collective.expected(own, |of, at| word(of, at, self.round), reduce)
    }
}

/// Word `at` of a member's input.
fn word(member: usize, at: usize, round: usize) -> u64 {
    let value = ((round << 40) + (member << 32) + at + 1) as u64;
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}
