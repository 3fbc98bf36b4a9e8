//! The entries that the runner runs: each a few processes.

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
    /// All at once; they find each other by [`super::control::Control::exchange`].
    Together,
    /// One after the other, each when the one before has sent [`super::control::Message::Ready`].
    InTurn,
}

/// A process of an entry: this program with these arguments.
///
/// Arguments and values of variables may contain placeholders: `{port}` and `{port:NAME}` are TCP
/// ports that no other process of the run has, the same for the same name throughout the entry;
/// `{name}` is a word that no other entry has; `{here}` is the address of its host and `{host}`
/// that of the first process's; `{source}` is `-s {here}` on two hosts, and nothing on one;
/// `{ready}` is the text that the process before sent when it was ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to those of the runner.
    pub env: Vec<(String, String)>,
    /// The exit code of a success.
    pub exits: i32,
}

impl Process {
    /// A process that exits with 0.
    pub fn new<T: Into<String>>(args: impl IntoIterator<Item = T>) -> Self {
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            exits: 0,
        }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets another exit code of a success.
    #[must_use]
    pub fn exits(mut self, code: i32) -> Self {
        self.exits = code;
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
    /// The smallest set that contains it.
    pub set: Set,
    /// Its processes.
    pub processes: Vec<Process>,
    /// The order in which they start.
    pub start: Start,
    /// Its time limit.
    pub timeout: Duration,
    /// Whether no other entry may run at the same time, because it measures, or uses a shared
    /// resource.
    pub is_exclusive: bool,
    /// Whether success requires that its processes report at least one check.
    pub counts_checks: bool,
    /// Whether its provider has a defect, which it must detect.
    pub must_fail: bool,
    /// Whether calls are made to fail, so that it may fail as well, but not hang or crash.
    pub may_fail: bool,
}

impl Entry {
    /// A test of the quick set whose processes start together.
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

    /// The name in the whole run.
    pub fn path(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }
}

/// Enough for a test that takes a second on an idle machine.
const TIMEOUT: Duration = Duration::from_secs(120);
