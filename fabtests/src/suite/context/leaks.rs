//! Detection of leaks: descriptors, shared mappings and threads that a process did not have before.

use std::collections::BTreeMap;
use std::fs;

/// The number of a process's resources, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resources(BTreeMap<String, usize>);

impl Resources {
    /// The resources of this process.
    pub(crate) fn now() -> Self {
        let mut resources = BTreeMap::new();
        for kind in descriptors().chain(mappings()).chain(threads()) {
            *resources.entry(kind).or_default() += 1;
        }
        Self(resources)
    }

    /// Returns the number of resources that `before` did not have, by kind; `None` without any.
    pub(crate) fn excess_over(&self, before: &Self) -> Option<String> {
        let excess = self.0.iter().filter_map(|(kind, count)| {
            let had = before.0.get(kind).copied().unwrap_or(0);
            (*count > had).then(|| format!("{} of {kind}", count - had))
        });
        let excess = Vec::from_iter(excess).join(", ");
        (!excess.is_empty()).then_some(excess)
    }
}

/// The targets of descriptors, without the numbers of sockets and pipes.
fn descriptors() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.map(|target| {
        let target = target.to_string_lossy().into_owned();
        let kind = target.split(":[").next().unwrap_or(&target);
        format!("descriptors of {kind}")
    })
}

/// Shared mappings by name. Mappings of libraries are private, so they are not among these.
fn mappings() -> impl Iterator<Item = String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let shared = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let rights = fields.nth(1)?;
        rights.ends_with('s').then(|| {
            format!(
                "mappings of {}",
                fields.nth(3).unwrap_or("anonymous memory")
            )
        })
    });
    shared.collect::<Vec<_>>().into_iter()
}

fn threads() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten();
    entries.map(|_| "threads".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_that_is_kept_is_noticed() {
        let before = Resources(BTreeMap::from([("descriptors of socket".to_owned(), 2)]));
        let now = Resources(BTreeMap::from([
            ("descriptors of socket".to_owned(), 3),
            ("threads".to_owned(), 1),
        ]));
        let excess = now.excess_over(&before).unwrap();
        assert_eq!(excess, "1 of descriptors of socket, 1 of threads");
        assert_eq!(before.excess_over(&before), None);
    }
}
