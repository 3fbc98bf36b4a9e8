//! `fi_rdm_stress`: clients ask a server for messages and accesses, several at a time, and some of
//! them end in the midst. The server's threads share an endpoint, and survive.

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

use super::discover::{discover, hints};
use super::options::{ADDRESS, FABRIC, INFO, Letters, Options, PAIR, WaitMethod};
use crate::suite::control::RUNNER;
use crate::upstream::ground;

/// Its letters.
pub(super) const LETTERS: Letters = Letters {
    common: &[ADDRESS, FABRIC, INFO, PAIR],
    own: "u:n:x",
    long: &["child=", "threads="],
};

/// Clients, where neither `-n` nor `-C` says how many.
const CLIENTS: usize = 4;

/// What both sides ask discovery for.
const CAPS: Caps = Caps::MSG.union(Caps::TAGGED).union(Caps::RMA);

/// The program. With `-x` a server ends with the clients of one client program.
pub(super) fn rdm_stress(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    options.waiting = WaitMethod::Yield;
    if !options.is_client() {
        options.threading = Threading::Safe;
        return server::serve(&options, &open(&options)?);
    }
    let text = match options.text("u") {
        None => script::OWN.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?
        }
    };
    let steps = script::parse(&text)?;
    if options.text("child").is_some() {
        return client::play(&options, &open(&options)?, &steps);
    }
    let asked = match options.connections {
        1 => CLIENTS,
        asked => asked,
    };
    let clients: usize = options.number("n", asked)?;
    ensure!(
        (1..=256).contains(&clients),
        "-n {clients}: 1 to 256 clients"
    );
    for _ in 0..options.iterations.unwrap_or(1) {
        run_clients(&options, clients)?;
    }
    // After all of that it is still there for somebody else.
    client::stop(&options, &open(&options)?)
}

/// Starts so many clients, and waits until they have ended.
fn run_clients(options: &Options, count: usize) -> anyhow::Result<()> {
    let children: Result<Vec<_>, _> = (1..=count).map(|number| start(options, number)).collect();
    let mut children = children?;
    for (number, child) in children.iter_mut().enumerate() {
        let status = child.0.wait()?;
        if !status.success() {
            return Err(wrong(format!("client {}: {status}", number + 1)));
        }
    }
    Ok(())
}

fn open(options: &Options) -> anyhow::Result<std::sync::Arc<DomainContext>> {
    let info = discover(options, &hints(options, CAPS, EpType::Rdm)?)?;
    ground::open(options, info)
}

/// Killed if it is left.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(options: &Options, number: usize) -> anyhow::Result<Running> {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(&options.command_line)
        .arg(format!("--child={number}"))
        .env_remove(RUNNER)
        .stdin(Stdio::null());
    Ok(Running(command.spawn().context("cannot start a client")?))
}
