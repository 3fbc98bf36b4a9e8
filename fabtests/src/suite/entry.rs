//! What the runner runs: a few processes that belong together.

use std::time::Duration;

/// The sets of tests; each holds those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Set {
    /// Every test, with little data: a minute
    #[default]
    Quick,
    /// More data, more rounds, and the providers' other ways of moving data: ten minutes
    Standard,
    /// Whatever there is
    All,
}

/// How the processes of an entry begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// All at once: they find each other by [`super::control::Control::exchange`].
    Together,
    /// One after the other, each when the one before has said that it is ready.
    InTurn,
}

/// A process of an entry: this program with these arguments.
///
/// Arguments and values of variables may contain placeholders: `{port}` and `{port:NAME}` are TCP
/// ports that nobody else of the run has, the same for the same name throughout the entry; `{name}`
/// is a word that no other entry has; `{here}` is the address of its host and `{host}` that of the
/// first process's; `{source}` is `-s {here}` on two hosts, and nothing on one; `{ready}` is what the
/// process before said when it was ready.
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
    /// A process that ends with 0.
    pub fn new<T: Into<String>>(args: impl IntoIterator<Item = T>) -> Self {
        Self {
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            exits: 0,
        }
    }

    /// The same, with a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, with another exit code for a success.
    #[must_use]
    pub fn exits(mut self, code: i32) -> Self {
        self.exits = code;
        self
    }
}

/// One test.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is tested.
    pub provider: String,
    /// What it is called, unique within the provider: `rdm/raw/messages.every_size`, or a program's
    /// command line.
    pub name: String,
    /// The smallest set that it is of.
    pub set: Set,
    /// Its processes.
    pub processes: Vec<Process>,
    /// How they begin.
    pub start: Start,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether nothing else may run beside it: it measures, or takes what all share.
    pub is_alone: bool,
    /// Whether success means that at least one thing was checked, as the processes count it.
    pub counts_checks: bool,
    /// Whether it is over a provider with a defect, which it has to notice.
    pub must_fail: bool,
    /// Whether calls are made to fail, so that it may fail as well, but in time and by itself.
    pub may_fail: bool,
}

impl Entry {
    /// A test of the quick set whose processes begin together.
    pub fn new(provider: &str, name: impl Into<String>, processes: Vec<Process>) -> Self {
        Self {
            provider: provider.to_owned(),
            name: name.into(),
            set: Set::Quick,
            processes,
            start: Start::Together,
            timeout: TIMEOUT,
            is_alone: false,
            counts_checks: false,
            must_fail: false,
            may_fail: false,
        }
    }

    /// What it is called in the whole run.
    pub fn path(&self) -> String {
        format!("{}/{}", self.provider, self.name)
    }
}

/// Enough for what takes a second on a quiet machine.
const TIMEOUT: Duration = Duration::from_secs(120);
