//! What is expected of each provider: which tests it cannot run, and why, and the ways of moving
//! data that it is to be tried with.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::entry::Set;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    #[serde(default)]
    provider: Vec<Expected>,
}

/// One provider.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    name: String,
    /// Another provider, whose skips and faults are this one's, too.
    like: Option<String>,
    #[serde(default)]
    skip: Vec<Skip>,
    /// What is wrong with the provider itself: these tests are not run.
    #[serde(default)]
    fault: Vec<Skip>,
    #[serde(default)]
    variant: Vec<Variant>,
}

/// Tests that the provider cannot run, or fails.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skip {
    tests: String,
    reason: String,
}

/// Tests that are run once more, with other parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// What is put behind the provider's name: `shm+bounce`.
    pub name: String,
    /// Patterns of the tests' names.
    tests: Vec<String>,
    /// The parameters, as environment variables.
    pub env: BTreeMap<String, String>,
}

impl Manifest {
    /// The one that comes with the suite.
    ///
    /// # Errors
    /// When it is not well-formed.
    pub fn built_in() -> anyhow::Result<Self> {
        Self::parse(include_str!("../../expectations.toml")).context("the suite's own manifest")
    }

    /// The one in a file.
    ///
    /// # Errors
    /// When it cannot be read, or is not well-formed.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text).with_context(|| format!("the manifest {name}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Why the provider is not expected to run the test; `None` if it is.
    ///
    /// A variant of a provider is excused from what the provider is excused from.
    pub fn excuse(&self, provider: &str, test: &str) -> Option<&str> {
        let name = provider.split('+').next().unwrap_or(provider);
        self.of(name)
            .flat_map(|expected| &expected.skip)
            .find(|skip| matches(&skip.tests, test))
            .map(|skip| skip.reason.as_str())
    }

    /// Why the provider is known to fail the test, by a fault of its own; `None` if it is to pass.
    pub fn fault(&self, provider: &str, test: &str) -> Option<&str> {
        let known = self.of(provider).flat_map(|expected| &expected.fault);
        let mut known = known.filter(|fault| matches(&fault.tests, test));
        known.next().map(|fault| fault.reason.as_str())
    }

    /// The variants of a provider, and the tests that are run with each.
    pub fn variants(&self, provider: &str) -> impl Iterator<Item = &Variant> {
        self.named(provider).flat_map(|expected| &expected.variant)
    }

    /// What is said of a provider, or of one that it is like.
    fn of(&self, provider: &str) -> impl Iterator<Item = &Expected> {
        let own = self.named(provider);
        own.flat_map(|own| {
            let other = own.like.as_deref().into_iter();
            other.flat_map(|like| self.named(like)).chain([own])
        })
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &Expected> {
        let is_meant = move |expected: &&Expected| expected.name == name;
        self.provider.iter().filter(is_meant)
    }
}

impl Variant {
    /// Whether the test is run with it.
    pub fn has(&self, test: &str) -> bool {
        self.tests.iter().any(|pattern| matches(pattern, test))
    }

    /// The smallest set that its tests are of.
    pub const SET: Set = Set::Standard;
}

/// Whether a text is as the pattern says, in which `*` stands for anything.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|text| {
            let places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            places.into_iter().any(|at| matches(rest, &text[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("rdm/*/rma.*", "rdm/raw/rma.bounds"));
        assert!(matches("*", "") && matches("a*", "a") && matches("*.x", "a.b.x"));
        assert!(!matches("rdm/*", "msg/raw/x") && !matches("a", "ab") && !matches("*b", "abc"));
    }

    #[test]
    fn excuses_are_found_by_provider_and_pattern() {
        let text = "[[provider]]\nname = 'x'\n[[provider.skip]]\ntests = 'msg/*'\nreason = 'no'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.excuse("x", "msg/raw/a"), Some("no"));
        assert_eq!(manifest.excuse("x+slow", "msg/raw/a"), Some("no"));
        assert_eq!(manifest.excuse("x", "rdm/raw/a"), None);
        assert_eq!(manifest.excuse("y", "msg/raw/a"), None);
    }

    #[test]
    fn a_provider_may_be_like_another_one() {
        let text = "[[provider]]\nname = 'x'\n[[provider.skip]]\ntests = 'a'\nreason = 'no'\n\
                    [[provider]]\nname = 'y;x'\nlike = 'x'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.excuse("y;x", "a"), Some("no"));
        assert_eq!(manifest.excuse("y;x", "b"), None);
    }

    #[test]
    fn faults_of_a_provider_are_no_excuses() {
        let text = "[[provider]]\nname = 'x'\n[[provider.fault]]\ntests = 'a*'\nreason = 'bug'";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.fault("x", "ab"), Some("bug"));
        assert_eq!(manifest.fault("x", "b"), None);
        assert_eq!(manifest.excuse("x", "ab"), None);
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
