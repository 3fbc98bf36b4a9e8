//! The parts that a process can have in a campaign.

use serde::{Deserialize, Serialize};

use super::hostile::adversary;
use super::{echo, flood, newcomers, phoenix, strangers, victim};

/// What an actor is to do.
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
