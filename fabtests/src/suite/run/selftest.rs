//! Processes with the faults that the runner must detect, for the tests of the runner.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use crate::suite::control::{Control, Message};
use crate::suite::entry::{Entry, Process, Start};

/// The behaviour of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Behaviour {
    /// Exchanges values with the other processes, and succeeds
    Exchange,
    /// Reports a failure
    Fail,
    /// Exits with an unexpected code
    Exit,
    /// Reports a missing capability, as the manifest expects
    Skip,
    /// Reports a missing capability that the manifest does not expect
    UnexpectedSkip,
    /// Exits with the code of a missing capability
    NoData,
    /// Is killed by a signal
    Crash,
    /// Never ends
    Hang,
    /// Succeeds without a check
    Idle,
    /// Leaves a process behind
    LeaveProcess,
    /// Leaves a file of shared memory behind
    LeaveFile,
    /// Waits for a process that has ended
    Wait,
    /// Is ready, and listens at a port
    Listen,
    /// Connects to the listening process
    Connect,
}

/// Makes a test of each behaviour, except of those that are part of another test.
pub fn entries() -> Vec<Entry> {
    let alone = |behaviour| vec![process(behaviour)];
    let entry = |behaviour, processes| Entry {
        timeout: Duration::from_secs(if behaviour == Behaviour::Hang { 1 } else { 60 }),
        counts_checks: true,
        ..Entry::new("selftest", name(behaviour), processes)
    };
    let mut entries: Vec<_> = [
        Behaviour::Fail,
        Behaviour::Exit,
        Behaviour::Skip,
        Behaviour::UnexpectedSkip,
        Behaviour::NoData,
        Behaviour::Crash,
        Behaviour::Hang,
        Behaviour::Idle,
        Behaviour::LeaveProcess,
        Behaviour::LeaveFile,
    ]
    .into_iter()
    .map(|behaviour| entry(behaviour, alone(behaviour)))
    .collect();
    let three = vec![process(Behaviour::Exchange); 3];
    entries.push(entry(Behaviour::Exchange, three));
    let waiting = vec![process(Behaviour::Idle), process(Behaviour::Wait)];
    entries.push(entry(Behaviour::Wait, waiting));
    entries.push(Entry {
        start: Start::InTurn,
        ..entry(
            Behaviour::Connect,
            vec![process(Behaviour::Listen), process(Behaviour::Connect)],
        )
    });
    entries
}

fn process(behaviour: Behaviour) -> Process {
    Process::new([
        "selftest-process".to_owned(),
        name(behaviour),
        "{host}".to_owned(),
        "{port}".to_owned(),
        "{ready}".to_owned(),
    ])
}

fn name(behaviour: Behaviour) -> String {
    let value = behaviour.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Arguments of `fabtests selftest-process`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    behaviour: Behaviour,
    host: String,
    port: u16,
    ready: String,
}

/// Executes the behaviour.
///
/// # Errors
/// The error of the behaviour.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut control = Control::find()?;
    ensure!(
        control.is_run(),
        "no runner was found: `fabtests run --selftest` starts this command"
    );
    match args.behaviour {
        Behaviour::Exchange => exchange(&mut control)?,
        Behaviour::Fail => return control.send(&Message::Failed("as it should".to_owned())),
        Behaviour::Exit => bail!("this goes to the standard error"),
        Behaviour::Skip => return control.send(&Message::Skip("expected".to_owned())),
        Behaviour::UnexpectedSkip => return control.send(&Message::Skip("a surprise".to_owned())),
        Behaviour::NoData => std::process::exit(libc::ENODATA),
        Behaviour::Crash => std::process::abort(),
        Behaviour::Hang => hang(&control)?,
        Behaviour::Idle => {
            return control.send(&Message::Done {
                checks: 0,
                bytes: 0,
            });
        }
        Behaviour::LeaveProcess => drop(Command::new("sleep").arg("100").spawn()?),
        Behaviour::LeaveFile => {
            std::fs::write(format!("/dev/shm/litter-{}", std::process::id()), "")?
        }
        Behaviour::Wait => drop(control.exchange_blocking(Value::Null)?),
        Behaviour::Listen => listen(&control, args)?,
        Behaviour::Connect => connect(args)?,
    }
    control.send(&Message::Done {
        checks: 1,
        bytes: 0,
    })
}

fn exchange(control: &mut Control) -> anyhow::Result<()> {
    let pid = std::process::id();
    let deadline = Instant::now() + Duration::from_secs(30);
    let all = control.exchange(pid.into(), deadline, || Ok(()))?;
    ensure!(
        all.len() == 3 && all.contains(&pid.into()),
        "the exchanged values are {all:?}"
    );
    let again = control.exchange_blocking(pid.into())?;
    ensure!(
        again == all,
        "the second exchange has {again:?}, the first has {all:?}"
    );
    Ok(())
}

fn hang(control: &Control) -> anyhow::Result<()> {
    control.send(&Message::Doing("sleeping".to_owned()))?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn listen(control: &Control, args: &Args) -> anyhow::Result<()> {
    let listener = std::net::TcpListener::bind((args.host.as_str(), args.port))?;
    control.ready("a text")?;
    let (mut stream, _) = listener.accept()?;
    stream
        .write_all(b"x")
        .context("the connecting process has ended")
}

fn connect(args: &Args) -> anyhow::Result<()> {
    ensure!(args.ready == "a text", "the ready text is {:?}", args.ready);
    let mut stream = std::net::TcpStream::connect((args.host.as_str(), args.port))?;
    let mut byte = [0];
    std::io::Read::read_exact(&mut stream, &mut byte).context("the listening process sent nothing")
}
