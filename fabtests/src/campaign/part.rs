//! The parts that a process can have in a campaign.

use selvedge_testkit::process::{self, Process};
use serde::{Deserialize, Serialize};

use super::hostile::adversary;
use super::{echo, flood, newcomers, phoenix, strangers, victim};

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Part {
    /// Attack.
    Adversary(adversary::Order),
    /// Send every message back.
    Echo(echo::Order),
    /// Send more than anybody receives.
    Flood(flood::Order),
    /// Connect to an endpoint without end.
    Newcomers(newcomers::Order),
    /// Stream under a name that others had before, until an end.
    Phoenix(phoenix::Order),
    /// Attack as a process of another user.
    Stranger(strangers::Order),
    /// Die at an instruction, or be stopped there.
    Victim(victim::Order),
}

impl Part {
    /// Starts a process in this part.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(&self) -> anyhow::Result<Process> {
        let mut process = hire()?;
        process.send(self)?;
        Ok(process)
    }

    /// Plays it to its end.
    ///
    /// # Errors
    /// What it comes to grief over.
    pub(super) fn play(self) -> anyhow::Result<()> {
        match self {
            Self::Adversary(order) => adversary::play(&order),
            Self::Echo(order) => echo::play(&order),
            Self::Flood(order) => flood::play(&order),
            Self::Newcomers(order) => newcomers::play(&order),
            Self::Phoenix(order) => phoenix::play(&order),
            Self::Stranger(order) => strangers::play(&order),
            Self::Victim(order) => victim::play(&order),
        }
    }
}

/// Starts a process that has no part yet, and waits for it on its standard input.
///
/// # Errors
/// When it cannot be started.
pub(super) fn hire() -> anyhow::Result<Process> {
    Process::start(["actor", "--parent", &std::process::id().to_string()])
}

/// How a process of a campaign is started; no part of the command line for people.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The process whose campaign it is
    #[arg(long)]
    parent: i32,
}

/// Plays the part that standard input names.
///
/// # Errors
/// What the part comes to grief over.
pub fn run(args: &Args) -> anyhow::Result<()> {
    process::die_with_parent(args.parent)?;
    process::next_request::<Part>()?.play()
}
