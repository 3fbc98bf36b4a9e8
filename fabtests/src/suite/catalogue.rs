//! Every test that there is, for the providers that are asked for.

use super::conformance;
use super::entry::{Entry, Set};
use super::manifest::{Manifest, Variant};
use super::misbehave;
use crate::upstream;

/// Which tests are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The set.
    pub set: Set,
    /// The providers.
    pub providers: Vec<String>,
    /// Whatever is random comes from it.
    pub seed: u64,
    /// Only tests whose path contains one of these; all when there are none.
    pub filters: Vec<String>,
    /// No tests whose path contains one of these.
    pub excludes: Vec<String>,
}

/// Who has tests for a provider: all of them, of every set.
///
/// This is where the suite's parts come together; each makes its entries in a file of its own.
const SOURCES: &[fn(&Wanted, &str) -> Vec<Entry>] =
    &[conformance::entries, upstream::catalogue::entries];

/// The providers that are built in and on.
pub fn providers() -> Vec<String> {
    let registry = selvedge_providers::builtin();
    let params = registry.params();
    let all = registry.providers().iter();
    let on = all.filter(|provider| provider.is_enabled(&params));
    on.map(|provider| provider.name().to_owned()).collect()
}

/// The tests that are wanted, with the providers' variants, in the order in which they are run.
pub fn entries(wanted: &Wanted, manifest: &Manifest) -> Vec<Entry> {
    let mut entries = Vec::new();
    for provider in &wanted.providers {
        let own: Vec<_> = SOURCES
            .iter()
            .flat_map(|source| source(wanted, provider))
            .collect();
        for variant in manifest.variants(provider) {
            entries.extend(
                own.iter()
                    .filter(|entry| variant.has(&entry.name))
                    .map(|entry| vary(entry, variant)),
            );
        }
        entries.extend(own);
    }
    entries.retain(|entry| wanted.has(entry));
    entries.sort_by_key(|entry| entry.provider.clone());
    entries
}

/// The tests over providers with the defects that each has to notice.
pub fn mutants(wanted: &Wanted) -> Vec<Entry> {
    let mut entries = Vec::new();
    for provider in &wanted.providers {
        entries.extend(conformance::mutants(wanted, provider));
        entries.extend(upstream::mutants::entries(wanted, provider));
    }
    entries.retain(|entry| wanted.has(entry));
    entries
}

/// The tests with calls that fail when they are made for the `nth` time.
pub fn hook_faults(wanted: &Wanted, nth: u32) -> Vec<Entry> {
    let providers = wanted.providers.iter();
    let mut entries: Vec<_> = providers
        .flat_map(|provider| conformance::hook_faults(wanted, provider, nth))
        .collect();
    entries.retain(|entry| wanted.has(entry));
    entries
}

/// The tests of the runner itself.
pub fn selftests() -> Vec<Entry> {
    misbehave::entries()
}

impl Wanted {
    fn has(&self, entry: &Entry) -> bool {
        let path = entry.path();
        let is_in = |parts: &[String]| parts.iter().any(|part| path.contains(part.as_str()));
        let is_chosen = self.filters.is_empty() || is_in(&self.filters);
        entry.set <= self.set && is_chosen && !is_in(&self.excludes)
    }
}

fn vary(entry: &Entry, variant: &Variant) -> Entry {
    let mut entry = entry.clone();
    entry.provider = format!("{}+{}", entry.provider, variant.name);
    entry.set = entry.set.max(Variant::SET);
    let env = variant.env.iter();
    let env: Vec<_> = env
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for process in &mut entry.processes {
        process.env.extend(env.iter().cloned());
    }
    entry
}
