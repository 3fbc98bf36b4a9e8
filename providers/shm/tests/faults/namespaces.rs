//! Processes in other namespaces, which have only a directory in common: they exchange messages of
//! every size, and notice each other's end.
//!
//! The tests need util-linux's `unshare` and `nsenter` and the right to use them. Where that is
//! missing they say so and are skipped.

use std::fs;
use std::process::Command;

use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::contact::unique;
use crate::directory::Place;
use crate::process::{Puppet, Watchdog};
use crate::side::{Kind, Side, content};

/// Namespaces of a container, as options of `unshare`, and the ones of `nsenter` that lead there.
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

    /// Says why not, if this is not possible here.
    fn is_possible(self) -> bool {
        let tried = self.unshare().arg("true").output();
        let why = match tried {
            Ok(output) if output.status.success() => return true,
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => format!("unshare: {error}"),
        };
        skip(Need::Rights, why);
        false
    }

    /// The first process of a new container.
    fn start(self) -> Puppet {
        Puppet::start_by(self.unshare())
    }

    /// Another process of the container that `first` is in.
    fn join(self, first: &Puppet) -> Puppet {
        let path = format!("/proc/{0}/task/{0}/children", first.pid());
        let inside = fs::read_to_string(path).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--target", inside.trim()]).args(self.nsenter);
        Puppet::start_by(command)
    }
}

/// A process of a container, and the indices that the others have in its address vector.
struct Member {
    puppet: Puppet,
    name: String,
    others: Vec<String>,
}

const SIZES: [u64; 3] = [8, 3000, 300_001];

/// Two containers with two processes each: everybody exchanges messages with everybody, and with
/// this process; then one is killed, which everybody notices and no other message suffers from.
fn two_by_two(container: Container) {
    let _watchdog = Watchdog::new();
    if !container.is_possible() {
        return;
    }
    let place = Place::new("containers");
    let mut puppets = Vec::new();
    for _ in 0..2 {
        let mut first = container.start();
        // It is inside when it answers.
        first.ask("drive off");
        let second = container.join(&first);
        puppets.extend([first, second]);
    }
    let puppets = puppets.into_iter().enumerate();
    let mut members: Vec<_> = puppets
        .map(|(number, puppet)| enter(puppet, number, &place))
        .collect();
    let names: Vec<_> = members.iter().map(|member| member.name.clone()).collect();
    for member in &mut members {
        let insert = |name: &String| member.puppet.ask(&format!("insert {name}"));
        member.others = names.iter().map(insert).collect();
    }
    let mut side = place.side();
    let to_members: Vec<_> = names.iter().map(|name| side.insert(name)).collect();
    all_to_all(&mut members);
    for (member, &to_member) in members.iter_mut().zip(&to_members) {
        with_us(&mut side, member, to_member);
    }
    // The last one of the second container dies.
    let mut victim = members.pop().unwrap();
    side.recv(Kind::Tagged, to_members[3], 8, 900).unwrap();
    victim.puppet.kill();
    assert_eq!(side.next().errno(), Errno::ConnReset);
    for member in &mut members {
        let to_victim = member.others[3].clone();
        member.puppet.ask("drive on");
        member.puppet.ask("drive off");
        let order = format!("send Delivered {to_victim} 8 901");
        // It may have noticed already.
        match member.puppet.ask(&order).as_str() {
            "ok" => assert!(member.puppet.ask("next").starts_with("fail 901 ConnReset")),
            answer => assert_eq!(answer, "NotConn"),
        }
    }
    all_to_all(&mut members);
    for (member, &to_member) in members.iter_mut().zip(&to_members) {
        with_us(&mut side, member, to_member);
    }
}

fn enter(mut puppet: Puppet, number: usize, place: &Place) -> Member {
    let name = unique(&format!("member{number}"));
    puppet.ask(&format!("open {name} FI_SHM_DIR={}", place.path()));
    Member {
        puppet,
        name,
        others: Vec::new(),
    }
}

fn all_to_all(members: &mut [Member]) {
    for from in 0..members.len() {
        for to in (0..members.len()).filter(|&to| to != from) {
            for (number, len) in (1..).zip(SIZES) {
                let receive = format!("recv Tagged {len} {number}");
                members[to].puppet.ask(&receive);
                members[to].puppet.ask("drive on");
                let send = format!("send Delivered {} {len} {number}", members[from].others[to]);
                members[from].puppet.ask(&send);
                assert_eq!(members[from].puppet.ask("next"), format!("done {number}"));
                members[to].puppet.ask("drive off");
                let expected = format!("done {number} {len} good");
                assert_eq!(members[to].puppet.ask("next"), expected);
            }
        }
    }
}

