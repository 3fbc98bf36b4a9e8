//! The campaign `hostile`: a peer writes anything to its own memory and its sockets, while its
//! target continues to serve another peer.
//!
//! The target must not crash, hang, leak, or grow beyond its limits. Messages between it and the
//! other peer must be intact. The row `in-process` has both sides in one thread; it is the fuzz
//! target of the parsers, and the same seed gives the same run.

mod adversary;
mod attack;
mod blocks;
mod dictionary;
mod files;
mod forged_memory;
mod raw_peer;

pub(super) use attack::Config;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge_testkit::process::Process;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, private, private_after_trim};

use super::echo::Echo;
use super::echo::background::BackgroundTraffic;
use super::endpoint::CampaignEndpoint;
use super::report::{Plan, Report, Row};
use super::role::Role;
use adversary::run_attack;
use attack::{Attack, AttackRun, AttackStats};

/// The longest time that an exchange with the other peer may take: about ten times the observed
/// maximum on a loaded machine.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(10);
/// Runs of each row in the short form.
const SHORT: u64 = 5;
/// Runs before the target's resources are measured.
const WARM_UP: u64 = 2;
/// Limit of the unexpected messages that the target stores.
const UNEXPECTED_LIMIT: (&str, &str) = ("FI_SHM_UNEXPECTED_SIZE", "1m");
/// Maximum growth of the target's memory: the stored messages and the allocator's overhead.
const GROWTH: usize = 16 << 20;

/// Runs the campaign.
///
/// # Errors
/// The campaign cannot be run.
pub(super) fn run(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("hostile", plan);
    for (name, attack) in Attack::ALL
        .into_iter()
        .filter(|(name, _)| plan.includes(name))
    {
        report.add(run_row(plan, name, attack)?);
    }
    if plan.includes("in-process") {
        report.add(run_in_process(plan)?);
    }
    Ok(report)
}

/// A target, the endpoint that it serves, and the adversary. Fields are dropped in order: the
/// processes before the endpoint.
struct Session {
    target: Echo,
    adversary: Process,
    endpoint: CampaignEndpoint,
}

impl Session {
    fn start(name: &str) -> anyhow::Result<Self> {
        let name = format!("adversary-{}-{name}", std::process::id());
        let mut endpoint = CampaignEndpoint::open(None, &[])?;
        let params = [UNEXPECTED_LIMIT, ("FI_SHM_PEER_TIMEOUT", "10ms")];
        let mut target = Echo::start_with_peers(&endpoint, &params, std::slice::from_ref(&name))?;
        target.exchange(&mut endpoint)?;
        let adversary = Config {
            target: target.name().to_owned(),
            name,
        }
        .start()?;
        Ok(Self {
            endpoint,
            target,
            adversary,
        })
    }

    fn target_pid(&self) -> String {
        self.target.process().pid().to_string()
    }

    /// Runs one attack. Returns its statistics, and the duration of the longest exchange during the
    /// attack.
    fn run_attack(&mut self, run: AttackRun) -> anyhow::Result<(AttackStats, Duration)> {
        self.adversary.send(&run)?;
        let mut timeout = Timeout::new("the end of an attack");
        let mut longest = Duration::ZERO;
        loop {
            let began = Instant::now();
            self.target
                .exchange(&mut self.endpoint)
                .context("an exchange with the other peer")?;
            longest = longest.max(began.elapsed());
            if self.adversary.is_readable()? {
                break;
            }
            timeout.check()?;
        }
        Ok((self.adversary.receive()?, longest))
    }

    /// Ends the adversary and checks that the target has released all its resources.
    fn finish(self, before: Usage, memory: usize) -> anyhow::Result<()> {
        let process = self.target_pid();
        let (mut endpoint, mut target) = (self.endpoint, self.target);
        drop(self.adversary);
        let mut timeout = Timeout::new("the release of the adversary's resources");
        loop {
            target.exchange(&mut endpoint)?;
            let now = Usage::of(&process)?;
            // The adversary may or may not have been connected when the resources were measured.
            if now.fds <= before.fds && now.shared <= before.shared {
                break;
            }
            let message =
                || format!("the target holds {now:?}; before the attack it held {before:?}");
            timeout.check().with_context(message)?;
        }
        check_growth(memory, private(&process)?)
    }
}

