//! `fi_ubertest`: a matrix of configurations, each of which opens everything afresh in both
//! processes. The client reads the file and tells the server each configuration.

mod apart;
mod atomics;
mod bundled;
mod call;
mod case;
mod config;
mod messages;
mod remote;
mod run;
mod side;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use selvedge::Errno;
use selvedge_testkit::failure::{errno, unsupported, wrong};

use super::oob::{Listener, OutOfBandChannel};
use super::options::{ADDRESS, FABRIC, INFO, Letters, Options};
use super::perf::Table;
use crate::upstream::ground;
use case::Case;
use config::Config;
use side::Side;

/// Its letters.
pub(super) const LETTERS: Letters = Letters {
    common: &[ADDRESS, FABRIC, INFO, "mI:"],
    own: "u:t:q:xy:z:f",
    long: &[],
};

/// The TCP port of configurations, if `-q` does not say which.
const CONTROL: u16 = 2710;
/// The longest description of a configuration.
const LONGEST: usize = 64 << 10;

/// The program.
pub(super) fn ubertest(options: &Options) -> anyhow::Result<()> {
    let port = options.number("q", CONTROL)?;
    match &options.server {
        Some(server) => client(options, server, port),
        None => serve(options, port),
    }
}

/// Serves clients; with `-x` one of them.
fn serve(options: &Options, port: u16) -> anyhow::Result<()> {
    let listener = Listener::open(None, port)?;
    loop {
        let line = listener.accept(ground::timeout(options))?;
        let tally = answer(options, line)?;
        if options.has("x") {
            return tally.end();
        }
    }
}

fn answer(options: &Options, mut line: OutOfBandChannel) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut table = Table::new(options);
    loop {
        let text = hear(&mut line)?;
        if text.is_empty() {
            return Ok(tally);
        }
        let config: Config = serde_json::from_slice(&text).context("an odd configuration")?;
        let case = Case::read(&config)?;
        line = next(options, case, line, &mut table, &mut tally)?;
    }
}

fn client(options: &Options, server: &str, port: u16) -> anyhow::Result<()> {
    let name = file(options)?;
    let text = bundled::find(&name)?;
    let configs = config::parse(&text).with_context(|| name.clone())?;
    let cases: Result<Vec<_>, _> = configs.iter().map(Case::read).collect();
    let cases = cases.with_context(|| name.clone())?;
    let first: usize = options.number("y", 1)?;
    let last = options.number("z", configs.len())?;
    ensure!(
        (1..=configs.len()).contains(&first) && first <= last,
        "-y {first} -z {last}: there are {} configurations",
        configs.len()
    );
    let mut line = OutOfBandChannel::connect(server, port, ground::timeout(options))?;
    let mut table = Table::new(options);
    let mut tally = Tally::default();
    let all = (1..).zip(configs.iter().zip(cases));
    for (number, (config, case)) in all.take(last).skip(first - 1) {
        let words = serde_json::to_string(config)?;
        say(&mut line, words.as_bytes())?;
        line = next(options, case, line, &mut table, &mut tally)
            .with_context(|| format!("configuration {number}: {words}"))?;
    }
    say(&mut line, &[])?;
    tally.end()
}

/// `-u`, or the file of `-p` and `-t`.
fn file(options: &Options) -> anyhow::Result<String> {
    match (options.text("u"), options.text("t"), &options.provider) {
        (Some(file), ..) => Ok(file.to_owned()),
        (None, Some(test), Some(provider)) => Ok(bundled::of_test(provider, test)),
        _ => bail!("-u FILE is missing, or -p PROVIDER with -t TEST"),
    }
}

fn say(line: &mut OutOfBandChannel, text: &[u8]) -> anyhow::Result<()> {
    line.send(&(text.len() as u64).to_ne_bytes())?;
    line.send(text)
}

fn hear(line: &mut OutOfBandChannel) -> anyhow::Result<Vec<u8>> {
    let len = line.receive(8)?;
    let len = u64::from_ne_bytes(len.as_slice().try_into()?) as usize;
    ensure!(len <= LONGEST, "a configuration of {len} bytes");
    line.receive(len)
}

