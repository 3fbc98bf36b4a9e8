//! Peers in odd states: stopped, dead and not buried, and out of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};

use crate::contact::unique;
use crate::death::get_acquainted;
use crate::process::{Puppet, Watchdog};
use crate::side::{Kind, Side, content};

#[test]
fn a_peer_that_is_stopped_when_it_is_met_gets_everything() {
    let _watchdog = Watchdog::new();
    let timeout = Duration::from_millis(50);
    let name = unique("asleep");
    let mut puppet = Puppet::named(&name);
    puppet.signal(Signal::SIGSTOP);
    let mut side = Side::with(None, &[("FI_SHM_PEER_TIMEOUT", "50ms")]);
    let them = side.insert(&name);
    for (number, len) in (1..).zip([8, 3000, 300_000]) {
        side.send(Kind::Delivered, them, len, number).unwrap();
    }
    side.recv(Kind::Tagged, them, 8, 9).unwrap();
    // Far longer than one waits for a peer that is not there.
    let start = Instant::now();
    side.until(|_| start.elapsed() > 10 * timeout);
    assert!(side.poll().is_none());
    puppet.signal(Signal::SIGCONT);
    for (number, len) in (1..).zip([8, 3000, 300_000]) {
        puppet.ask(&format!("recv Tagged {len} {number}"));
    }
    puppet.ask("drive on");
    let mut sent = [
        side.next().ok().context,
        side.next().ok().context,
        side.next().ok().context,
    ];
    sent.sort_unstable();
    assert_eq!(sent, [1, 2, 3]);
    puppet.ask("drive off");
    let us = puppet.ask(&format!("insert {}", side.name()));
    puppet.ask(&format!("send Tagged {us} 8 9"));
    assert_eq!(side.next().ok().bytes, content(9, 8));
}

#[test]
fn a_dead_process_that_nobody_has_buried_is_dead() {
    let _watchdog = Watchdog::new();
    let name = unique("zombie");
    let mut puppet = Puppet::named(&name);
    let mut side = Side::new();
    let them = side.insert(&name);
    let us = puppet.ask(&format!("insert {}", side.name()));
    get_acquainted(&mut side, &mut puppet, them, &us);
    side.recv(Kind::Tagged, them, 8, 1).unwrap();
    puppet.signal(Signal::SIGKILL);
    assert_eq!(side.next().errno(), Errno::ConnReset);
    let state = fs::read_to_string(format!("/proc/{}/stat", puppet.pid())).unwrap();
    assert!(state.contains(") Z "), "{state}");
    // The name is free.
    let mut next = Puppet::named(&name);
    let us = next.ask(&format!("insert {}", side.name()));
    get_acquainted(&mut side, &mut next, them, &us);
}

/// A control group with a limit on memory.
struct Group(PathBuf);

impl Group {
    /// One that allows so many bytes, in the hierarchy that there is.
    fn of(bytes: u64) -> std::io::Result<Self> {
        let name = unique("memory");
        let old = Path::new("/sys/fs/cgroup/memory");
        let (path, limit) = match old.exists() {
            true => (old.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        fs::create_dir(&path)?;
        let group = Self(path);
        fs::write(group.0.join(limit), bytes.to_string())?;
        Ok(group)
    }

    fn take(&self, puppet: &Puppet) -> std::io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), puppet.pid().to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_process_whose_group_has_no_memory_left_harms_nobody() {
    let _watchdog = Watchdog::new();
    let mut puppet = Puppet::start();
    let group = Group::of(48 << 20).and_then(|group| group.take(&puppet).map(|()| group));
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            return skip(
                Need::Rights,
                format_args!("no control group can be made: {error}"),
            );
        }
    };
    let mut sides: Vec<_> = (0..6).map(|_| Side::new()).collect();
    puppet.ask(&format!("open {} FI_SHM_POOL_SIZE=16m", unique("poor")));
    let mut shortage = None;
    for side in &sides {
        let Some(to_side) = puppet.try_ask(&format!("insert {}", side.name())) else {
            shortage = Some("killed".to_owned());
            break;
        };
        match puppet.try_ask(&format!("send Tagged {to_side} 8 1")) {
            Some(answer) if answer == "ok" => {}
            answer => {
                shortage = Some(answer.unwrap_or_else(|| "killed".into()));
                break;
            }
        }
    }
    // An error, or the end: whatever the system makes of it.
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
    puppet.kill();
    drop(group);
}
