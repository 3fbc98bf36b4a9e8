//! Placement: the NUMA nodes of the machine, and where messages between two endpoints lie.

use std::collections::BTreeSet;
use std::fs;

use selvedge_kit::numa::{NodeId, Topology};

use super::endpoint::while_connected;
use super::finding::{Finding, Severity};

const NAME: &str = "placement";

/// Exchanges a message, and finds the nodes of the memory through which it went.
pub(super) fn placement() -> Finding {
    let topology = match Topology::read_machine() {
        Ok(topology) => topology,
        Err(cause) => {
            let found = format!("the kernel describes no NUMA nodes: {cause}");
            return Finding::good(NAME, found, "no memory is placed on a node");
        }
    };
    let used = while_connected(nodes_of_messages).unwrap_or_default();
    let here = topology.node_of_process(std::process::id().cast_signed());
    let found = describe(&topology, here, &used);
    if topology.nodes().len() == 1 {
        return Finding::good(NAME, found, "all memory is equally near");
    }
    let is_near = here.is_none_or(|here| used.iter().all(|&node| node == here));
    if is_near {
        return Finding::good(
            NAME,
            found,
            "messages lie on the node of the process that receives them (FI_SHM_NUMA)",
        );
    }
    Finding::new(
        NAME,
        Severity::Note,
        found,
        "messages may lie far from the process that receives them",
    )
    .advise(
        "Permit mbind(2) in the system call filter, permit the node (cpuset.mems of the control \
         group), and see whether the node has free memory (numactl -H).",
    )
}

fn describe(topology: &Topology, here: Option<NodeId>, used: &BTreeSet<NodeId>) -> String {
    let nodes = topology.nodes().iter().map(|node| {
        if node.cpus.is_empty() {
            format!("node {} has no processors", node.id)
        } else {
            format!("node {} has processors {}", node.id, node.cpus)
        }
    });
    let mut parts: Vec<_> = nodes.collect();
    parts.push(match here {
        Some(here) => format!("this process runs on node {here}"),
        None => "this process runs on no node with memory".to_owned(),
    });
    if !used.is_empty() {
        let used: Vec<_> = used.iter().map(ToString::to_string).collect();
        parts.push(format!("its messages lie on node {}", used.join(", ")));
    }
    parts.join("; ")
}

/// Returns the nodes of the pages of this process's shared memory.
fn nodes_of_messages() -> BTreeSet<NodeId> {
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    maps.lines()
        .filter(|line| is_shared_memory(line))
        .flat_map(nodes_of)
        .collect()
}

/// Whether a line of `numa_maps` describes a file through which messages go. The file's name ends
/// with an escaped space.
fn is_shared_memory(line: &str) -> bool {
    line.contains(r"file=/memfd:selvedge\040")
}

/// Returns the nodes of a mapping's pages, from words such as `N0=23`.
fn nodes_of(line: &str) -> impl Iterator<Item = NodeId> {
    line.split(' ').filter_map(|word| {
        let (node, _) = word.strip_prefix('N')?.split_once('=')?;
        node.parse().ok().map(NodeId)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_pages_are_read_from_the_kernel_s_list() {
        let line = r"7f5a prefer:1 file=/memfd:selvedge\040(deleted) dirty=23 N0=3 N12=20";
        assert!(is_shared_memory(line));
        assert!(nodes_of(line).eq([NodeId(0), NodeId(12)]));
        let special = r"7f5a default file=/memfd:selvedge-special\040(deleted) N0=3";
        assert!(!is_shared_memory(special));
    }
}
