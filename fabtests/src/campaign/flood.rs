//! The campaign `flood`: senders flood a target with messages for which it posts no receives. The
//! target stores unexpected messages up to its limit; beyond the limit, the senders have to wait.
//! Meanwhile, the target continues to serve another peer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge::Errno;
use selvedge_testkit::process::{self, Process};
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::private;
use serde::{Deserialize, Serialize};

use super::echo::Echo;
use super::endpoint::{CampaignEndpoint, Kind};
use super::message::Stamp;
use super::report::{Plan, Report, Row};
use super::role::Role;

/// The configuration of a sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    /// The address of the target.
    pub(crate) target: String,
    /// Bytes of each message.
    pub(crate) len: usize,
}

/// Number of floods for each message size in the short form of the campaign.
const SHORT: u64 = 1;
/// Minimum duration of a flood.
const FLOOD: Duration = Duration::from_millis(100);
/// Number of senders in a flood.
const SENDERS: usize = 2;
/// The rows of the report, each with its message size.
const SIZES: [(&str, usize); 4] = [
    ("inline", 8),
    ("pool", 700),
    ("large-pool", 4000),
    ("rendezvous", 30_000),
];
/// The target's limit of unexpected messages, in bytes (`FI_SHM_UNEXPECTED_SIZE`).
const UNEXPECTED_LIMIT: usize = 1 << 20;
/// Maximum growth of the target's memory: the stored messages, the allocator's overhead, and the
/// connections.
const GROWTH: usize = 4 * UNEXPECTED_LIMIT;

/// Runs the campaign.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("flood", plan);
    for (name, len) in SIZES.into_iter().filter(|(name, _)| plan.includes(name)) {
        let mut row = Row::new(name);
        let (began, mut done, mut sent) = (Instant::now(), 0, 0);
        while !plan.is_over(done, SHORT, began) {
            let flood = flood(len);
            sent += row.count(name, flood).unwrap_or(0);
            done += 1;
        }
        row.figures.insert("messages", sent as f64);
        report.add(row);
    }
    Ok(report)
}

/// Runs one flood with a new target, and exchanges messages with the target meanwhile. Returns the
/// number of messages that the senders could send.
fn flood(len: usize) -> anyhow::Result<u64> {
    let limit = UNEXPECTED_LIMIT.to_string();
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let mut target = Echo::start(&endpoint, &[("FI_SHM_UNEXPECTED_SIZE", &limit)])?;
    target.exchange(&mut endpoint)?;
    let target_pid = target.process().pid().to_string();
    let memory_before = private(&target_pid)?;
    let role = Config {
        target: target.name().to_owned(),
        len,
    };
    let senders = (0..SENDERS).map(|_| role.start());
    let mut senders: Vec<_> = senders.collect::<anyhow::Result<_>>()?;
    let end = Instant::now() + FLOOD;
    while Instant::now() < end || !have_all_reported(&senders)? {
        target
            .exchange(&mut endpoint)
            .context("exchange with the flooded target")?;
        let memory = private(&target_pid)?;
        ensure!(
            memory < memory_before + GROWTH,
            "the target's memory grew from {memory_before} to {memory} bytes"
        );
    }
    let mut sent = 0;
    for sender in &mut senders {
        sent += sender.receive::<u64>()?;
    }
    Ok(sent)
}

/// Whether every sender has reported the number of its messages.
fn have_all_reported(senders: &[Process]) -> anyhow::Result<bool> {
    for sender in senders {
        if !sender.is_readable()? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Role for Config {
    const NAME: &'static str = "flood";

    /// A sender: sends until the target accepts no more messages ([`REFUSALS`]), and reports how
    /// many were sent.
    fn execute(&self) -> anyhow::Result<()> {
        let mut endpoint = CampaignEndpoint::open(None, &[])?;
        let target = endpoint.insert(&self.target)?;
        let (mut sent, mut refusals) = (0_u32, 0);
        let mut timeout = Timeout::new("a target that accepts no more messages");
        while refusals < REFUSALS {
            match endpoint.send(Kind::Tagged, target, self.len, Stamp::new(0, sent)) {
                Ok(_) => {
                    sent += 1;
                    refusals = 0;
                }
                Err(Errno::Again) => refusals += 1,
                Err(errno) => bail!("a sender cannot post a message: {errno}"),
            }
            endpoint.drive()?;
            while endpoint.take().is_some() {}
            timeout.check()?;
        }
        process::reply(&u64::from(sent))?;
        process::next_request::<()>()
    }
}

/// Number of consecutive posts refused with `EAGAIN` after which a sender concludes that the target
/// accepts no more messages.
const REFUSALS: u32 = 2000;
