//! The findings about a launcher: sentences, each with its evidence.

use super::attempt::Attempt;
use super::launcher::{Kind, Launcher};
use super::rank::RankReport;
use super::route::Route;
use super::selection::Selection;
use crate::doctor::finding::{Finding, Severity};

const NO_RANKS: &str = "no MPI program can be started with it";

pub(super) fn no_launcher(error: &anyhow::Error) -> Finding {
    Finding::new("launcher", Severity::Broken, format!("{error:#}"), NO_RANKS)
}

/// The launcher, and the kind that it names itself.
pub(super) fn launcher(launcher: &Launcher) -> Finding {
    let kind = match launcher.kind {
        Kind::OpenMpi if launcher.is_openshmem() => "Open MPI's launcher of OpenSHMEM programs",
        Kind::OpenMpi => "Open MPI's launcher",
        Kind::IntelMpi => "Intel MPI's launcher",
        Kind::Hydra => "Hydra, the launcher of MPICH and MVAPICH",
        Kind::MvapichRsh => "MVAPICH's launcher mpirun_rsh",
        Kind::Slurm => "Slurm's launcher, which starts programs of every MPI library",
        Kind::Unknown => "no launcher that this program recognises",
    };
    let severity = match launcher.kind {
        Kind::Unknown => Severity::Note,
        _ => Severity::Good,
    };
    let meaning = "the library decides how messages travel, the launcher only starts its ranks";
    let found = format!("{} is {kind}", launcher.describe());
    Finding::new("launcher", severity, found, meaning).prove(format!(
        "`{} --version` prints {:?}",
        launcher.path.display(),
        launcher.version
    ))
}

pub(super) fn no_library(error: &anyhow::Error) -> Finding {
    Finding::new(
        "MPI library",
        Severity::Broken,
        format!("{error:#}"),
        NO_RANKS,
    )
}

/// The MPI library of the ranks, or the reason why no rank runs.
pub(super) fn library(attempt: &Attempt) -> Vec<Finding> {
    const NAME: &str = "MPI library";
    let Some(rank) = attempt.ranks.first() else {
        let found = format!(
            "the launcher started no process that reports on this host: {}",
            attempt.failure()
        );
        let advice =
            "Run the launcher with a program such as `hostname`, and remove what it reports.";
        return vec![Finding::new(NAME, Severity::Broken, found, NO_RANKS).advise(advice)];
    };
    let first = rank.library_version.lines().next().unwrap_or_default();
    let path = rank.library.as_ref().map(|path| path.display().to_string());
    let path = path.unwrap_or_else(|| "no library".to_owned());
    if !attempt.is_success() {
        let found = format!("ranks with {path} ({first}) fail: {}", attempt.failure());
        return vec![Finding::new(
            NAME,
            Severity::Broken,
            found,
            "programs fail likewise",
        )];
    }
    let found = format!("{path} is {}", first.trim());
    let mut findings = vec![
        Finding::good(
            NAME,
            found,
            "programs that are linked to it run with this launcher",
        )
        .prove("MPI_Get_library_version in a rank"),
    ];
    let started = attempt.ranks.len();
    if started > 1 && rank.world_size == Some(1) {
        let found = format!("{started} ranks are {started} worlds of one rank");
        let meaning = "the launcher belongs to another MPI library, and ranks exchange no messages";
        let advice = "Use the launcher of the library's own installation.";
        findings.push(
            Finding::new("world", Severity::Broken, found, meaning)
                .prove("MPI_Comm_size in a rank")
                .advise(advice),
        );
    }
    findings
}

/// The transport between two ranks.
pub(super) fn transport(selection: &Selection) -> Finding {
    const NAME: &str = "transport";
    if selection.transport.is_empty() {
        return Finding::new(
            NAME,
            Severity::Note,
            "the MPI library does not say how messages travel",
            "the libraries of its ranks are the only evidence",
        );
    }
    let (severity, meaning) = match selection.provider {
        Some(_) => (Severity::Good, "messages go over libfabric"),
        None => (Severity::Note, "messages do not go over libfabric"),
    };
    Finding::new(
        NAME,
        severity,
        format!("ranks use {}", selection.transport),
        meaning,
    )
    .prove(selection.evidence.join(" | "))
}

