//! A process that exchanges streams with its partner under a name that earlier processes had, until
//! it is killed, exits or closes.

use std::collections::HashSet;

use anyhow::{bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::signal_storm::SignalStorm;
use crate::campaign::endpoint::{CampaignEndpoint, Kind, MemoryKind};
use crate::campaign::message::{self, Stamp};
use crate::campaign::role::Role;

/// The configuration of one incarnation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The name of the process's endpoint.
    pub(crate) name: String,
    /// The address of the partner.
    pub(crate) partner: String,
    /// The number of the incarnation.
    pub(crate) incarnation: u32,
    /// How the incarnation ends.
    pub(crate) end: End,
    /// Signals per second that interrupt the process, if any.
    pub(crate) signal_rate: Option<u32>,
    /// Whether the partner accesses the process's memory.
    pub(crate) has_memory: bool,
}

/// How an incarnation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// The process is killed.
    Kill,
    /// The process exits after this number of messages, and closes nothing.
    Exit(u32),
    /// The process closes its endpoint after this number of messages.
    Close(u32),
}

/// Memory that the partner accesses: its first word is a stamp of this incarnation.
pub(crate) const MEMORIES: [MemoryKind; 2] = [MemoryKind::Ordinary, MemoryKind::Special];
/// Sizes of messages: inline, inject pool, and rendezvous.
const SIZES: [usize; 6] = [8, 8, 40, 700, 4000, LARGEST];
/// Kinds of messages. All have tags, so that one list of receives takes them in order.
const KINDS: [Kind; 3] = [Kind::Tagged, Kind::TaggedInject, Kind::Delivered];
/// Size of a receive buffer: the largest message.
pub(crate) const LARGEST: usize = 30_000;
/// Maximum number of outstanding operations of one kind.
pub(crate) const WINDOW: usize = 8;
/// Largest message that is injected. A larger message stays with its sender until it is received.
const LARGEST_INJECT: usize = 4096;

/// Returns the kind and size of the message with this number.
pub(crate) fn kind_and_len(number: u32) -> (Kind, usize) {
    let (number, sizes) = (number as usize, SIZES.len());
    let (len, kind) = (SIZES[number % sizes], KINDS[number / sizes % KINDS.len()]);
    if kind.is_injected() {
        (kind, len.min(LARGEST_INJECT))
    } else {
        (kind, len)
    }
}

/// Returns whether the message with this number is lost if its sender is killed before the message
/// is received.
pub(crate) fn is_lost_with_sender(number: u32) -> bool {
    kind_and_len(number).1 > LARGEST_INJECT
}

struct Restarted {
    endpoint: CampaignEndpoint,
    partner: FiAddr,
    incarnation: u32,
    /// Messages that were posted.
    sent: u32,
    /// Sends that have not completed.
    outstanding: Vec<u64>,
    /// Numbers of the partner's messages.
    received: HashSet<u32>,
    has_memory: bool,
}

impl Role for Config {
    const NAME: &'static str = "restarted";

    fn execute(&self) -> anyhow::Result<()> {
        let _signals = self.signal_rate.map(SignalStorm::start).transpose()?;
        let mut endpoint = CampaignEndpoint::open(Some(&self.name), &[])?;
        if self.has_memory {
            endpoint.register_memory()?;
            let initial_stamp = Stamp::new(self.incarnation, 0).word().to_le_bytes();
            for memory_kind in MEMORIES {
                endpoint.set_memory(memory_kind, &initial_stamp);
            }
        }
        let mut restarted = Restarted {
            partner: endpoint.insert(&self.partner)?,
            endpoint,
            incarnation: self.incarnation,
            sent: 0,
            outstanding: Vec::new(),
            received: HashSet::new(),
            has_memory: self.has_memory,
        };
        for _ in 0..WINDOW {
            restarted.post_receive()?;
        }
        match self.end {
            End::Kill => loop {
                restarted.step()?;
            },
            End::Exit(count) => {
                restarted.stream(count)?;
                process::reply(&count)?;
                std::process::exit(0)
            }
            End::Close(count) => {
                restarted.stream(count)?;
                drop(restarted);
                process::reply(&count)
            }
        }
    }
}

impl Restarted {
    /// Sends `count` messages and waits for their completion.
    fn stream(&mut self, count: u32) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("room for the messages of a stream");
        while self.sent < count || !self.outstanding.is_empty() {
            let before = (self.sent, self.outstanding.len());
            if self.sent < count {
                self.step()?
            } else {
                self.take_completions()?
            }
            if before != (self.sent, self.outstanding.len()) {
                timeout.renew();
            }
            timeout.check()?;
        }
        Ok(())
    }

    /// Sends a message if there is room, and takes completions.
    fn step(&mut self) -> anyhow::Result<()> {
        let (kind, len) = kind_and_len(self.sent);
        if self.outstanding.len() < WINDOW {
            let stamp = Stamp::new(self.incarnation, self.sent);
            match self.endpoint.send(kind, self.partner, len, stamp) {
                Ok(context) => {
                    self.sent += 1;
                    if !kind.is_injected() {
                        self.outstanding.push(context);
                    }
                }
                Err(Errno::Again) => {}
                Err(errno) => bail!("incarnation {} cannot send: {errno}", self.incarnation),
            }
        }
        self.take_completions()
    }

    fn take_completions(&mut self) -> anyhow::Result<()> {
        for memory_kind in MEMORIES.into_iter().filter(|_| self.has_memory) {
            let stamp = self.endpoint.memory_stamp(memory_kind);
            let is_own = stamp.incarnation == self.incarnation;
            ensure!(
                is_own,
                "{stamp:?} is in {memory_kind:?} memory of incarnation {}",
                self.incarnation
            );
        }
        while let Some(outcome) = self.endpoint.poll()? {
            ensure!(
                outcome.error.is_none(),
                "incarnation {}: {outcome:?}",
                self.incarnation
            );
            let Some(bytes) = outcome.received() else {
                self.outstanding
                    .retain(|&context| context != outcome.context);
                continue;
            };
            // Completions of small messages may overtake those of large messages. No message of
            // another incarnation arrives.
            let stamp = message::read(bytes)?;
            let is_new =
                stamp.incarnation == self.incarnation && self.received.insert(stamp.number);
            ensure!(
                is_new,
                "incarnation {} received {stamp:?}",
                self.incarnation
            );
            self.post_receive()?;
        }
        Ok(())
    }

    fn post_receive(&mut self) -> anyhow::Result<()> {
        let source = FiAddr::UNSPEC;
        self.endpoint.trecv(source, LARGEST, TagMatch::ANY)?;
        Ok(())
    }
}
