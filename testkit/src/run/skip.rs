//! Skips of tests that need a feature which the machine may lack. A skip is printed and recorded.
//! If [`REQUIRED`] says that the machine has the feature, the test fails instead.
//!
//! Rust's test harness shows the output of failed tests only, and counts a test that returns early
//! as passed. A skip is therefore written directly to standard error, and appended to the file that
//! [`RECORD`] names. `cargo xtask test` prints a summary of that file.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::thread;

/// The environment variable with the path of the file that skips are appended to, one line each.
pub const RECORD: &str = "SELVEDGE_SKIPS";

/// The environment variable with the names of the [`Need`]s that the machine has, separated by
/// white space. A test that reports the lack of one of them fails.
pub const REQUIRED: &str = "SELVEDGE_TEST_REQUIRES";

/// A feature that tests need and a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A C compiler, and binutils.
    Cc,
    /// A C++ compiler that supports the language standards of the C++ tests.
    Cxx,
    /// libfabric: its library, headers and programs, and their features.
    Libfabric,
    /// UCX: its library and headers.
    Ucx,
    /// The programs that build iceoryx2, and its packages.
    Iceoryx2,
    /// Open MPI.
    Mpi,
    /// Another MPI library, which the test names.
    OtherMpi,
    /// Python 3, with pip and the build back end hatchling.
    Python,
    /// The permission to create namespaces, users, control groups or mounts.
    Rights,
    /// A feature of the kernel or of the hardware.
    System,
}

const NEEDS: [Need; 10] = [
    Need::Cc,
    Need::Cxx,
    Need::Libfabric,
    Need::Ucx,
    Need::Iceoryx2,
    Need::Mpi,
    Need::OtherMpi,
    Need::Python,
    Need::Rights,
    Need::System,
];

impl Need {
    /// The name in [`REQUIRED`] and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cc => "cc",
            Self::Cxx => "c++",
            Self::Libfabric => "libfabric",
            Self::Ucx => "ucx",
            Self::Iceoryx2 => "iceoryx2",
            Self::Mpi => "mpi",
            Self::OtherMpi => "other-mpi",
            Self::Python => "python",
            Self::Rights => "rights",
            Self::System => "system",
        }
    }

    fn from_name(name: &str) -> Self {
        let mut needs = NEEDS.into_iter();
        let found = needs.find(|need| need.name() == name);
        found.unwrap_or_else(|| {
            let known = NEEDS.map(Self::name).join(" ");
            panic!("{REQUIRED}: {name:?} is not one of: {known}")
        })
    }
}

/// Whether [`REQUIRED`] names `need`. Tests that cost much for few users run only then.
///
/// # Panics
/// If [`REQUIRED`] contains an unknown name.
pub fn is_required(need: Need) -> bool {
    let required = env::var(REQUIRED).unwrap_or_default();
    required
        .split_whitespace()
        .any(|name| Need::from_name(name) == need)
}

/// Reports that this test, or a part of it, is skipped because the machine lacks `need`.
///
/// # Panics
/// If [`REQUIRED`] contains `need` or an unknown name, or if the file of [`RECORD`] cannot be
/// written.
pub fn skip(need: Need, reason: impl fmt::Display) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        !is_required(need),
        "{test} needs {}, which {REQUIRED} says is there: {reason}",
        need.name()
    );
    let reason = reason.to_string().replace('\n', " ");
    let line = format!("skipped: {test} needs {}: {reason}\n", need.name());
    // One write, so that lines of several processes are not mixed.
    let _ = stderr().write_all(line.as_bytes());
    if let Some(path) = env::var_os(RECORD) {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{RECORD}: {}: {error}", path.display()));
    }
}
