//! The memory that the process may still commit, as the machine and the control groups of the
//! process limit it.
//!
//! Ordinary memory counts when it is touched, and the heap's when it is allocated. If the heap took
//! what is available to the last page, the kernel would kill a process that ordinary memory would
//! have left alive. Therefore the heap asks here before it commits, and takes only a part.

mod budget;
mod control_groups;
mod files;

pub(crate) use self::budget::Budget;

use self::control_groups::Version;
use self::files::{Files, PathBuffer, number_after};
use crate::system;

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The memory that the process and its neighbours can have altogether.
    pub(crate) total: usize,
    /// The part of it that is not in use. The kernel can take back the rest of its caches.
    pub(crate) available: usize,
}

impl Memory {
    const UNLIMITED: Self = Self {
        total: usize::MAX,
        available: usize::MAX,
    };

    fn min(self, other: Self) -> Self {
        Self {
            total: self.total.min(other.total),
            available: self.available.min(other.available),
        }
    }
}

/// The longest path.
const PATH: usize = 4096;
/// The longest text. Only the list of mounts can be longer; its rest is ignored.
const TEXT: usize = 256 << 10;

/// Returns the memory of this process; `None` if the heap has no memory to find it out. A limit
/// that cannot be read does not exist.
pub(crate) fn memory() -> Option<Memory> {
    system::with_scratch(3 * PATH + TEXT, |scratch| memory_below(b"", scratch))
}

/// As [`memory`], with all files below a folder.
fn memory_below(root: &[u8], scratch: &mut [u8]) -> Memory {
    let (path, rest) = scratch.split_at_mut(PATH);
    let (group, rest) = rest.split_at_mut(PATH);
    let (folder, text) = rest.split_at_mut(PATH);
    let files = &mut Files::new(root, path, text);
    let mut memory = machine(files).min(overcommit(files));
    for version in [Version::One, Version::Two] {
        let (group, folder) = (PathBuffer::new(group), PathBuffer::new(folder));
        if let Some(limit) = version.memory(files, group, folder) {
            memory = memory.min(limit);
        }
    }
    memory
}

/// The memory of the machine.
fn machine(files: &mut Files<'_>) -> Memory {
    let text = files.read(&[b"/proc/meminfo"]).unwrap_or_default();
    let bytes = |name| number_after(text, name).map_or(usize::MAX, from_kibibytes);
    Memory {
        total: bytes(b"MemTotal:"),
        available: bytes(b"MemAvailable:"),
    }
}

/// The memory that the kernel promises to processes, if it makes no promise that it may break
/// (`vm.overcommit_memory=2`).
fn overcommit(files: &mut Files<'_>) -> Memory {
    if files.number(&[b"/proc/sys/vm/overcommit_memory"]) != Some(2) {
        return Memory::UNLIMITED;
    }
    let text = files.read(&[b"/proc/meminfo"]).unwrap_or_default();
    let bytes = |name| number_after(text, name).map(from_kibibytes);
    let (Some(total), Some(used)) = (bytes(b"CommitLimit:"), bytes(b"Committed_AS:")) else {
        return Memory::UNLIMITED;
    };
    Memory {
        total,
        available: total.saturating_sub(used),
    }
}

fn from_kibibytes(number: u64) -> usize {
    usize::try_from(number.saturating_mul(1024)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::path::PathBuf;

    use super::*;

    /// A folder with files in the places of the kernel's.
    pub(super) struct Machine(PathBuf);

    impl Machine {
        /// 1000 KiB, of which 800 are available.
        pub(super) fn new(name: &str) -> Self {
            let folder = format!("selvedge-heap-{}-{name}", std::process::id());
            let machine = Self(std::env::temp_dir().join(folder));
            machine.with("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 800 kB\n")
        }

        pub(super) fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
            self
        }

        /// Total and available memory in KiB.
        pub(super) fn memory(&self) -> (usize, usize) {
            let mut scratch = vec![0; 3 * PATH + TEXT];
            let memory = memory_below(self.0.as_os_str().as_bytes(), &mut scratch);
            (memory.total >> 10, memory.available >> 10)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_memory_of_this_process_is_found() {
        let memory = memory().unwrap();
        assert!(memory.total > 0 && memory.available <= memory.total);
    }

    #[test]
    fn promised_memory_is_a_limit_if_the_kernel_keeps_its_promises() {
        let text = "MemTotal: 1000 kB\nMemAvailable: 800 kB\nCommitLimit: 500 kB\n\
                    Committed_AS: 400 kB\n";
        let machine = Machine::new("overcommit").with("proc/meminfo", text);
        assert_eq!(machine.memory(), (1000, 800));
        let machine = machine.with("proc/sys/vm/overcommit_memory", "1\n");
        assert_eq!(machine.memory(), (1000, 800));
        let machine = machine.with("proc/sys/vm/overcommit_memory", "2\n");
        assert_eq!(machine.memory(), (500, 100));
        let machine = machine.with("proc/meminfo", &text.replace("400", "600"));
        assert_eq!(machine.memory(), (500, 0));
    }

    #[test]
    fn files_that_are_missing_or_nonsense_limit_nothing() {
        let unlimited = (usize::MAX >> 10, usize::MAX >> 10);
        let machine = Machine::new("nonsense").with("proc/sys/vm/overcommit_memory", "2");
        let machine = machine.with("proc/meminfo", "");
        assert_eq!(machine.memory(), unlimited);
        let machine = machine.with("proc/meminfo", "MemTotal: x kB\nMemAvailable:\n\0\n");
        assert_eq!(machine.memory(), unlimited);
        let machine = machine.with("proc/meminfo", "MemAvailable: 99999999999999999999 kB");
        assert_eq!(machine.memory(), unlimited);
    }
}
