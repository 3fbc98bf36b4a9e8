//! Processes in different namespaces, which have only a directory in common: they exchange messages
//! of every size, and each detects the end of another.
//!
//! The tests need util-linux's `unshare` and `nsenter` and the right to use them. Without these,
//! the tests are skipped and report why.

use std::fs;
use std::process::Command;

use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::connect::unique;
use crate::directory::TestDir;
use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::process::{PeerProcess, Watchdog};

/// Namespaces of a container: the options of `unshare` that create them, and the options of
/// `nsenter` that enter them.
#[derive(Clone, Copy)]
struct Container {
    unshare: &'static [&'static str],
    nsenter: &'static [&'static str],
}

const PROCESSES: Container = Container {
    unshare: &["--pid", "--mount-proc"],
    nsenter: &["--pid", "--mount"],
};
const NETWORK: Container = Container {
    unshare: &["--net"],
    nsenter: &["--net"],
};
const FILES: Container = Container {
    unshare: &["--mount"],
    nsenter: &["--mount"],
};
const OBJECTS: Container = Container {
    unshare: &["--ipc", "--uts"],
    nsenter: &["--ipc", "--uts"],
};
const USERS: Container = Container {
    unshare: &["--user", "--map-root-user"],
    nsenter: &["--user", "--preserve-credentials"],
};
const TIME: Container = Container {
    unshare: &["--time", "--monotonic", "100000", "--boottime", "100000"],
    nsenter: &["--time"],
};
const EVERYTHING: Container = Container {
    unshare: &[
        "--user",
        "--map-root-user",
        "--pid",
        "--mount-proc",
        "--net",
        "--ipc",
        "--uts",
        "--time",
        "--monotonic",
        "7777",
    ],
    nsenter: &[
        "--user",
        "--preserve-credentials",
        "--pid",
        "--mount",
        "--net",
        "--ipc",
        "--uts",
        "--time",
    ],
};

impl Container {
    fn unshare(self) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--kill-child"]).args(self.unshare);
        command
    }

    /// Whether this system allows the container. If not, the test is reported as skipped.
    fn is_possible(self) -> bool {
        let output = self.unshare().arg("true").output();
        let reason = match output {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("unshare: {error}"),
        };
        skip(Need::Rights, reason);
        false
    }

    /// Starts the first process of a new container.
    fn start(self) -> PeerProcess {
        PeerProcess::start_by(self.unshare())
    }

    /// Starts another process in the container of `first`.
    fn join(self, first: &PeerProcess) -> PeerProcess {
        let path = format!("/proc/{0}/task/{0}/children", first.pid());
        let target = fs::read_to_string(path).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--target", target.trim()]).args(self.nsenter);
        PeerProcess::start_by(command)
    }
}

/// A process of a container, and the indices of all members in its address vector.
struct Member {
    peer_process: PeerProcess,
    name: String,
    indices: Vec<String>,
}

const SIZES: [u64; 3] = [8, 3000, 300_001];

/// Starts two containers with two processes each. All processes exchange messages with each other
/// and with this process. Then the test kills one: all others detect the end, and no other message
/// fails.
fn run_two_containers(container: Container) {
    let _watchdog = Watchdog::new();
    if !container.is_possible() {
        return;
    }
    let dir = TestDir::new("containers");
    let mut peer_processes = Vec::new();
    for _ in 0..2 {
        let mut first = container.start();
        // The process is in the container when it responds.
        first.request("drive off");
        let second = container.join(&first);
        peer_processes.extend([first, second]);
    }
    let peer_processes = peer_processes.into_iter().enumerate();
    let mut members: Vec<_> = peer_processes
        .map(|(number, peer_process)| open_member(peer_process, number, &dir))
        .collect();
    let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
    for member in &mut members {
        let insert = |name: &String| member.peer_process.request(&format!("insert {name}"));
        member.indices = names.iter().map(insert).collect();
    }
    let mut side = dir.side();
    let to_members: Vec<_> = names.iter().map(|name| side.insert(name)).collect();
    exchange_all_to_all(&mut members);
    for (member, &to_member) in members.iter_mut().zip(&to_members) {
        exchange_with_member(&mut side, member, to_member);
    }
    // The last process of the second container is killed.
    let mut killed = members.pop().unwrap();
    side.recv(Kind::Tagged, to_members[3], 8, 900).unwrap();
    killed.peer_process.kill();
    assert_eq!(side.next().errno(), Errno::ConnReset);
    for member in &mut members {
        let to_killed = member.indices[3].clone();
        member.peer_process.request("drive on");
        member.peer_process.request("drive off");
        let request = format!("send Delivered {to_killed} 8 901");
        // The member may have detected the end already.
        match member.peer_process.request(&request).as_str() {
            "ok" => assert!(
                member
                    .peer_process
                    .request("next")
                    .starts_with("fail 901 ConnReset")
            ),
            response => assert_eq!(response, "NotConn"),
        }
    }
    exchange_all_to_all(&mut members);
    for (member, &to_member) in members.iter_mut().zip(&to_members) {
        exchange_with_member(&mut side, member, to_member);
    }
}

fn open_member(mut peer_process: PeerProcess, number: usize, dir: &TestDir) -> Member {
    let name = unique(&format!("member{number}"));
    peer_process.request(&format!("open {name} FI_SHM_DIR={}", dir.path()));
    Member {
        peer_process,
        name,
        indices: Vec::new(),
    }
}

