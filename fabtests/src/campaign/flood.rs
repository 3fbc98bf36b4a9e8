//! The campaign `flood`: peers that send without end what nobody receives. Their victim keeps what
//! it is allowed to and goes on serving others; then it is the senders who have to wait.

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
use super::part::Part;
use super::report::{Plan, Report, Row};

/// What it is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The address of the victim.
    pub(crate) victim: String,
    /// Bytes of each message.
    pub(crate) len: usize,
}

/// Floods of each row in the short form.
const SHORT: u64 = 1;
/// How long a flood lasts.
const FLOOD: Duration = Duration::from_millis(100);
/// Senders of one flood.
const SENDERS: usize = 2;
/// Sizes of messages, by the names of their rows.
const SIZES: [(&str, usize); 4] = [
    ("inline", 8),
    ("pool", 700),
    ("large-pool", 4000),
    ("offered", 30_000),
];
/// What the victim keeps.
const KEPT: usize = 1 << 20;
/// What it may grow by: what it keeps, what an allocator makes of that, and the contacts.
const GROWTH: usize = 4 * KEPT;

/// Runs the campaign.
///
/// # Errors
/// When it cannot be run.
pub(super) fn floods(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("flood", plan);
    for (what, len) in SIZES.into_iter().filter(|(what, _)| plan.has(what)) {
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

/// One flood over a new victim; how many messages were sent.
fn flood(len: usize) -> anyhow::Result<u64> {
    let kept = KEPT.to_string();
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let mut victim = Echo::start(&endpoint, &[("FI_SHM_UNEXPECTED_SIZE", &kept)])?;
    victim.exchange(&mut endpoint)?;
    let process = victim.actor().pid().to_string();
    let before = private(&process)?;
    let part = Part::Flood(Order {
        victim: victim.name().to_owned(),
        len,
    });
    let senders = (0..SENDERS).map(|_| part.start());
    let mut senders: Vec<_> = senders.collect::<anyhow::Result<_>>()?;
    let until = Instant::now() + FLOOD;
    while Instant::now() < until || !all_have_spoken(&senders)? {
        victim
            .exchange(&mut endpoint)
            .context("the victim of a flood")?;
        let now = private(&process)?;
        ensure!(now < before + GROWTH, "{before} bytes became {now}");
    }
    let mut sent = 0;
    for sender in &mut senders {
        sent += sender.receive::<u64>()?;
    }
    Ok(sent)
}

fn all_have_spoken(senders: &[Process]) -> anyhow::Result<bool> {
    for sender in senders {
        if !sender.is_readable()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sends until it has been told to wait for long enough, and says how many messages went.
pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let victim = endpoint.insert(&order.victim)?;
    let (mut sent, mut refused) = (0_u32, 0);
    let mut timeout = Timeout::new("a victim that takes no more");
    while refused < REFUSED {
        match endpoint.send(Kind::Tagged, victim, order.len, Stamp::new(0, sent)) {
            Ok(_) => {
                sent += 1;
                refused = 0;
            }
            Err(Errno::Again) => refused += 1,
            Err(errno) => bail!("a flood is refused by {errno}"),
        }
        endpoint.drive()?;
        while endpoint.take().is_some() {}
        timeout.check()?;
    }
    process::reply(&u64::from(sent))?;
    process::next_request::<()>()
}

/// Refusals one after the other that mean that there is no room for good.
const REFUSED: u32 = 2000;
