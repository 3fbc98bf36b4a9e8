//! Findings about the environment: containers and their limits.

use std::fs;

use selvedge_bench::cpu::allowed;

use super::finding::{Finding, Severity, first_line};

/// Searches for signs that this process runs in a container.
pub(super) fn namespaces() -> Finding {
    const NAME: &str = "namespaces";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let depth = pids.map_or(1, |pids| pids.split_whitespace().count());
    let users = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let users: Vec<_> = users.split_whitespace().collect();
    let owns_users = users.len() == 3 && users != ["0", "0", "4294967295"];
    let markers = ["/.dockerenv", "/run/.containerenv"];
    let marker = markers
        .iter()
        .find(|path| fs::exists(path).unwrap_or(false));
    let signs = signs_of_a_container(depth > 1, owns_users, marker.copied());
    if signs.is_empty() {
        return Finding::good(
            NAME,
            "no sign of a container",
            "all processes of this user can connect",
        );
    }
    Finding::new(
        NAME,
        Severity::Note,
        format!("inside a container: {}", signs.join(", ")),
        "processes of one container connect as always; processes of two containers need a common directory, \
         and large messages between them are copied twice",
    )
    .advise("Share a directory between the containers and set FI_SHM_DIR to it in all of them.")
}

/// Describes each sign of a container that the process has found.
fn signs_of_a_container(
    has_own_processes: bool,
    has_own_users: bool,
    marker: Option<&str>,
) -> Vec<String> {
    let mut signs = Vec::new();
    if has_own_processes {
        signs.push("it has a process namespace of its own".to_owned());
    }
    if has_own_users {
        signs.push("it has a user namespace of its own".to_owned());
    }
    signs.extend(marker.map(|path| format!("there is the file {path}")));
    signs
}

/// Compares the processor quota of the control group with the processors that this process may use.
pub(super) fn quota() -> Finding {
    const NAME: &str = "processor quota";
    let cores = allowed().map_or(1, |cores| cores.len());
    let max = first_line(&format!("/sys/fs/cgroup{}/cpu.max", own_group()));
    let mut words = max.split_whitespace().map(str::parse::<f64>);
    let granted = match (words.next(), words.next()) {
        (Some(Ok(quota)), Some(Ok(period))) if period > 0.0 => quota / period,
        _ => {
            return Finding::good(
                NAME,
                "the control group has no limit",
                "processes run without interruption",
            );
        }
    };
    let found = format!("{granted:.2} processors of {cores}");
    if granted >= cores as f64 {
        return Finding::good(NAME, found, "all processors are granted");
    }
    Finding::new(
        NAME,
        Severity::Slow,
        found,
        "processes that poll are stopped when the quota is used up",
    )
    .advise("Raise cpu.max, or have processes wait instead of polling.")
}

/// The path of this process's control group in the unified hierarchy; empty for the root group.
fn own_group() -> String {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    own.filter(|path| *path != "/")
        .unwrap_or_default()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sign_of_a_container_is_a_sentence() {
        let signs = signs_of_a_container(true, false, Some("/.dockerenv"));
        assert_eq!(
            signs,
            [
                "it has a process namespace of its own",
                "there is the file /.dockerenv"
            ]
        );
        assert!(signs_of_a_container(false, false, None).is_empty());
    }
}