/// Messages in both directions between a member and this process.
fn with_us(side: &mut Side, member: &mut Member, to_member: FiAddr) {
    let us = member.puppet.ask(&format!("insert {}", side.name()));
    for (number, len) in (100..).zip(SIZES) {
        member.puppet.ask(&format!("recv Tagged {len} {number}"));
        member
            .puppet
            .ask(&format!("send Tagged {us} {len} {}", number + 100));
        side.recv(Kind::Tagged, to_member, len as usize, number + 100)
            .unwrap();
        side.send(Kind::Delivered, to_member, len as usize, number)
            .unwrap();
        member.puppet.ask("drive on");
        for _ in 0..2 {
            let event = side.next().ok();
            let is_good =
                event.bytes.is_empty() || event.bytes == content(number + 100, len as usize);
            assert!(is_good);
        }
        member.puppet.ask("drive off");
        let mut answers = [member.puppet.ask("next"), member.puppet.ask("next")];
        answers.sort();
        let sent = format!("done {}", number + 100);
        let received = format!("done {number} {len} good");
        assert_eq!(answers, [received, sent]);
    }
}

#[test]
fn containers_with_their_own_processes() {
    two_by_two(PROCESSES);
}

#[test]
fn containers_with_their_own_network() {
    two_by_two(NETWORK);
}

#[test]
fn containers_with_their_own_mounts() {
    two_by_two(FILES);
}

#[test]
fn containers_with_their_own_ipc_and_host_names() {
    two_by_two(OBJECTS);
}

#[test]
fn containers_with_their_own_users() {
    two_by_two(USERS);
}

#[test]
fn containers_with_their_own_time() {
    two_by_two(TIME);
}

#[test]
fn containers_that_share_only_a_directory() {
    two_by_two(EVERYTHING);
}

#[test]
fn without_a_directory_another_network_namespace_is_out_of_reach() {
    let _watchdog = Watchdog::new();
    if !NETWORK.is_possible() {
        return;
    }
    let name = unique("outside");
    let mut puppet = NETWORK.start();
    puppet.ask(&format!("open {name}"));
    let mut side = Side::with(None, &[("FI_SHM_PEER_TIMEOUT", "50ms")]);
    let them = side.insert(&name);
    side.send(Kind::Tagged, them, 8, 1).unwrap();
    assert_eq!(side.next().errno(), Errno::ConnRefused);
}

/// All users that a namespace does not map have one number there.
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
    let mut puppet = UNMAPPED.start();
    let order = format!("try-open {}", unique("unmapped"));
    assert_eq!(puppet.ask(&order), "Acces");
    let place = Place::new("unmapped");
    let order = format!("{order} FI_SHM_DIR={}", place.path());
    assert_eq!(puppet.ask(&order), "Acces");
}

/// The first process of every container has number 1: that is no identity.
#[test]
fn a_process_with_the_number_of_a_dead_one_is_another_peer() {
    let _watchdog = Watchdog::new();
    if !PROCESSES.is_possible() {
        return;
    }
    let place = Place::new("reborn");
    let mut side = place.side();
    let name = unique("one");
    let them = side.insert(&name);
    for life in 0..20 {
        let mut puppet = PROCESSES.start();
        puppet.ask(&format!("open {name} FI_SHM_DIR={}", place.path()));
        let us = puppet.ask(&format!("insert {}", side.name()));
        for (number, len) in (life * 10..).zip(SIZES) {
            puppet.ask(&format!("send Tagged {us} {len} {number}"));
            side.recv(Kind::Tagged, FiAddr::UNSPEC, len as usize, number)
                .unwrap();
            puppet.ask("drive on");
            let event = side.next().ok();
            assert!(event.bytes == content(number, len as usize));
            puppet.ask("drive off");
        }
        // For this life only.
        side.recv(Kind::Tagged, them, 8, 5000 + life).unwrap();
        puppet.kill();
        assert_eq!(side.next().errno(), Errno::ConnReset);
    }
}
