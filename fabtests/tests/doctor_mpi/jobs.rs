//! Tests of `selvedge-run`: the routes that it takes, the settings of the ranks, and its errors.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::installed::{folder, has_open_mpi, libraries, write_program};

/// `selvedge-run`, without variables of the user that lead to other libraries.
fn selvedge_run(libraries: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selvedge-run"));
    for name in ["LD_LIBRARY_PATH", "FI_PROVIDER_PATH", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    for name in [
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "OMPI_MCA_rmaps_base_oversubscribe",
    ] {
        command.env(name, "1");
    }
    command.arg("--libraries").arg(libraries);
    command
}

/// The output, and the error output, of a command with this exit code.
fn texts(command: &mut Command, code: i32) -> (String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let [out, errors] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(status.code(), Some(code), "{command:?}: {out}{errors}");
    (out, errors)
}

/// A launcher with this version text. It prints its arguments and the variable `LD_LIBRARY_PATH`.
fn launcher(name: &str, version: &str) -> PathBuf {
    let file = folder(&format!("selvedge-run-{name}")).join("bin/mpiexec");
    let script = format!(
        "if [ \"$*\" = --version ]; then echo '{version}'; exit; fi\n\
         echo \"arguments: $*\"\necho \"path: $LD_LIBRARY_PATH\"\nexit 7"
    );
    write_program(&file, &script);
    file
}

#[test]
fn a_named_route_is_added_to_the_line_and_the_exit_code_is_the_launcher_s() {
    let libraries = libraries().display();
    let table = [
        (
            "open-mpi",
            "mpirun (Open MPI) 5.0.11",
            format!(
                "arguments: -x LD_LIBRARY_PATH={libraries} --mca pml cm --mca mtl ofi --mca \
                 mtl_ofi_provider_include shm -n 2 ./program --route x\npath: \n"
            ),
        ),
        (
            "hydra",
            "HYDRA build details:",
            format!(
                "arguments: -genv LD_LIBRARY_PATH {libraries} -genv MPIR_CVAR_CH4_NETMOD ofi \
                 -genv MPIR_CVAR_NOLOCAL 1 -genv FI_PROVIDER shm -genv I_MPI_FABRICS ofi \
                 -genv I_MPI_OFI_PROVIDER shm -n 2 ./program --route x\npath: \n"
            ),
        ),
        (
            "slurm",
            "slurm 22.05.8",
            format!("arguments: -n 2 ./program --route x\npath: {libraries}\n"),
        ),
    ];
    for (name, version, expected) in table {
        let mut command = selvedge_run(Path::new(&libraries.to_string()));
        command.args(["--route", "library", "-v"]);
        command.arg(launcher(name, version));
        let (out, errors) = texts(command.args(["-n", "2", "./program", "--route", "x"]), 7);
        assert_eq!(out, expected);
        let set = format!("library: LD_LIBRARY_PATH={libraries} ");
        assert!(
            errors.contains(&set) && errors.contains(version),
            "{errors}"
        );
        assert!(
            errors.ends_with("; named by --route, not tried\n"),
            "{errors}"
        );
    }
}

#[test]
fn settings_of_the_launcher_s_own_line_stay_and_are_named() {
    let mut command = selvedge_run(libraries());
    command.args(["--route", "plugin", "--provider", "tcp"]);
    command.arg(launcher("own-settings", "mpirun (Open MPI) 5.0.11"));
    let (out, errors) = texts(command.args(["--mca", "pml", "ob1", "./program"]), 7);
    let line = "--mca mtl ofi --mca mtl_ofi_provider_include selvedge_tcp --mca pml ob1 ./program";
    assert!(out.contains(line) && !out.contains("pml cm"), "{out}");
    assert!(errors.contains("options set pml, and are left"), "{errors}");
}

#[test]
fn variables_of_a_route_stand_before_those_of_the_user() {
    let mut command = selvedge_run(libraries());
    command.args(["--environment", "--route", "plugin"]);
    let (out, _) = texts(command.env("FI_PROVIDER_PATH", "/own:/other"), 0);
    let folder = libraries().join("libfabric");
    let path = format!("FI_PROVIDER_PATH={}:/own:/other\n", folder.display());
    assert!(out.starts_with(&path), "{out}");
    for line in [
        "OMPI_MCA_mtl_ofi_provider_include=selvedge_shm\n",
        "FI_PROVIDER=selvedge_shm\n",
        "I_MPI_OFI_PROVIDER=selvedge_shm\n",
    ] {
        assert!(out.contains(line), "{line}: {out}");
    }
}

#[test]
fn a_line_that_selvedge_run_cannot_start_is_explained() {
    let slurm = launcher("no-route", "slurm 22.05.8");
    let alone = launcher("alone", "mpirun (Open MPI) 5.0.11");
    let [slurm, alone] = [&slurm, &alone].map(|path| path.to_str().unwrap());
    let table: [(&[&str], &str); 10] = [
        (&[], "no launcher is given: selvedge-run --help"),
        (
            &["no-such-mpiexec"],
            "no folder of PATH has a program no-such-mpiexec",
        ),
        (
            &["/no/mpiexec"],
            "/no/mpiexec is no program: name a launcher",
        ),
        (
            &["cat", "x"],
            "cat is no launcher of MPI programs that is recognised",
        ),
        (&["--rout", "plugin"], "invalid option '--rout'"),
        (
            &["--route", "trunk"],
            "\"trunk\" is no route: plugin, library and heap",
        ),
        (
            &["--provider", "udp"],
            "\"udp\" is no provider for MPI jobs",
        ),
        (
            &["--environment"],
            "--environment tries no route: name one with --route",
        ),
        (
            &[slurm, "-n", "2"],
            "belongs to no MPI library, so no route can be tried with it",
        ),
        (
            &[alone, "-n", "2"],
            "no MPI library (libmpi.so.40, libmpi.so.20, libmpi.so) lies in",
        ),
    ];
    for (arguments, reason) in table {
        let (out, errors) = texts(selvedge_run(libraries()).args(arguments), 1);
        assert!(errors.contains(reason), "{reason:?}: {errors}");
        assert_eq!((&*out, errors.lines().count()), ("", 1), "{errors}");
    }
    let empty = folder("selvedge-run-no-libraries");
    let (_, errors) = texts(selvedge_run(&empty).args(["--route", "heap", alone]), 1);
    assert!(
        errors.contains("the files of Selvedge for the route"),
        "{errors}"
    );
}

/// A copy of the libraries, in which these files are no libraries.
fn damaged_libraries(name: &str, damaged: &[&str]) -> PathBuf {
    let copy = folder(name);
    fs::create_dir_all(copy.join("libfabric")).unwrap();
    for file in [
        "libfabric.so.1",
        "libselvedge_heap.so",
        "libfabric/libselvedge_shm-fi.so",
    ] {
        fs::copy(libraries().join(file), copy.join(file)).unwrap();
        if damaged.contains(&file) {
            fs::write(copy.join(file), "no library").unwrap();
        }
    }
    copy
}

#[test]
fn the_first_route_over_which_two_ranks_run_is_taken() {
    if !has_open_mpi() {
        return;
    }
    let plugin = "libfabric/libselvedge_shm-fi.so";
    let without_plugin = damaged_libraries("selvedge-run-library", &[plugin]);
    for (libraries, route, provider) in [
        (
            libraries(),
            "plugin: FI_PROVIDER_PATH=",
            "include selvedge_shm ",
        ),
        (
            &*without_plugin,
            "library: LD_LIBRARY_PATH=",
            "include shm ",
        ),
    ] {
        let mut command = selvedge_run(libraries);
        command.args(["--print", "mpirun", "-n", "2", "./a program"]);
        let (out, errors) = texts(&mut command, 0);
        assert!(errors.contains(route), "{errors}");
        assert!(errors.contains("; two ranks ran over it: "), "{errors}");
        assert!(out.contains(provider), "{out}");
        assert!(out.ends_with(" -n 2 './a program'\n"), "{out}");
    }
    let damaged = damaged_libraries("selvedge-run-none", &[plugin, "libfabric.so.1"]);
    let (_, errors) = texts(selvedge_run(&damaged).args(["mpirun", "-n", "2", "x"]), 1);
    for part in [
        "no route leads ranks of ",
        "(plugin: ",
        "; library: ",
        "doctor --mpi",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

/// A launcher of Open MPI that drops all options in front of `-n`.
fn launcher_without_options() -> PathBuf {
    let file = folder("selvedge-run-without-options").join("bin/mpirun");
    let script = "if [ \"$*\" = --version ]; then exec mpirun --version; fi\n\
                  while [ \"$1\" != -n ]; do shift; done\nexec mpirun \"$@\"";
    write_program(&file, script);
    let path = std::env::var_os("PATH").unwrap();
    let mut tools = std::env::split_paths(&path).map(|folder| folder.join("ompi_info"));
    let tool = tools.find(|tool| tool.exists()).unwrap();
    symlink(tool, file.with_file_name("ompi_info")).unwrap();
    file
}

#[test]
fn a_route_that_two_ranks_do_not_use_is_not_taken() {
    if !has_open_mpi() {
        return;
    }
    let mut command = selvedge_run(libraries());
    command.arg(launcher_without_options());
    let (_, errors) = texts(command.args(["-n", "2", "x"]), 1);
    for part in [
        "(plugin: two ranks use ",
        "; library: two ranks use ",
        "and no provider",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn ranks_of_selvedge_run_map_the_file_of_the_route() {
    if !has_open_mpi() {
        return;
    }
    for (route, file) in [
        ("plugin", "libfabric/libselvedge_shm-fi.so"),
        ("library", "libfabric.so.1"),
        ("heap", "libselvedge_heap.so"),
    ] {
        let reports = folder(&format!("selvedge-run-reports-{route}"));
        let mut command = selvedge_run(libraries());
        command.args(["--route", route, "mpirun", "-n", "2"]);
        command.args([env!("CARGO_BIN_EXE_fabtests"), "mpi-rank", "--library"]);
        texts(command.args(["libmpi.so.40", "--reports"]).arg(&reports), 0);
        let reports: Vec<_> = fs::read_dir(&reports).unwrap().collect();
        assert_eq!(reports.len(), 2, "{reports:?}");
        for report in reports {
            let text = fs::read(report.unwrap().path()).unwrap();
            let report: Value = serde_json::from_slice(&text).unwrap();
            let files = report["files"].as_array().unwrap();
            let expected = libraries().join(file);
            assert!(
                files.iter().any(|file| file == expected.to_str().unwrap()),
                "{report:#}"
            );
            assert_eq!(report["world_size"], 2);
        }
    }
}
