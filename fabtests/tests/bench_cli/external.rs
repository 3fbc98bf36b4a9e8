//! A/B runs with programs of their own, over libraries of others.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use selvedge_testkit::skip::{Need, is_required, skip};

use crate::command::{exclusive, fabtests, run_failing, run_json};
use crate::object::{array, number, text};

#[test]
fn missing_compiler_or_library_is_an_error_with_a_remedy() {
    let _guard = exclusive();
    let remedies = [
        ("libfabric", "libfabric-dev"),
        ("ucx", "libucx-dev"),
        ("iceoryx2", "cannot run cargo"),
        ("mpi", "cargo xtask install"),
    ];
    for (library, remedy) in remedies {
        let output = fabtests(&["bench", "-S", "8", "--against", library])
            .env("PATH", "/nonexistent")
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap();
        assert!(!output.status.success());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn libfabric_is_measured_if_installed() {
    let _guard = exclusive();
    if !Path::new("/usr/include/rdma/fi_tagged.h").exists() {
        return skip(Need::Libfabric, "its headers are not installed");
    }
    let messages = "msg_pingpong,tagged_pingpong,msg_bw,tagged_bw";
    let one_sided =
        "rma_put,rma_get,rma_write_pingpong,rma_bw,rma_read_bw,atomic_add,atomic_fetch_add";
    let benches = [messages, "tagged_bibw", one_sided].join(",");
    let args = [
        "bench", "-S", "8", "-I", "20", "--reps", "2", "--bench", &benches,
    ];
    let before = files_of_libfabric();
    let report = run_json(&[&args[..], &["--against", "libfabric", "--json"]].concat());
    assert_eq!(files_of_libfabric(), before, "files remain in /dev/shm");
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 24);
    for pair in rows.chunks(2) {
        assert!(text(&pair[0], "implementation").starts_with("selvedge "));
        assert!(text(&pair[1], "implementation").starts_with("libfabric "));
        assert_eq!(pair[0]["bench"], pair[1]["bench"]);
    }
    assert_eq!(array(&report["memory"]).len(), 2);
}

/// The files of libfabric's shm, which it names after a process.
fn files_of_libfabric() -> BTreeSet<OsString> {
    let names = fs::read_dir("/dev/shm").unwrap();
    names
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().ends_with(":0:0"))
        .collect()
}

#[test]
fn ucx_is_measured_if_installed() {
    let _guard = exclusive();
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        return skip(Need::Ucx, "its headers are not installed");
    }
    let one_sided = "rma_put,rma_get,rma_bw,rma_read_bw,atomic_add,atomic_fetch_add";
    let benches = ["tagged_pingpong,tagged_bw,tagged_bibw", one_sided].join(",");
    let args = ["bench", "-I", "20", "--reps", "1", "--bench", &benches];
    let options = ["-S", "8,300000", "--against", "ucx", "--json"];
    let report = run_json(&[&args[..], &options].concat());
    let rows = array(&report["rows"]);
    // Atomic operations have one size.
    assert_eq!(rows.len(), 2 * (2 * 9 - 2));
    for pair in rows.chunks(2) {
        assert!(text(&pair[1], "implementation").starts_with("ucx 1."));
        assert_eq!(pair[0]["bench"], pair[1]["bench"]);
        assert!(number(&pair[1], "reps") == 0.0 || number(&pair[1], "msgs_per_s") > 0.0);
    }
    assert_eq!(array(&report["memory"]).len(), 2);
    let error = run_failing(&["bench", "--against", "ucx", "--bench", "msg_bw", "-S", "8"]);
    assert!(error.contains("msg_bw"), "{error}");
}

#[test]
fn open_mpi_is_measured_if_installed() {
    let _guard = exclusive();
    if !has_mpicc() {
        return skip(Need::Mpi, "there is no mpicc");
    }
    let args = "bench -p shm -I 20 --reps 1 --bench tagged_pingpong,tagged_bw,tagged_bibw \
                -S 8,300000 --against mpi --baseline own --json";
    let report = run_json(&args.split_whitespace().collect::<Vec<_>>());
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 2 * 6);
    for pair in rows.chunks(2) {
        assert!(text(&pair[1], "implementation").starts_with("openmpi "));
        assert_eq!(text(&pair[1], "manner"), "over its own transports");
        assert_eq!(pair[0]["bench"], pair[1]["bench"]);
        assert!(number(&pair[1], "reps") == 0.0 || number(&pair[1], "msgs_per_s") > 0.0);
    }
    let error = run_failing(&["bench", "--against", "mpi", "--bench", "rma_put"]);
    assert!(error.contains("rma_put"), "{error}");
    let error = run_failing(&["bench", "--against", "mpi", "--baseline", "sm"]);
    assert!(error.contains("choose selvedge, heap or own"), "{error}");
}

