//! Two hosts for the processes of a test: network namespaces with a virtual cable. A child
//! process holds each namespace and ends with this process, so that nothing remains.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// Two hosts, which are removed when this value is dropped.
#[derive(Debug)]
pub struct Hosts([Host; 2]);

/// The addresses of the two hosts.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Hosts {
    /// Creates the hosts.
    ///
    /// # Errors
    /// The right to create network namespaces, or `unshare`, `nsenter` (Debian: util-linux) or `ip`
    /// (iproute2), is missing.
    pub fn create() -> anyhow::Result<Self> {
        let hosts = [Host::create()?, Host::create()?];
        let [first, second] = hosts.each_ref().map(|host| host.0.id().to_string());
        let peer_options = "type veth peer name cable netns";
        run_locally(&format!(
            "ip link add cable netns {first} {peer_options} {second}"
        ))?;
        for (host, address) in hosts.iter().zip(ADDRESSES) {
            host.run(&format!("ip addr add {address}/24 dev cable"))?;
            host.run("ip link set cable up")?;
            host.run("ip link set lo up")?;
        }
        for host in &hosts {
            host.await_link()?;
        }
        Ok(Self(hosts))
    }

    /// Returns the address of the host of process `index`; processes alternate between the hosts.
    pub(super) fn address(index: usize) -> &'static str {
        ADDRESSES[index % 2]
    }

    /// Makes a command that runs on the host of process `index`.
    pub(super) fn command(&self, index: usize, program: &str) -> Command {
        let mut command = self.0[index % 2].enter();
        command.arg(program);
        command
    }
}

/// The process that holds a host.
#[derive(Debug)]
struct Host(Child);

impl Host {
    fn create() -> anyhow::Result<Self> {
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
            "no right to create a network namespace: unshare failed"
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

    fn run(&self, line: &str) -> anyhow::Result<String> {
        run_command(self.enter().args(line.split_whitespace()), line)
    }

    /// Waits until the cable is up, and IPv6 has validated its addresses.
    fn await_link(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            let is_up = self.run("ip link show cable")?.contains("LOWER_UP");
            if is_up && self.run("ip -6 addr show tentative")?.is_empty() {
                return Ok(());
            }
            ensure!(
                start.elapsed() < TIMEOUT,
                "the virtual cable is not up after {TIMEOUT:?}"
            );
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

fn run_locally(line: &str) -> anyhow::Result<String> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    run_command(command.args(words), line)
}

/// Runs a command and returns its output.
fn run_command(command: &mut Command, line: &str) -> anyhow::Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {line:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{line:?} failed: {}",
        errors.trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Maximum time until the cable is up.
const TIMEOUT: Duration = Duration::from_secs(10);
