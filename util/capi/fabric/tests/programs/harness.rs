//! Test harness: the library under its soname, compiled programs, and timeouts.

use selvedge_testkit::skip::{Need, skip};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// A bound that no working program reaches.
const TIMEOUT: Duration = Duration::from_secs(120);

#[path = "../../../once.rs"]
mod once;
pub(crate) use once::create_once;

/// A folder with the library under the names that programs and the linker search.
pub(crate) fn library_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fabric");
        fs::create_dir_all(&folder).unwrap();
        for name in ["libfabric.so.1", "libfabric.so"] {
            create_once(folder.join(name), |link| {
                symlink(built_library(), link).unwrap()
            });
        }
        folder
    })
}

fn built_library() -> PathBuf {
    built("libfabric.so")
}

/// A library that was built with the tests.
pub(crate) fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let mut files = folders.into_iter().map(|folder| folder.join(name));
    let found = files.find(|file| file.exists());
    found.expect("the library is built with the tests")
}

/// Returns whether the machine has all required files and programs. Otherwise the test is reported
/// as skipped.
pub(crate) fn has(requirements: &[&str]) -> bool {
    let missing = requirements
        .iter()
        .find(|requirements| !is_installed(requirements));
    if let Some(missing) = missing {
        let need = match *missing {
            "cc" | "objdump" => Need::Cc,
            "c++" => Need::Cxx,
            "mpirun" | "mpicc" => Need::Mpi,
            _ => Need::Libfabric,
        };
        skip(need, format_args!("there is no {missing}"));
    }
    missing.is_none()
}

/// The system's headers of libfabric.
pub(crate) const SYSTEM_HEADERS: &str = "/usr/include/rdma/fabric.h";

/// The folder of Selvedge's headers.
pub(crate) fn header_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// The folder of the programs' sources.
pub(crate) fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c")
}

fn is_installed(needed: &str) -> bool {
    if needed.starts_with('/') {
        return Path::new(needed).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(needed).exists())
}

/// The headers that a program is compiled with, and the library that it is linked to. The program
/// runs with Selvedge's library in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Built {
    /// Selvedge's headers, and its newest version of each symbol.
    ForSelvedge,
    /// The system's headers, and Selvedge's newest version of each symbol.
    WithSystemHeaders,
    /// The headers and the library of the system's libfabric.
    ForSystem,
    /// The libraries that `mpicc` links.
    ByMpicc,
}

/// Compiles a program of `tests/c` with warnings as errors, and returns its path.
pub(crate) fn compile(name: &str, built: Built, include: Option<&Path>) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fabric-{name}-{built:?}"));
    create_once(program, |program| {
        compile_to(program, name, built, include);
    })
}

fn compile_to(program: &Path, name: &str, built: Built, include: Option<&Path>) {
    let sources = source_folder();
    let compiler = match built {
        Built::ByMpicc => "mpicc",
        _ => "cc",
    };
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(program)
        .arg(sources.join(format!("{name}.c")))
        .arg("-I")
        .arg(&sources);
    if let Ok(sanitizer) = std::env::var("FABRIC_SANITIZER") {
        command.arg(format!("-fsanitize={sanitizer}"));
    }
    if let Some(include) = include {
        command.arg("-I").arg(include);
    }
    if built == Built::ForSelvedge {
        command.arg("-I").arg(header_folder());
    }
    if matches!(built, Built::ForSelvedge | Built::WithSystemHeaders) {
        command.arg("-L").arg(library_folder());
    }
    if built != Built::ByMpicc {
        command.args(["-lfabric", "-lpthread"]);
    }
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// A command whose program is loaded with Selvedge's library.
pub(crate) fn with_selvedge(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", library_folder());
    command
}

/// Runs a command, which must succeed, and returns its output and error output.
pub(crate) fn output_of(command: &mut Command) -> String {
    let (has_succeeded, text) = run_to_end(command);
    assert!(has_succeeded, "{command:?}\n{text}");
    text
}

/// Runs a command, and returns whether it has succeeded, with its output and error output.
pub(crate) fn run_to_end(command: &mut Command) -> (bool, String) {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    finish(child.unwrap())
}

/// As [`run_to_end`], for a child that is running.
pub(crate) fn finish(mut child: Child) -> (bool, String) {
    let out = collect(child.stdout.take());
    let err = collect(child.stderr.take());
    let deadline = Instant::now() + TIMEOUT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            let text = out.join().unwrap() + &err.join().unwrap();
            panic!("a program did not exit within the timeout\n{text}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    (status.success(), out.join().unwrap() + &err.join().unwrap())
}

fn collect(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
