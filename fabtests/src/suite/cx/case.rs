//! Collectives, each with what every member gets from it.

use selvedge::OpFlags;
use selvedge::atomic::Op as Reduction;
use selvedge::collective::Op;
use selvedge_testkit::collectives::Collective;

use super::Result;
use super::check::{count, holds, same};
use super::group::{BLANK, Group, Joiner, Posted, Work};

const REDUCTIONS: [Reduction; 4] = [
    Reduction::Sum,
    Reduction::Min,
    Reduction::Max,
    Reduction::Bxor,
];

/// One collective of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    coll: Op,
    op: Reduction,
    /// How many there are.
    members: usize,
    root: usize,
    /// Elements of each member.
    count: usize,
    /// What the words depend on.
    round: usize,
}

impl Case {
    /// Each collective with each member as its root, of so many elements, in rounds from this one.
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

    /// Posts it as this member of the group.
    ///
    /// # Errors
    /// As [`Joiner::post`].
    pub(crate) fn post(&self, own: usize, joiner: &Joiner, group: &Group) -> Result<Posted> {
        let work = Work {
            coll: self.coll,
            op: self.op,
            root: group.members[self.root],
            count: self.count,
            input: self.input(own),
            // Whoever gets nothing has room for it all the same, which must stay as it was.
            room: self.count * self.members,
            flags: OpFlags::DEFAULT,
        };
        joiner.post(group, &work)
    }

    /// Makes sure that these words are what this member gets.
    ///
    /// # Errors
    /// What they are instead.
    pub(crate) fn check(&self, own: usize, found: &[u64]) -> Result {
        let expected = self.expected(own);
        let what = format!(
            "{:?} by {:?} of {} elements in {} members, root {}",
            self.coll, self.op, self.count, self.members, self.root
        );
        let (result, rest) = found.split_at(expected.len());
        count(8 * expected.len());
        let wrong = result.iter().zip(&expected).position(|(a, b)| a != b);
        if let Some(at) = wrong {
            same(format!("{what}: word {at}"), result[at], expected[at])?;
        }
        let is_blank = rest.iter().all(|&word| word == BLANK);
        holds(format!("{what}: nothing else is written"), is_blank)
    }

    /// What a member puts in. In a broadcast that is what it gets, too; others have nothing there
    /// yet.
    fn input(&self, own: usize) -> Vec<u64> {
        let words = match self.coll {
            Op::Broadcast if own == self.root => self.count,
            Op::Broadcast => 0,
            _ => self.count * self.members,
        };
        (0..words).map(|at| word(own, at, self.round)).collect()
    }

    /// What a member gets, by the man page; nothing where it gets nothing.
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

/// Word `at` of what a member puts in.
fn word(member: usize, at: usize, round: usize) -> u64 {
    let mixed = ((round << 40) + (member << 32) + at + 1) as u64;
    mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8
}