/// Ranks over Selvedge's library, which is built with the workspace, with the heap and without.
#[test]
fn open_mpi_is_measured_over_the_c_library() {
    let _guard = exclusive();
    if !has_mpicc() {
        return skip(Need::Mpi, "there is no mpicc");
    }
    let Some(libraries) = link_libraries() else {
        return skip(
            Need::Mpi,
            "selvedge-libfabric and selvedge-heap-c are not built",
        );
    };
    let args =
        "bench -p shm -I 20 --reps 1 --bench tagged_pingpong -S 8,300000 --against mpi --json";
    let mut command = fabtests(&args.split(' ').collect::<Vec<_>>());
    let output = command.env("LD_LIBRARY_PATH", &libraries).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 2 * 4);
    for row in rows.chunks(4) {
        let routes: Vec<_> = row[1..].iter().map(|row| text(row, "manner")).collect();
        let heap = "over selvedge with the shared heap";
        assert_eq!(routes, ["over selvedge", heap, "over its own transports"]);
    }
}

#[test]
fn a_launcher_that_fails_is_an_error_with_its_output() {
    let _guard = exclusive();
    if !has_mpicc() {
        return skip(Need::Mpi, "there is no mpicc");
    }
    let args = "bench -p shm -S 8 --reps 1 --against mpi --baseline own";
    let output = fabtests(&args.split(' ').collect::<Vec<_>>())
        .env("OMPI_MCA_pmix", "nonsense")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("mpirun"), "{message}");
    assert!(message.contains("it printed last"), "{message}");
}

fn has_mpicc() -> bool {
    let output = Command::new("mpicc").arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

/// A folder with the built libraries under the names of an installation; `None` if they are not
/// built.
fn link_libraries() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let folders = [program.parent()?, program.parent()?.parent()?];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mpi-libraries");
    fs::create_dir_all(&folder).unwrap();
    let files = [
        ("libfabric.so", "libfabric.so.1"),
        ("libselvedge_heap_c.so", "libselvedge_heap.so"),
    ];
    for (file, name) in files {
        let mut files = folders.iter().map(|built| built.join(file));
        let file = files.find(|file| file.exists())?;
        fs::copy(file, folder.join(name)).unwrap();
    }
    Some(folder)
}

#[test]
fn several_baselines_are_measured_in_turns() {
    let _guard = exclusive();
    let args = "bench --bench tagged_pingpong -S 8 -I 20 --reps 1 --against tcp,bmi --json";
    let report = run_json(&args.split(' ').collect::<Vec<_>>());
    let rows = array(&report["rows"]).iter();
    let contestants: Vec<_> = rows
        .map(|row| (text(row, "provider"), text(row, "implementation")))
        .collect();
    assert_eq!(contestants.len(), 3);
    assert_eq!(contestants[1].0, "tcp");
    assert!(contestants[2].1.starts_with("selvedge-bmi "));
}

#[test]
fn iceoryx2_is_measured_if_required() {
    let _guard = exclusive();
    if !is_required(Need::Iceoryx2) {
        return skip(Need::Iceoryx2, "the first build takes minutes: require it");
    }
    let args = "bench -S 8,100000 -I 20 --reps 1 --against iceoryx2 --json --timeout 3000";
    let output = fabtests(&args.split(' ').collect::<Vec<_>>())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 8);
    for pair in rows.chunks(2) {
        assert!(text(&pair[1], "implementation").starts_with("iceoryx2 0."));
        assert_eq!(pair[0]["bench"], pair[1]["bench"]);
    }
}

#[test]
fn baselines_that_do_not_fit_the_service_layer_are_refused() {
    let _guard = exclusive();
    for (args, remedy) in [
        ("bench -S 8 --against tarpc", "add --service"),
        (
            "bench -S 8 --service --against ucx",
            "iceoryx2, tarpc or tonic",
        ),
    ] {
        let error = run_failing(&args.split(' ').collect::<Vec<_>>());
        assert!(error.contains(remedy), "{error}");
    }
}

#[test]
fn requests_are_measured_beside_other_libraries_if_required() {
    let _guard = exclusive();
    if !is_required(Need::Iceoryx2) {
        return skip(Need::Iceoryx2, "the first build takes minutes: require it");
    }
    let args = "bench --service --bench msg_pingpong -S 64,100000 -I 20 --reps 1 \
                --against iceoryx2,tarpc,tonic --json --timeout 3000";
    let report = run_json(&args.split_whitespace().collect::<Vec<_>>());
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 8);
    for row in rows.chunks(4) {
        let names = row.iter().map(|row| text(row, "implementation"));
        let names: Vec<_> = names.map(|name| name.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["selvedge", "iceoryx2", "tarpc", "tonic"]);
    }
}
