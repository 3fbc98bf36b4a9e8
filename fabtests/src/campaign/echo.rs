//! A process that sends every message back: the proof that others are served.
//!
//! [`Echo`] is its partner's view. Exchanges take place while somebody else dies, stops or attacks.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::{self, Process};
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::company::Company;
use super::endpoint::{CampaignEndpoint, Completion, Kind};
use super::message::{self, Stamp};
use super::part::{self, Part};

/// How to be one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Whose messages to send back.
    pub(crate) partner: String,
    /// Parameters of the endpoint.
    pub(crate) params: Vec<(String, String)>,
    /// Names of others to have to do with, who need not be good.
    pub(crate) others: Vec<String>,
}

/// The process, seen by its partner.
#[derive(Debug)]
pub(crate) struct Echo {
    actor: Process,
    name: String,
    to: FiAddr,
    next: u32,
}

/// Sizes of an exchange: by inline, inject and offered messages.
const SIZES: [usize; 3] = [8, 3000, 100_000];
/// Room for the largest.
const LARGEST: usize = 100_000;
/// The life of these messages: no victim comes so far.
const LIFE: u32 = 1 << 31;
/// Receives that are posted at any time.
const POSTED: usize = 4;

/// Accepts the messages between echoes and their partners, and no others.
const MATCH: TagMatch = TagMatch {
    tag: (LIFE as u64) << 32,
    ignore: u32::MAX as u64,
};

impl Echo {
    /// The number of the process.
    pub(crate) fn pid(&self) -> i32 {
        self.actor.pid().as_raw()
    }

    /// Starts the process and waits until it is there.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::beside(partner, params, &[])
    }

    /// As [`Self::start`], with others to have to do with.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn beside(
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
        others: &[String],
    ) -> anyhow::Result<Self> {
        Self::play_by(part::hire()?, partner, params, others)
    }

    /// As [`Self::beside`], by a process that has no part yet.
    ///
    /// # Errors
    /// When it does not open an endpoint.
    pub(crate) fn play_by(
        mut actor: Process,
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
        others: &[String],
    ) -> anyhow::Result<Self> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        actor.send(&Part::Echo(Order {
            partner: partner.name()?,
            params: params.iter().map(owned).collect(),
            others: others.to_vec(),
        }))?;
        let name: String = actor.receive()?;
        Ok(Self {
            to: partner.insert(&name)?,
            actor,
            name,
            next: 0,
        })
    }

    /// Exchanges a message of each size. Completions that are none of it stay in the endpoint.
    ///
    /// # Errors
    /// When a message is lost, garbled or late.
    pub(crate) fn exchange(&mut self, endpoint: &mut CampaignEndpoint) -> anyhow::Result<()> {
        let mut others = VecDeque::new();
        for len in SIZES {
            let stamp = Stamp::new(LIFE, self.next);
            self.next += 1;
            let tag = TagMatch::exact(stamp.word());
            let back = endpoint
                .trecv(self.to, len, tag)
                .context("an echo's receive")?;
            let sent = endpoint.send(Kind::Delivered, self.to, len, stamp);
            let sent = sent.context("an echo's send")?;
            let mut open = vec![back, sent];
            let mut timeout = Timeout::new("an exchange with somebody else");
            while !open.is_empty() {
                timeout.check()?;
                let Some(outcome) = endpoint.poll()? else {
                    continue;
                };
                if !open.contains(&outcome.context) {
                    others.push_back(outcome);
                    continue;
                }
                open.retain(|&context| context != outcome.context);
                if let Some(error) = outcome.error {
                    bail!("an exchange with somebody else failed: {error:?}");
                }
                if let Some(bytes) = outcome.received() {
                    ensure!(message::read(bytes)? == stamp, "an echo of another message");
                }
            }
        }
        endpoint.put_back(others);
        Ok(())
    }
}

impl Echo {
    /// Its address.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its process.
    pub(crate) fn actor(&self) -> &Process {
        &self.actor
    }
}

pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    let params = order.params.iter();
    let params: Vec<_> = params.map(|(name, value)| (&**name, &**value)).collect();
    let mut endpoint = CampaignEndpoint::open(None, &params)?;
    let partner = endpoint.insert(&order.partner)?;
    for _ in 0..POSTED {
        endpoint.trecv(partner, LARGEST, MATCH)?;
    }
    let mut company = Company::new(&endpoint, &order.others)?;
    process::reply(&endpoint.name()?)?;
    let mut quiet = 0;
    while !process::has_request()? {
        quiet += 1;
        while let Some(outcome) = endpoint.poll()? {
            quiet = 0;
            if company.has(outcome.context) {
                company.book(outcome.context);
            } else {
                serve(&mut endpoint, partner, outcome)?;
            }
        }
        company.turn(&mut endpoint);
        if quiet > SPINS && order.others.is_empty() {
            std::thread::sleep(NAP);
        }
    }
    Ok(())
}

/// Sends back what has arrived.
fn serve(
    endpoint: &mut CampaignEndpoint,
    partner: FiAddr,
    outcome: Completion,
) -> anyhow::Result<()> {
    if let Some(error) = outcome.error {
        bail!("an echo has lost its partner: {error:?}");
    }
    let Some(bytes) = outcome.received() else {
        return Ok(());
    };
    let stamp = message::read(bytes)?;
    endpoint.trecv(partner, LARGEST, MATCH)?;
    loop {
        match endpoint.send(Kind::Tagged, partner, bytes.len(), stamp) {
            Ok(_) => return Ok(()),
            Err(Errno::Again) => endpoint.drive()?,
            Err(errno) => bail!("an echo cannot answer: {errno}"),
        }
    }
}

/// Turns without a message before an echo sleeps in between: it shares its core with others.
const SPINS: usize = 2000;
const NAP: Duration = Duration::from_micros(50);
