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
    /// The result at the member `own`; empty if it has no result. `input` returns the element of a
    /// member at an index, `reduce` reduces two elements.
    pub fn expected<T>(
        &self,
        own: usize,
        input: impl Fn(usize, usize) -> T,
        reduce: impl Fn(T, T) -> T,
    ) -> Vec<T> {
        let &Self {
            coll,
            members,
            root,
            count,
        } = self;
        let slice = |of: usize, at: usize| (0..count).map(move |i| (of, at * count + i));
        let read = |(of, at): (usize, usize)| input(of, at);
        let all = |at: usize| {
            (0..members)
                .flat_map(|of| slice(of, at))
                .map(read)
                .collect()
        };
        let reduced = |at: usize| {
            let element = |i: usize| {
                let inputs = (0..members).map(|of| input(of, at * count + i));
                inputs.reduce(&reduce).expect("a group has members")
            };
            (0..count).map(element).collect()
        };
        match coll {
            Op::Barrier => Vec::new(),
            Op::Reduce | Op::Gather if own != root => Vec::new(),
            Op::Broadcast => slice(root, 0).map(read).collect(),
            Op::Scatter => slice(root, own).map(read).collect(),
            Op::Alltoall => all(own),
            Op::Allgather | Op::Gather => all(0),
            Op::Allreduce | Op::Reduce => reduced(0),
            Op::ReduceScatter => reduced(own),
        }
    }
}
