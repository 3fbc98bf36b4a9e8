//! The NUMA node of the memory for a peer, on descriptions of machines with two nodes. The machine
//! of the test may have one node, so memory can really be placed on node 0 alone.

use std::fs;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::connect::unique;
use crate::denial::deny;
use crate::directory::TestDir;
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::log::{KeptLines, LINES};
use crate::peer_failure::exchange_messages;
use crate::process::{PeerProcess, alone_with};

/// A node that no machine of a test has.
const ABSENT: u32 = 1000;
const LARGE: usize = 1 << 20;

/// Runs a test alone, on one processor of a described machine. `node` has this processor, and
/// `other` has all others.
fn on_two_nodes(node: u32, other: u32, test: impl FnOnce()) {
    let cpu = first_cpu();
    let set = |is_inverted: bool| {
        let word = |index| {
            let bits = if index == cpu / 32 {
                1_u32 << (cpu % 32)
            } else {
                0
            };
            format!("{:#x}", if is_inverted { !bits } else { bits })
        };
        (0..32).rev().map(word).collect::<Vec<_>>().join(",")
    };
    let object = |id: u32, cpus: String| {
        format!(r#"<object type="NUMANode" os_index="{id}" cpuset="{cpus}" local_memory="1"/>"#)
    };
    let (this, others) = (object(node, set(false)), object(other, set(true)));
    let directory = TestDir::new("numa");
    let file = format!("{}/two.xml", directory.path());
    fs::write(&file, format!("<topology>{this}{others}</topology>")).unwrap();
    let environment = [("HWLOC_XMLFILE", &*file), ("HWLOC_THISSYSTEM", "1")];
    alone_with(&environment, || {
        // Processes that are started later inherit the processor.
        let mut one = CpuSet::new();
        one.set(cpu).unwrap();
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let id = task.unwrap().file_name().into_string().unwrap();
            sched_setaffinity(Pid::from_raw(id.parse().unwrap()), &one).unwrap();
        }
        test();
    });
}

fn first_cpu() -> usize {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let mut cpus = 0..CpuSet::count();
    cpus.find(|&cpu| allowed.is_set(cpu).unwrap()).unwrap()
}

/// Exchanges messages with a new peer process, sends it a large message, and returns the number of
/// files that this process writes and whose pages are requested from node 0.
fn files_on_node_0(params: &[(&str, &str)]) -> usize {
    let mut side = NumberedEndpoint::with_params(None, params);
    let name = unique("peer");
    let mut peer_process = PeerProcess::start();
    peer_process.request(&format!("open {name} FI_SHM_PROTOCOL=bounce"));
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    let peer = side.insert(&name);
    exchange_messages(&mut side, &mut peer_process, peer, &side_addr);
    let before = own_files_on_node_0();
    peer_process.request(&format!("recv Tagged {LARGE} 1"));
    side.send(Kind::Tagged, peer, LARGE, 1).unwrap();
    peer_process.request("drive on");
    side.next().ok();
    let after = own_files_on_node_0();
    assert_eq!(after, 2 * before, "the bounce memory is beside the outbox");
    after
}

fn own_files_on_node_0() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_own = |address: &str| {
        let begin = format!("{address}-");
        let mut lines = maps.lines();
        lines.any(|line| line.starts_with(&begin) && line.contains(" rw-s "))
    };
    let placed = fs::read_to_string("/proc/self/numa_maps").unwrap();
    let is_placed = |line: &&str| {
        let mut words = line.split(' ');
        let (address, policy) = (words.next().unwrap(), words.next().unwrap());
        policy == "prefer:0" && line.contains("memfd:selvedge") && is_own(address)
    };
    placed.lines().filter(is_placed).count()
}

#[test]
fn the_memory_for_a_peer_is_on_the_node_of_the_selected_process() {
    on_two_nodes(0, ABSENT, || {
        assert_eq!(files_on_node_0(&[]), 2);
        assert_eq!(files_on_node_0(&[("FI_SHM_NUMA", "sender")]), 2);
        assert_eq!(files_on_node_0(&[("FI_SHM_NUMA", "off")]), 0);
    });
}

#[test]
fn memory_that_waits_for_its_peer_is_moved_to_the_node_of_the_peer() {
    on_two_nodes(0, ABSENT, || {
        let mut side = NumberedEndpoint::new();
        let name = unique("late");
        let peer = side.insert(&name);
        side.send(Kind::Msg, peer, 8, 1).unwrap();
        assert_eq!(own_files_on_node_0(), 0, "the peer has no process yet");
        let mut peer_process = PeerProcess::named(&name);
        peer_process.request("drive on");
        side.next().ok();
        assert_eq!(own_files_on_node_0(), 1);
    });
}

#[test]
fn memory_for_a_node_that_does_not_exist_is_on_another_node() {
    on_two_nodes(ABSENT, 0, || exchange_messages_unplaced(ABSENT));
}

#[test]
fn where_a_filter_denies_mbind_messages_are_exchanged() {
    on_two_nodes(0, ABSENT, || {
        deny("mbind", libc::EPERM);
        exchange_messages_unplaced(0);
    });
}

/// Exchanges messages with two peers. The failed placement is logged once.
fn exchange_messages_unplaced(node: u32) {
    KeptLines::install();
    assert_eq!(files_on_node_0(&[]), 0);
    assert_eq!(files_on_node_0(&[]), 0);
    let begin = format!(
        "WARN selvedge::shm::mr shared memory is not placed on NUMA node {node}: mbind fails: "
    );
    assert_eq!(LINES.count(&begin), 1);
}
