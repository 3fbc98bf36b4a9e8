//! What a process has that it did not have before: descriptors, shared mappings, threads.

use std::collections::BTreeMap;
use std::fs;

/// What a process has, each kind with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holdings(BTreeMap<String, usize>);

impl Holdings {
    /// Those of this process.
    pub(crate) fn now() -> Self {
        let mut holdings = BTreeMap::new();
        for what in descriptors().chain(mappings()).chain(threads()) {
            *holdings.entry(what).or_default() += 1;
        }
        Self(holdings)
    }

    /// What there is more of than before; `None` if there is nothing.
    pub(crate) fn beyond(&self, before: &Self) -> Option<String> {
        let more = self.0.iter().filter_map(|(what, count)| {
            let had = before.0.get(what).copied().unwrap_or(0);
            (*count > had).then(|| format!("{} of {what}", count - had))
        });
        let more = Vec::from_iter(more).join(", ");
        (!more.is_empty()).then_some(more)
    }
}

/// What descriptors lead to, without the numbers of sockets and pipes.
fn descriptors() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.map(|target| {
        let target = target.to_string_lossy().into_owned();
        let kind = target.split(":[").next().unwrap_or(&target);
        format!("descriptors of {kind}")
    })
}

/// Shared mappings by their names, but for libraries.
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
        let before = Holdings(BTreeMap::from([("descriptors of socket".to_owned(), 2)]));
        let now = Holdings(BTreeMap::from([
            ("descriptors of socket".to_owned(), 3),
            ("threads".to_owned(), 1),
        ]));
        let more = now.beyond(&before).unwrap();
        assert_eq!(more, "1 of descriptors of socket, 1 of threads");
        assert_eq!(before.beyond(&before), None);
    }
}