fn run_row(plan: &Plan, name: &str, attack: Attack) -> anyhow::Result<Row> {
    let mut row = Row::new(name);
    let mut random = plan.random(name);
    let mut session = Session::start(name)?;
    let (mut usage, mut memory) = (Usage::of(&session.target_pid())?, 0);
    let (mut total, mut longest) = (AttackStats::default(), Duration::ZERO);
    let (mut connected, mut cut_off) = (0_u64, 0_u64);
    let (mut began, mut done) = (Instant::now(), 0);
    while done < WARM_UP || !plan.is_over(done - WARM_UP, SHORT, began) {
        let run = AttackRun {
            attack,
            seed: random.word(),
        };
        let result = session.run_attack(run);
        match row.count(&format!("{run:?}"), result) {
            Some((stats, time)) => {
                total.inputs += stats.inputs;
                total.flips += stats.flips;
                connected += u64::from(stats.has_connected());
                cut_off += u64::from(stats.is_cut_off);
                longest = longest.max(time);
            }
            None => session = Session::start(name)?,
        }
        done += 1;
        if done <= WARM_UP {
            let now = Usage::of(&session.target_pid())?;
            usage.fds = usage.fds.max(now.fds);
            usage.shared = usage.shared.max(now.shared);
            memory = private(&session.target_pid())?;
            began = Instant::now();
        }
    }
    row.count("the longest exchange", check_exchange_time(longest));
    let result = session.finish(usage, memory);
    row.count("at the end", result);
    row.figures.insert("inputs", total.inputs as f64);
    row.figures.insert("connected", connected as f64);
    row.figures.insert("cut_off", cut_off as f64);
    row.figures
        .insert("longest_exchange_ms", longest.as_secs_f64() * 1e3);
    if total.flips > 0 {
        row.figures.insert("flips", total.flips as f64);
    }
    Ok(row)
}

/// Runs the attacks that need no second thread, in the thread that drives the target.
fn run_in_process(plan: &Plan) -> anyhow::Result<Row> {
    let mut row = Row::new("in-process");
    let mut random = plan.random("in-process");
    let name = format!("adversary-{}-in-process", std::process::id());
    let mut target =
        CampaignEndpoint::open(None, &[UNEXPECTED_LIMIT, ("FI_SHM_PEER_TIMEOUT", "10ms")])?;
    let config = Config {
        target: target.name()?,
        name: name.clone(),
    };
    let mut traffic = BackgroundTraffic::new(&target, &[name])?;
    let memory = private_after_trim()?;
    let (began, mut done) = (Instant::now(), 0);
    let (mut inputs, mut connected) = (0, 0_u64);
    while !plan.is_over(done, SHORT, began) {
        let attacks = [
            Attack::Commands,
            Attack::Cursors,
            Attack::Packets,
            Attack::Responses,
            Attack::Tables,
        ];
        let run = AttackRun {
            attack: *random.pick(&attacks),
            seed: random.word(),
        };
        let result = run_attack(&config, run, || {
            while let Some(outcome) = target.poll()? {
                traffic.complete(outcome.context);
            }
            traffic.post_next(&mut target);
            Ok(())
        });
        let stats = row.count(&format!("{run:?}"), result).unwrap_or_default();
        inputs += stats.inputs;
        connected += u64::from(stats.has_connected());
        done += 1;
    }
    let result = check_growth(memory, private_after_trim()?);
    row.count("at the end", result);
    row.figures.insert("inputs", inputs as f64);
    row.figures.insert("connected", connected as f64);
    Ok(row)
}

fn check_exchange_time(longest: Duration) -> anyhow::Result<()> {
    ensure!(
        longest < LONGEST_EXCHANGE,
        "an exchange with the other peer took {longest:?}; the limit is {LONGEST_EXCHANGE:?}"
    );
    Ok(())
}

fn check_growth(memory: usize, now: usize) -> anyhow::Result<()> {
    ensure!(
        now < memory + GROWTH,
        "the memory grew from {memory} to {now} bytes"
    );
    Ok(())
}
