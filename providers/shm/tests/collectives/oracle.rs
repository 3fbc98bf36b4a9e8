//! A serial oracle of collectives: one process computes one element after the other.

use selvedge::atomic::{Datatype, Family, Op};
use selvedge::collective;
use selvedge::shared::SharedBytes;
use selvedge_kit::atomic::{Args, Kernel, query};

/// Memory with the alignment that the processor's atomics need.
#[repr(align(16))]
struct Aligned([u8; 32]);

/// Returns the result of an operation on two elements.
#[expect(unsafe_code, reason = "an atomic on local memory")]
pub(crate) fn reduced(kernel: &Kernel, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut target = Aligned([0; 32]);
    target.0[..left.len()].copy_from_slice(left);
    let args = Args {
        operand: right,
        compare: &[],
        result: &mut [],
    };
    // SAFETY: one aligned element, which no other code accesses.
    let element = unsafe { SharedBytes::new(target.0.as_mut_ptr(), kernel.size()) };
    kernel.apply(element, args).unwrap();
    target.0[..left.len()].to_vec()
}

/// Returns the element of a type with the value `ones`, computed by the operations alone.
pub(crate) fn counted(datatype: Datatype, ones: usize) -> Vec<u8> {
    let size = datatype.size();
    let component = match datatype {
        Datatype::FloatComplex => Some(Datatype::Float),
        Datatype::DoubleComplex => Some(Datatype::Double),
        _ => None,
    };
    if let Some(component) = component {
        // The second component has another value.
        return [counted(component, ones), counted(component, (ones + 1) % 2)].concat();
    }
    let logical_or = query(Family::Base, datatype, Op::Lor).unwrap();
    // The padding bytes of the longest format are not part of the value.
    let mut nonzero = vec![0; size];
    nonzero[size.min(10) - 1] = 0x41;
    let one = reduced(&logical_or, &vec![0; size], &nonzero);
    let sum = query(Family::Base, datatype, Op::Sum).unwrap();
    (0..ones).fold(vec![0; size], |all, _| reduced(&sum, &all, &one))
}

/// Returns the result of rank `rank` if every rank contributes its `inputs`; an empty vector where
/// the collective gives this rank no result.
pub(crate) fn expected(
    coll: collective::Op,
    kernel: Option<&Kernel>,
    inputs: &[Vec<u8>],
    (rank, root): (usize, usize),
    len: usize,
) -> Vec<u8> {
    use collective::Op as Coll;
    let slice =
        |member: usize, index: usize| inputs[member][index * len..(index + 1) * len].to_vec();
    let all = |index: usize| {
        (0..inputs.len())
            .flat_map(|member| slice(member, index))
            .collect()
    };
    let sum = |index: usize| {
        let kernel = kernel.expect("a reduction");
        let slices = (0..inputs.len()).map(|member| slice(member, index));
        let add = |left: Vec<u8>, right: Vec<u8>| {
            let pairs = left.chunks(kernel.size()).zip(right.chunks(kernel.size()));
            pairs
                .flat_map(|(left, right)| reduced(kernel, left, right))
                .collect()
        };
        slices.reduce(add).unwrap()
    };
    match coll {
        Coll::Barrier => Vec::new(),
        Coll::Reduce | Coll::Gather if rank != root => Vec::new(),
        Coll::Broadcast => slice(root, 0),
        Coll::Scatter => slice(root, rank),
        Coll::Alltoall => all(rank),
        Coll::Allgather | Coll::Gather => all(0),
        Coll::Allreduce | Coll::Reduce => sum(0),
        Coll::ReduceScatter => sum(rank),
    }
}
