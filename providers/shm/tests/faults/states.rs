//! Peers that are stopped, zombies, or out of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::connect::unique;
use crate::endpoint::{Kind, NumberedEndpoint, content};
use crate::peer_failure::exchange_messages;
use crate::process::{PeerProcess, Watchdog};

#[test]
fn a_peer_that_is_stopped_while_connecting_receives_every_message() {
    let _watchdog = Watchdog::new();
    let timeout = Duration::from_millis(50);
    let name = unique("stopped");
    let mut peer_process = PeerProcess::named(&name);
    peer_process.signal(Signal::SIGSTOP);
    let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PEER_TIMEOUT", "50ms")]);
    let peer_addr = side.insert(&name);
    for (number, len) in (1..).zip([8, 3000, 300_000]) {
        side.send(Kind::Delivered, peer_addr, len, number).unwrap();
    }
    side.recv(Kind::Tagged, peer_addr, 8, 9).unwrap();
    // Far longer than the timeout for an absent peer.
    let start = Instant::now();
    side.until(|_| start.elapsed() > 10 * timeout);
    assert!(side.poll().is_none());
    peer_process.signal(Signal::SIGCONT);
    for (number, len) in (1..).zip([8, 3000, 300_000]) {
        peer_process.request(&format!("recv Tagged {len} {number}"));
    }
    peer_process.request("drive on");
    let mut sent = [
        side.next().ok().context,
        side.next().ok().context,
        side.next().ok().context,
    ];
    sent.sort_unstable();
    assert_eq!(sent, [1, 2, 3]);
    peer_process.request("drive off");
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    peer_process.request(&format!("send Tagged {side_addr} 8 9"));
    assert_eq!(side.next().ok().bytes, content(9, 8));
}

#[test]
fn a_zombie_process_is_a_failed_peer() {
    let _watchdog = Watchdog::new();
    let name = unique("zombie");
    let mut peer_process = PeerProcess::named(&name);
    let mut side = NumberedEndpoint::new();
    let peer_addr = side.insert(&name);
    let side_addr = peer_process.request(&format!("insert {}", side.name()));
    exchange_messages(&mut side, &mut peer_process, peer_addr, &side_addr);
    side.recv(Kind::Tagged, peer_addr, 8, 1).unwrap();
    peer_process.signal(Signal::SIGKILL);
    assert_eq!(side.next().errno(), Errno::ConnReset);
    let state = fs::read_to_string(format!("/proc/{}/stat", peer_process.pid())).unwrap();
    assert!(state.contains(") Z "), "{state}");
    // The name can be used again.
    let mut next = PeerProcess::named(&name);
    let side_addr = next.request(&format!("insert {}", side.name()));
    exchange_messages(&mut side, &mut next, peer_addr, &side_addr);
}

/// A control group with a limit on memory.
struct Group(PathBuf);

impl Group {
    /// Creates a group with a limit of `bytes`, in the mounted hierarchy.
    fn create(bytes: u64) -> std::io::Result<Self> {
        let name = unique("memory");
        let v1_root = Path::new("/sys/fs/cgroup/memory");
        let (path, limit) = if v1_root.exists() {
            (v1_root.join(name), "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup").join(name), "memory.max")
        };
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join(limit), bytes.to_string())?;
        Ok(group)
    }

    fn add(&self, peer_process: &PeerProcess) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), peer_process.pid().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_without_memory_disturbs_no_other_process() {
    let _watchdog = Watchdog::new();
    let mut peer_process = PeerProcess::start();
    let group = Group::create(48 << 20).and_then(|group| group.add(&peer_process).map(|()| group));
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            return skip(
                Need::Rights,
                format_args!("no control group can be created: {error}"),
            );
        }
    };
    let mut sides: Vec<_> = (0..6).map(|_| NumberedEndpoint::new()).collect();
    peer_process.request(&format!("open {} FI_SHM_POOL_SIZE=16m", unique("limited")));
    let mut shortage = None;
    for side in &sides {
        let Some(to_side) = peer_process.try_request(&format!("insert {}", side.name())) else {
            shortage = Some("killed".to_owned());
            break;
        };
        match peer_process.try_request(&format!("send Tagged {to_side} 8 1")) {
            Some(response) if response == "ok" => {}
            response => {
                shortage = Some(response.unwrap_or_else(|| "killed".into()));
                break;
            }
        }
    }
    // The system makes a call fail, or kills the process.
    let shortage = shortage.expect("six times 16 MiB are more than 48");
    assert!(
        ["killed", "NoMem", "NoSpc"].contains(&&*shortage),
        "{shortage}"
    );
    let (first, rest) = sides.split_at_mut(1);
    let (one, two) = (&mut first[0], &mut rest[0]);
    let to_two = one.insert(two.name());
    for number in 10..20 {
        two.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number)
            .unwrap();
        one.send(Kind::Delivered, to_two, 3000, number).unwrap();
        one.next_with(&mut [&mut *two]).ok();
        assert_eq!(two.next().ok().bytes, content(number, 3000));
    }
    peer_process.kill();
    drop(group);
}