/// Runs one configuration on this side, with `-f` in a child.
fn next(
    options: &Options,
    case: Case,
    line: OutOfBandChannel,
    table: &mut Table,
    tally: &mut Tally,
) -> anyhow::Result<OutOfBandChannel> {
    if !options.has("f") {
        let (line, outcome) = one(options, case, line, table)?;
        tally.count(outcome);
        return Ok(line);
    }
    if options.is_client() && case.test != case::Test::Unit {
        table.begin(true);
    }
    let name = case.name();
    let inherited = line.again()?;
    let code = apart::apart(|| match one(options, case, inherited, table) {
        Ok((_, Ok(()))) => 0,
        Ok((_, Err(errno))) => u8::try_from(errno.as_raw()).unwrap_or(1),
        Err(error) => {
            eprintln!("{error:#}");
            apart::BROKEN
        }
    })?;
    ensure!(code != apart::BROKEN, "the process of {name} has failed");
    tally.count(match code {
        0 => Ok(()),
        code => Err(Errno::from_raw(code.into())),
    });
    Ok(line)
}

/// Runs one configuration. What the provider lacks is counted, and the next one goes
/// on; what goes wrong leaves the two sides out of step, and ends the run.
fn one(
    options: &Options,
    case: Case,
    mut line: OutOfBandChannel,
    table: &mut Table,
) -> anyhow::Result<(OutOfBandChannel, Outcome)> {
    if case.nonsense().is_some() {
        return Ok((line, Err(SKIPPED)));
    }
    let prepared = side::prepare(options, &case);
    let own = prepared.as_ref().err().map(errno);
    let theirs = both(&mut line, own.map_or(0, Errno::as_raw))?;
    let (options, prepared) = match prepared {
        Ok(prepared) if theirs == 0 => prepared,
        Ok(_) => return Ok((line, Err(Errno::from_raw(theirs)))),
        Err(error) => {
            let own = errno(&error);
            if ![Errno::NoData, Errno::NoSys].contains(&own) {
                println!("{}: {error:#}", case.name());
            }
            return Ok((line, Err(own)));
        }
    };
    let largest = match case.class {
        case::Class::Atomic => 0,
        _ => run::sizes(case.is_quick).last().copied().unwrap_or(0),
    };
    let mut side = Side::open(options, case, prepared, line, largest)?;
    let is_there = run::is_there(&side)?;
    if is_there {
        run::run(&mut side, table)?;
    }
    let outcome = if is_there { Ok(()) } else { Err(SKIPPED) };
    Ok((side.close()?, outcome))
}

/// What became of a configuration: by its number, what was lacking or failed.
type Outcome = Result<(), Errno>;

/// What stands for combinations that make no sense, and atomics that are not there.
const SKIPPED: Errno = Errno::Already;

/// Tells the other side a number, and hears its.
fn both(line: &mut OutOfBandChannel, own: i32) -> anyhow::Result<i32> {
    line.send(&own.to_ne_bytes())?;
    Ok(i32::from_ne_bytes(line.receive(4)?.as_slice().try_into()?))
}

/// What became of the configurations.
#[derive(Debug, Default)]
struct Tally {
    success: usize,
    others: BTreeMap<&'static str, usize>,
}

impl Tally {
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

    fn end(self) -> anyhow::Result<()> {
        println!("\nSuccess: {}", self.success);
        for name in ["Skipped", "ENODATA", "ENOSYS", "EIO", "ERROR"] {
            println!("{name}: {}", self.others.get(name).copied().unwrap_or(0));
        }
        let bad = |name| self.others.get(name).is_some_and(|&count| count > 0);
        match self.success {
            _ if bad("EIO") || bad("ERROR") => Err(wrong("some configurations failed")),
            _ if bad("ENOSYS") || bad("ENODATA") => {
                Err(unsupported("some configurations are lacking"))
            }
            0 => bail!("no configuration was run"),
            _ => Ok(()),
        }
    }
}
