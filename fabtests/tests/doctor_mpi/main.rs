//! Runs `fabtests doctor --mpi`: with the system's Open MPI as it is, with Selvedge's library and
//! with its plugins, with programs that are no launchers, and with MPICH where there is one. Runs
//! jobs with `selvedge-run`, which selects a route of the doctor's.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod installed;
mod jobs;

use std::fs;
use std::path::Path;
use std::process::Command;

use selvedge_testkit::skip::{Need, skip};
use serde_json::Value;

use installed::{has_open_mpi, libraries, write_program};

/// A folder without libraries of Selvedge: the doctor tries no further line.
fn no_libraries() -> &'static Path {
    Path::new("/proc/self/fdinfo")
}

/// The doctor's exit code and report on a launcher with its options.
fn examine(libraries: &Path, line: &[&str], variables: &[(&str, &Path)]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabtests"));
    command
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("FI_PROVIDER_PATH")
        .envs(variables.iter().copied())
        .args(["doctor", "--json", "--libraries"])
        .arg(libraries)
        .arg("--mpi")
        .args(line);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {errors}"));
    (output.status.code().unwrap(), report)
}

/// The observation, and the rest of the finding of this name.
fn finding<'a>(report: &'a Value, name: &str) -> (&'a str, &'a Value) {
    let mut findings = report["findings"].as_array().unwrap().iter();
    let found = findings.find(|finding| finding["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no finding {name}: {report:#}"));
    (found["found"].as_str().unwrap(), found)
}

const OVER_LIBFABRIC: [&str; 7] = ["mpirun", "--mca", "pml", "cm", "--mca", "mtl", "ofi"];

#[test]
fn open_mpi_is_examined_as_it_is_and_every_line_for_selvedge_is_run() {
    if !has_open_mpi() {
        return;
    }
    let (code, report) = examine(libraries(), &["mpirun"], &[]);
    assert_eq!(code, 1, "{report:#}");
    assert!(
        report["works"] == true && report["uses_selvedge"] == false,
        "{report:#}"
    );
    assert!(report["mpi"].as_str().unwrap().starts_with("Open MPI"));
    let (launcher, details) = finding(&report, "launcher");
    assert!(launcher.contains("is Open MPI's launcher"), "{launcher}");
    assert!(details["evidence"].as_str().unwrap().contains("--version"));
    assert!(
        finding(&report, "components").0.contains("mtl ofi"),
        "{report:#}"
    );
    assert!(
        finding(&report, "transport").0.contains("pml "),
        "{report:#}"
    );
    for (name, provider, line) in [
        ("plugin", "selvedge_shm", "-x FI_PROVIDER_PATH="),
        ("library", "shm", "-x LD_LIBRARY_PATH="),
        ("library and heap", "shm", "-x LD_PRELOAD="),
    ] {
        let (found, details) = finding(&report, name);
        assert!(
            found.starts_with(&format!("two ranks selected {provider}, with")),
            "{found}"
        );
        assert_eq!(details["verdict"], "good");
        assert!(
            details["advice"].as_str().unwrap().contains(line),
            "{details:#}"
        );
    }
}

#[test]
fn a_libfabric_in_ld_library_path_is_named_with_the_rule_that_found_it() {
    if !has_open_mpi() {
        return;
    }
    let line = [
        &OVER_LIBFABRIC[..],
        &["--mca", "mtl_ofi_provider_include", "shm"],
    ]
    .concat();
    let variables = [("LD_LIBRARY_PATH", libraries())];
    let (code, report) = examine(no_libraries(), &line, &variables);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["provider"], "shm");
    let file = libraries().join("libfabric.so.1");
    assert_eq!(report["libfabric"], file.to_str().unwrap());
    let (found, details) = finding(&report, "libfabric");
    assert!(found.contains("selvedge"), "{found}");
    assert!(
        details["evidence"]
            .as_str()
            .unwrap()
            .contains("by LD_LIBRARY_PATH"),
        "{details:#}"
    );
    assert!(finding(&report, "provider").0.contains("shm of Selvedge"));
    let include = finding(&report, "provider").1["evidence"].as_str().unwrap();
    assert!(include.contains("provider_include = \"shm\""), "{include}");
}

