//! What a process holds, to be compared with what it held before.

use std::fs;

use anyhow::Context as _;
use selvedge_testkit::timeout::Timeout;
use serde::Serialize;

/// Counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Descriptors.
    pub(crate) fds: usize,
    /// Mappings of the provider's shared memory.
    pub(crate) maps: usize,
    /// Bytes in those.
    pub(crate) shared: usize,
}

impl Tally {
    /// Of this process.
    ///
    /// # Errors
    /// When /proc is not there.
    pub(crate) fn now() -> anyhow::Result<Self> {
        Self::of("self")
    }

    /// Of the process with this number.
    ///
    /// # Errors
    /// When it is not there.
    pub(crate) fn of(process: &str) -> anyhow::Result<Self> {
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

/// Memory of a process that is no file's, in bytes.
///
/// # Errors
/// When it is not there.
pub(crate) fn private(process: &str) -> anyhow::Result<usize> {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = fs::read_to_string(&path).with_context(|| path)?;
    let line = rollup.lines().find(|line| line.starts_with("Pss_Anon:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: usize = number.context("no Pss_Anon in smaps_rollup")?.parse()?;
    Ok(kib * 1024)
}

/// Such memory of this process, without what the allocator keeps of freed buffers: a life that had sent
/// a hundred thousand messages before it was killed was five megabytes of what had been noted of them.
///
/// # Errors
/// As [`private`].
pub(crate) fn held() -> anyhow::Result<usize> {
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
pub(crate) fn no_sockets(name: &str) -> anyhow::Result<()> {
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
