//! What a process holds: descriptors, mappings, memory.

use std::fs;

/// Counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) fds: usize,
    /// Mappings of the shared memory that the provider makes.
    pub(crate) maps: usize,
    /// Bytes in those.
    pub(crate) shared: usize,
}

impl Tally {
    pub(crate) fn now() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let maps = maps.lines().filter(|line| line.contains("memfd:selvedge"));
        let sizes: Vec<_> = maps.map(size).collect();
        Self {
            fds: fs::read_dir("/proc/self/fd").unwrap().count(),
            maps: sizes.len(),
            shared: sizes.iter().sum(),
        }
    }
}

/// The size of the mapping that a line of /proc/self/maps begins with.
fn size(line: &str) -> usize {
    let (start, rest) = line.split_once('-').unwrap();
    let (end, _) = rest.split_once(' ').unwrap();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    number(end) - number(start)
}

/// Memory of this process in bytes, pages that it shares counted by its part of them.
pub(crate) fn memory() -> usize {
    field("Pss:") * 1024
}

/// Anonymous memory of this process in bytes, without what the allocator keeps of freed buffers.
pub(crate) fn private() -> usize {
    #[expect(unsafe_code, reason = "no wrapper for malloc_trim(3)")]
    // SAFETY: it gives free memory back to the system and may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
    field("Pss_Anon:") * 1024
}

fn field(name: &str) -> usize {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
