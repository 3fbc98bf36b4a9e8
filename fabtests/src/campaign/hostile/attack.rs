//! Attacks: their kinds, configuration and statistics.

use serde::{Deserialize, Serialize};

/// The configuration of the adversary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The address of the target.
    pub(crate) target: String,
    /// The address that the adversary uses.
    pub(crate) name: String,
}

/// One attack run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct AttackRun {
    /// The kind of attack.
    pub(crate) attack: Attack,
    /// The seed of its random numbers.
    pub(crate) seed: u64,
}

/// Statistics of one attack run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AttackStats {
    /// Commands, responses, packets and other inputs that the target received.
    pub(crate) inputs: u64,
    /// Bits that were flipped while the target could read them.
    pub(crate) flips: u64,
    /// Whether the target disconnected the adversary.
    pub(crate) is_cut_off: bool,
}

impl AttackStats {
    /// Whether the adversary reached the target.
    pub(super) fn has_connected(&self) -> bool {
        self.inputs > 0
    }
}

/// The kinds of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attack {
    /// Commands with numbers at the ends of ranges.
    Commands,
    /// False credits, responses and segments.
    Cursors,
    /// Commands without end.
    Endless,
    /// Packets of all kinds after the hello message.
    Packets,
    /// Forged responses to every request of the target.
    Responses,
    /// A forged table of memory, which the target accesses.
    Tables,
    /// All of these, while a second thread flips bits in all memory that the target reads.
    Flips,
    /// Hello messages that are wrong, corrupted, truncated, or have other descriptors.
    Hellos,
    /// Hundreds of connections, most of them silent.
    Connections,
    /// Commands that appear, disappear and change while the target reads them.
    Retractions,
    /// Blocks of memory without end, under several names.
    Blocks,
    /// Valid packets without end.
    Announcements,
    /// Truncation of the target's memory files, which are found through its descriptors.
    Files,
}

impl Attack {
    /// Every kind, with its name in reports.
    pub(crate) const ALL: [(&'static str, Self); 13] = [
        ("commands", Self::Commands),
        ("cursors", Self::Cursors),
        ("endless", Self::Endless),
        ("packets", Self::Packets),
        ("responses", Self::Responses),
        ("tables", Self::Tables),
        ("flips", Self::Flips),
        ("hellos", Self::Hellos),
        ("connections", Self::Connections),
        ("retractions", Self::Retractions),
        ("blocks", Self::Blocks),
        ("announcements", Self::Announcements),
        ("files", Self::Files),
    ];

    /// The attack of a connected peer that this kind consists of, if there is one.
    pub(super) fn peer_attack(self) -> Option<PeerAttack> {
        match self {
            Self::Commands => Some(PeerAttack::Commands),
            Self::Cursors => Some(PeerAttack::Cursors),
            Self::Endless => Some(PeerAttack::Endless),
            Self::Packets => Some(PeerAttack::Packets),
            Self::Responses => Some(PeerAttack::Responses),
            Self::Tables => Some(PeerAttack::Tables),
            Self::Flips => Some(PeerAttack::All),
            Self::Retractions => Some(PeerAttack::Retractions),
            Self::Hellos | Self::Connections | Self::Blocks | Self::Announcements | Self::Files => {
                None
            }
        }
    }
}

/// The attacks of a connected peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerAttack {
    /// Commands with fields at the ends of ranges.
    Commands,
    /// False credits, responses and announcements.
    Cursors,
    /// An endless stream of commands, whether or not the target has consumed the earlier ones.
    Endless,
    /// Arbitrary packets on the socket, after the hello message.
    Packets,
    /// Responses to every request of the target, and to requests that it did not make.
    Responses,
    /// A forged table of registered memory.
    Tables,
    /// Commands that appear, disappear and change many times before they stay.
    Retractions,
    /// All of these.
    All,
}
