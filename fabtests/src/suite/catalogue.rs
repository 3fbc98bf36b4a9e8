//! The catalogue: every test of the selected providers.

use super::conformance;
use super::entry::{Entry, Selection};
use super::manifest::{Manifest, Variant};
use super::run::selftest;
use crate::upstream::entries as upstream;

/// The functions that make the entries of a provider, of every set: one for each part of the suite.
const SOURCES: &[fn(&Selection, &str) -> Vec<Entry>] =
    &[conformance::entries, upstream::catalogue::entries];

/// Returns the names of the built-in providers that are enabled.
pub fn providers() -> Vec<String> {
    let registry = selvedge_providers::builtin();
    let params = registry.params();
    let all = registry.providers().iter();
    let enabled = all.filter(|provider| provider.is_enabled(&params));
    enabled.map(|provider| provider.name().to_owned()).collect()
}

/// Returns the selected tests, with the providers' variants, in the order in which they run.
pub fn entries(selection: &Selection, manifest: &Manifest) -> Vec<Entry> {
    let mut entries = Vec::new();
    for provider in &selection.providers {
        let provider_entries: Vec<_> = SOURCES
            .iter()
            .flat_map(|source| source(selection, provider))
            .collect();
        for variant in manifest.variants(provider) {
            entries.extend(
                provider_entries
                    .iter()
                    .filter(|entry| variant.includes(&entry.name))
                    .map(|entry| with_variant(entry, variant)),
            );
        }
        entries.extend(provider_entries);
    }
    entries.retain(|entry| selection.includes(entry));
    entries.sort_by_key(|entry| entry.provider.clone());
    entries
}

/// Returns the tests over providers with the defects that each test must detect.
pub fn mutants(selection: &Selection) -> Vec<Entry> {
    let mut entries = Vec::new();
    for provider in &selection.providers {
        entries.extend(conformance::mutants(selection, provider));
        entries.extend(upstream::mutants::entries(selection, provider));
    }
    entries.retain(|entry| selection.includes(entry));
    entries
}

/// Returns the tests, each with one call that fails when the call is made for the `nth` time.
pub fn hook_faults(selection: &Selection, nth: u32) -> Vec<Entry> {
    let providers = selection.providers.iter();
    let mut entries: Vec<_> = providers
        .flat_map(|provider| conformance::hook_faults(selection, provider, nth))
        .collect();
    entries.retain(|entry| selection.includes(entry));
    entries
}

/// Returns the tests of the runner itself.
pub fn selftests() -> Vec<Entry> {
    selftest::entries()
}

fn with_variant(entry: &Entry, variant: &Variant) -> Entry {
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
