//! `Placement`: the NUMA node of this endpoint's memory for a peer (`FI_SHM_NUMA`).
//!
//! The node of a peer is the kernel's word, not the peer's: the kernel names the process at the
//! other end of a connection, and the processors on which this process runs.

use selvedge_kit::numa::{NodeId, Topology};

/// The process whose node gets the memory for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The peer, which polls the memory.
    Receiver,
    /// This process, which writes to the memory.
    Sender,
    /// None: the kernel chooses.
    Off,
}

impl Placement {
    /// The values of the parameter.
    pub(crate) const NAMES: &'static [&'static str] = &["receiver", "sender", "off"];

    /// Parses one of [`Self::NAMES`].
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "sender" => Self::Sender,
            "off" => Self::Off,
            _ => Self::Receiver,
        }
    }

    /// Returns the node for the memory of a peer on this machine. `peer_pid` returns the peer's
    /// process, or 0 if it is not known. `None` if memory has one node only, if no node is to be
    /// requested, and if the kernel does not say where the process runs.
    pub(crate) fn node(self, peer_pid: impl FnOnce() -> i32) -> Option<NodeId> {
        self.node_in(Topology::of_machine()?, peer_pid)
    }

    fn node_in(self, topology: &Topology, peer_pid: impl FnOnce() -> i32) -> Option<NodeId> {
        match self {
            Self::Receiver => topology.node_of_process(peer_pid()),
            Self::Sender => topology.node_of_this_thread(),
            Self::Off => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_without_a_visible_process_gets_no_node() {
        let root = std::env::temp_dir().join(format!("placement-{}", std::process::id()));
        std::fs::create_dir_all(root.join("node5")).unwrap();
        std::fs::write(root.join("online"), "5").unwrap();
        std::fs::write(root.join("node5/cpulist"), "0-4095").unwrap();
        let topology = Topology::read(&root).unwrap();
        std::fs::remove_dir_all(root).unwrap();
        let this = std::process::id().cast_signed();
        let table = [
            ("receiver", this, Some(5)),
            ("receiver", 0, None),
            ("sender", 0, Some(5)),
            ("off", this, None),
        ];
        for (text, peer_pid, expected) in table {
            let node = Placement::parse(text).node_in(&topology, || peer_pid);
            assert_eq!(node, expected.map(NodeId), "{text}, {peer_pid}");
        }
    }
}
