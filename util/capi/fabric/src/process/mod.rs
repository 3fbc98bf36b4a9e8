//! State of the process: the providers, and the environment at the time of the first call.

mod launcher;
mod served;

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge::param::Params;
use selvedge::{Hints, Info, Registry, Result, log};

use crate::status::log_error;

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

/// Whether another libfabric calls this code as one of its providers.
static SERVES_OTHER_LIBRARY: AtomicBool = AtomicBool::new(false);

/// States that another libfabric calls this code as one of its providers: parameters that the
/// other library obeys are not read. To be called before any other function.
pub fn serve_other_library() {
    SERVES_OTHER_LIBRARY.store(true, Ordering::Relaxed);
}

/// Completes an info that C has passed back, so that its provider can open the described object.
///
/// # Errors
/// [`selvedge::Errno::NoDev`] for an unknown provider.
pub(crate) fn adopt_info(info: Info, hints: &Hints) -> Result<Info> {
    let adopted = registry().adopt(info, hints);
    adopted.map_err(|error| log_error(&error))
}

/// The environment and the file. The environment takes precedence unless `FI_PREFER_SYSCONFIG` is
/// true.
fn environment() -> Params {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        Some((name, value.to_string_lossy().into_owned()))
    });
    let variables: BTreeMap<String, String> = variables.collect();
    let file = std::fs::read_to_string(CONFIGURATION).unwrap_or_default();
    let mut merged = merge(variables, &file);
    // MPI libraries request `FI_REMOTE_COMM` from every provider, even for a job on one host.
    if launcher::runs_on_one_host(&|name| std::env::var(name).ok()) {
        let entry = merged.entry(REMOTE_COMM.to_owned());
        entry.or_insert_with(|| "1".to_owned());
    }
    if SERVES_OTHER_LIBRARY.load(Ordering::Relaxed) {
        merged = served::parameters(merged);
    }
    merged.into_iter().collect()
}

/// The parameter that makes shm report the capability of reaching peers on other hosts.
const REMOTE_COMM: &str = "FI_SHM_REMOTE_COMM";

/// The file of the administrator's settings.
const CONFIGURATION: &str = "/etc/libfabric.conf";

fn merge(env: BTreeMap<String, String>, file: &str) -> BTreeMap<String, String> {
    let prefer_file = env.get("FI_PREFER_SYSCONFIG").map(String::as_str);
    let is_file_preferred = matches!(prefer_file, Some("1" | "true" | "yes" | "on"));
    let settings = settings(file);
    if is_file_preferred {
        env.into_iter().chain(settings).collect()
    } else {
        settings.into_iter().chain(env).collect()
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
    let (name, reason) = (
        "FI_PROVIDER_PATH",
        "providers of libfabric are not loaded; unset it",
    );
    if let Some(value) = params.raw(name).filter(|value| !value.is_empty()) {
        ::log::warn!(target: "selvedge::core::core", "{name}={value} has no effect: {reason}");
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
        let merged = merge(map(&[("FI_PROVIDER", "tcp")]), FILE);
        assert_eq!(merged, map(&[("FI_PROVIDER", "tcp"), ("FI_TX", "2")]));
    }

    #[test]
    fn the_file_wins_where_the_environment_says_so() {
        let env = map(&[("FI_PROVIDER", "tcp"), ("FI_PREFER_SYSCONFIG", "1")]);
        let merged = merge(env, FILE);
        assert_eq!(merged["FI_PROVIDER"], "shm");
    }
}
