//! Processes that do what tests must not, for the tests of the runner.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::control::{Control, Word};
use super::entry::{Entry, Process, Start};

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Exchanges words with the others, and is content
    Behave,
    /// Says that it has failed
    Fail,
    /// Ends with a code that is none of a success
    Exit,
    /// Says that it lacks something, as the manifest expects
    Skip,
    /// Says that it lacks something that nobody expects it to lack
    Surprise,
    /// Ends as a program does that lacks something
    NoData,
    /// Is killed by a signal
    Crash,
    /// Never ends
    Hang,
    /// Is content without having checked anything
    Idle,
    /// Leaves a process behind
    Abandon,
    /// Leaves a file of shared memory behind
    Litter,
    /// Waits for somebody who has ended
    Wait,
    /// Is ready, and listens at a port
    Serve,
    /// Reaches the one who listens
    Call,
}

/// Each kind as a test of its own, but for those that have a part in another one.
pub fn entries() -> Vec<Entry> {
    let alone = |kind| vec![process(kind)];
    let entry = |kind, processes| Entry {
        timeout: Duration::from_secs(if kind == Kind::Hang { 1 } else { 60 }),
        counts_checks: true,
        ..Entry::new("selftest", name(kind), processes)
    };
    let mut entries: Vec<_> = [
        Kind::Fail,
        Kind::Exit,
        Kind::Skip,
        Kind::Surprise,
        Kind::NoData,
        Kind::Crash,
        Kind::Hang,
        Kind::Idle,
        Kind::Abandon,
        Kind::Litter,
    ]
    .into_iter()
    .map(|kind| entry(kind, alone(kind)))
    .collect();
    let three = vec![process(Kind::Behave); 3];
    entries.push(entry(Kind::Behave, three));
    let in_vain = vec![process(Kind::Idle), process(Kind::Wait)];
    entries.push(entry(Kind::Wait, in_vain));
    entries.push(Entry {
        start: Start::InTurn,
        ..entry(Kind::Call, vec![process(Kind::Serve), process(Kind::Call)])
    });
    entries
}

fn process(kind: Kind) -> Process {
    Process::new([
        "misbehave".to_owned(),
        name(kind),
        "{host}".to_owned(),
        "{port}".to_owned(),
        "{ready}".to_owned(),
    ])
}

fn name(kind: Kind) -> String {
    let value = kind.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Arguments of `fabtests misbehave`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    kind: Kind,
    host: String,
    port: u16,
    ready: String,
}

/// Misbehaves.
///
/// # Errors
/// When that is what it does.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut control = Control::find()?;
    ensure!(
        control.is_run(),
        "without a runner there is nobody to bother"
    );
    match args.kind {
        Kind::Behave => behave(&mut control)?,
        Kind::Fail => return control.say(&Word::Failed("as it should".to_owned())),
        Kind::Exit => bail!("this goes to the standard error"),
        Kind::Skip => return control.say(&Word::Skip("odd".to_owned())),
        Kind::Surprise => return control.say(&Word::Skip("a surprise".to_owned())),
        Kind::NoData => std::process::exit(libc::ENODATA),
        Kind::Crash => std::process::abort(),
        Kind::Hang => hang(&control)?,
        Kind::Idle => {
            return control.say(&Word::Done {
                checks: 0,
                bytes: 0,
            });
        }
        Kind::Abandon => drop(Command::new("sleep").arg("100").spawn()?),
        Kind::Litter => std::fs::write(format!("/dev/shm/litter-{}", std::process::id()), "")?,
        Kind::Wait => drop(control.exchange_asleep(Value::Null)?),
        Kind::Serve => serve(&control, args)?,
        Kind::Call => call(args)?,
    }
    control.say(&Word::Done {
        checks: 1,
        bytes: 0,
    })
}

fn behave(control: &mut Control) -> anyhow::Result<()> {
    let own = std::process::id();
    let until = Instant::now() + Duration::from_secs(30);
    let all = control.exchange(own.into(), until, || Ok(()))?;
    ensure!(all.len() == 3 && all.contains(&own.into()), "{all:?}");
    let again = control.exchange_asleep(own.into())?;
    ensure!(again == all, "{again:?} after {all:?}");
    Ok(())
}

fn hang(control: &Control) -> anyhow::Result<()> {
    control.say(&Word::Doing("asleep".to_owned()))?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn serve(control: &Control, args: &Args) -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind((args.host.as_str(), args.port))?;
    control.ready("the word")?;
    let (mut stream, _) = listener.accept()?;
    stream.write_all(b"x").context("the caller is gone")
}

fn call(args: &Args) -> anyhow::Result<()> {
    ensure!(args.ready == "the word", "was told {:?}", args.ready);
    let mut stream = std::net::TcpStream::connect((args.host.as_str(), args.port))?;
    let mut byte = [0];
    std::io::Read::read_exact(&mut stream, &mut byte).context("nobody answers")
}
