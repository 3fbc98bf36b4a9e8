//! `Node`: a NUMA node, with its processors.

use std::fmt;

use super::cpu_list::CpuList;

/// The number of a node, as the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a number")]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The node's number.
    pub id: NodeId,
    /// The node's processors. A node of memory alone has none.
    pub cpus: CpuList,
    /// Whether the node has memory. Pages can be placed on such a node only.
    pub has_memory: bool,
}
