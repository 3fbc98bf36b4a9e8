//! The manifest tells what to expect of each provider: the tests that it cannot run, with reasons,
//! and the variants of its parameters.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::entry::Set;

/// A whole manifest file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(default)]
    provider: Vec<Expected>,
}

/// The expected results of one provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    name: String,
    /// Another provider, whose skips and faults apply to this one as well.
    like: Option<String>,
    #[serde(default)]
    skip: Vec<Skip>,
    /// Tests that fail because of a fault of the provider itself, and are not run.
    #[serde(default)]
    fault: Vec<Skip>,
    #[serde(default)]
    variant: Vec<Variant>,
}

/// Tests that are not run with the provider, as a pattern of names, and the reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    tests: String,
    reason: String,
}

/// Tests that run once more with other parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The suffix of the provider's name: "bounce" in "shm+bounce".
    pub name: String,
    /// Patterns of the tests' names.
    tests: Vec<String>,
    /// The parameters, as environment variables.
    pub env: BTreeMap<String, String>,
}

impl Manifest {
    /// The manifest of this suite.
    ///
    /// # Errors
    /// When the manifest is malformed.
    pub fn built_in() -> anyhow::Result<Self> {
        Self::parse(include_str!("../../expectations.toml")).context("the suite's own manifest")
    }

    /// The manifest in a file.
    ///
    /// # Errors
    /// When the file cannot be read, or is malformed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text).with_context(|| format!("the manifest {name}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// The reason why the provider is not expected to run the test; `None` if it is.
    ///
    /// A variant of a provider has the provider's skips.
    pub fn skip_reason(&self, provider: &str, test: &str) -> Option<&str> {
        let name = provider.split('+').next().unwrap_or(provider);
        self.of(name)
            .flat_map(|expected| &expected.skip)
            .find(|skip| matches(&skip.tests, test))
            .map(|skip| skip.reason.as_str())
    }

    /// The fault of the provider that makes the test fail; `None` if no fault is known.
    pub fn fault(&self, provider: &str, test: &str) -> Option<&str> {
        let faults = self.of(provider).flat_map(|expected| &expected.fault);
        let mut faults = faults.filter(|fault| matches(&fault.tests, test));
        faults.next().map(|fault| fault.reason.as_str())
    }

    /// The variants of a provider.
    pub fn variants(&self, provider: &str) -> impl Iterator<Item = &Variant> {
        self.by_name(provider)
            .flat_map(|expected| &expected.variant)
    }

    /// The entries for a provider, and for the provider that it is like.
    fn of(&self, provider: &str) -> impl Iterator<Item = &Expected> {
        let own = self.by_name(provider);
        own.flat_map(|own| {
            let other = own.like.as_deref().into_iter();
            other.flat_map(|like| self.by_name(like)).chain([own])
        })
    }

    fn by_name(&self, name: &str) -> impl Iterator<Item = &Expected> {
        let has_name = move |expected: &&Expected| expected.name == name;
        self.provider.iter().filter(has_name)
    }
}

impl Variant {
    /// Returns whether the test runs with this variant.
    pub fn includes(&self, test: &str) -> bool {
        self.tests.iter().any(|pattern| matches(pattern, test))
    }

    /// The smallest set that contains tests of variants.
    pub const SET: Set = Set::Standard;
}

/// Returns whether a text matches a pattern, in which `*` matches any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            let offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            offsets.into_iter().any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        assert!(matches("rdm/*/rma.*", "rdm/raw/rma.bounds"));
        assert!(matches("*", "") && matches("a*", "a") && matches("*.x", "a.b.x"));
        assert!(!matches("rdm/*", "msg/raw/x") && !matches("a", "ab") && !matches("*b", "abc"));
    }

    #[test]
    fn skips_are_found_by_provider_and_pattern() {
        let text = "[[provider]]\nname = 'x'\n[[provider.skip]]\ntests = 'msg/*'\nreason = 'no'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.skip_reason("x", "msg/raw/a"), Some("no"));
        assert_eq!(manifest.skip_reason("x+slow", "msg/raw/a"), Some("no"));
        assert_eq!(manifest.skip_reason("x", "rdm/raw/a"), None);
        assert_eq!(manifest.skip_reason("y", "msg/raw/a"), None);
    }

    #[test]
    fn a_provider_may_be_like_another_one() {
        let text = "[[provider]]\nname = 'x'\n[[provider.skip]]\ntests = 'a'\nreason = 'no'\n\
                    [[provider]]\nname = 'y;x'\nlike = 'x'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.skip_reason("y;x", "a"), Some("no"));
        assert_eq!(manifest.skip_reason("y;x", "b"), None);
    }

    #[test]
    fn faults_of_a_provider_are_not_skips() {
        let text = "[[provider]]\nname = 'x'\n[[provider.fault]]\ntests = 'a*'\nreason = 'bug'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.fault("x", "ab"), Some("bug"));
        assert_eq!(manifest.fault("x", "b"), None);
        assert_eq!(manifest.skip_reason("x", "ab"), None);
    }

    #[test]
    fn the_manifest_of_libfabric_1_17_is_well_formed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("libfabric-1.17.toml");
        Manifest::read(&path).unwrap();
    }

    #[test]
    fn the_suite_s_own_manifest_is_well_formed_and_misspelt_ones_are_refused() {
        Manifest::built_in().unwrap();
        assert!(Manifest::parse("[[provider]]\nname = 'x'\nskips = []").is_err());
    }
}
