//! The baselines of `bench`, and the names of contestants.

use anyhow::bail;

use crate::comparison::Libfabric;

/// The implementation that the benchmarks measure beside this one.
#[derive(Debug)]
pub(super) enum Baseline {
    /// libfabric's provider of the same name.
    Libfabric(Libfabric),
    /// Another provider of Selvedge.
    Provider(String),
    /// BMI over the same provider.
    Bmi,
}

impl Baseline {
    /// Finds the baseline of a name on the command line.
    ///
    /// # Errors
    /// When there is no baseline of this name, or libfabric cannot be used.
    pub(super) fn find(name: &str, provider: Option<String>) -> anyhow::Result<Self> {
        match name {
            "libfabric" => return Libfabric::compile(provider).map(Self::Libfabric),
            "bmi" => return Ok(Self::Bmi),
            _ => {}
        }
        let registry = selvedge_providers::builtin();
        let names: Vec<_> = registry
            .providers()
            .iter()
            .map(|provider| provider.name())
            .collect();
        if names.contains(&name) {
            Ok(Self::Provider(name.to_owned()))
        } else {
            bail!(
                "--against {name}: choose libfabric, bmi, {}",
                names.join(", ")
            )
        }
    }
}

/// Selvedge's name and version as a contestant.
pub(super) const SELVEDGE: &str = concat!("selvedge ", env!("CARGO_PKG_VERSION"));
/// Name and version of Selvedge's BMI as a contestant.
pub(super) const SELVEDGE_BMI: &str = concat!("selvedge-bmi ", env!("CARGO_PKG_VERSION"));
