//! The echo process sends each message of its partner back.
//!
//! The partner starts it and exchanges messages with it by an [`Echo`]. Exchanges take place while
//! another process is killed, stopped or attacking: they prove that the partner's endpoint still
//! serves its other peers.

pub(super) mod background;
pub(super) mod bystanders;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use selvedge::{Errno, FiAddr, TagMatch};
use selvedge_testkit::process::{self, Process};
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use self::background::BackgroundTraffic;
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
    addr: FiAddr,
    /// The number of the next message.
    next_number: u32,
}

/// Message sizes of an exchange: inline, inject and rendezvous.
const SIZES: [usize; 3] = [8, 3000, 100_000];
/// Size of a receive buffer: the largest message.
const LARGEST: usize = 100_000;
/// The incarnation number in the stamps of these messages. No restarted process has as many
/// incarnations.
const INCARNATION: u32 = 1 << 31;
/// Number of receives that the echo process keeps posted.
const POSTED_RECEIVES: usize = 4;

/// Matches the messages between an echo process and its partner, and no others.
const MATCH: TagMatch = TagMatch {
    tag: (INCARNATION as u64) << 32,
    ignore: u32::MAX as u64,
};

impl Echo {
    /// The identifier of the echo process.
    pub(crate) fn pid(&self) -> i32 {
        self.process.pid().as_raw()
    }

    /// Starts the echo process and waits until its endpoint is open.
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
        let config = Config {
            partner: partner.name()?,
            params: params.iter().map(owned).collect(),
            others: others.to_vec(),
        };
        config.assign_to(&mut process)?;
        let name: String = process.receive()?;
        Ok(Self {
            addr: partner.insert(&name)?,
            process,
            name,
            next_number: 0,
        })
    }

    /// Exchanges a message of each size. Completions of other operations are put back into the
    /// endpoint.
    ///
    /// # Errors
    /// A message is lost, corrupted or late.
    pub(crate) fn exchange(&mut self, endpoint: &mut CampaignEndpoint) -> anyhow::Result<()> {
        let mut other_completions = VecDeque::new();
        for len in SIZES {
            let stamp = Stamp::new(INCARNATION, self.next_number);
            self.next_number += 1;
            let tag = TagMatch::exact(stamp.word());
            let receive = endpoint
                .trecv(self.addr, len, tag)
                .context("posting a receive from the echo process")?;
            let sent = endpoint.send(Kind::Delivered, self.addr, len, stamp);
            let sent = sent.context("posting a send to the echo process")?;
            let mut outstanding = vec![receive, sent];
            let mut timeout = Timeout::new("an exchange with the echo process");
            while !outstanding.is_empty() {
                timeout.check()?;
                let Some(completion) = endpoint.poll()? else {
                    continue;
                };
                if !outstanding.contains(&completion.context) {
                    other_completions.push_back(completion);
                    continue;
                }
                outstanding.retain(|&context| context != completion.context);
                if let Some(error) = completion.error {
                    bail!("an exchange with the echo process failed: {error:?}");
                }
                if let Some(bytes) = completion.received() {
                    ensure!(
                        message::read(bytes)? == stamp,
                        "the echo process sent back a different message"
                    );
                }
            }
        }
        endpoint.put_back(other_completions);
        Ok(())
    }
}

impl Echo {
    /// The address of the echo process's endpoint.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The process.
    pub(crate) fn process(&self) -> &Process {
        &self.process
    }
}

impl Role for Config {
    const NAME: &'static str = "echo";

    fn execute(&self) -> anyhow::Result<()> {
        let params = self.params.iter();
        let params: Vec<_> = params.map(|(name, value)| (&**name, &**value)).collect();
        let mut endpoint = CampaignEndpoint::open(None, &params)?;
        let partner = endpoint.insert(&self.partner)?;
        for _ in 0..POSTED_RECEIVES {
            endpoint.trecv(partner, LARGEST, MATCH)?;
        }
        let mut traffic = BackgroundTraffic::new(&endpoint, &self.others)?;
        process::reply(&endpoint.name()?)?;
        let mut idle_polls = 0;
        while !process::has_request()? {
            idle_polls += 1;
            while let Some(completion) = endpoint.poll()? {
                idle_polls = 0;
                if traffic.contains(completion.context) {
                    traffic.complete(completion.context);
                } else {
                    send_back(&mut endpoint, partner, completion)?;
                }
            }
            traffic.post_next(&mut endpoint);
            if idle_polls > MAX_IDLE_POLLS && self.others.is_empty() {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

/// Sends a received message back.
fn send_back(
    endpoint: &mut CampaignEndpoint,
    partner: FiAddr,
    completion: Completion,
) -> anyhow::Result<()> {
    if let Some(error) = completion.error {
        bail!("an operation of the echo process failed: {error:?}");
    }
    let Some(bytes) = completion.received() else {
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

/// Number of successive polls without a completion after which the echo process sleeps between
/// polls, because it shares its core with other processes.
const MAX_IDLE_POLLS: usize = 2000;
const PAUSE: Duration = Duration::from_micros(50);
