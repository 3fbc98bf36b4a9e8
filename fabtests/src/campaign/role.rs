//! The roles of a campaign's processes.

use selvedge_testkit::process::{self, Process};
use serde::{Deserialize, Serialize};

use super::hostile::adversary;
use super::{connect_storm, echo, flood, other_user};
use super::restart::restarted;
use super::kill::target;

/// The role of a process, with its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Attacks the target.
    Adversary(adversary::Config),
    /// Sends every message back.
    Echo(echo::Config),
    /// Sends more than the target receives.
    Flood(flood::Config),
    /// Connects to an endpoint again and again.
    ConnectStorm(connect_storm::Config),
    /// Exchanges streams under the endpoint name of earlier processes, until it is killed, exits or
    /// closes.
    Restarted(restarted::Config),
    /// Attacks as a process of another user.
    OtherUser(other_user::Config),
    /// Executes one operation, and is killed or stopped at one of its instructions.
    Target(target::Config),
}

impl Role {
    /// Starts a process in this role.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(super) fn start(&self) -> anyhow::Result<Process> {
        let mut process = start_process()?;
        process.send(self)?;
        Ok(process)
    }

    /// Executes the role to its end.
    ///
    /// # Errors
    /// The first failure in the role.
    pub(super) fn execute(self) -> anyhow::Result<()> {
        match self {
            Self::Adversary(config) => adversary::execute(&config),
            Self::Echo(config) => echo::execute(&config),
            Self::Flood(config) => flood::execute(&config),
            Self::ConnectStorm(config) => connect_storm::execute(&config),
            Self::Restarted(config) => restarted::execute(&config),
            Self::OtherUser(config) => other_user::execute(&config),
            Self::Target(config) => target::execute(&config),
        }
    }
}

/// Starts a process without a role, which waits for one on its standard input.
///
/// # Errors
/// The process cannot be started.
pub(super) fn start_process() -> anyhow::Result<Process> {
    Process::start([
        "campaign-process",
        "--parent",
        &std::process::id().to_string(),
    ])
}

/// Arguments of a campaign's process, which the campaign starts itself.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The process identifier of the campaign
    #[arg(long)]
    parent: i32,
}

/// Executes the role that standard input names.
///
/// # Errors
/// The first failure in the role.
pub fn run(args: &Args) -> anyhow::Result<()> {
    process::die_with_parent(args.parent)?;
    process::next_request::<Role>()?.execute()
}
