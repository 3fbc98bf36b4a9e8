//! State of the process: the providers, and the environment as it was at the first call.

mod launcher;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use selvedge::param::Params;
use selvedge::{Registry, log};

/// The registry of providers. The first call reads `libfabric.conf` and the environment, and
/// installs a logger unless the program has one.
pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(|| {
        if let Err(error) = log::init() {
            eprintln!("selvedge: {error}");
        }
        let registry = selvedge_providers::builtin().with_params(environment());
        warn_of_unsupported_parameters(&registry.params());
        registry
    })
}

/// The environment, which wins over the file unless `FI_PREFER_SYSCONFIG` says otherwise.
fn environment() -> Params {
    let own = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let own: BTreeMap<String, String> = own.collect();
    let file = std::fs::read_to_string(CONFIGURATION).unwrap_or_default();
    let mut merged = merged(own, &file);
    // MPI libraries ask every provider for `FI_REMOTE_COMM`, also for a job on one host.
    if launcher::runs_on_one_host(&|name| std::env::var(name).ok()) {
        let word = merged.entry(REMOTE_COMM.to_owned());
        word.or_insert_with(|| "1".to_owned());
    }
    merged.into_iter().collect()
}

/// The parameter by which shm claims that it reaches peers on other hosts.
const REMOTE_COMM: &str = "FI_SHM_REMOTE_COMM";

/// The file of the administrator's settings.
const CONFIGURATION: &str = "/etc/libfabric.conf";

fn merged(own: BTreeMap<String, String>, file: &str) -> BTreeMap<String, String> {
    let word = own.get("FI_PREFER_SYSCONFIG").map(String::as_str);
    let file_wins = matches!(word, Some("1" | "true" | "yes" | "on"));
    let set = settings(file);
    match file_wins {
        true => own.into_iter().chain(set).collect(),
        false => set.into_iter().chain(own).collect(),
    }
}

/// The lines `NAME=value` of a file; `#` begins a comment.
fn settings(file: &str) -> Vec<(String, String)> {
    let lines = file
        .lines()
        .map(|line| line.split('#').next().unwrap_or(line));
    let pairs = lines.filter_map(|line| line.split_once('='));
    let trimmed = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    trimmed
        .filter(|(name, _)| name.starts_with("FI_"))
        .collect()
}

fn warn_of_unsupported_parameters(params: &Params) {
    let (name, why) = (
        "FI_PROVIDER_PATH",
        "providers of libfabric are not loaded; unset it",
    );
    if let Some(value) = params.raw(name).filter(|value| !value.is_empty()) {
        ::log::warn!(target: "selvedge::core::core", "{name}={value} has no effect: {why}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(owned).collect()
    }

    const FILE: &str = "# settings\nFI_PROVIDER = shm # all here\nFI_TX=2\nnonsense\nPATH=/\n";

    #[test]
    fn the_environment_wins_over_the_file() {
        let merged = merged(map(&[("FI_PROVIDER", "tcp")]), FILE);
        assert_eq!(merged, map(&[("FI_PROVIDER", "tcp"), ("FI_TX", "2")]));
    }

    #[test]
    fn the_file_wins_where_the_environment_says_so() {
        let own = map(&[("FI_PROVIDER", "tcp"), ("FI_PREFER_SYSCONFIG", "1")]);
        let merged = merged(own, FILE);
        assert_eq!(merged["FI_PROVIDER"], "shm");
    }
}
