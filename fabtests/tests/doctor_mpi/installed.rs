//! Selvedge's libraries as they are installed, and programs that stand in for launchers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use selvedge_testkit::skip::{Need, skip};

/// An empty folder for a test, without links in its path.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder.canonicalize().unwrap()
}

/// Writes a program of the shell.
pub(crate) fn write_program(file: &Path, script: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The libraries as they are installed: `libfabric.so.1`, the heap, and the plugins.
pub(crate) fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = folder("doctor-mpi");
        fs::create_dir_all(folder.join("libfabric")).unwrap();
        let files = [
            ("libfabric.so.1", "libfabric.so"),
            ("libselvedge_heap.so", "libselvedge_heap_c.so"),
            ("libfabric/libselvedge_shm-fi.so", "libselvedge_fi.so"),
            ("libfabric/libselvedge_tcp-fi.so", "libselvedge_fi.so"),
        ];
        for (name, built) in files {
            // Two names of one file are one library for the loader, which would load one provider.
            fs::copy(built_library(built), folder.join(name)).unwrap();
        }
        folder
    })
}

fn built_library(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let mut files = folders.into_iter().map(|folder| folder.join(name));
    let found = files.find(|file| file.exists());
    found.expect("the library is built with the tests")
}

/// Returns whether the machine has Open MPI. If not, the test is reported as skipped.
pub(crate) fn has_open_mpi() -> bool {
    let has = Command::new("mpirun").arg("--version").output();
    let has = has.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("(Open MPI)"));
    if !has {
        skip(Need::Mpi, "there is no mpirun of Open MPI");
    }
    has
}
