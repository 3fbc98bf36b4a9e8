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
mod other_user;
mod report;
mod restart;
mod role;
mod service;

pub use report::{Plan, Report, Row};

use anyhow::Context as _;
use clap::ValueEnum;
use selvedge_testkit::process;
use serde_json::Value;

use self::endpoint::message;
use self::role::Role;

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
    /// Clients and servers of the service layer are killed and stopped amid requests
    Service,
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
        Campaign::Service => service::run(plan),
    }
}

/// Arguments of a campaign's process, which the campaign starts itself.
#[derive(Clone, Debug, clap::Args)]
pub struct ProcessArgs {
    /// The process identifier of the campaign
    #[arg(long)]
    parent: i32,
}

/// The name of a role, and the function that executes it.
type RoleEntry = (&'static str, fn(Value) -> anyhow::Result<()>);

/// The roles of processes.
const ROLES: [RoleEntry; 9] = [
    entry::<hostile::Config>(),
    entry::<echo::Config>(),
    entry::<flood::Config>(),
    entry::<connect_storm::Config>(),
    entry::<restart::restarted::Config>(),
    entry::<other_user::Config>(),
    entry::<kill::target::Config>(),
    entry::<service::Client>(),
    entry::<service::Server>(),
];

const fn entry<R: Role>() -> RoleEntry {
    (R::NAME, |config| {
        serde_json::from_value::<R>(config)?.execute()
    })
}

/// Executes the role that standard input names.
///
/// # Errors
/// The first failure in the role.
pub fn run_process(args: &ProcessArgs) -> anyhow::Result<()> {
    process::die_with_parent(args.parent)?;
    let (name, config): (String, Value) = process::next_request()?;
    let role = ROLES.into_iter().find(|(role, _)| *role == name);
    let (_, execute) = role.with_context(|| format!("there is no role {name:?}"))?;
    execute(config)
}
