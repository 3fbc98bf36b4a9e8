//! Campaigns: injected faults, and the number of attempts that harmed no other process.
//!
//! Each campaign runs real processes, damages or attacks one of them, and checks the others: they
//! lose nothing, receive everything once and in order, have errors for failed operations, and keep
//! no resources. Random numbers come from a seed, which is printed. docs/FABTESTS.md describes each
//! campaign.

mod connect_storm;
mod echo;
mod endpoint;
mod flood;
mod hostile;
mod kill;
mod message;
mod other_user;
mod report;
mod restart;
pub mod role;

pub use report::{Plan, Report, Row};

use clap::ValueEnum;

/// Every campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Campaign {
    /// Processes are killed at every instruction of every operation
    Kill,
    /// Processes end and restart under the same name, with traffic in both directions
    Restart,
    /// Peers send more than the target receives
    Flood,
    /// A hostile peer attacks with its memory and sockets
    Hostile,
    /// Processes are stopped at every instruction of every operation, and continue later
    Stop,
    /// Processes exchange messages while signals interrupt them
    Signals,
    /// Processes of another user attack the socket of an endpoint
    #[value(alias = "strangers")]
    OtherUser,
    /// Well-behaved processes connect to an endpoint without end
    Storm,
}

/// Runs a campaign.
///
/// # Errors
/// The campaign cannot be run. Failed attempts are in the report.
pub fn run(campaign: Campaign, plan: &Plan) -> anyhow::Result<Report> {
    match campaign {
        Campaign::Kill => kill::run_kill(plan),
        Campaign::Restart => restart::run_restart(plan),
        Campaign::Flood => flood::run(plan),
        Campaign::Hostile => hostile::run(plan),
        Campaign::Stop => kill::run_stop(plan),
        Campaign::Signals => restart::run_signals(plan),
        Campaign::OtherUser => other_user::run(plan),
        Campaign::Storm => connect_storm::run(plan),
    }
}
