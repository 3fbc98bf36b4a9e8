//! The campaign `storm`: honest processes connect to an endpoint without end, while a pair that was
//! connected before goes on exchanging messages.

use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use selvedge::Errno;
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::bystanders::{Bystanders, Exchanges};
use super::endpoint::{CampaignEndpoint, Kind};
use super::message::Stamp;
use super::part::Part;
use super::report::{Plan, Report, Row};

/// What a process of newcomers does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    target: String,
    /// Endpoints that are open at a time. Each sends one message; when all were sent, the next ones
    /// are opened.
    together: usize,
}

/// A storm: its name, its processes, and the endpoints of each that are open at a time.
const STORMS: [(&str, usize, usize); 2] = [("endpoints", 4, 250), ("names", 1, 1)];
/// Storms of each row in the short form.
const SHORT: u64 = 1;
/// How long a storm lasts at least, and for how long the pair goes on afterwards.
const STORM: Duration = Duration::from_secs(1);
const AFTERWARDS: Duration = Duration::from_millis(200);

/// Runs the campaign.
///
/// # Errors
/// When it cannot be run.
pub(super) fn storms(plan: &Plan) -> anyhow::Result<Report> {
    allow_descriptors()?;
    let mut report = Report::new("storm", plan);
    for (what, processes, together) in STORMS.into_iter().filter(|(what, ..)| plan.has(what)) {
        let mut row = Row::new(what);
        let (began, mut done) = (std::time::Instant::now(), 0);
        let (mut exchanges, mut contacts) = (Exchanges::default(), 0);
        while !plan.is_over(done, SHORT, began) {
            if let Some((during, sent)) = row.count(what, storm(processes, together)) {
                exchanges.add(during);
                contacts += sent;
            }
            done += 1;
        }
        exchanges.report(&mut row);
        row.figures.insert("contacts", contacts as f64);
        report.add(row);
    }
    Ok(report)
}

/// One storm; the exchanges of the pair, and how many endpoints have sent a message.
fn storm(processes: usize, together: usize) -> anyhow::Result<(Exchanges, u64)> {
    let mut pair = Bystanders::open()?;
    let part = Part::Newcomers(Order {
        target: pair.target().to_owned(),
        together,
    });
    let newcomers = (0..processes).map(|_| part.start());
    let mut newcomers: Vec<_> = newcomers.collect::<anyhow::Result<_>>()?;
    let mut exchanges = pair.exchange_for(STORM).context("in the storm")?;
    let mut contacts = 0;
    for process in &mut newcomers {
        process.send(&())?;
        let mut timeout = Timeout::new("the end of a storm");
        while !process.is_readable()? {
            timeout.check()?;
            exchanges.add(pair.exchange_for(Duration::ZERO).context("in the storm")?);
        }
        contacts += process.receive::<u64>()?;
    }
    drop(newcomers);
    let after = pair.exchange_for(AFTERWARDS);
    exchanges.add(after.context("after the storm")?);
    Ok((exchanges, contacts))
}

/// Child: connects until there is an order; says how many endpoints have sent their message.
pub(super) fn play(order: &Order) -> anyhow::Result<()> {
    let mut contacts = 0_u64;
    while contacts == 0 || !process::has_request()? {
        let mut endpoints = Vec::new();
        for _ in 0..order.together {
            endpoints.push(connect(&order.target)?);
            contacts += 1;
        }
        for endpoint in &mut endpoints {
            endpoint.drive()?;
        }
    }
    process::reply(&contacts)
}

/// Opens an endpoint and sends a message from it.
fn connect(target: &str) -> anyhow::Result<CampaignEndpoint> {
    let mut endpoint = CampaignEndpoint::open(None, &[])?;
    let target = endpoint.insert(target)?;
    let mut timeout = Timeout::new("room for a first message");
    loop {
        match endpoint.send(Kind::TaggedInject, target, 8, Stamp::new(0, 0)) {
            Ok(_) => return Ok(endpoint),
            Err(Errno::Again) => endpoint.drive()?,
            Err(errno) => return Err(errno).context("a first message"),
        }
        timeout.check()?;
    }
}

/// A thousand endpoints have a few descriptors each, here and at the target.
fn allow_descriptors() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}
