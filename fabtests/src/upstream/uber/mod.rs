//! `fi_ubertest`: a matrix of test configurations, for each of which both processes open new
//! objects. The client reads the configurations from a file and sends each one to the server.

mod atomics;
mod bundled;
mod call;
mod case;
mod child;
mod config;
mod messages;
mod remote;
mod run;
mod side;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use selvedge::Errno;
use selvedge_testkit::failure::{errno, unsupported, wrong};

use super::data::perf::Table;
use super::options::{ADDRESS, FABRIC, INFO, OptionSet, Options};
use super::setup::oob::{Listener, OutOfBandChannel};
use crate::upstream::setup::domain;
use case::Case;
use config::Config;
use side::Side;

/// The options of the program.
pub(super) const OPTIONS: OptionSet = OptionSet {
    common: &[ADDRESS, FABRIC, INFO, "mI:"],
    specific: "u:t:q:xy:z:f",
    long: &[],
};

/// The TCP port over which the client sends configurations, unless `-q` gives another.
const CONTROL_PORT: u16 = 2710;
/// The longest description of a configuration.
const MAX_CONFIG_LEN: usize = 64 << 10;

/// Runs the program.
pub(super) fn ubertest(options: &Options) -> anyhow::Result<()> {
    let port = options.number("q", CONTROL_PORT)?;
    match &options.server {
        Some(server) => run_client(options, server, port),
        None => serve(options, port),
    }
}

/// Serves clients; with `-x`, one client.
fn serve(options: &Options, port: u16) -> anyhow::Result<()> {
    let listener = Listener::open(None, port)?;
    loop {
        let oob = listener.accept(domain::timeout(options))?;
        let counts = serve_client(options, oob)?;
        if options.has("x") {
            return counts.finish();
        }
    }
}

fn serve_client(options: &Options, mut oob: OutOfBandChannel) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let mut table = Table::new(options);
    loop {
        let text = receive_text(&mut oob)?;
        if text.is_empty() {
            return Ok(counts);
        }
        let config: Config =
            serde_json::from_slice(&text).context("the client sends an invalid configuration")?;
        let case = Case::read(&config)?;
        oob = run_next(options, case, oob, &mut table, &mut counts)?;
    }
}

fn run_client(options: &Options, server: &str, port: u16) -> anyhow::Result<()> {
    let name = config_file(options)?;
    let text = bundled::read(&name)?;
    let configs = config::parse(&text).with_context(|| name.clone())?;
    let cases: Result<Vec<_>, _> = configs.iter().map(Case::read).collect();
    let cases = cases.with_context(|| name.clone())?;
    let first: usize = options.number("y", 1)?;
    let last = options.number("z", configs.len())?;
    ensure!(
        (1..=configs.len()).contains(&first) && first <= last,
        "-y {first} -z {last}: the range must lie within 1 to {}",
        configs.len()
    );
    let mut oob = OutOfBandChannel::connect(server, port, domain::timeout(options))?;
    let mut table = Table::new(options);
    let mut counts = Counts::default();
    let all = (1..).zip(configs.iter().zip(cases));
    for (number, (config, case)) in all.take(last).skip(first - 1) {
        let description = serde_json::to_string(config)?;
        send_text(&mut oob, description.as_bytes())?;
        oob = run_next(options, case, oob, &mut table, &mut counts)
            .with_context(|| format!("configuration {number}: {description}"))?;
    }
    send_text(&mut oob, &[])?;
    counts.finish()
}

/// Returns the configuration file of `-u`, or of `-p` and `-t`.
fn config_file(options: &Options) -> anyhow::Result<String> {
    match (options.text("u"), options.text("t"), &options.provider) {
        (Some(file), ..) => Ok(file.to_owned()),
        (None, Some(test), Some(provider)) => Ok(bundled::find_for_test(provider, test)),
        _ => bail!("no configuration file: use -u FILE, or -p PROVIDER with -t TEST"),
    }
}

fn send_text(oob: &mut OutOfBandChannel, text: &[u8]) -> anyhow::Result<()> {
    oob.send(&(text.len() as u64).to_ne_bytes())?;
    oob.send(text)
}

fn receive_text(oob: &mut OutOfBandChannel) -> anyhow::Result<Vec<u8>> {
    let len = oob.receive(8)?;
    let len = u64::from_ne_bytes(len.as_slice().try_into()?) as usize;
    ensure!(
        len <= MAX_CONFIG_LEN,
        "the client sends a configuration of {len} bytes, more than {MAX_CONFIG_LEN}"
    );
    oob.receive(len)
}

