//! Findings about the parts of an MPI library that use libfabric, and the settings that select
//! them.

use std::path::Path;
use std::process::Command;

use super::command::run;
use super::launcher::{Launcher, SHORT};
use super::rank::RankReport;
use super::selection::Family;
use crate::doctor::finding::{Finding, Severity};

const NAME: &str = "components";

/// The parts of the MPI library for libfabric.
pub(super) fn components(
    launcher: &Launcher,
    family: Family,
    rank: &RankReport,
) -> Option<Finding> {
    match family {
        Family::OpenMpi => Some(of_open_mpi(launcher, rank)),
        Family::Mpich => of_mpich(rank),
        Family::IntelMpi | Family::Other => None,
    }
}

fn of_open_mpi(launcher: &Launcher, rank: &RankReport) -> Finding {
    let Some(program) = launcher.sibling("ompi_info") else {
        return Finding::new(
            NAME,
            Severity::Note,
            "there is no ompi_info beside the launcher",
            "whether Open MPI has components for libfabric shows in a run only",
        );
    };
    let text = output_of(&program, &["--parsable", "--all"]);
    let found: Vec<_> = ["mtl", "btl"]
        .into_iter()
        .filter(|kind| text.contains(&format!("mca:{kind}:ofi:version:")))
        .map(|kind| format!("{kind} ofi"))
        .collect();
    let settings = settings(&text, rank);
    let evidence = format!("`{} --parsable --all`{settings}", program.display());
    if found.is_empty() {
        let meaning = "this Open MPI was built without libfabric, and cannot use it";
        let found = "it has neither mtl ofi nor btl ofi";
        return Finding::new(NAME, Severity::Slow, found, meaning)
            .advise("Install an Open MPI that was built with --with-ofi.")
            .prove(evidence);
    }
    let found = format!("it has {}", found.join(" and "));
    let meaning = "messages go over libfabric with pml cm and mtl ofi, windows with btl ofi, too";
    Finding::good(NAME, found, meaning).prove(evidence)
}

/// The settings of components that are no defaults, with their source.
fn settings(text: &str, rank: &RankReport) -> String {
    let names = [
        "pml",
        "mtl",
        "btl",
        "mtl_ofi_provider_include",
        "mtl_ofi_provider_exclude",
        "btl_ofi_provider_include",
        "btl_ofi_provider_exclude",
    ];
    let value = |name: &str, field: &str| {
        let part = format!(":param:{name}:{field}:");
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.split_once(&part)?.1))
    };
    let mut settings = String::new();
    for name in names {
        let variable = format!("OMPI_MCA_{name}");
        if let Some(value) = rank.variables.get(&variable) {
            // The launcher turns its options into variables of the ranks.
            settings += &format!("; {name}={value} ({variable} in a rank)");
        } else if let (Some(value), Some(source)) = (value(name, "value"), value(name, "source"))
            && source != "default"
        {
            settings += &format!("; {name}={value} ({source})");
        }
    }
    settings
}

/// The device of MPICH, with its modules for networks.
fn of_mpich(rank: &RankReport) -> Option<Finding> {
    let mut lines = rank.library_version.lines();
    let device = lines
        .find_map(|line| line.strip_prefix("MPICH Device:"))?
        .trim();
    let evidence = "MPI_Get_library_version in a rank".to_owned() + &variables(rank);
    let found = format!("its device is {device}");
    if !has_netmod(device, "ofi") {
        let meaning = "this MPICH was built without libfabric, and cannot use it";
        return Some(
            Finding::new(NAME, Severity::Slow, found, meaning)
                .advise("Install an MPICH that was built with --with-device=ch4:ofi.")
                .prove(evidence),
        );
    }
    let meaning = "messages go over libfabric with MPIR_CVAR_CH4_NETMOD=ofi, those inside a host \
                   with MPIR_CVAR_NOLOCAL=1, too";
    Some(Finding::good(NAME, found, meaning).prove(evidence))
}

fn has_netmod(device: &str, name: &str) -> bool {
    let mut words = device.split([':', ',', ' ']);
    words.any(|word| word == name)
}

fn variables(rank: &RankReport) -> String {
    let names = ["MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL"];
    let set = names
        .iter()
        .filter_map(|name| Some(format!("; {name}={}", rank.variables.get(*name)?)));
    set.collect()
}

/// OpenSHMEM of Open MPI, which has no transport over libfabric.
pub(super) fn openshmem(launcher: &Launcher) -> Finding {
    const NAME: &str = "OpenSHMEM";
    let program = launcher.sibling("oshmem_info");
    let text = program.map(|program| output_of(&program, &["--parsable"]));
    let text = text.unwrap_or_default();
    let prefix = "mca:spml:";
    let names = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix)?.split(':').next());
    let mut names: Vec<_> = names.collect();
    names.dedup();
    if names.is_empty() {
        let found = "no oshmem_info beside the launcher names the transports of OpenSHMEM";
        let meaning = "the findings above are about MPI programs of this launcher";
        return Finding::new(NAME, Severity::Note, found, meaning);
    }
    let found = format!(
        "the transports (spml) of OpenSHMEM are: {}",
        names.join(", ")
    );
    let (meaning, advice) = if names.contains(&"ofi") {
        ("OpenSHMEM can use libfabric", None)
    } else {
        (
            "OpenSHMEM of this installation does not use libfabric, and cannot run over Selvedge",
            Some("Sandia OpenSHMEM, built with --with-ofi, uses libfabric (docs/MPI.md)."),
        )
    };
    let mut finding = Finding::new(NAME, Severity::Note, found, meaning);
    finding.advice = advice.map(str::to_owned);
    finding.prove("`oshmem_info --parsable`")
}

/// The output of a command; empty if it cannot be started.
fn output_of(program: &Path, options: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(options);
    run(command, SHORT).map_or_else(|_| String::new(), |output| output.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_netmods_of_a_device_are_found() {
        assert!(has_netmod("ch4:ucx ofi", "ofi") && has_netmod("ch4:ofi", "ofi"));
        assert!(!has_netmod("ch4:ucx", "ofi") && !has_netmod("ch3:nemesis", "ofi"));
    }

    #[test]
    fn settings_name_their_source() {
        let text = "mca:pml:base:param:pml:value:^ucx\n\
                    mca:pml:base:param:pml:source:file (/etc/x:69)\n\
                    mca:mtl:base:param:mtl:value:\nmca:mtl:base:param:mtl:source:default\n";
        let mut rank = RankReport::default();
        assert_eq!(settings(text, &rank), "; pml=^ucx (file (/etc/x:69))");
        rank.variables
            .insert("OMPI_MCA_pml".to_owned(), "cm".to_owned());
        assert_eq!(settings(text, &rank), "; pml=cm (OMPI_MCA_pml in a rank)");
    }
}
