//! The scale test: many processes, each of which exchanges messages with all others.
//!
//! It measures the time until all pairs are connected, the memory that this costs, and the time of
//! a round in which each process sends one message to each other process.

mod process;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge_testkit::process::{Deadline, Process, receive_lines};
use selvedge_testkit::usage::memory;
use serde::Serialize;

pub use process::run as run_process;

/// The results of a scale test.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// Number of processes. Each has one endpoint, and all other processes as peers.
    pub processes: usize,
    /// Milliseconds from the start signal until every process has received a message from every
    /// other one.
    #[serde(rename = "first_contact_ms")]
    pub first_exchange_ms: f64,
    /// Median duration of the later rounds of the same messages, in milliseconds.
    pub round_ms: f64,
    /// Number of exchanged messages.
    pub messages: u64,
    /// Memory of all processes together, in KiB: before the first exchange, and after the last
    /// round. Pages that the processes share count once.
    pub pss_kib: [u64; 2],
    /// Shared memory that the processes have created by the end of the last round, in KiB.
    /// Untouched pages count too.
    pub shared_kib: u64,
    /// Maximum number of open file descriptors of one process.
    pub descriptors: u64,
}

/// Measures a group of `processes` new processes, which connect to each other in a first exchange
/// of messages and then exchange `rounds` more rounds.
///
/// # Errors
/// A process cannot be started or ends early, a message is wrong, or `timeout` has passed.
pub fn measure(processes: usize, rounds: u32, timeout: Duration) -> anyhow::Result<ScaleReport> {
    let mut members = (0..processes)
        .map(|number| {
            let args = [number, processes, rounds as usize].map(|arg| arg.to_string());
            let args = [["scale-process".to_owned()].as_slice(), &args].concat();
            Ok(Process::start(args)?.numbered(number as u32))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let _deadline = Deadline::set(&members, timeout);
    let names = receive_lines(&mut members)?;
    let names = names.join(" ");
    let before = pss(&members)?;
    members
        .iter_mut()
        .try_for_each(|member| member.send_line(&names))?;
    receive_lines(&mut members)?;
    let begin = Instant::now();
    members
        .iter_mut()
        .try_for_each(|member| member.send_line("connect"))?;
    receive_lines(&mut members)?;
    let first_exchange = begin.elapsed();
    let mut times = Vec::new();
    for _ in 0..rounds {
        let begin = Instant::now();
        members
            .iter_mut()
            .try_for_each(|member| member.send_line("next round"))?;
        receive_lines(&mut members)?;
        times.push(begin.elapsed());
    }
    times.sort();
    let descriptors = members.iter().map(descriptors).max();
    let pairs = (processes * (processes - 1)) as u64;
    Ok(ScaleReport {
        processes,
        first_exchange_ms: millis(first_exchange),
        round_ms: times.get(times.len() / 2).map_or(0.0, |&time| millis(time)),
        messages: pairs * (u64::from(rounds) + 1),
        pss_kib: [before, pss(&members)?],
        shared_kib: shared(&members)?,
        descriptors: descriptors.unwrap_or(0),
    })
}

fn millis(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e6
}

fn pss(members: &[Process]) -> anyhow::Result<u64> {
    let pss = |member: &Process| memory(&member.pid().to_string(), "Pss:");
    let all = members.iter().map(pss).sum::<anyhow::Result<usize>>()?;
    Ok(all as u64 >> 10)
}

/// Returns the size of all memory files that the provider has created, each counted once, in KiB.
fn shared(members: &[Process]) -> anyhow::Result<u64> {
    let mut files = HashMap::new();
    for member in members {
        let path = format!("/proc/{}/maps", member.pid());
        let maps = std::fs::read_to_string(&path).with_context(|| path)?;
        let own = maps.lines().filter_map(memory_file);
        files.extend(own.map(|(inode, bytes)| (inode.to_owned(), bytes)));
    }
    Ok(files.values().sum::<u64>() >> 10)
}

/// Parses a line of /proc/PID/maps. Returns the inode and the mapped bytes if the line maps a
/// memory file of the provider.
fn memory_file(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (inode, path) = (words.nth(3)?, words.next()?);
    let number = |text| u64::from_str_radix(text, 16).ok();
    let is_own = path.starts_with("/memfd:selvedge");
    is_own.then_some((inode, number(end)? - number(start)?))
}

fn descriptors(process: &Process) -> u64 {
    let path = format!("/proc/{}/fd", process.pid());
    std::fs::read_dir(path).map_or(0, Iterator::count) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_files_are_distinguished_from_other_mappings() {
        let line = "7f0000000000-7f0000017000 r--s 00000000 00:01 4711  /memfd:selvedge (deleted)";
        assert_eq!(memory_file(line), Some(("4711", 0x17000)));
        let other = "7f0000000000-7f0000001000 r--p 00000000 fe:00 99  /usr/lib/libc.so.6";
        assert_eq!(memory_file(other), None);
        assert_eq!(
            memory_file("7f0000000000-7f0000001000 rw-p 00000000 00:00 0"),
            None
        );
    }
}
