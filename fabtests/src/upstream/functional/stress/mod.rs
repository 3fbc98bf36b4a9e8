//! `fi_rdm_stress`: clients request messages and memory accesses from a server concurrently, and
//! some of them exit with requests in flight. The server's threads share an endpoint and have to
//! continue.

mod client;
mod exchange;
mod script;
mod server;
mod wire;

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use selvedge::Caps;
use selvedge::info::{EpType, Threading};
use selvedge_testkit::domain::DomainContext;
use selvedge_testkit::failure::wrong;

use crate::suite::control::RUNNER;
use crate::upstream::options::{ADDRESS, FABRIC, INFO, OptionSet, Options, PAIR, WaitMethod};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// The options of the program.
pub(in crate::upstream) const OPTIONS: OptionSet = OptionSet {
    common: &[ADDRESS, FABRIC, INFO, PAIR],
    specific: "u:n:x",
    long: &["child=", "threads="],
};

/// The number of clients without `-n` and `-C`.
const CLIENTS: usize = 4;

/// The capabilities of both sides.
const CAPS: Caps = Caps::MSG.union(Caps::TAGGED).union(Caps::RMA);

/// Runs the program. With `-x`, the server ends after one client program.
pub(in crate::upstream) fn rdm_stress(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.waiting = WaitMethod::Yield;
    if !options.is_client() {
        options.threading = Threading::Safe;
        return server::serve(&options, &open(&options)?);
    }
    let text = match options.text("u") {
        None => script::DEFAULT_SCRIPT.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?
        }
    };
    let steps = script::parse(&text)?;
    if options.text("child").is_some() {
        return client::run(&options, &open(&options)?, &steps);
    }
    let requested = match options.connections {
        1 => CLIENTS,
        requested => requested,
    };
    let clients: usize = options.number("n", requested)?;
    ensure!(
        (1..=256).contains(&clients),
        "-n {clients}: the number of clients must be 1 to 256"
    );
    for _ in 0..options.iterations.unwrap_or(1) {
        run_clients(&options, clients)?;
    }
    // The server must still serve a further client.
    client::stop(&options, &open(&options)?)
}

/// Starts the clients, and waits until they have ended.
fn run_clients(options: &Options, count: usize) -> anyhow::Result<()> {
    let children: Result<Vec<_>, _> = (1..=count).map(|number| start(options, number)).collect();
    let mut children = children?;
    for (number, child) in children.iter_mut().enumerate() {
        let status = child.0.wait()?;
        if !status.success() {
            return Err(wrong(format!("client {} ended with {status}", number + 1)));
        }
    }
    Ok(())
}

fn open(options: &Options) -> anyhow::Result<std::sync::Arc<DomainContext>> {
    let info = discover(options, &hints(options, CAPS, EpType::Rdm)?)?;
    domain::open(options, info)
}

/// A client process, which is killed when the value is dropped.
struct ClientProcess(Child);

impl Drop for ClientProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(options: &Options, number: usize) -> anyhow::Result<ClientProcess> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(&options.command_line)
        .arg(format!("--child={number}"))
        .env_remove(RUNNER)
        .stdin(Stdio::null());
    Ok(ClientProcess(
        command.spawn().context("cannot start a client process")?,
    ))
}
