//! Campaigns: faults on purpose, again and again, and a count of who survived.
//!
//! Each campaign runs real processes, does something bad to one of them, and checks that the others
//! lose nothing, get everything once and in order, are told of what failed, and keep nothing. What
//! is random comes from a seed that is printed. docs/FABTESTS.md says what each of them does.

mod bystanders;
mod company;
mod echo;
mod endpoint;
mod flood;
mod hostile;
mod kill;
mod message;
mod newcomers;
mod operation;
pub mod part;
mod path;
mod phoenix;
mod report;
mod restart;
mod scene;
mod storm;
mod strangers;
mod sweep;
mod tracee;
mod victim;

pub use report::{Plan, Report, Row};

use clap::ValueEnum;

/// Every campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Campaign {
    /// Processes are killed at every instruction of every operation
    Kill,
    /// Processes end and come back under the same name, with traffic in both directions
    Restart,
    /// Peers send more than anybody receives
    Flood,
    /// A peer does its worst with its memory and sockets
    Hostile,
    /// Processes are stopped at every instruction of every operation, and go on later
    Stop,
    /// Processes exchange messages in a storm of signals
    Signals,
    /// Processes of another user attack the socket of an endpoint
    Strangers,
    /// Honest processes connect to an endpoint without end
    Storm,
}

/// Runs a campaign.
///
/// # Errors
/// When it cannot be run. What did not survive is in the report.
pub fn run(campaign: Campaign, plan: &Plan) -> anyhow::Result<Report> {
    match campaign {
        Campaign::Kill => kill::deaths(plan),
        Campaign::Restart => restart::lives(plan),
        Campaign::Flood => flood::floods(plan),
        Campaign::Hostile => hostile::attacks(plan),
        Campaign::Stop => kill::pauses(plan),
        Campaign::Signals => restart::storms(plan),
        Campaign::Strangers => strangers::intrusions(plan),
        Campaign::Storm => newcomers::storms(plan),
    }
}