/// Runs one configuration on this side; with `-f`, in a child process.
fn run_next(
    options: &Options,
    case: Case,
    oob: OutOfBandChannel,
    table: &mut Table,
    counts: &mut Counts,
) -> anyhow::Result<OutOfBandChannel> {
    if !options.has("f") {
        let (oob, outcome) = run_case(options, case, oob, table)?;
        counts.count(outcome);
        return Ok(oob);
    }
    if options.is_client() && case.test != case::Test::Unit {
        table.print_heading(true);
    }
    let name = case.name();
    let inherited = oob.duplicate()?;
    let code = child::run_in_child(|| match run_case(options, case, inherited, table) {
        Ok((_, Ok(()))) => 0,
        Ok((_, Err(errno))) => u8::try_from(errno.as_raw()).unwrap_or(1),
        Err(error) => {
            eprintln!("{error:#}");
            child::FAILED
        }
    })?;
    ensure!(
        code != child::FAILED,
        "the process of the configuration {name} has failed"
    );
    counts.count(match code {
        0 => Ok(()),
        code => Err(Errno::from_raw(code.into())),
    });
    Ok(oob)
}

/// Runs one configuration. A configuration that is unsupported, or fails on one side before its
/// endpoints are open, is an outcome that the caller counts, and the run continues. A later failure
/// ends the run, because the two sides are no longer synchronized.
fn run_case(
    options: &Options,
    case: Case,
    mut oob: OutOfBandChannel,
    table: &mut Table,
) -> anyhow::Result<(OutOfBandChannel, Outcome)> {
    if case.invalid_reason().is_some() {
        return Ok((oob, Err(SKIPPED)));
    }
    let prepared = side::prepare(options, &case);
    let local_error = prepared.as_ref().err().map(errno);
    let peer_status = exchange_status(&mut oob, local_error.map_or(0, Errno::as_raw))?;
    let (options, prepared) = match prepared {
        Ok(prepared) if peer_status == 0 => prepared,
        Ok(_) => return Ok((oob, Err(Errno::from_raw(peer_status)))),
        Err(error) => {
            let errno = errno(&error);
            if ![Errno::NoData, Errno::NoSys].contains(&errno) {
                println!("{}: {error:#}", case.name());
            }
            return Ok((oob, Err(errno)));
        }
    };
    let largest = match case.class {
        case::Class::Atomic => 0,
        _ => run::sizes(case.is_quick).last().copied().unwrap_or(0),
    };
    let mut side = Side::open(options, case, prepared, oob, largest)?;
    let is_supported = run::is_supported(&side)?;
    if is_supported {
        run::run(&mut side, table)?;
    }
    let outcome = if is_supported { Ok(()) } else { Err(SKIPPED) };
    Ok((side.close()?, outcome))
}

/// The result of a configuration: the error of an unsupported or failed one.
type Outcome = Result<(), Errno>;

/// The result of invalid configurations ([`Case::invalid_reason`]) and unsupported atomics.
const SKIPPED: Errno = Errno::Already;

/// Sends the local status to the other side, and returns the other side's status.
fn exchange_status(oob: &mut OutOfBandChannel, local: i32) -> anyhow::Result<i32> {
    oob.send(&local.to_ne_bytes())?;
    Ok(i32::from_ne_bytes(oob.receive(4)?.as_slice().try_into()?))
}

/// The counts of results.
#[derive(Debug, Default)]
struct Counts {
    success: usize,
    others: BTreeMap<&'static str, usize>,
}

impl Counts {
    fn count(&mut self, outcome: Outcome) {
        let name = match outcome {
            Ok(()) => {
                self.success += 1;
                return;
            }
            Err(SKIPPED) => "Skipped",
            Err(Errno::NoData) => "ENODATA",
            Err(Errno::NoSys) => "ENOSYS",
            Err(Errno::Io) => "EIO",
            Err(_) => "ERROR",
        };
        *self.others.entry(name).or_default() += 1;
    }

    fn finish(self) -> anyhow::Result<()> {
        println!("\nSuccess: {}", self.success);
        for name in ["Skipped", "ENODATA", "ENOSYS", "EIO", "ERROR"] {
            println!("{name}: {}", self.others.get(name).copied().unwrap_or(0));
        }
        let has = |name| self.others.get(name).is_some_and(|&count| count > 0);
        match self.success {
            _ if has("EIO") || has("ERROR") => Err(wrong("some configurations failed")),
            _ if has("ENOSYS") || has("ENODATA") => {
                Err(unsupported("some configurations are not supported"))
            }
            0 => bail!("no configuration was run"),
            _ => Ok(()),
        }
    }
}
