//! Tests that need what a machine may lack: each skip is printed, counted, and an error where the
//! machine was said to have it.
//!
//! The test harness of Rust shows what a test prints only when that fails, and counts a test that
//! returned early as passed. A skip is therefore written past the harness, to the standard error
//! stream, and appended to the file that [`RECORD`] names, which `cargo xtask test` sums up.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{Write, stderr};
use std::thread;

/// The environment variable with the file that skips are appended to, one line each.
pub const RECORD: &str = "SELVEDGE_SKIPS";

/// The environment variable with the words of the [`Need`]s that the machine has: a test that is
/// skipped for the want of one fails.
pub const REQUIRED: &str = "SELVEDGE_TEST_REQUIRES";

/// Something that tests need and a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A C compiler, and binutils.
    Cc,
    /// A C++ compiler with the standards of the C++ tests.
    Cxx,
    /// libfabric: its library, headers and programs, and what these can do.
    Libfabric,
    /// Open MPI.
    Mpi,
    /// Another MPI, which the test names.
    OtherMpi,
    /// The right to make namespaces, users, control groups or mounts.
    Rights,
    /// Something of the kernel or of the hardware.
    System,
}

const NEEDS: [Need; 7] = [
    Need::Cc,
    Need::Cxx,
    Need::Libfabric,
    Need::Mpi,
    Need::OtherMpi,
    Need::Rights,
    Need::System,
];

impl Need {
    /// Its word in [`REQUIRED`] and in reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cc => "cc",
            Self::Cxx => "c++",
            Self::Libfabric => "libfabric",
            Self::Mpi => "mpi",
            Self::OtherMpi => "other-mpi",
            Self::Rights => "rights",
            Self::System => "system",
        }
    }

    fn named(word: &str) -> Self {
        let mut needs = NEEDS.into_iter();
        let found = needs.find(|need| need.word() == word);
        found.unwrap_or_else(|| {
            let known = NEEDS.map(Self::word).join(" ");
            panic!("{REQUIRED}: {word:?} is none of these: {known}")
        })
    }
}

/// Says that this test, or a part of it, is skipped because the machine lacks something.
///
/// # Panics
/// Where [`REQUIRED`] says that the machine has it, or holds an unknown word.
pub fn skip(need: Need, why: impl fmt::Display) {
    let test = thread::current().name().unwrap_or("a test").to_owned();
    let required = env::var(REQUIRED).unwrap_or_default();
    assert!(
        !required
            .split_whitespace()
            .any(|word| Need::named(word) == need),
        "{test} needs {}, which {REQUIRED} says is there: {why}",
        need.word()
    );
    let why = why.to_string().replace('\n', " ");
    let line = format!("skipped: {test} needs {}: {why}\n", need.word());
    // One write each: lines of several processes are not mixed.
    let _ = stderr().write_all(line.as_bytes());
    if let Some(path) = env::var_os(RECORD) {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{RECORD}: {}: {error}", path.display()));
    }
}
