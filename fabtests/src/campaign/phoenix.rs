//! A process that streams to its partner and is streamed to, under a name that others had before
//! it, until it ends in one way or another.

use std::collections::HashSet;

use anyhow::{bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::endpoint::{CampaignEndpoint, Kind, Place};
use super::message::{self, Stamp};
use super::storm::Storm;

/// What it is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The name of its endpoint.
    pub(crate) name: String,
    /// The address of its partner.
    pub(crate) partner: String,
    /// How many lives the name had before.
    pub(crate) life: u32,
    /// How it ends.
    pub(crate) end: End,
    /// Signals per second that interrupt it, if there are any.
    pub(crate) storm: Option<u32>,
    /// Whether its partner accesses its memory.
    pub(crate) has_memory: bool,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// It is killed.
    Kill,
    /// It exits without closing anything, after so many messages.
    Exit(u32),
    /// It closes its endpoint, after so many messages.
    Close(u32),
}

/// Memory that the partner accesses: its first word is a stamp of this life.
pub(crate) const PLACES: [Place; 2] = [Place::Plain, Place::Special];
/// Sizes of messages: by inline, inject pool, and offered.
const SIZES: [usize; 6] = [8, 8, 40, 700, 4000, LARGEST];
/// Kinds of messages. All have tags, so that one list of receives takes them in order.
const KINDS: [Kind; 3] = [Kind::Tagged, Kind::TaggedInject, Kind::Delivered];
/// Room for the largest.
pub(crate) const LARGEST: usize = 30_000;
/// Operations of one kind that are outstanding at most.
pub(crate) const WINDOW: usize = 8;
/// Largest message that is injected; what is larger stays with its sender until it is received.
const INJECT: usize = 4096;

/// The kind and size of the message with this number.
pub(crate) fn something(number: u32) -> (Kind, usize) {
    let (number, sizes) = (number as usize, SIZES.len());
    let (len, kind) = (SIZES[number % sizes], KINDS[number / sizes % KINDS.len()]);
    match kind.is_injected() {
        true => (kind, len.min(INJECT)),
        false => (kind, len),
    }
}

/// Whether the message with this number dies with its sender if nobody has received it yet.
pub(crate) fn is_mortal(number: u32) -> bool {
    something(number).1 > INJECT
}

struct Phoenix {
    endpoint: CampaignEndpoint,
    partner: FiAddr,
    life: u32,
    /// Messages that were posted.
    sent: u32,
    /// Sends that have not completed.
    open: Vec<u64>,
    /// Numbers of the partner's messages.
    received: HashSet<u32>,
    has_memory: bool,
}

pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    let _storm = order.storm.map(Storm::begin).transpose()?;
    let mut endpoint = CampaignEndpoint::open(Some(&order.name), &[])?;
    if order.has_memory {
        endpoint.offer_memory()?;
        let first = Stamp::new(order.life, 0).word().to_le_bytes();
        for place in PLACES {
            endpoint.set_memory(place, &first);
        }
    }
    let mut phoenix = Phoenix {
        partner: endpoint.insert(&order.partner)?,
        endpoint,
        life: order.life,
        sent: 0,
        open: Vec::new(),
        received: HashSet::new(),
        has_memory: order.has_memory,
    };
    for _ in 0..WINDOW {
        phoenix.post()?;
    }
    match order.end {
        End::Kill => loop {
            phoenix.turn()?;
        },
        End::Exit(count) => {
            phoenix.stream(count)?;
            process::reply(&count)?;
            std::process::exit(0)
        }
        End::Close(count) => {
            phoenix.stream(count)?;
            drop(phoenix);
            process::reply(&count)
        }
    }
}

impl Phoenix {
    /// Sends so many messages and waits for all of them.
    fn stream(&mut self, count: u32) -> anyhow::Result<()> {
        let mut timeout = Timeout::new("room for a stream");
        while self.sent < count || !self.open.is_empty() {
            let before = (self.sent, self.open.len());
            match self.sent < count {
                true => self.turn()?,
                false => self.take()?,
            }
            if before != (self.sent, self.open.len()) {
                timeout.renew();
            }
            timeout.check()?;
        }
        Ok(())
    }

    /// Sends a message if there is room, and takes what has arrived.
    fn turn(&mut self) -> anyhow::Result<()> {
        let (kind, len) = something(self.sent);
        if self.open.len() < WINDOW {
            let stamp = Stamp::new(self.life, self.sent);
            match self.endpoint.send(kind, self.partner, len, stamp) {
                Ok(context) => {
                    self.sent += 1;
                    if !kind.is_injected() {
                        self.open.push(context);
                    }
                }
                Err(Errno::Again) => {}
                Err(errno) => bail!("life {} cannot send: {errno}", self.life),
            }
        }
        self.take()
    }

    fn take(&mut self) -> anyhow::Result<()> {
        for place in PLACES.into_iter().filter(|_| self.has_memory) {
            let stamp = self.endpoint.memory_stamp(place);
            let is_own = stamp.life == self.life;
            ensure!(is_own, "{stamp:?} is in {place:?} of life {}", self.life);
        }
        while let Some(outcome) = self.endpoint.poll()? {
            ensure!(outcome.error.is_none(), "life {}: {outcome:?}", self.life);
            let Some(bytes) = outcome.received() else {
                self.open.retain(|&context| context != outcome.context);
                continue;
            };
            // Completions of large messages may be passed by small ones; lives are never mixed.
            let stamp = message::read(bytes)?;
            let is_new = stamp.life == self.life && self.received.insert(stamp.number);
            ensure!(is_new, "life {} was sent {stamp:?}", self.life);
            self.post()?;
        }
        Ok(())
    }

    fn post(&mut self) -> anyhow::Result<()> {
        let any = FiAddr::UNSPEC;
        self.endpoint.trecv(any, LARGEST, TagMatch::ANY)?;
        Ok(())
    }
}
