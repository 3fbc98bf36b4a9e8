//! The campaign `flood`: peers send messages without end that the target does not receive. The
//! target stores messages up to its limit and continues to serve another peer; beyond the limit,
//! the senders have to wait.

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

/// Floods of each row in the short form.
const SHORT: u64 = 1;
/// Duration of a flood.
const FLOOD: Duration = Duration::from_millis(100);
/// Senders of one flood.
const SENDERS: usize = 2;
/// Sizes of messages, by the names of their rows.
const SIZES: [(&str, usize); 4] = [
    ("inline", 8),
    ("pool", 700),
    ("large-pool", 4000),
    ("rendezvous", 30_000),
];
/// Bytes of unexpected messages that the target may store.
const KEPT: usize = 1 << 20;
/// Maximum growth of the target's memory: the stored messages, the allocator's overhead, and the
/// connections.
const GROWTH: usize = 4 * KEPT;

/// Runs the campaign.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("flood", plan);
    for (what, len) in SIZES.into_iter().filter(|(what, _)| plan.includes(what)) {
        let mut row = Row::new(what);
        let (began, mut done, mut sent) = (Instant::now(), 0, 0);
        while !plan.is_over(done, SHORT, began) {
            let flood = flood(len);
            sent += row.count(what, flood).unwrap_or(0);
            done += 1;
        }
        row.figures.insert("messages", sent as f64);
        report.add(row);
    }
    Ok(report)
}

/// Runs one flood with a new target and returns the number of messages that were sent.
fn flood(len: usize) -> anyhow::Result<u64> {
    let kept = KEPT.to_string();
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let mut target = Echo::start(&endpoint, &[("FI_SHM_UNEXPECTED_SIZE", &kept)])?;
    target.exchange(&mut endpoint)?;
    let process = target.process().pid().to_string();
    let before = private(&process)?;
    let role = Role::Flood(Config {
        target: target.name().to_owned(),
        len,
    });
    let senders = (0..SENDERS).map(|_| role.start());
    let mut senders: Vec<_> = senders.collect::<anyhow::Result<_>>()?;
    let until = Instant::now() + FLOOD;
    while Instant::now() < until || !have_all_reported(&senders)? {
        target
            .exchange(&mut endpoint)
            .context("the target of a flood")?;
        let now = private(&process)?;
        ensure!(
            now < before + GROWTH,
            "the target's memory grew from {before} to {now} bytes"
        );
    }
    let mut sent = 0;
    for sender in &mut senders {
        sent += sender.receive::<u64>()?;
    }
    Ok(sent)
}

fn have_all_reported(senders: &[Process]) -> anyhow::Result<bool> {
    for sender in senders {
        if !sender.is_readable()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends until [`REFUSED`] posts in succession are refused, and reports the number of messages.
pub(super) fn execute(config: &Config) -> anyhow::Result<()> {
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let target = endpoint.insert(&config.target)?;
    let (mut sent, mut refused) = (0_u32, 0);
    let mut timeout = Timeout::new("a target that accepts no more messages");
    while refused < REFUSED {
        match endpoint.send(Kind::Tagged, target, config.len, Stamp::new(0, sent)) {
            Ok(_) => {
                sent += 1;
                refused = 0;
            }
            Err(Errno::Again) => refused += 1,
            Err(errno) => bail!("a sender cannot post: {errno}"),
        }
        endpoint.drive()?;
        while endpoint.take().is_some() {}
        timeout.check()?;
    }
    process::reply(&u64::from(sent))?;
    process::next_request::<()>()
}

/// Refused posts in succession that mean that the target takes no more messages.
const REFUSED: u32 = 2000;
