//! The processors of a process, as the kernel states them.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu};
use nix::unistd::Pid;

/// Returns the processor on which the calling thread runs.
pub(super) fn current_cpu() -> Option<usize> {
    sched_getcpu().ok()
}

/// Returns the processors that the main thread of a process may use; none if the kernel does not
/// say.
pub(super) fn allowed_cpus(pid: i32) -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(pid)) else {
        return Vec::new();
    };
    (0..CpuSet::count())
        .filter(|&cpu| set.is_set(cpu) == Ok(true))
        .collect()
}

/// Returns the processor that the main thread of a process used last.
pub(super) fn last_cpu(pid: i32) -> Option<usize> {
    processor_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the field `processor` of `/proc/PID/stat`, which is the 39th. The second field, the
/// program's name, may contain any bytes and ends with the last parenthesis.
fn processor_in(stat: &str) -> Option<usize> {
    const AFTER_NAME: usize = 39 - 3;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(AFTER_NAME)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_found_behind_any_program_name() {
        let fields: Vec<_> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c) {}", fields.join(" "));
        assert_eq!(processor_in(&stat), Some(39));
        assert_eq!(processor_in("17 (a) 3 4"), None);
        let this = std::process::id().cast_signed();
        assert!(last_cpu(this).is_some() && current_cpu().is_some());
        assert_eq!(last_cpu(i32::MAX), None);
    }
}
