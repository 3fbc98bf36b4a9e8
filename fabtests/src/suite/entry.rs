//! The entries of a run. An entry is one test: a few processes with a time limit.

use std::time::Duration;

/// The sets of tests; each contains the sets before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Set {
    /// Every test, with little data: a minute
    #[default]
    Quick,
    /// More data, more rounds, and the providers' variants: ten minutes
    Standard,
    /// Every test
    All,
}

/// The order in which the processes of an entry start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All at once; the processes exchange addresses by [`super::control::Control::exchange`].
    Together,
    /// One after the other: a process starts when the process before it has sent
    /// [`super::control::Message::Ready`].
    InTurn,
}

/// A process of an entry: this program with these arguments.
///
/// Arguments and values of variables may contain placeholders. `{port}` and `{port:NAME}` are TCP
/// ports that no other entry of the run has; an entry's processes have the same port for the same
/// name. `{name}` is a word that no other entry has. `{here}` is the address of the process's host,
/// and `{host}` the address of the first process's host. `{source}` is `-s {here}` on two hosts,
/// and nothing on one. `{ready}` is the text that the process before sent when it was ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to those of the runner.
    pub env: Vec<(String, String)>,
    /// The exit code that means success.
    pub success_code: i32,
}

impl Process {
    /// Makes a process that exits with 0 on success.
    pub fn new<T: Into<String>>(args: impl IntoIterator<Item = T>) -> Self {
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            success_code: 0,
        }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the exit code that means success.
    #[must_use]
    pub fn success_code(mut self, code: i32) -> Self {
        self.success_code = code;
        self
    }
}

/// One test.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The provider.
    pub provider: String,
    /// The name, unique within the provider: `rdm/raw/messages.every_size`, or a program's command
    /// line.
    pub name: String,
    /// The smallest set that contains the test.
    pub set: Set,
    /// The processes of the test.
    pub processes: Vec<Process>,
    /// The order in which the processes start.
    pub start: Start,
    /// The time limit of the test.
    pub timeout: Duration,
    /// Whether no other entry may run at the same time, because this test measures times or uses a
    /// shared resource.
    pub is_exclusive: bool,
    /// Whether success requires that the processes report at least one check.
    pub counts_checks: bool,
    /// Whether the provider has a defect, which the test must detect.
    pub must_fail: bool,
    /// Whether a call is made to fail, so that the test may fail, but not hang or crash.
    pub may_fail: bool,
}

impl Entry {
    /// Makes a test of the quick set whose processes start together.
    pub fn new(provider: &str, name: impl Into<String>, processes: Vec<Process>) -> Self {
        Self {
            provider: provider.to_owned(),
            name: name.into(),
            set: Set::Quick,
            processes,
            start: Start::Together,
            timeout: TIMEOUT,
            is_exclusive: false,
            counts_checks: false,
            must_fail: false,
            may_fail: false,
        }
    }

    /// Returns the name that is unique in the run.
    pub fn path(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }
}

/// The default time limit: enough for a test that takes a second on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The selection of tests.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The set.
    pub set: Set,
    /// The providers.
    pub providers: Vec<String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Only tests whose path contains one of these; all tests if it is empty.
    pub filters: Vec<String>,
    /// No tests whose path contains one of these.
    pub excludes: Vec<String>,
}

impl Selection {
    /// Whether the entry is selected.
    pub(super) fn includes(&self, entry: &Entry) -> bool {
        let path = entry.path();
        let contains_any = |parts: &[String]| parts.iter().any(|part| path.contains(part.as_str()));
        let is_selected = self.filters.is_empty() || contains_any(&self.filters);
        entry.set <= self.set && is_selected && !contains_any(&self.excludes)
    }
}
