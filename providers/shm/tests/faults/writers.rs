//! Each page of the memory that processes share has one writer. Processes that send to one receiver
//! therefore write no common cache line, and do not slow each other down.

use std::collections::BTreeSet;
use std::fs;

use selvedge::FiAddr;

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint};
use crate::process::{PeerProcess, alone};

/// The files that a process has mapped shared and writable, as in `proc_pid_maps(5)`. The page of a
/// doorbell is left out: every peer may write to it, but does so only where it has to wake a receiver
/// that does not poll it.
fn written_files(pid: i32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let written = maps.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [range, permissions, _, device, inode, ..] = fields[..] else {
            panic!("a line of maps: {line}");
        };
        let is_written = permissions.contains('w') && permissions.contains('s');
        (is_written && len(range) > PAGE).then(|| format!("{device} {inode}"))
    });
    written.collect()
}

/// The length of a range of addresses.
fn len(range: &str) -> u64 {
    let (start, end) = range.split_once('-').unwrap();
    let address = |digits| u64::from_str_radix(digits, 16).unwrap();
    address(end) - address(start)
}

const PAGE: u64 = 4096;

/// A process that sends to `side` through shared segments where messages are large.
fn sender(side: &NumberedEndpoint, name: &str) -> (PeerProcess, String) {
    let mut sender = PeerProcess::start();
    let name = unique(name);
    sender.request(&format!("open {name} FI_SHM_PROTOCOL=bounce"));
    let index = sender.request(&format!("insert {}", side.name()));
    (sender, index)
}

#[test]
fn two_senders_and_their_receiver_write_no_common_page() {
    alone(|| {
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", "bounce")]);
        let mut senders = ["first", "second"].map(|name| sender(&side, name));
        for (number, len) in (0..).zip([8, 2000, 300_000]) {
            for (sender, index) in &mut senders {
                side.recv(Kind::Tagged, FiAddr::UNSPEC, len, number)
                    .unwrap();
                sender.request("drive on");
                sender.request(&format!("send Tagged {index} {len} {number}"));
                assert!(side.next().error.is_none());
            }
        }
        let mut pids: Vec<_> = senders.iter().map(|(sender, _)| sender.pid()).collect();
        pids.push(std::process::id().cast_signed());
        let files: Vec<_> = pids.into_iter().map(written_files).collect();
        let mut all = BTreeSet::new();
        for files in &files {
            assert!(!files.is_empty(), "a process shares no memory: {files:?}");
            for file in files {
                assert!(all.insert(file), "two processes write {file}: {files:?}");
            }
        }
    });
}
