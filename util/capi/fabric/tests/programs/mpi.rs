//! The system's Open MPI on Selvedge's library.

use std::path::Path;
use std::process::Command;

use selvedge_testkit::skip::{Need, skip};

use crate::harness::{Built, built, compile, has, library_folder, output_of, with_selvedge};

/// Runs ranks with these components, and checks that they have used Selvedge's library.
fn run(
    ranks: usize,
    settings: &[&str],
    environment: &[(&str, &str)],
    arguments: &[&str],
) -> Option<String> {
    if !has(&["mpirun", "mpicc"]) {
        return None;
    }
    let program = compile("mpi", Built::ByMpicc, None);
    let mut command = with_selvedge("mpirun");
    command
        .args([
            "-n",
            &ranks.to_string(),
            "--oversubscribe",
            "--bind-to",
            "none",
        ])
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .envs(environment.iter().copied());
    for setting in settings {
        let (name, value) = setting.split_once('=').unwrap();
        command.args(["--mca", name, value]);
    }
    let text = output_of(command.arg(&program).args(arguments));
    let selvedge = std::fs::canonicalize(library_folder().join("libfabric.so.1")).unwrap();
    assert!(
        text.contains(&format!("carried by {}", selvedge.display())),
        "{text}"
    );
    assert!(text.contains(&format!("done with {ranks} ranks")), "{text}");
    Some(text)
}

const TWO_SIDED: [&str; 2] = ["pml=cm", "mtl=ofi"];
const ONE_SIDED: [&str; 3] = ["pml=ob1", "btl=ofi,self", "btl_ofi_mode=2"];

fn two_sided(ranks: usize, provider: &str) {
    let include = format!("mtl_ofi_provider_include={provider}");
    let settings = [TWO_SIDED.as_slice(), &[&include]].concat();
    run(ranks, &settings, &[], &["pingpong", "collectives"]);
}

/// Runs Open MPI with contexts of scalable endpoints, and checks with a trace that the ranks have
/// opened contexts.
fn two_sided_with_contexts(ranks: usize, provider: &str) {
    let name = format!("selvedge-contexts-{provider}-{}", std::process::id());
    let file = std::env::temp_dir().join(name);
    let include = format!("mtl_ofi_provider_include={provider}");
    let contexts = [
        "mtl_ofi_enable_sep=1",
        "mtl_ofi_thread_grouping=1",
        "mtl_ofi_num_ctxts=2",
    ];
    let settings = [&TWO_SIDED[..], &[&include], &contexts].concat();
    let traced = [
        ("FI_HOOK", "trace"),
        ("FI_HOOK_FILE", file.to_str().unwrap()),
    ];
    run(ranks, &settings, &traced, &["pingpong", "collectives"]);
    if let Ok(text) = std::fs::read_to_string(&file) {
        // A file that cannot be removed stays in the folder for temporary files.
        let _ = std::fs::remove_file(&file);
        assert!(
            text.contains("\"call\":\"scalable_ep\""),
            "no scalable endpoint"
        );
        let opened = text.matches("\"call\":\"context\"").count();
        assert!(opened >= ranks, "{opened} contexts of {ranks} ranks");
    }
}

fn one_sided(ranks: usize, provider: &str) {
    let include = format!("btl_ofi_provider_include={provider}");
    let settings = [ONE_SIDED.as_slice(), &[&include, "osc=rdma"]].concat();
    let arguments = ["pingpong", "collectives", "one-sided"];
    run(ranks, &settings, &[], &arguments);
}

#[test]
fn two_ranks_of_open_mpi_exchange_messages_over_shm() {
    two_sided(2, "shm");
}

#[test]
fn four_ranks_of_open_mpi_exchange_messages_over_shm() {
    two_sided(4, "shm");
}

#[test]
fn two_ranks_of_open_mpi_exchange_messages_over_tcp() {
    two_sided(2, "tcp");
}

#[test]
fn four_ranks_of_open_mpi_exchange_messages_over_tcp() {
    two_sided(4, "tcp");
}

#[test]
fn two_ranks_of_open_mpi_use_contexts_over_shm() {
    two_sided_with_contexts(2, "shm");
}

#[test]
fn four_ranks_of_open_mpi_use_contexts_over_tcp() {
    two_sided_with_contexts(4, "tcp");
}

#[test]
fn two_ranks_of_open_mpi_use_windows_over_shm() {
    one_sided(2, "shm");
}

#[test]
fn four_ranks_of_open_mpi_use_windows_over_tcp() {
    one_sided(4, "tcp");
}

#[test]
fn ranks_of_open_mpi_map_each_other_s_shared_heaps() {
    let include = "mtl_ofi_provider_include=shm";
    let settings = [TWO_SIDED.as_slice(), &[include]].concat();
    let library = built("libselvedge_heap_c.so");
    let preload = [("LD_PRELOAD", library.to_str().unwrap())];
    let arguments = ["heap", "pingpong", "collectives"];
    let text = run(2, &settings, &preload, &arguments);
    assert!(text.is_none_or(|text| text.contains("the heap was mapped\n")));
}

/// MPICH, of which `MPICH_HOME` names the prefix, with its device for libfabric, and without its own
/// shared memory. Debian's MPICH has no such device; the package `mpich` of PyPI has it.
#[test]
fn ranks_of_mpich_map_each_other_s_shared_heaps() {
    let Ok(prefix) = std::env::var("MPICH_HOME") else {
        return skip(Need::OtherMpi, "MPICH_HOME names no MPICH with libfabric");
    };
    let bin = Path::new(&prefix).join("bin");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fabric-mpi-mpich");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/mpi.c");
    let mut compiler = Command::new(bin.join("mpicc"));
    output_of(compiler.arg("-o").arg(&program).arg(source));
    let library = built("libselvedge_heap_c.so");
    let mut command = with_selvedge(bin.join("mpiexec"));
    command
        .env("MPIR_CVAR_CH4_NETMOD", "ofi")
        .env("MPIR_CVAR_NOLOCAL", "1")
        .env("FI_PROVIDER", "shm")
        .args(["-n", "2", "-genv", "LD_PRELOAD"])
        .arg(library)
        .arg(&program)
        .args(["heap", "pingpong", "collectives", "one-sided"]);
    let text = output_of(&mut command);
    let selvedge = std::fs::canonicalize(library_folder().join("libfabric.so.1")).unwrap();
    assert!(
        text.contains(&format!("carried by {}", selvedge.display())),
        "{text}"
    );
    assert!(text.contains("the heap was mapped\n"), "{text}");
}
