//! In what an endpoint, and how many of them there are, differs from the plain pair.

use serde::{Deserialize, Serialize};

/// How endpoints are opened and used; the default is the plain way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manner {
    /// What is promised about threads.
    pub threading: Promise,
    /// What a process does that waits for a completion.
    pub wait: Wait,
    /// Receives that are posted all the time and take no message of a benchmark.
    pub posted: usize,
    /// Messages that have arrived and that no receive of a benchmark takes.
    pub unexpected: usize,
    /// More peers that are connected and say nothing.
    pub quiet: usize,
    /// Through the safe layer ([`selvedge::owned`]) in place of the raw one.
    pub owned: bool,
}

/// What is promised about threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// `FI_THREAD_DOMAIN`: nothing of a domain is used by two threads at once.
    #[default]
    Domain,
    /// `FI_THREAD_SAFE`: nothing.
    Safe,
}

/// What a process does that waits for a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Reads the queue again at once.
    #[default]
    Spin,
    /// Yields the processor, then reads again.
    Yield,
    /// Sleeps in poll(2) on the queue's descriptor (`FI_WAIT_FD`).
    Fd,
    /// Sleeps in a blocking read of the queue (`FI_WAIT_UNSPEC`).
    Sleep,
}

impl Manner {
    /// What is not as usual, in words.
    pub fn name(&self) -> String {
        let plain = Self::default();
        let mut words = Vec::new();
        if self.owned {
            words.push("owned".to_owned());
        }
        if self.threading != plain.threading {
            words.push("thread-safe".to_owned());
        }
        match self.wait {
            Wait::Spin => {}
            Wait::Yield => words.push("yielding".to_owned()),
            Wait::Fd => words.push("waiting on a descriptor".to_owned()),
            Wait::Sleep => words.push("sleeping".to_owned()),
        }
        if self.posted > 0 {
            words.push(format!("{} receives posted", self.posted));
        }
        if self.unexpected > 0 {
            words.push(format!("{} messages unexpected", self.unexpected));
        }
        if self.quiet > 0 {
            words.push(format!("{} quiet peers", self.quiet));
        }
        words.join(", ")
    }
}
