//! NUMA nodes: which processors and which memory lie near each other, where a process runs, and
//! where its memory should lie.
//!
//! The kernel describes the nodes below `/sys/devices/system/node`. A process that starts with
//! hwloc's variables `HWLOC_XMLFILE` and `HWLOC_THISSYSTEM=1` reads hwloc's file instead, as every
//! program with hwloc does.

mod cpu_list;
mod hwloc;
mod node;
mod policy;
mod process;
mod sysfs;

use std::io;
use std::path::Path;
use std::sync::OnceLock;

pub use cpu_list::CpuList;
pub use node::{Node, NodeId};
pub use policy::{Pages, prefer_node};

/// The nodes of a machine, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    nodes: Vec<Node>,
}

impl Topology {
    /// Returns the topology of this machine if memory can lie on more than one node, else `None`.
    /// The first call of the process reads it.
    pub fn of_machine() -> Option<&'static Self> {
        static TOPOLOGY: OnceLock<Option<Topology>> = OnceLock::new();
        let topology = TOPOLOGY.get_or_init(|| {
            let read = Self::read_machine();
            let several =
                |topology: &Self| topology.nodes.iter().filter(|it| it.has_memory).count() > 1;
            read.ok().filter(several)
        });
        topology.as_ref()
    }

    /// Reads the topology of this machine: hwloc's file if the environment names one for this
    /// machine and it can be read, else the kernel's description.
    ///
    /// # Errors
    /// The system's error when the kernel describes no nodes.
    pub fn read_machine() -> io::Result<Self> {
        match hwloc::from_environment() {
            Some(nodes) => Ok(Self::new(nodes)),
            None => Self::read(Path::new(sysfs::ROOT)),
        }
    }

    /// Reads a description in the kernel's format from the directory `root`.
    ///
    /// # Errors
    /// The system's error when `root` cannot be read; [`io::ErrorKind::InvalidData`] for a list of
    /// processors or nodes that is malformed.
    pub fn read(root: &Path) -> io::Result<Self> {
        sysfs::read(root).map(Self::new)
    }

    fn new(mut nodes: Vec<Node>) -> Self {
        nodes.sort_by_key(|node| node.id);
        Self { nodes }
    }

    /// Returns the nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the node of a processor, if the node has memory.
    pub fn node_of_cpu(&self, cpu: usize) -> Option<NodeId> {
        let node = self.nodes.iter().find(|node| node.cpus.contains(cpu))?;
        node.has_memory.then_some(node.id)
    }

    /// Returns the node on which the calling thread runs now.
    pub fn node_of_this_thread(&self) -> Option<NodeId> {
        self.node_of_cpu(process::current_cpu()?)
    }

    /// Returns the node on which the process `pid` runs: the node of all processors that the
    /// process may use, or, if these belong to several nodes, the node of the processor that its
    /// main thread used last. `None` if the kernel does not say, and for numbers that are no
    /// process.
    pub fn node_of_process(&self, pid: i32) -> Option<NodeId> {
        if pid <= 0 {
            return None;
        }
        let mut allowed = process::allowed_cpus(pid).into_iter();
        let bound = allowed.next().and_then(|cpu| self.node_of_cpu(cpu));
        if bound.is_some() && allowed.all(|cpu| self.node_of_cpu(cpu) == bound) {
            return bound;
        }
        self.node_of_cpu(process::last_cpu(pid)?)
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::unistd::Pid;

    use super::*;

    fn node(id: u32, cpus: &str, has_memory: bool) -> Node {
        let cpus = cpus.parse().unwrap();
        let id = NodeId(id);
        Node {
            id,
            cpus,
            has_memory,
        }
    }

    #[test]
    fn a_processor_is_on_the_node_that_lists_it_if_the_node_has_memory() {
        let topology = Topology::new(vec![
            node(3, "8-11", false),
            node(1, "0-3,12", true),
            node(2, "", true),
        ]);
        let expected = [(0, Some(1)), (12, Some(1)), (4, None), (9, None)];
        for (cpu, id) in expected {
            assert_eq!(topology.node_of_cpu(cpu), id.map(NodeId), "processor {cpu}");
        }
        assert_eq!(topology.nodes()[0].id, NodeId(1));
    }

    #[test]
    fn a_bound_process_is_on_the_node_of_its_processors() {
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this).unwrap();
        let cpus: Vec<_> = (0..CpuSet::count())
            .filter(|&cpu| allowed.is_set(cpu).unwrap())
            .collect();
        let others = node(0, "2000-3000", true);
        let here = |cpus: &[usize]| {
            let cpus: Vec<_> = cpus.iter().map(ToString::to_string).collect();
            node(1, &cpus.join(","), true)
        };
        let pid = std::process::id().cast_signed();
        let all = Topology::new(vec![others.clone(), here(&cpus)]);
        assert_eq!(all.node_of_process(pid), Some(NodeId(1)));
        assert_eq!(all.node_of_this_thread(), Some(NodeId(1)));
        let none = Topology::new(vec![others]);
        assert_eq!(none.node_of_process(pid), None);
        for no_process in [0, -1, i32::MAX] {
            assert_eq!(all.node_of_process(no_process), None);
        }
        // The affinity of the main thread counts, so a child tests a mask of one processor.
        let mut one = CpuSet::new();
        one.set(cpus[0]).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let child_pid = Pid::from_raw(child.id().cast_signed());
        sched_setaffinity(child_pid, &one).unwrap();
        let split = Topology::new(vec![here(&cpus[..1]), node(5, "", true)]);
        assert_eq!(split.node_of_process(child_pid.as_raw()), Some(NodeId(1)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_on_several_nodes_is_on_that_of_its_last_processor() {
        let halves = Topology::new(vec![node(0, "0", true), node(1, "1-4095", true)]);
        let this = std::process::id().cast_signed();
        if process::allowed_cpus(this).len() > 1 {
            let found = halves.node_of_process(this).unwrap();
            assert!(found <= NodeId(1));
        }
    }
}
