//! Resources that tests leave: processes of their groups, and files of shared memory.

use std::fs;
use std::time::SystemTime;

use nix::unistd::Pid;

/// Returns the running processes of a group except its leader, as `number (name)`.
pub(super) fn processes_of_group(group: Pid) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| *name != group.to_string())
        .filter_map(|pid| running_member(&pid, group))
        .collect()
}

fn running_member(pid: &str, group: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain any character.
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split_whitespace();
    let (state, _parent, group_of) = (fields.next()?, fields.next()?, fields.next()?);
    (state != "Z" && group_of == group.to_string()).then(|| format!("{pid} ({name})"))
}

/// Returns the files of shared memory that are named after one of these processes and were changed
/// after `since`. Older files are left out, because process identifiers recur.
pub(super) fn files_of_processes(processes: &[Pid], since: SystemTime) -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten();
    let is_new = |entry: &fs::DirEntry| {
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        changed.is_ok_and(|changed| changed >= since)
    };
    entries
        .filter_map(|entry| entry.ok().filter(is_new))
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .filter(|path| processes.iter().any(|pid| contains_pid(path, *pid)))
        .collect()
}

/// Returns whether the process identifier occurs in the path as a whole number.
fn contains_pid(path: &str, pid: Pid) -> bool {
    let numbers = path.split(|character: char| !character.is_ascii_digit());
    numbers.into_iter().any(|number| number == pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_its_group() {
        let group = nix::unistd::getpgrp();
        let pid = std::process::id().to_string();
        let found = running_member(&pid, group).unwrap();
        assert!(found.starts_with(&pid), "{found}");
        assert_eq!(running_member(&pid, Pid::from_raw(1 << 30)), None);
    }

    #[test]
    fn a_file_is_named_after_a_process_by_its_whole_number() {
        let pid = Pid::from_raw(471);
        assert!(contains_pid("/dev/shm/471:0:1", pid) && contains_pid("/dev/shm/x-471", pid));
        assert!(!contains_pid("/dev/shm/4711:0:1", pid) && !contains_pid("/dev/shm/x", pid));
    }
}
