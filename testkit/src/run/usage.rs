//! Descriptors and memory of a process, to be compared with an earlier measurement.

use std::fs;

use anyhow::Context as _;

use crate::run::timeout::Timeout;

/// The resource usage of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The number of open descriptors.
    pub fds: usize,
    /// The number of mappings of the provider's shared memory.
    pub maps: usize,
    /// The size of these mappings, in bytes.
    pub shared: usize,
}

impl Usage {
    /// The usage of this process.
    ///
    /// # Errors
    /// When /proc is not mounted.
    pub fn now() -> anyhow::Result<Self> {
        Self::of("self")
    }

    /// The usage of the process with this id.
    ///
    /// # Errors
    /// When there is no such process.
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

/// The size of the mapping in a line of /proc/self/maps.
fn size(line: &str) -> Option<usize> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(end)? - number(start)?)
}

/// The size in a line of a process's smaps_rollup, in bytes.
///
/// # Errors
/// When there is no such process or no such line.
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

/// The anonymous memory of a process, in bytes.
///
/// # Errors
/// As [`memory`].
pub fn private(process: &str) -> anyhow::Result<usize> {
    memory(process, "Pss_Anon:")
}

/// The anonymous memory of this process, after the allocator has returned free memory to the system. The
/// allocator may otherwise keep megabytes: 5 MB after 100,000 messages.
///
/// # Errors
/// As [`private`].
pub fn private_after_trim() -> anyhow::Result<usize> {
    #[expect(unsafe_code, reason = "no wrapper for malloc_trim(3)")]
    // SAFETY: the function returns free memory to the system and may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
    private("self")
}

/// Waits until no socket with a name that contains `name` is left. The kernel collects the sockets of an
/// exited process with a delay.
///
/// # Errors
/// The remaining sockets.
pub fn no_sockets(name: &str) -> anyhow::Result<()> {
    let mut timeout = Timeout::new("the last sockets of a name");
    loop {
        let sockets = fs::read_to_string("/proc/net/unix")?;
        let left: Vec<_> = sockets.lines().filter(|line| line.contains(name)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let message = || format!("remaining sockets: {left:#?}");
        timeout.check().with_context(message)?;
    }
}
