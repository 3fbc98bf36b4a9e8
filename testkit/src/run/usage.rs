//! The descriptors and the memory of a process. Tests compare them with an earlier measurement, to
//! find leaks.

use std::fs;

use anyhow::Context as _;

use crate::run::timeout::Timeout;

/// The resource usage of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The number of open descriptors.
    pub fds: usize,
    /// The number of mappings of Selvedge's shared memory.
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

    /// The usage of a process: `process` is its id, or `self`.
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

/// The size of the mapping that a line of /proc/PID/maps describes.
fn size(line: &str) -> Option<usize> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(end)? - number(start)?)
}

/// The size in one field of /proc/PID/smaps_rollup, in bytes. `process` is the process's id or
/// `self`, and `field` is the field's name with its colon.
///
/// # Errors
/// When there is no such process or no such field.
pub fn memory(process: &str, field: &str) -> anyhow::Result<usize> {
    let path = format!("/proc/{process}/smaps_rollup");
    let rollup = fs::read_to_string(&path).with_context(|| path)?;
    let found = rollup.lines().find_map(|line| line.strip_prefix(field));
    let number = found.and_then(|rest| rest.split_whitespace().next());
    let kib: usize = number
        .with_context(|| format!("smaps_rollup has no field {field}"))?
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

/// The anonymous memory of this process, after the allocator has returned free memory to the
/// system. Otherwise free memory that the allocator keeps would count: 5 MB after 100,000 messages.
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

/// Waits until no socket with a name that contains `name` is left. The kernel collects the sockets
/// of an exited process with a delay.
///
/// # Errors
/// A timeout, which names the remaining sockets.
pub fn wait_for_no_sockets(name: &str) -> anyhow::Result<()> {
    let mut timeout = Timeout::new("the end of the last sockets with a name");
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
