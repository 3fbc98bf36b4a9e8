//! Configuration of the endpoints: the differences between a measured pair and the plain pair.

use serde::{Deserialize, Serialize};

/// Configuration of a pair's endpoints. The default is the plain pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BenchConfig {
    /// Threading level that the endpoints promise.
    pub threading: ThreadingLevel,
    /// The action of a process that waits for a completion.
    pub wait: WaitStrategy,
    /// Posted receives that no message of a benchmark matches.
    pub posted: usize,
    /// Unexpected messages that no receive of a benchmark matches.
    pub unexpected: usize,
    /// Connected peers that send no messages.
    #[serde(rename = "quiet")]
    pub idle_peers: usize,
    /// Whether the loops use the safe layer ([`selvedge::owned`]) instead of the raw endpoint.
    pub owned: bool,
    /// Whether the loops of the safe layer lend their messages.
    pub lent: bool,
    /// Whether the loops use requests and responses of the service layer (`selvedge-service`).
    pub service: bool,
    /// Whether the buffers lie in the shared heap (`selvedge-heap`).
    pub heap: bool,
}

/// Threading level that the endpoints promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ThreadingLevel {
    /// `FI_THREAD_DOMAIN`: two threads never use objects of a domain at once.
    #[default]
    Domain,
    /// `FI_THREAD_SAFE`: threads may use any object at any time.
    Safe,
}

/// The action of a process that waits for a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum WaitStrategy {
    /// Reads the queue again at once.
    #[default]
    Spin,
    /// Yields the processor, then reads again.
    Yield,
    /// Blocks in poll(2) on the queue's descriptor (`FI_WAIT_FD`).
    Fd,
    /// Parks in a blocking read of the queue (`FI_WAIT_UNSPEC`).
    Sleep,
}

impl BenchConfig {
    /// The differences from the plain pair as text; empty for the plain pair.
    pub fn name(&self) -> String {
        let plain = Self::default();
        let mut words = Vec::new();
        match (self.owned, self.lent) {
            (_, true) => words.push("lent".to_owned()),
            (true, false) => words.push("owned".to_owned()),
            (false, false) => {}
        }
        if self.service {
            words.push("service".to_owned());
        }
        if self.heap {
            words.push("shared heap".to_owned());
        }
        if self.threading != plain.threading {
            words.push("thread-safe".to_owned());
        }
        match self.wait {
            WaitStrategy::Spin => {}
            WaitStrategy::Yield => words.push("yielding".to_owned()),
            WaitStrategy::Fd => words.push("waiting on a descriptor".to_owned()),
            WaitStrategy::Sleep => words.push("sleeping".to_owned()),
        }
        if self.posted > 0 {
            words.push(format!("{} receives posted", self.posted));
        }
        if self.unexpected > 0 {
            words.push(format!("{} messages unexpected", self.unexpected));
        }
        if self.idle_peers > 0 {
            words.push(format!("{} idle peers", self.idle_peers));
        }
        words.join(", ")
    }
}
