//! A process that sends every message back, which proves that an endpoint still serves other peers.
//!
//! [`Echo`] is its partner's handle. Exchanges run while another process is killed, stopped or
//! attacking.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::{self, Process};
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::background::BackgroundTraffic;
use super::endpoint::{CampaignEndpoint, Completion, Kind};
use super::message::{self, Stamp};
use super::role::{self, Role};

/// The configuration of an echo process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The address of the peer whose messages are sent back.
    pub(crate) partner: String,
    /// Parameters of the endpoint.
    pub(crate) params: Vec<(String, String)>,
    /// Addresses of other peers that receive background traffic and may be hostile.
    pub(crate) others: Vec<String>,
}

/// The partner's handle of the echo process.
#[derive(Debug)]
pub(crate) struct Echo {
    process: Process,
    name: String,
    to: FiAddr,
    next: u32,
}

/// Message sizes of an exchange: inline, inject and rendezvous.
const SIZES: [usize; 3] = [8, 3000, 100_000];
/// Size of a receive buffer: the largest message.
const LARGEST: usize = 100_000;
/// The incarnation number of these messages. No target has as many incarnations.
const INCARNATION: u32 = 1 << 31;
/// Receives that are posted at any time.
const POSTED: usize = 4;

/// Accepts the messages between an echo process and its partner, and no others.
const MATCH: TagMatch = TagMatch {
    tag: (INCARNATION as u64) << 32,
    ignore: u32::MAX as u64,
};

impl Echo {
    /// The process identifier.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid().as_raw()
    }

    /// Starts the process and waits until its endpoint is open.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        Self::start_with_peers(partner, params, &[])
    }

    /// As [`Self::start`], with background traffic to `others`.
    ///
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start_with_peers(
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
        others: &[String],
    ) -> anyhow::Result<Self> {
        Self::start_in(role::start_process()?, partner, params, others)
    }

    /// As [`Self::start_with_peers`], in a process that has no role yet.
    ///
    /// # Errors
    /// The process does not open an endpoint.
    pub(crate) fn start_in(
        mut process: Process,
        partner: &CampaignEndpoint,
        params: &[(&str, &str)],
        others: &[String],
    ) -> anyhow::Result<Self> {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        process.send(&Role::Echo(Config {
            partner: partner.name()?,
            params: params.iter().map(owned).collect(),
            others: others.to_vec(),
        }))?;
        let name: String = process.receive()?;
        Ok(Self {
            to: partner.insert(&name)?,
            process,
            name,
            next: 0,
        })
    }

    /// Exchanges a message of each size. Completions of other operations are put back into the
    /// endpoint.
    ///
    /// # Errors
    /// A message is lost, corrupted or late.
    pub(crate) fn exchange(&mut self, endpoint: &mut CampaignEndpoint) -> anyhow::Result<()> {
        let mut others = VecDeque::new();
        for len in SIZES {
            let stamp = Stamp::new(INCARNATION, self.next);
            self.next += 1;
            let tag = TagMatch::exact(stamp.word());
            let receive = endpoint
                .trecv(self.to, len, tag)
                .context("a receive from the echo process")?;
            let sent = endpoint.send(Kind::Delivered, self.to, len, stamp);
            let sent = sent.context("a send to the echo process")?;
            let mut open = vec![receive, sent];
            let mut timeout = Timeout::new("an exchange with the echo process");
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
                    bail!("an exchange with the echo process failed: {error:?}");
                }
                if let Some(bytes) = outcome.received() {
                    ensure!(
                        message::read(bytes)? == stamp,
                        "the echo process sent another message back"
                    );
                }
            }
        }
        endpoint.put_back(others);
        Ok(())
    }
}

impl Echo {
    /// The address of its endpoint.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

pub(super) fn execute(config: &Config) -> anyhow::Result<()> {
    let params = config.params.iter();
    let params: Vec<_> = params.map(|(name, value)| (&**name, &**value)).collect();
    let mut endpoint = CampaignEndpoint::open(None, &params)?;
    let partner = endpoint.insert(&config.partner)?;
    for _ in 0..POSTED {
        endpoint.trecv(partner, LARGEST, MATCH)?;
    }
    let mut traffic = BackgroundTraffic::new(&endpoint, &config.others)?;
    process::reply(&endpoint.name()?)?;
    let mut idle_polls = 0;
    while !process::has_request()? {
        idle_polls += 1;
        while let Some(outcome) = endpoint.poll()? {
            idle_polls = 0;
            if traffic.contains(outcome.context) {
                traffic.complete(outcome.context);
            } else {
                serve(&mut endpoint, partner, outcome)?;
            }
        }
        traffic.post_next(&mut endpoint);
        if idle_polls > SPINS && config.others.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// Sends a received message back.
fn serve(
    endpoint: &mut CampaignEndpoint,
    partner: FiAddr,
    outcome: Completion,
) -> anyhow::Result<()> {
    if let Some(error) = outcome.error {
        bail!("the echo process has lost its partner: {error:?}");
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
            Err(errno) => bail!("the echo process cannot send a message back: {errno}"),
        }
    }
}

/// Polls without a completion before an echo process sleeps between polls, because it shares its
/// core with other processes.
const SPINS: usize = 2000;
const PAUSE: Duration = Duration::from_micros(50);
