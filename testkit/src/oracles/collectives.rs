//! The expected results of collectives (fi_collective(3)).

use selvedge::collective::Op;

/// A collective of a group.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// The operation.
    pub coll: Op,
    /// The number of members.
    pub members: usize,
    /// The rank of the root, if the operation has a root.
    pub root: usize,
    /// The number of elements of each member.
    pub count: usize,
}

impl Collective {
    /// Returns the result of the member `rank`; empty if the member has no result. `input` returns
    /// the element of a member at an index; `reduce` reduces two elements.
    pub fn expected<T>(
        &self,
        rank: usize,
        input: impl Fn(usize, usize) -> T,
        reduce: impl Fn(T, T) -> T,
    ) -> Vec<T> {
        let &Self {
            coll,
            members,
            root,
            count,
        } = self;
        let slice =
            |member: usize, block: usize| (0..count).map(move |i| (member, block * count + i));
        let read = |(member, index): (usize, usize)| input(member, index);
        let all = |block: usize| {
            (0..members)
                .flat_map(|member| slice(member, block))
                .map(read)
                .collect()
        };
        let reduced = |block: usize| {
            let element = |i: usize| {
                let inputs = (0..members).map(|member| input(member, block * count + i));
                inputs.reduce(&reduce).expect("a group has members")
            };
            (0..count).map(element).collect()
        };
        match coll {
            Op::Barrier => Vec::new(),
            Op::Reduce | Op::Gather if rank != root => Vec::new(),
            Op::Broadcast => slice(root, 0).map(read).collect(),
            Op::Scatter => slice(root, rank).map(read).collect(),
            Op::Alltoall => all(rank),
            Op::Allgather | Op::Gather => all(0),
            Op::Allreduce | Op::Reduce => reduced(0),
            Op::ReduceScatter => reduced(rank),
        }
    }
}
