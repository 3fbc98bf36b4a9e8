//! The memory that the machine and the control groups of this process have.

use super::control_groups::Version;
use super::files::{Files, PathBuffer, number_after};
use super::memory::Memory;
use crate::system;

/// The longest path.
pub(super) const PATH: usize = 4096;
/// The longest text. Only the list of mounts can be longer; its rest is ignored.
pub(super) const TEXT: usize = 256 << 10;

/// Returns the memory of this process; `None` if the heap has no memory to find it out. A limit
/// that cannot be read does not exist.
pub(crate) fn memory() -> Option<Memory> {
    system::with_scratch(3 * PATH + TEXT, |scratch| memory_below(b"", scratch))
}

/// As [`memory`], with all files below a folder.
pub(super) fn memory_below(root: &[u8], scratch: &mut [u8]) -> Memory {
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
