//! The campaign `storm`: well-behaved processes connect to an endpoint without end, while a pair
//! that was connected before continues to exchange messages.

use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use selvedge::Errno;
use selvedge_testkit::process;
use selvedge_testkit::timeout::Timeout;
use serde::{Deserialize, Serialize};

use super::echo::bystanders::{Bystanders, Exchanges};
use super::endpoint::{CampaignEndpoint, Kind};
use super::message::Stamp;
use super::report::{Plan, Report, Row};
use super::role::Role;

/// The configuration of a connecting process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Config {
    target: String,
    /// Endpoints that are open at a time. Each sends one message; when all messages are sent, the
    /// next endpoints are opened.
    endpoints_at_a_time: usize,
}

/// A storm: its name, its processes, and the endpoints of each process that are open at a time.
const STORMS: [(&str, usize, usize); 2] = [("endpoints", 4, 250), ("names", 1, 1)];
/// Storms of each row in the short form.
const SHORT: u64 = 1;
/// Minimum duration of a storm, and of the pair's exchanges after it.
const STORM: Duration = Duration::from_secs(1);
const AFTER_STORM: Duration = Duration::from_millis(200);

/// Runs the campaign.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    allow_descriptors()?;
    let mut report = Report::new("storm", plan);
    for (name, processes, endpoints_at_a_time) in
        STORMS.into_iter().filter(|(name, ..)| plan.includes(name))
    {
        let mut row = Row::new(name);
        let (began, mut done) = (std::time::Instant::now(), 0);
        let (mut exchanges, mut connections) = (Exchanges::default(), 0);
        while !plan.is_over(done, SHORT, began) {
            if let Some((during, sent)) = row.count(name, storm(processes, endpoints_at_a_time)) {
                exchanges.add(during);
                connections += sent;
            }
            done += 1;
        }
        exchanges.report(&mut row);
        row.figures.insert("contacts", connections as f64);
        report.add(row);
    }
    Ok(report)
}

/// Runs one storm. Returns the exchanges of the pair, and the number of endpoints that sent a
/// message.
fn storm(processes: usize, endpoints_at_a_time: usize) -> anyhow::Result<(Exchanges, u64)> {
    let mut pair = Bystanders::open()?;
    let role = Config {
        target: pair.target().to_owned(),
        endpoints_at_a_time,
    };
    let senders = (0..processes).map(|_| role.start());
    let mut senders: Vec<_> = senders.collect::<anyhow::Result<_>>()?;
    let mut exchanges = pair.exchange_for(STORM).context("in the storm")?;
    let mut connections = 0;
    for process in &mut senders {
        process.send(&())?;
        let mut timeout = Timeout::new("the end of a storm");
        while !process.is_readable()? {
            timeout.check()?;
            exchanges.add(pair.exchange_for(Duration::ZERO).context("in the storm")?);
        }
        connections += process.receive::<u64>()?;
    }
    drop(senders);
    let after = pair.exchange_for(AFTER_STORM);
    exchanges.add(after.context("after the storm")?);
    Ok((exchanges, connections))
}

impl Role for Config {
    const NAME: &'static str = "connect_storm";

    /// Child process: connects until the parent sends a request, and reports the number of
    /// endpoints that sent a message.
    fn execute(&self) -> anyhow::Result<()> {
        let mut connections = 0_u64;
        while connections == 0 || !process::has_request()? {
            let mut endpoints = Vec::new();
            for _ in 0..self.endpoints_at_a_time {
                endpoints.push(connect(&self.target)?);
                connections += 1;
            }
            for endpoint in &mut endpoints {
                endpoint.drive()?;
            }
        }
        process::reply(&connections)
    }
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

/// Raises the limit of descriptors: a thousand endpoints have a few descriptors each, in this
/// process and at the target.
fn allow_descriptors() -> anyhow::Result<()> {
    let (_, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard_limit, hard_limit)?)
}
