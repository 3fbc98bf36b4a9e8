//! `Attempt`: a run of two ranks by the launcher, and their reports.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;

use super::command::{Output, run};
use super::launcher::{Launcher, ROOT_ENVIRONMENT};
use super::loader;
use super::rank::RankReport;
use super::route::Route;
use super::selection::{Family, Selection};

/// A finished run.
#[derive(Debug)]
pub(super) struct Attempt {
    /// The reports of the ranks that ran on this host.
    pub(super) ranks: Vec<RankReport>,
    /// The end of the launcher, and the output of all processes.
    pub(super) output: Output,
    /// The rule by which the loader found the libfabric of the first rank.
    pub(super) libfabric_rule: Option<String>,
}

/// Variables that make MPI libraries report which components and providers they select.
const VERBOSE: [&str; 7] = [
    "OMPI_MCA_pml_base_verbose=10",
    "OMPI_MCA_mtl_base_verbose=10",
    "OMPI_MCA_btl_base_verbose=10",
    "OMPI_MCA_opal_common_ofi_verbose=10",
    "MPIR_CVAR_DEBUG_SUMMARY=1",
    "I_MPI_DEBUG=10",
    "LD_DEBUG=libs",
];

/// Variables that permit two ranks on one processor, of Open MPI 4 and 5.
const OVERSUBSCRIBE: [(&str, &str); 2] = [
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// The time limit of a run.
const LIMIT: Duration = Duration::from_secs(60);

impl Attempt {
    /// Starts two ranks, with the user's options and those of `route`.
    ///
    /// # Errors
    /// The launcher cannot be started, or a report cannot be read.
    pub(super) fn run(launcher: &Launcher, library: &Path, route: &Route) -> anyhow::Result<Self> {
        let folder = Folder::create()?;
        let mut command = Command::new(&launcher.path);
        command.envs(ROOT_ENVIRONMENT);
        let unset = |(name, _): &(&str, &str)| std::env::var_os(name).is_none();
        command.envs(OVERSUBSCRIBE.into_iter().filter(unset));
        command.envs(route.environment.iter().map(|(name, value)| (name, value)));
        command.args(route.all_options(&launcher.options));
        if !launcher.has_rank_count() {
            command.args(["-n", "2"]);
        }
        command.arg("env").args(VERBOSE);
        let mut trace = OsString::from("LD_DEBUG_OUTPUT=");
        trace.push(folder.0.join("loader"));
        command
            .arg(trace)
            .arg(std::env::current_exe()?)
            .arg("mpi-rank");
        command
            .arg("--library")
            .arg(library)
            .arg("--reports")
            .arg(&folder.0);
        let output = run(command, LIMIT);
        let output = output.with_context(|| format!("cannot start {}", launcher.path.display()))?;
        let ranks = folder.reports()?;
        let libfabric_rule = ranks.iter().find_map(|rank| {
            let path = &rank.libfabric.as_ref()?.path;
            let trace = fs::read(folder.0.join(format!("loader.{}", rank.pid))).ok()?;
            loader::rule(&String::from_utf8_lossy(&trace), path)
        });
        Ok(Self {
            ranks,
            output,
            libfabric_rule,
        })
    }

    /// The report of a rank in which MPI was initialised.
    pub(super) fn initialised(&self) -> Option<&RankReport> {
        self.ranks.iter().find(|rank| rank.is_initialised)
    }

    /// Returns whether the ranks have run to their end.
    pub(super) fn is_success(&self) -> bool {
        self.output.is_success() && self.initialised().is_some()
    }

    /// Returns what the ranks selected, if that is the provider of `route` out of its file.
    ///
    /// # Errors
    /// The reason why the ranks did not run, or what they use instead.
    pub(super) fn selection_of(&self, route: &Route) -> Result<Selection, String> {
        let Some(rank) = self.initialised().filter(|_| self.is_success()) else {
            return Err(format!("two ranks fail: {}", self.failure()));
        };
        let family = Family::of(&rank.library_version);
        let selection = Selection::read(family, &self.output.text, rank);
        let provider = selection.provider.as_deref();
        if provider == Some(route.provider) && rank.files.contains(&route.mapped_file()) {
            return Ok(selection);
        }
        let provider = provider.unwrap_or("no provider");
        let mut reason = format!("two ranks use {}, and {provider}", selection.transport);
        if !selection.reasons.is_empty() {
            reason += &format!("; {}", selection.reasons.join(" | "));
        }
        Err(reason)
    }

    /// Describes a failed run: the error of a rank, or the last lines that the launcher printed.
    pub(super) fn failure(&self) -> String {
        let error = self.ranks.iter().find_map(|rank| rank.error.clone());
        if let Some(error) = error {
            return error;
        }
        let text = summary(&self.output.text);
        format!("{}; it printed: {text:?}", self.output.end())
    }
}

/// The beginning of the text that a user of the launcher would read, without the lines of single
/// processes. If there are only such lines: the last ones.
fn summary(text: &str) -> String {
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("---"));
    let (traces, sentences): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with('['));
    let last_traces = &traces[traces.len().saturating_sub(4)..];
    let lines = if sentences.is_empty() {
        last_traces
    } else {
        &sentences
    };
    let mut summary = lines.join(" ");
    if let Some((end, _)) = summary.char_indices().nth(MAX_SUMMARY) {
        summary.truncate(end);
        summary += " ...";
    }
    summary
}

/// The most characters of a summary.
const MAX_SUMMARY: usize = 400;

/// A folder for the reports of one run. Dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    fn create() -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("fabtests-doctor-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let created = fs::DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    fn reports(&self) -> anyhow::Result<Vec<RankReport>> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("rank-") && name.ends_with(".json") {
                reports.push(serde_json::from_slice(&fs::read(entry.path())?)?);
            }
        }
        reports.sort_by_key(|report: &RankReport| report.pid);
        Ok(reports)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The system cleans the folder for temporary files as well.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_prefers_sentences_to_lines_of_processes() {
        let text = "[vm:1] select: init\n-----\nNo components were\nable to be opened\n-----\n";
        assert_eq!(summary(text), "No components were able to be opened");
        assert_eq!(
            summary("[vm:1] PML cm cannot be selected\n"),
            "[vm:1] PML cm cannot be selected"
        );
        assert_eq!(summary(&"a".repeat(500)).len(), MAX_SUMMARY + 4);
    }
}
