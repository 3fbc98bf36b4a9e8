//! What the members of a group get from a collective (fi_collective(3)).

use selvedge::collective::Op;

/// A collective of a group.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// Which one.
    pub coll: Op,
    /// The group's size.
    pub members: usize,
    /// The member that is the root, where there is one.
    pub root: usize,
    /// Elements of each member.
    pub count: usize,
}

impl Collective {
    /// What member `own` gets; nothing where it gets nothing. `input` is what a member puts in at a
    /// place, `reduce` what becomes of two elements.
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
