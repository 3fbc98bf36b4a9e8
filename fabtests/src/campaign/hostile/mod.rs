//! The campaign `hostile`: a peer that does whatever its own memory and its sockets allow, while
//! its victim goes on serving somebody else.
//!
//! The victim must not crash, hang, leak, or grow beyond bounds, and what others send to it and get
//! from it must be whole. The row `in-process` has both ends in one thread: it is the fuzz target
//! of the parsers, and the same seed gives the same run.

pub(crate) mod adversary;
mod dictionary;
mod files;
mod forger;
mod hoard;
mod intruder;
mod talk;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use selvedge_shm::smr::layout::VERSION;
use selvedge_testkit::process::Process;
use selvedge_testkit::shm_peer;
use selvedge_testkit::timeout::Timeout;
use selvedge_testkit::usage::{Usage, private, private_after_trim};

use super::company::Company;
use super::echo::Echo;
use super::endpoint::CampaignEndpoint;
use super::part::Part;
use super::report::{Plan, Report, Row};
use adversary::{Attack, Harm, Life, Order, live};

/// What an exchange of others may take meanwhile: some ten times what it does take on a machine that
/// is crowded.
const GAP: Duration = Duration::from_secs(10);
/// Lives of each row in the short form.
const SHORT: u64 = 5;
/// Lives before it is counted what the victim holds.
const WARM_UP: u64 = 2;
/// What the victim keeps of unexpected messages.
const KEPT: (&str, &str) = ("FI_SHM_UNEXPECTED_SIZE", "1m");
/// What the victim's memory may grow by: what it may keep, and what an allocator makes of it.
const GROWTH: usize = 16 << 20;

/// Runs the campaign.
///
/// # Errors
/// When it cannot be run.
pub(super) fn attacks(plan: &Plan) -> anyhow::Result<Report> {
    let mut report = Report::new("hostile", plan);
    for (what, attack) in Attack::ALL.into_iter().filter(|(what, _)| plan.has(what)) {
        report.add(row(plan, what, attack)?);
    }
    if plan.has("in-process") {
        report.add(in_process(plan)?);
    }
    Ok(report)
}

/// A victim, whom it serves, and who attacks it.
struct Siege {
    endpoint: CampaignEndpoint,
    victim: Echo,
    adversary: Process,
}

impl Siege {
    fn lay(what: &str) -> anyhow::Result<Self> {
        let name = format!("adversary-{}-{what}", std::process::id());
        let mut endpoint = CampaignEndpoint::open(None, &[])?;
        let params = [KEPT, ("FI_SHM_PEER_TIMEOUT", "10ms")];
        let mut victim = Echo::beside(&endpoint, &params, std::slice::from_ref(&name))?;
        victim.exchange(&mut endpoint)?;
        let adversary = Part::Adversary(Order {
            victim: victim.name().to_owned(),
            name,
        })
        .start()?;
        Ok(Self {
            endpoint,
            victim,
            adversary,
        })
    }

    fn process(&self) -> String {
        self.victim.actor().pid().to_string()
    }

    /// One life of the adversary. What it has done, and the longest exchange meanwhile.
    fn endure(&mut self, life: Life) -> anyhow::Result<(Harm, Duration)> {
        self.adversary.send(&life)?;
        let mut timeout = Timeout::new("the end of an adversary's life");
        let mut longest = Duration::ZERO;
        loop {
            let began = Instant::now();
            self.victim
                .exchange(&mut self.endpoint)
                .context("the victim")?;
            longest = longest.max(began.elapsed());
            if self.adversary.is_readable()? {
                break;
            }
            timeout.check()?;
        }
        Ok((self.adversary.receive()?, longest))
    }

    /// The adversary is gone: the victim must be as it was.
    fn lift(self, before: Usage, memory: usize) -> anyhow::Result<()> {
        let process = self.process();
        let (mut endpoint, mut victim) = (self.endpoint, self.victim);
        drop(self.adversary);
        let mut timeout = Timeout::new("what an adversary has left");
        loop {
            victim.exchange(&mut endpoint)?;
            let now = Usage::of(&process)?;
            // Contact with the adversary may have been there or not.
            if now.fds <= before.fds && now.shared <= before.shared {
                break;
            }
            let what = || format!("{before:?} is {now:?}");
            timeout.check().with_context(what)?;
        }
        is_small(memory, private(&process)?)
    }
}

