//! The kernel's description of the nodes: `/sys/devices/system/node`.

use std::fs;
use std::io;
use std::path::Path;

use super::cpu_list::CpuList;
use super::node::{Node, NodeId};

/// The directory of the description.
pub(super) const ROOT: &str = "/sys/devices/system/node";

/// The greatest number of nodes that a kernel is built for (`CONFIG_NODES_SHIFT` is at most 10).
pub(super) const NODES_MAX: usize = 1024;

/// Reads the nodes below `root`. A node that is removed meanwhile is left out.
pub(super) fn read(root: &Path) -> io::Result<Vec<Node>> {
    let online = read_list(&root.join("online"))?;
    let with_memory = read_list(&root.join("has_memory")).unwrap_or_else(|_| online.clone());
    let read_node = |id: usize| {
        let cpus = match read_list(&root.join(format!("node{id}/cpulist"))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            cpus => cpus,
        };
        let has_memory = with_memory.contains(id);
        let id = NodeId(id as u32);
        Some(cpus.map(|cpus| Node {
            id,
            cpus,
            has_memory,
        }))
    };
    online
        .numbers_below(NODES_MAX)
        .filter_map(read_node)
        .collect()
}

fn read_list(path: &Path) -> io::Result<CpuList> {
    fs::read_to_string(path)?.parse()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A directory with these files, which is removed at the end of the test.
    struct Tree(PathBuf);

    impl Tree {
        fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("numa-{}-{number}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        for (name, text) in files {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Tree(root)
    }

    #[test]
    fn nodes_have_the_processors_and_the_memory_that_the_kernel_lists() {
        let tree = tree(&[
            ("online", "0-1,4,9\n"),
            ("has_memory", "0,4\n"),
            ("node0/cpulist", "0-7,16-23\n"),
            ("node1/cpulist", "8-15\n"),
            ("node4/cpulist", "\n"),
        ]);
        let nodes = read(tree.path()).unwrap();
        let found: Vec<_> = nodes
            .iter()
            .map(|node| (node.id.0, node.cpus.to_string(), node.has_memory))
            .collect();
        let expected = [(0, "0-7,16-23", true), (1, "8-15", false), (4, "", true)];
        let expected = expected.map(|(id, cpus, memory)| (id, cpus.to_owned(), memory));
        assert_eq!(found, expected, "node 9 was removed meanwhile");
    }

    #[test]
    fn a_description_that_is_absent_or_malformed_is_an_error() {
        let missing = read(tree(&[]).path()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        for files in [
            &[("online", "x")][..],
            &[("online", "0"), ("node0/cpulist", "7-5")],
        ] {
            let malformed = read(tree(files).path()).unwrap_err();
            assert_eq!(malformed.kind(), io::ErrorKind::InvalidData, "{files:?}");
        }
        let huge = tree(&[("online", "0-99999999999"), ("node0/cpulist", "0")]);
        assert_eq!(read(huge.path()).unwrap().len(), 1);
    }

    #[test]
    fn this_machine_has_a_node_with_memory() {
        let nodes = read(Path::new(ROOT)).unwrap();
        assert!(
            nodes
                .iter()
                .any(|node| node.has_memory && !node.cpus.is_empty())
        );
    }
}
