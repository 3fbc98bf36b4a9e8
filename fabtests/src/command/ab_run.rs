//! A/B run of two programs that print upstream's tables. Each run starts a server and a client. The
//! order is A B B A, so that a drift of the machine's speed affects both programs equally.

use std::ffi::OsString;
use std::io::Read as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use selvedge_bench::comparison::{Comparison, Versus};
use selvedge_bench::cpu;

/// One of the two programs, with its provider.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// The program's file; none for this suite's own program.
    pub file: Option<PathBuf>,
    /// The program's name.
    pub program: String,
    /// The provider.
    pub provider: String,
}

/// The sizes and counts of the runs.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Sizes of messages.
    pub sizes: Vec<usize>,
    /// Messages of a run.
    pub iterations: usize,
    /// Runs of each program.
    pub reps: usize,
    /// The instant at which all runs must have ended.
    pub deadline: Instant,
}

/// Runs two programs in turns at each size, and compares their times.
///
/// # Errors
/// A program cannot be started, fails, or prints no row.
pub fn run_in_turns(
    a: &Contestant,
    b: &Contestant,
    config: &RunConfig,
) -> anyhow::Result<Comparison> {
    let mut points = Vec::new();
    for &size in &config.sizes {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..config.reps.div_ceil(2) {
            for index in [0, 1, 1, 0] {
                let contestant = [a, b][index];
                let ns = contestant.run(size, config).with_context(|| {
                    format!(
                        "{} over {}, {size} bytes",
                        contestant.program, contestant.provider
                    )
                })?;
                runs[index].push(ns);
            }
        }
        let benchmark = if a.program == b.program {
            a.program.clone()
        } else {
            format!("{} against {}", a.program, b.program)
        };
        points.push(Versus::of_runs(benchmark, size, &runs[0], &runs[1]));
    }
    let [a, b] = [a, b].map(Contestant::name);
    Ok(Comparison { a, b, points })
}

impl Contestant {
    /// Returns the name in the report.
    fn name(&self) -> String {
        let provider = &self.provider;
        match &self.file {
            Some(file) => format!("{} over {provider}", file.display()),
            None => format!("{} of this suite over {provider}", self.program),
        }
    }

    /// Runs a server and a client. Returns the time of a message, in nanoseconds.
    fn run(&self, size: usize, config: &RunConfig) -> anyhow::Result<f64> {
        let port = free_port()?;
        let cores = cpu::allowed()?;
        let (server_core, client_core) = (cores.first(), cores.last());
        let mut server = self.start(size, config, port, None, server_core)?;
        // Clients of this suite wait for their server; other clients may not.
        let mut client_output = String::new();
        for _ in 0..ATTEMPTS {
            if self.file.is_some() {
                sleep(LISTEN_DELAY);
            }
            let client = self.start(size, config, port, Some("127.0.0.1"), client_core)?;
            match client.wait_for_end(config.deadline)? {
                (true, text) => {
                    let (succeeded, _) = server.wait_for_end(config.deadline)?;
                    ensure!(succeeded, "the server failed");
                    return parse_microseconds(&text)
                        .map(|us| us * 1e3)
                        .with_context(|| format!("the output has no row: {text:?}"));
                }
                (false, text) => client_output = text,
            }
            if server.has_ended()? {
                server = self.start(size, config, port, None, server_core)?;
            }
        }
        bail!("the client failed: {client_output}")
    }

    fn start(
        &self,
        size: usize,
        config: &RunConfig,
        port: u16,
        server: Option<&str>,
        core: Option<&usize>,
    ) -> anyhow::Result<RunningProcess> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => PathBuf::from("/proc/self/exe"),
        };
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
        if self.file.is_none() {
            add(&[&self.program]);
        }
        let (size, count) = (size.to_string(), config.iterations.to_string());
        add(&["-p", &self.provider, "-S", &size, "-I", &count]);
        if is_fi_pingpong(&self.program) {
            add(&["-e", "rdm"]);
        } else {
            add(&["-m"]);
        }
        let port = port.to_string();
        match server {
            None => add(&["-B", &port]),
            Some(server) => add(&["-P", &port, server]),
        }
        let mut command = match core {
            // taskset(1) also pins programs that do not belong to this suite.
            Some(core) if Path::new(TASKSET).exists() => {
                let mut command = Command::new(TASKSET);
                command.args(["-c", &core.to_string()]).arg(&file);
                command
            }
            _ => Command::new(&file),
        };
        if self.file.is_none() {
            command = Command::new(&file);
            let core = core.map(usize::to_string);
            args.extend(core.map(|core| format!("--pin-core={core}").into()));
        }
        command.args(&args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", file.display()))?;
        Ok(RunningProcess(child))
    }
}

/// `fi_pingpong` of libfabric-bin has options of its own, and no `-m`.
fn is_fi_pingpong(program: &str) -> bool {
    program == "fi_pingpong"
}

/// Parses the time of a transfer, in microseconds, in the last row of a table in text or YAML.
fn parse_microseconds(text: &str) -> Option<f64> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    if let Some((_, rest)) = line.split_once("usec/xfer:") {
        return rest
            .split([',', ' ', '}'])
            .find(|word| !word.is_empty())?
            .parse()
            .ok();
    }
    let mut fields = line.split_whitespace().rev();
    let _rate = fields.next()?;
    fields.next()?.parse().ok()
}

fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// A process that is killed when this value is dropped.
struct RunningProcess(Child);

impl RunningProcess {
    fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits until the process ends. Returns whether the process succeeded, and its output.
    fn wait_for_end(mut self, deadline: Instant) -> anyhow::Result<(bool, String)> {
        // A table fits into a pipe.
        let status = loop {
            match self.0.try_wait()? {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    bail!("the process did not end before the deadline of all runs")
                }
                None => sleep(Duration::from_millis(1)),
            }
        };
        let mut text = String::new();
        if let Some(out) = &mut self.0.stdout {
            out.read_to_string(&mut text)?;
        }
        if let Some(err) = self.0.stderr.as_mut().filter(|_| !status.success()) {
            err.read_to_string(&mut text)?;
        }
        Ok((status.success(), text))
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TASKSET: &str = "/usr/bin/taskset";
/// Maximum number of starts of one client. Clients of other programs may not wait for their server.
const ATTEMPTS: usize = 5;
/// Delay before the start of another program's client: the time that its server takes to listen.
const LISTEN_DELAY: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_is_parsed_in_text_and_yaml() {
        let yaml = "---\nx :\n- { xfer_size: 64, time: 0.04, MB/sec: 0.016, usec/xfer: 3.5, Mxfers/sec: 0 }";
        assert_eq!(parse_microseconds(yaml), Some(3.5));
        let table = "bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                     64      5       640         0.04s      0.02     12.25       0.08\n";
        assert_eq!(parse_microseconds(table), Some(12.25));
        let pingpong = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                        64      10      =10      1.2k        0.00s     41.29       1.55       0.65\n";
        assert_eq!(parse_microseconds(pingpong), Some(1.55));
        assert_eq!(parse_microseconds("nothing\n"), None);
    }
}