#[test]
fn a_plugin_is_found_among_the_providers_of_the_system_s_libfabric() {
    if !has_open_mpi() {
        return;
    }
    let line = [
        &OVER_LIBFABRIC[..],
        &["--mca", "mtl_ofi_provider_include", "selvedge_shm"],
    ]
    .concat();
    let plugins = libraries().join("libfabric");
    let (code, report) = examine(no_libraries(), &line, &[("FI_PROVIDER_PATH", &plugins)]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["provider"], "selvedge_shm");
    assert!(
        !finding(&report, "libfabric").0.contains("selvedge"),
        "{report:#}"
    );
    let (found, details) = finding(&report, "providers");
    assert!(
        found.contains("selvedge_shm") && found.contains("selvedge_tcp"),
        "{found}"
    );
    assert!(
        details["evidence"]
            .as_str()
            .unwrap()
            .contains("FI_PROVIDER_PATH="),
        "{details:#}"
    );
    assert!(
        finding(&report, "transport")
            .0
            .contains("pml cm with mtl ofi"),
        "{report:#}"
    );
}

#[test]
fn a_line_that_cannot_run_is_reported_with_the_launcher_s_text() {
    if !has_open_mpi() {
        return;
    }
    let line = ["mpirun", "--mca", "pml", "no_such_component"];
    let (code, report) = examine(no_libraries(), &line, &[]);
    assert_eq!(code, 3, "{report:#}");
    let (found, _) = finding(&report, "MPI library");
    assert!(
        found.contains("fail: its exit code is") && found.contains("it printed: "),
        "{found}"
    );
    assert!(report["works"] == false && report["uses_selvedge"] == false);
}

#[test]
fn a_program_that_is_no_launcher_is_recognised() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor-mpi-launcher");
    let program = folder.join(format!("mpirun-{}", std::process::id()));
    write_program(&program, "echo this is no launcher");
    let name = program.to_str().unwrap();
    let (code, report) = examine(no_libraries(), &[name], &[]);
    assert_eq!(code, 3, "{report:#}");
    let (found, details) = finding(&report, "launcher");
    assert!(
        found.contains("no launcher that this program recognises"),
        "{found}"
    );
    let evidence = details["evidence"].as_str().unwrap();
    assert!(evidence.contains("\"this is no launcher\""), "{evidence}");
    assert_eq!(finding(&report, "MPI library").1["verdict"], "broken");
    fs::remove_file(&program).unwrap();
    let (code, report) = examine(no_libraries(), &[name], &[]);
    assert_eq!(code, 3);
    let (found, _) = finding(&report, "launcher");
    assert!(
        found.contains("is no program: name a launcher such as mpirun"),
        "{found}"
    );
}

/// MPICH, of which `MPICH_HOME` names the prefix, with its device for libfabric; the package
/// `mpich` of PyPI has it.
#[test]
fn mpich_is_examined_and_every_line_for_selvedge_is_run() {
    let Ok(prefix) = std::env::var("MPICH_HOME") else {
        return skip(Need::OtherMpi, "MPICH_HOME names no MPICH with libfabric");
    };
    let launcher = Path::new(&prefix).join("bin/mpiexec");
    let (code, report) = examine(libraries(), &[launcher.to_str().unwrap()], &[]);
    assert_eq!(code, 1, "{report:#}");
    assert!(
        report["mpi"].as_str().unwrap().starts_with("MPICH"),
        "{report:#}"
    );
    assert!(
        finding(&report, "components").0.contains("ofi"),
        "{report:#}"
    );
    for name in ["plugin", "library", "library and heap"] {
        assert_eq!(finding(&report, name).1["verdict"], "good", "{report:#}");
    }
}
