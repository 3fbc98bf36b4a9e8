//! Two hosts for the processes of a test: network namespaces with a cable in between. A process
//! holds each, and ends with this one, so that nothing is ever left behind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// Two hosts. They are gone when this is dropped.
#[derive(Debug)]
pub struct Hosts([Host; 2]);

/// The addresses of the two.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Hosts {
    /// Makes them.
    ///
    /// # Errors
    /// When the right to do so is missing, or `unshare`, `nsenter` (Debian: util-linux) or `ip`
    /// (iproute2) is.
    pub fn make() -> anyhow::Result<Self> {
        let hosts = [Host::make()?, Host::make()?];
        let [here, there] = hosts.each_ref().map(|host| host.0.id().to_string());
        let ends = "type veth peer name cable netns";
        here_runs(&format!("ip link add cable netns {here} {ends} {there}"))?;
        for (host, address) in hosts.iter().zip(ADDRESSES) {
            host.runs(&format!("ip addr add {address}/24 dev cable"))?;
            host.runs("ip link set cable up")?;
            host.runs("ip link set lo up")?;
        }
        for host in &hosts {
            host.settle()?;
        }
        Ok(Self(hosts))
    }

    /// The address of the host where the process of this number is: by turns the one and the other.
    pub(super) fn address(place: usize) -> &'static str {
        ADDRESSES[place % 2]
    }

    /// A command that is run where the process of this number is.
    pub(super) fn command(&self, place: usize, program: &str) -> Command {
        let mut command = self.0[place % 2].enter();
        command.arg(program);
        command
    }
}

/// The process that holds a host.
#[derive(Debug)]
struct Host(Child);

impl Host {
    fn make() -> anyhow::Result<Self> {
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start unshare(1)")?;
        let mut host = Self(child);
        let output = host.0.stdout.take().context("unshare without output")?;
        let read = BufReader::new(output).read_line(&mut String::new())?;
        ensure!(
            read > 0,
            "no right to make a network namespace: unshare has failed"
        );
        Ok(host)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg("-t")
            .arg(self.0.id().to_string())
            .args(["-n", "--"]);
        command
    }

    fn runs(&self, line: &str) -> anyhow::Result<String> {
        succeed(self.enter().args(line.split_whitespace()), line)
    }

    /// Waits until the cable carries, and IPv6 has found its addresses to be its own.
    fn settle(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let carries = self.runs("ip link show cable")?.contains("LOWER_UP");
            if carries && self.runs("ip -6 addr show tentative")?.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "the cable does not carry");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn here_runs(line: &str) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    succeed(command.args(words), line)
}

/// What the command has printed.
fn succeed(command: &mut Command, line: &str) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {line:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line:?} failed: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const PATIENCE: Duration = Duration::from_secs(10);