fn exchange_all_to_all(members: &mut [Member]) {
    for from in 0..members.len() {
        for to in (0..members.len()).filter(|&to| to != from) {
            for (number, len) in (1..).zip(SIZES) {
                let receive = format!("recv Tagged {len} {number}");
                members[to].peer_process.request(&receive);
                members[to].peer_process.request("drive on");
                let send = format!(
                    "send Delivered {} {len} {number}",
                    members[from].indices[to]
                );
                members[from].peer_process.request(&send);
                assert_eq!(
                    members[from].peer_process.request("next"),
                    format!("done {number}")
                );
                members[to].peer_process.request("drive off");
                let expected = format!("done {number} {len} good");
                assert_eq!(members[to].peer_process.request("next"), expected);
            }
        }
    }
}

/// Exchanges messages in both directions between a member and this process.
fn exchange_with_member(side: &mut NumberedEndpoint, member: &mut Member, to_member: FiAddr) {
    let side_addr = member
        .peer_process
        .request(&format!("insert {}", side.name()));
    for (number, len) in (100..).zip(SIZES) {
        member
            .peer_process
            .request(&format!("recv Tagged {len} {number}"));
        member
            .peer_process
            .request(&format!("send Tagged {side_addr} {len} {}", number + 100));
        side.recv(Kind::Tagged, to_member, len as usize, number + 100)
            .unwrap();
        side.send(Kind::Delivered, to_member, len as usize, number)
            .unwrap();
        member.peer_process.request("drive on");
        for _ in 0..2 {
            let event = side.next().ok();
            let is_good =
                event.bytes.is_empty() || event.bytes == content(number + 100, len as usize);
            assert!(is_good);
        }
        member.peer_process.request("drive off");
        let mut responses = [
            member.peer_process.request("next"),
            member.peer_process.request("next"),
        ];
        responses.sort();
        let sent = format!("done {}", number + 100);
        let received = format!("done {number} {len} good");
        assert_eq!(responses, [received, sent]);
    }
}

#[test]
fn processes_of_different_pid_namespaces_exchange_messages() {
    run_two_containers(PROCESSES);
}

#[test]
fn processes_of_different_network_namespaces_exchange_messages() {
    run_two_containers(NETWORK);
}

#[test]
fn processes_of_different_mount_namespaces_exchange_messages() {
    run_two_containers(FILES);
}

#[test]
fn processes_of_different_ipc_and_host_name_namespaces_exchange_messages() {
    run_two_containers(OBJECTS);
}

#[test]
fn processes_of_different_user_namespaces_exchange_messages() {
    run_two_containers(USERS);
}

#[test]
fn processes_of_different_time_namespaces_exchange_messages() {
    run_two_containers(TIME);
}

#[test]
fn processes_that_share_only_a_directory_exchange_messages() {
    run_two_containers(EVERYTHING);
}

#[test]
fn without_a_directory_a_peer_in_another_network_namespace_is_refused() {
    let _watchdog = Watchdog::new();
    if !NETWORK.is_possible() {
        return;
    }
    let name = unique("outside");
    let mut peer_process = NETWORK.start();
    peer_process.request(&format!("open {name}"));
    let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "50ms")]);
    let peer_addr = side.insert(&name);
    side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

/// All users that a namespace does not map have the same number in that namespace.
#[test]
fn a_user_that_a_namespace_does_not_map_gets_no_endpoint() {
    const UNMAPPED: Container = Container {
        unshare: &["--user"],
        nsenter: &["--user"],
    };
    let _watchdog = Watchdog::new();
    if !UNMAPPED.is_possible() {
        return;
    }
    let mut peer_process = UNMAPPED.start();
    let request = format!("try-open {}", unique("unmapped"));
    assert_eq!(peer_process.request(&request), "Acces");
    let dir = TestDir::new("unmapped");
    let request = format!("{request} FI_SHM_DIR={}", dir.path());
    assert_eq!(peer_process.request(&request), "Acces");
}

/// The first process of every container has number 1, which is no identity.
#[test]
fn a_process_with_the_pid_of_a_killed_process_is_another_peer() {
    let _watchdog = Watchdog::new();
    if !PROCESSES.is_possible() {
        return;
    }
    let dir = TestDir::new("restarted");
    let mut side = dir.side();
    let name = unique("one");
    let peer_addr = side.insert(&name);
    for incarnation in 0..20 {
        let mut peer_process = PROCESSES.start();
        peer_process.request(&format!("open {name} FI_SHM_DIR={}", dir.path()));
        let side_addr = peer_process.request(&format!("insert {}", side.name()));
        for (number, len) in (incarnation * 10..).zip(SIZES) {
            peer_process.request(&format!("send Tagged {side_addr} {len} {number}"));
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len as usize, number)
                .unwrap();
            peer_process.request("drive on");
            let event = side.next().ok();
            assert!(event.bytes == content(number, len as usize));
            peer_process.request("drive off");
        }
        // This receive matches messages of this incarnation only.
        side.recv(Kind::Tagged, peer_addr, 8, 5000 + incarnation)
            .unwrap();
        peer_process.kill();
        assert_eq!(side.next().errno(), Errno::ConnReset);
    }
}