/// The libfabric of the ranks.
pub(super) fn libfabric(rank: &RankReport, attempt: &Attempt) -> Finding {
    const NAME: &str = "libfabric";
    let Some(libfabric) = &rank.libfabric else {
        return Finding::new(
            NAME,
            Severity::Note,
            "the ranks have not loaded a libfabric",
            "no provider can be in use",
        )
        .prove("/proc/self/maps of a rank after MPI_Init");
    };
    let rule = match &attempt.libfabric_rule {
        Some(rule) => format!("the loader found it by {rule} (LD_DEBUG=libs of the rank)"),
        None => {
            "a library of the rank names it by its path (LD_DEBUG=libs has no search)".to_owned()
        }
    };
    let found = format!(
        "{} of version {}",
        libfabric.path.display(),
        libfabric.version
    );
    let meaning = if libfabric.is_selvedge() {
        "this is Selvedge's library"
    } else {
        "this is not Selvedge's library; it may load Selvedge's providers as plugins"
    };
    Finding::good(NAME, found, meaning).prove(format!("/proc/self/maps of a rank; {rule}"))
}

/// The providers of the ranks' libfabric.
pub(super) fn providers(rank: &RankReport) -> Option<Finding> {
    let libfabric = rank.libfabric.as_ref()?;
    let has_selvedge = libfabric
        .providers
        .iter()
        .any(|name| name.starts_with("selvedge_"));
    let meaning = match (libfabric.is_selvedge(), has_selvedge) {
        (true, _) => "all of them are Selvedge's",
        (false, true) => "Selvedge's are among them, as plugins",
        (false, false) => "Selvedge's are not among them: FI_PROVIDER_PATH does not lead to them",
    };
    let found = format!(
        "fi_getinfo returns, in this order: {}",
        libfabric.providers.join(", ")
    );
    let evidence = "fi_getinfo without hints in a rank".to_owned() + &variables(rank);
    Some(Finding::good("providers", found, meaning).prove(evidence))
}

/// The variables of libfabric in a rank.
fn variables(rank: &RankReport) -> String {
    let names = ["FI_PROVIDER", "FI_PROVIDER_PATH"];
    let set = names
        .iter()
        .filter_map(|name| Some((name, rank.variables.get(*name)?)));
    set.map(|(name, value)| format!("; {name}={value}"))
        .collect()
}

/// The provider that carries messages, and why.
pub(super) fn provider(selection: &Selection, rank: &RankReport) -> Finding {
    const NAME: &str = "provider";
    let reasons = if selection.reasons.is_empty() {
        selection.evidence.join(" | ")
    } else {
        selection.reasons.join(" | ")
    };
    let (severity, found, meaning) = match &selection.provider {
        None => (
            Severity::Note,
            "none is in use".to_owned(),
            "the MPI library has selected another transport",
        ),
        Some(provider) if is_selvedge(selection, rank) => (
            Severity::Good,
            format!("the provider is {provider} of Selvedge"),
            "messages go over Selvedge",
        ),
        Some(provider) => (
            Severity::Note,
            format!("the provider is {provider}"),
            "messages do not go over Selvedge",
        ),
    };
    Finding::new(NAME, severity, found, meaning).prove(reasons)
}

/// Returns whether the selected provider is one of Selvedge's.
pub(super) fn is_selvedge(selection: &Selection, rank: &RankReport) -> bool {
    let is_plugin = |name: &String| name.starts_with("selvedge_");
    selection.provider.as_ref().is_some_and(|name| {
        is_plugin(name) || rank.libfabric.as_ref().is_some_and(|it| it.is_selvedge())
    })
}

pub(super) fn not_installed() -> Finding {
    Finding::new(
        "Selvedge",
        Severity::Note,
        "no libraries of Selvedge lie beside this program",
        "no line for them can be tried",
    )
    .advise("Name the folder of an installation's libraries with --libraries DIR.")
}

/// A line for Selvedge, and the result of running it.
pub(super) fn route(
    launcher: &Launcher,
    route: &Route,
    attempt: anyhow::Result<Attempt>,
) -> Finding {
    let line = route.line(launcher);
    let result = attempt.map_err(|error| format!("{error:#}"));
    let result = result.and_then(|attempt| Ok((attempt.selection_of(route)?, attempt)));
    let (selection, attempt) = match result {
        Ok(found) => found,
        Err(reason) => {
            let meaning = "this route does not work as it is";
            return Finding::new(route.name, Severity::Note, reason, meaning)
                .prove(format!("tried: {line}"));
        }
    };
    let libfabric = attempt
        .initialised()
        .and_then(|rank| rank.libfabric.as_ref());
    let version = libfabric.map(|it| format!("{} {}", it.path.display(), it.version));
    let found = format!(
        "two ranks selected {}, with {}",
        route.provider,
        version.unwrap_or_default()
    );
    let evidence = format!(
        "run here: {} | {} is mapped",
        selection.evidence.join(" | "),
        route.mapped_file().display()
    );
    Finding::good(route.name, found, "messages go over Selvedge")
        .prove(evidence)
        .advise(line)
}
