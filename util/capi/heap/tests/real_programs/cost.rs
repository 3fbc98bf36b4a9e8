//! The time and the memory of programs with and without the heap, in turns, as a table.
//!
//! Time is processor time and time on the clock: the median of all runs. Memory is the largest
//! resident and the largest proportional set of all processes of the program, and the largest memory
//! in files of the heap, by samples, in runs of their own: the samples take time. Pages of these
//! files that the program has not touched are in neither set.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::{folder, installed, library, shell};

/// One run of a program.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    processor_ms: f64,
    clock_ms: f64,
}

/// The largest memory of a run, in MiB.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    resident: f64,
    proportional: f64,
    files: f64,
}

/// The time between two samples of memory.
const INTERVAL: Duration = Duration::from_millis(3);

#[test]
#[ignore = "takes minutes; HEAP_ROUNDS sets how often each program runs, and HEAP_PROGRAMS which"]
fn time_and_memory_of_real_programs_are_compared() {
    let folder = folder("cost");
    let rounds = std::env::var("HEAP_ROUNDS").map_or(5, |text| text.parse().unwrap());
    let named = std::env::var("HEAP_PROGRAMS").unwrap_or_default();
    let is_named = |program: &str| named.is_empty() || named.split(',').any(|name| name == program);
    let library = library();
    println!("each pair: without the heap, with the heap, and the ratio");
    for (program, command) in installed() {
        if !is_named(program) {
            continue;
        }
        let new = |with_heap: bool| shell(&folder, command, with_heap.then_some(&*library));
        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..2 * rounds {
            // The order of the two changes from round to round.
            let with_heap = (round % 4 == 1) || (round % 4 == 2);
            costs[usize::from(with_heap)].push(run(new(with_heap)));
        }
        let of_time = |part: fn(&Cost) -> f64| costs.each_ref().map(|runs| median(runs, part));
        let peaks = [peak(new(false)), peak(new(true))];
        println!(
            "{program:>8}: processor {}, clock {}, resident {}, proportional {}, files {:.1} MiB",
            pair(of_time(|cost| cost.processor_ms), "ms"),
            pair(of_time(|cost| cost.clock_ms), "ms"),
            pair(peaks.map(|peak| peak.resident), "MiB"),
            pair(peaks.map(|peak| peak.proportional), "MiB"),
            peaks[1].files,
        );
    }
}

fn pair([plain, heap]: [f64; 2], unit: &str) -> String {
    format!("{plain:.1} {heap:.1} {unit} ({:.3})", heap / plain)
}

fn median(runs: &[Cost], part: fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<_> = runs.iter().map(part).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs a command to its end, and measures its processes.
fn run(mut command: Command) -> Cost {
    let (before, began) = (processor_ms(), Instant::now());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success(), "{command:?}");
    Cost {
        clock_ms: began.elapsed().as_secs_f64() * 1e3,
        processor_ms: processor_ms() - before,
    }
}

/// The processor time of all children that have ended.
fn processor_ms() -> f64 {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let time = usage.user_time() + usage.system_time();
    time.num_microseconds() as f64 / 1e3
}

/// Runs a command to its end, and returns the largest memory of its processes at one time.
fn peak(mut command: Command) -> Peak {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = silent.spawn().unwrap();
    let mut peak = Peak::default();
    while child.try_wait().unwrap().is_none() {
        let processes = descendants(child.id());
        let sum = |part: &dyn Fn(u32) -> f64| processes.iter().map(|&process| part(process)).sum();
        peak.resident = peak
            .resident
            .max(sum(&|process| mebibytes(process, "Rss:")));
        let proportional = sum(&|process| mebibytes(process, "Pss:"));
        peak.proportional = peak.proportional.max(proportional);
        peak.files = peak.files.max(sum(&mebibytes_of_files));
        std::thread::sleep(INTERVAL);
    }
    peak
}

/// Returns a process, its children, and theirs.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        let children = std::fs::read_to_string(thread.path().join("children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        found.extend(children.flat_map(descendants));
    }
    found
}

/// Returns one figure of a process's memory; 0 if the process has ended.
fn mebibytes(process: u32, name: &str) -> f64 {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let kibibytes = lines.next().and_then(|rest| rest.split_whitespace().next());
    kibibytes.map_or(0.0, |number| number.parse().unwrap_or(0.0)) / 1024.0
}

/// Returns the memory in files of the heap to which a process has descriptors.
fn mebibytes_of_files(process: u32) -> f64 {
    let descriptors = std::fs::read_dir(format!("/proc/{process}/fd"));
    let paths = descriptors.into_iter().flatten().flatten();
    let is_of_heap = |path: &PathBuf| {
        let name = std::fs::read_link(path).unwrap_or_default();
        name.to_string_lossy().contains("memfd:selvedge-heap")
    };
    let files = paths.map(|entry| entry.path()).filter(is_of_heap);
    let blocks = files.map(|path| path.metadata().map_or(0, |file| file.blocks()));
    // The unit of `blocks` is 512 bytes.
    blocks.sum::<u64>() as f64 / 2048.0
}