fn row(plan: &Plan, what: &str, attack: Attack) -> anyhow::Result<Row> {
    let mut row = Row::new(what);
    let mut random = plan.random(what);
    let mut siege = Siege::lay(what)?;
    let (mut tally, mut memory) = (Usage::of(&siege.process())?, 0);
    let (mut total, mut longest, mut cut_off) = (Harm::default(), Duration::ZERO, 0_u64);
    let (mut began, mut done) = (Instant::now(), 0);
    while done < WARM_UP || !plan.is_over(done - WARM_UP, SHORT, began) {
        let life = Life {
            attack,
            seed: random.word(),
        };
        let endured = siege.endure(life);
        match row.count(&format!("{life:?}"), endured) {
            Some((harm, time)) => {
                total.inputs += harm.inputs;
                total.flips += harm.flips;
                cut_off += u64::from(harm.is_cut_off);
                longest = longest.max(time);
            }
            None => siege = Siege::lay(what)?,
        }
        done += 1;
        if done <= WARM_UP {
            let now = Usage::of(&siege.process())?;
            tally.fds = tally.fds.max(now.fds);
            tally.shared = tally.shared.max(now.shared);
            memory = private(&siege.process())?;
            began = Instant::now();
        }
    }
    row.count("the longest exchange", is_short(longest));
    let kept = siege.lift(tally, memory);
    row.count("at the end", kept);
    row.figures.insert("inputs", total.inputs as f64);
    row.figures.insert("cut_off", cut_off as f64);
    row.figures
        .insert("longest_exchange_ms", longest.as_secs_f64() * 1e3);
    if total.flips > 0 {
        row.figures.insert("flips", total.flips as f64);
    }
    Ok(row)
}

/// Attacks of all kinds but those that need a second thread, by the thread that drives the victim.
fn in_process(plan: &Plan) -> anyhow::Result<Row> {
    let mut row = Row::new("in-process");
    let mut random = plan.random("in-process");
    let name = format!("adversary-{}-in-process", std::process::id());
    let mut victim = CampaignEndpoint::open(None, &[KEPT, ("FI_SHM_PEER_TIMEOUT", "10ms")])?;
    let order = Order {
        victim: victim.name()?,
        name: name.clone(),
    };
    let mut company = Company::new(&victim, &[name])?;
    let memory = private_after_trim()?;
    let (began, mut done, mut inputs) = (Instant::now(), 0, 0);
    while !plan.is_over(done, SHORT, began) {
        let attacks = [
            Attack::Commands,
            Attack::Cursors,
            Attack::Packets,
            Attack::Answers,
            Attack::Tables,
        ];
        let life = Life {
            attack: *random.pick(&attacks),
            seed: random.word(),
        };
        let lived = live(&order, life, || {
            while let Some(outcome) = victim.poll()? {
                company.book(outcome.context);
            }
            company.turn(&mut victim);
            Ok(())
        });
        let harm = row.count(&format!("{life:?}"), lived);
        inputs += harm.map_or(0, |harm| harm.inputs);
        done += 1;
    }
    let kept = is_small(memory, private_after_trim()?);
    row.count("at the end", kept);
    row.figures.insert("inputs", inputs as f64);
    Ok(row)
}

/// The beginning of a packet of this version.
fn packet(kind: u32) -> Vec<u8> {
    shm_peer::packet(VERSION, kind)
}

fn is_short(longest: Duration) -> anyhow::Result<()> {
    ensure!(
        longest < GAP,
        "an exchange of the others took {longest:?}, and may take {GAP:?}"
    );
    Ok(())
}

fn is_small(memory: usize, grown: usize) -> anyhow::Result<()> {
    ensure!(grown < memory + GROWTH, "{memory} bytes became {grown}");
    Ok(())
}
