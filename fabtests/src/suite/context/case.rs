//! Cases of collectives: a collective with its input and the result that each member expects.

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
    /// A number that varies the words of the input.
    round: usize,
}

impl CollectiveCase {
    /// Makes a case of every collective with every member as its root, for each number of elements.
    /// The rounds are counted from `first_round`.
    pub(crate) fn all(members: usize, counts: &[usize], first_round: usize) -> Vec<Self> {
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
                            round: first_round + cases.len(),
                        });
                    }
                }
            }
        }
        cases
    }

    /// Posts the collective as member `member` of the group.
    ///
    /// # Errors
    /// As [`Joiner::post`].
    pub(crate) fn post(&self, member: usize, joiner: &Joiner, group: &Group) -> Result<Posted> {
        let call = CollectiveCall {
            coll: self.coll,
            op: self.op,
            root: group.members[self.root],
            count: self.count,
            input: self.input(member),
            // A member without a result also has a buffer, which must stay unchanged.
            result_len: self.count * self.members,
            flags: OpFlags::DEFAULT,
        };
        joiner.post(group, &call)
    }

    /// Checks the words that member `member` received.
    ///
    /// # Errors
    /// A word differs from the expected one.
    pub(crate) fn check(&self, member: usize, found: &[u64]) -> Result {
        let expected = self.expected(member);
        let call = format!(
            "{:?} by {:?} of {} elements in {} members, root {}",
            self.coll, self.op, self.count, self.members, self.root
        );
        let (result, rest) = found.split_at(expected.len());
        count(8 * expected.len());
        let mismatch = result.iter().zip(&expected).position(|(a, b)| a != b);
        if let Some(index) = mismatch {
            same(
                format!("{call}: word {index}"),
                result[index],
                expected[index],
            )?;
        }
        let is_blank = rest.iter().all(|&word| word == BLANK);
        holds(format!("{call}: no other words are written"), is_blank)
    }

    /// Returns the input of a member. In a broadcast, the root's input is its result, and the other
    /// members have no input.
    fn input(&self, member: usize) -> Vec<u64> {
        let words = match self.coll {
            Op::Broadcast if member == self.root => self.count,
            Op::Broadcast => 0,
            _ => self.count * self.members,
        };
        (0..words)
            .map(|index| word(member, index, self.round))
            .collect()
    }

    /// Returns the result of a member as the man page defines it; empty for a member without a
    /// result.
    fn expected(&self, member: usize) -> Vec<u64> {
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
        collective.expected(
            member,
            |member, index| word(member, index, self.round),
            reduce,
        )
    }
}

/// Returns word `index` of a member's input.
fn word(member: usize, index: usize, round: usize) -> u64 {
    let value = ((round << 40) + (member << 32) + index + 1) as u64;
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}
