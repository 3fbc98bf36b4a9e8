//! The limits of memory that control groups set: cgroups(7), in both versions.
//!
//! A group's limit holds for all groups below it. The group of this process and all groups above
//! it, as far as they are mounted, are asked.

use super::files::{Files, PathBuffer, number_after};
use super::memory::Memory;

/// The two interfaces of control groups. A machine may have both; one of them limits memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// The names of a version's files.
struct Names {
    /// Where the hierarchy is mounted, if the list of mounts does not say so.
    mount: &'static [u8],
    /// Files with a limit in bytes. Version 2 slows a group down from the second one on.
    limits: &'static [&'static [u8]],
    usage: &'static [u8],
    /// The line of `memory.stat` with the file pages that were not used lately. They count as
    /// used, and the kernel takes them back before it kills.
    cache: &'static [u8],
}

impl Version {
    fn names(self) -> Names {
        match self {
            Self::One => Names {
                mount: b"/sys/fs/cgroup/memory",
                limits: &[b"/memory.limit_in_bytes"],
                usage: b"/memory.usage_in_bytes",
                cache: b"total_inactive_file ",
            },
            Self::Two => Names {
                mount: b"/sys/fs/cgroup",
                limits: &[b"/memory.max", b"/memory.high"],
                usage: b"/memory.current",
                cache: b"inactive_file ",
            },
        }
    }

    /// Returns the memory that the groups of this process have; `None` if there are none. `group`
    /// and `folder` are memory for paths.
    pub(super) fn memory(
        self,
        files: &mut Files<'_>,
        mut group: PathBuffer<'_>,
        mut folder: PathBuffer<'_>,
    ) -> Option<Memory> {
        let text = files.read(&[b"/proc/self/cgroup"])?;
        group.push(self.group(text)?)?;
        let mounts = files.read(&[b"/proc/self/mountinfo"]).unwrap_or_default();
        let top = self.locate(mounts, group.as_bytes(), &mut folder)?;
        let names = self.names();
        let mut memory = Memory::UNLIMITED;
        loop {
            if let Some(limit) = names.memory(files, folder.as_bytes()) {
                memory = memory.min(limit);
            }
            let parent = folder.as_bytes().iter().rposition(|byte| *byte == b'/');
            match parent {
                Some(len) if len >= top => folder.truncate(len),
                _ => return Some(memory),
            }
        }
    }

    /// Finds the path of this process's group in `/proc/self/cgroup`.
    fn group(self, text: &[u8]) -> Option<&[u8]> {
        text.split(|byte| *byte == b'\n').find_map(|line| {
            let mut fields = line.splitn(3, |byte| *byte == b':');
            let (id, controllers) = (fields.next()?, fields.next()?);
            let is_found = match self {
                Self::One => has_word(controllers, b"memory"),
                Self::Two => id == b"0" && controllers.is_empty(),
            };
            is_found.then(|| fields.next())?
        })
    }

    /// Stores the folder of a group. Returns the length of its part that is the mount point.
    fn locate(self, mounts: &[u8], group: &[u8], folder: &mut PathBuffer<'_>) -> Option<usize> {
        let mut lines = mounts.split(|byte| *byte == b'\n');
        let mount = lines.find_map(|line| self.mount(line));
        let (root, point) = mount.unwrap_or_else(|| (b"/", self.names().mount));
        push_unescaped(folder, point)?;
        let top = folder.as_bytes().len();
        // A group outside of the mounted part, or of the namespace, is not visible.
        let below = group.strip_prefix(root.strip_suffix(b"/").unwrap_or(root));
        let is_visible = |below: &&[u8]| {
            let mut names = below.split(|byte| *byte == b'/');
            below.starts_with(b"/") && names.all(|name| name != b"..")
        };
        let below = below.filter(is_visible).unwrap_or_default();
        folder.push(below.strip_suffix(b"/").unwrap_or(below))?;
        Some(top)
    }

    /// Returns the root and the mount point of a line of `/proc/self/mountinfo`, if this version's
    /// groups are mounted there.
    fn mount(self, line: &[u8]) -> Option<(&[u8], &[u8])> {
        let mut words = line.split(|byte| *byte == b' ');
        let (root, point) = (words.nth(3)?, words.next()?);
        words.find(|word| *word == b"-")?;
        let kind = words.next()?;
        let options = words.nth(1)?;
        let is_found = match self {
            Self::One => kind == b"cgroup" && has_word(options, b"memory"),
            Self::Two => kind == b"cgroup2",
        };
        is_found.then_some((root, point))
    }
}

impl Names {
    /// The memory that one group has; `None` without a limit.
    fn memory(&self, files: &mut Files<'_>, folder: &[u8]) -> Option<Memory> {
        let limits = self.limits.iter();
        let limit = limits
            .filter_map(|name| files.number(&[folder, name]))
            .min()?;
        let usage = files.number(&[folder, self.usage])?;
        let text = files.read(&[folder, b"/memory.stat"]).unwrap_or_default();
        let cache = number_after(text, self.cache).unwrap_or(0);
        let used = usage.saturating_sub(cache);
        let bytes = |number| usize::try_from(number).unwrap_or(usize::MAX);
        Some(Memory {
            total: bytes(limit),
            available: bytes(limit.saturating_sub(used)),
        })
    }
}

/// Whether a list with commas has a word.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|other| other == word)
}

/// Appends a path of the list of mounts, which has spaces and the like as `\040`.
fn push_unescaped(path: &mut PathBuffer<'_>, escaped: &[u8]) -> Option<()> {
    let mut rest = escaped;
    while let Some((byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *byte == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let decoded = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        path.push(&[decoded.unwrap_or(*byte)])?;
        rest = if decoded.is_some() {
            &after[3..]
        } else {
            after
        };
    }
    Some(())
}
