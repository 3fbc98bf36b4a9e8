//! Descriptors and memory of a process, to be compared with an earlier measurement.

use std::fs;

use anyhow::Context as _;

use crate::run::timeout::Timeout;

/// Counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Descriptors.
    pub fds: usize,
    /// Mappings of the provider's shared memory.
    pub maps: usize,
    /// Bytes in those.
    pub shared: usize,
}

impl Usage {
    /// Of this process.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn now() -> anyhow::Result<Self> {
        Self::of("self")
    }

    /// Of the process with this number.
    ///
    /// # Errors
    /// When it is not there.
    pub fn of(process: &str) -> anyhow::Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
        let maps = maps.lines().filter(|line| line.contains("memfd:selvedge"));
        let sizes: Vec<_> = maps.filter_map(size).collect();
        Ok(Self {
            fds: fs::read_dir(format!("/proc/{process}/fd"))?.count(),
            maps: sizes.len(),
            shared: sizes.iter().sum(),
        })
    }
}

/// The size of the mapping that a line of /proc/self/maps begins with.
fn size(line: &str) -> Option<usize> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(end)? - number(start)?)
}

/// Bytes of a process's memory, as a line of smaps_rollup counts them.
///
/// # Errors
/// When the process is not there, or the line is not.
pub fn memory(process: &str, line: &str) -> anyhow::Result<usize> {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = fs::read_to_string(&path).with_context(|| path)?;
    let found = rollup.lines().find_map(|text| text.strip_prefix(line));
    let number = found.and_then(|rest| rest.split_whitespace().next());
    let kib: usize = number
        .with_context(|| format!("no {line} in smaps_rollup"))?
        .parse()?;
    Ok(kib * 1024)
}

/// Memory of a process that is no file's, in bytes.
///
/// # Errors
/// As [`memory`].
pub fn private(process: &str) -> anyhow::Result<usize> {
    memory(process, "Pss_Anon:")
}

/// Such memory of this process, without what the allocator keeps of freed buffers: a life that had sent
/// a hundred thousand messages before it was killed was five megabytes of what had been noted of them.
///
/// # Errors
/// As [`private`].
pub fn private_after_trim() -> anyhow::Result<usize> {
    #[expect(unsafe_code, reason = "no wrapper for malloc_trim(3)")]
    // SAFETY: it gives free memory back to the system and may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
    private("self")
}

/// Waits until no process and no queue of the kernel has a socket whose name begins so: an endpoint
/// leaves its sockets to the kernel's collector, which closes them a moment after the process ends.
///
/// # Errors
/// The sockets that are left.
pub fn no_sockets(name: &str) -> anyhow::Result<()> {
    let mut timeout = Timeout::new("the last sockets of a name");
    loop {
        let sockets = fs::read_to_string("/proc/net/unix")?;
        let left: Vec<_> = sockets.lines().filter(|line| line.contains(name)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let what = || format!("sockets are left: {left:#?}");
        timeout.check().with_context(what)?;
    }
}
