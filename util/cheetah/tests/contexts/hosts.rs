//! Contexts on several hosts. Each host is a network namespace of this machine. A veth pair
//! connects the namespaces, which have no common Unix socket.

use selvedge_testkit::skip::{Need, skip};
use std::process::Command;

use crate::processes::{SCENARIOS, finish, spawn};

/// The names of two network namespaces, which are deleted when this value is dropped.
struct Hosts([String; 2]);

impl Hosts {
    /// Creates the hosts. Returns `None` without the necessary rights.
    fn create() -> Option<Self> {
        let names = ["a", "b"].map(|name| format!("cheetah-{}-{name}", std::process::id()));
        let hosts = Self(names);
        let [a, b] = &hosts.0;
        let is_created = ip(&["netns", "add", a])
            && ip(&["netns", "add", b])
            && ip(&[
                "-n", a, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b,
            ])
            && [(a, "10.77.0.1/24"), (b, "10.77.0.2/24")]
                .iter()
                .all(|(host, address)| {
                    ip(&["-n", host, "address", "add", address, "dev", "wire"])
                        && ip(&["-n", host, "link", "set", "wire", "up"])
                        && ip(&["-n", host, "link", "set", "lo", "up"])
                });
        is_created.then(|| hosts.wait_for_wire())
    }

    /// Waits until the new link carries packets.
    fn wait_for_wire(self) -> Self {
        for host in &self.0 {
            let is_up = || {
                let mut command = Command::new("ip");
                command.args(["-n", host, "link", "show", "wire"]);
                let stdout = command.output().unwrap().stdout;
                String::from_utf8_lossy(&stdout).contains("state UP")
            };
            assert!(
                (0..10_000).any(|_| is_up()),
                "the link of {host} stays down"
            );
        }
        self
    }

    /// Returns the command that starts one of four contexts, on the host selected by `rank`.
    fn context_command(&self, rank: usize, scenario: &[&str], option: &str, near: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[rank % 2], SCENARIOS]);
        command.args(scenario).arg(option);
        command
            .env("CHEETAH_RANK", rank.to_string())
            .env("CHEETAH_SIZE", "4")
            .env("CHEETAH_JOB", "hosts")
            .env("CHEETAH_RENDEZVOUS", "10.77.0.1:7000")
            .env("CHEETAH_NEAR", near);
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.0 {
            ip(&["netns", "delete", name]);
        }
    }
}

/// Runs ip(8) with `args`, and returns whether it succeeded.
fn ip(args: &[&str]) -> bool {
    let output = Command::new("ip").args(args).output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn contexts_use_tcp_between_hosts_and_shm_within_one_by_default() {
    let Some(hosts) = Hosts::create() else {
        return skip(Need::Rights, "network namespaces cannot be created");
    };
    for (option, near, fabrics) in [
        ("-mpi", "", &["fabrics", "tcp", "shm"][..]),
        ("-tcp", "", &["fabrics", "tcp"]),
        ("-tcp", "shm", &["fabrics", "tcp", "shm"]),
    ] {
        for scenario in [
            fabrics,
            &["basic-put"],
            &["fifo", "300"],
            &["arguments"],
            &["put-bells", "50"],
        ] {
            let contexts = [0, 1, 2, 3];
            let contexts =
                contexts.map(|rank| spawn(hosts.context_command(rank, scenario, option, near)));
            for context in contexts {
                finish(context).assert_success(1);
            }
        }
    }
}
