//! Attempts that show whether the shm provider works on this machine, and how fast.
//!
//! A finding is the result of one attempt, with its meaning. No conclusion comes from a version or
//! a setting where an attempt is possible; settings are read to explain a failure.

mod cores;
mod endpoint;
mod environment;
mod finding;
mod memory;
pub mod mpi;
mod placement;
mod processes;

use serde::Serialize;

pub use finding::{Finding, Severity};
pub use processes::{expose_number, read_number};

/// All findings.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Whether messages are as fast as this processor allows.
    pub full_speed: bool,
    /// Whether messages can be exchanged.
    pub works: bool,
    /// The findings, one by one.
    pub findings: Vec<Finding>,
}

/// Makes every attempt.
pub fn examine() -> Diagnosis {
    let findings = vec![
        endpoint::messages(),
        memory::sealed(),
        processes::sockets(),
        processes::cross_memory_attach(),
        processes::peer_failures(),
        cores::cores(),
        cores::frequency(),
        environment::quota(),
        endpoint::descriptors(),
        placement::placement(),
        memory::huge_pages(),
        memory::locked(),
        memory::dev_shm(),
        processes::barriers(),
        environment::namespaces(),
    ];
    let worst = findings.iter().map(|finding| finding.severity).max();
    Diagnosis {
        full_speed: worst < Some(Severity::Slow),
        works: worst < Some(Severity::Broken),
        findings,
    }
}
