//! Shortages: of descriptors, of address space, of /dev/shm.

use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use selvedge::info::EpType;
use selvedge::{Errno, FiAddr};
use selvedge_testkit::skip::{Need, skip};
use selvedge_testkit::usage::Usage;

use crate::connect::unique;
use crate::denial::{deny, run_in_thread};
use crate::endpoint::{Kind, NumberedEndpoint, content, info};
use crate::process::{PeerProcess, alone};
use crate::special::{connected_peer, count_mapped_files};

/// Limits the process to its open descriptors and `more` further ones.
pub(crate) fn limit_descriptors(more: usize) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = fds.map(|fd| fd.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let highest: i32 = numbers.max().unwrap();
    // The limit is on the number, not on the count: fill the gaps below.
    let mut fillers = std::iter::repeat_with(|| File::open("/dev/null").unwrap().into_raw_fd());
    let last = fillers.find(|&fd| fd >= highest).unwrap();
    let limit = last as u64 + 1 + more as u64;
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
    let next = File::open("/dev/null").map(|file| file.as_raw_fd());
    assert_eq!(next.is_ok(), more > 0);
}

fn exchange(a: &mut NumberedEndpoint, b: &mut NumberedEndpoint, to_b: FiAddr, number: u64) {
    b.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number).unwrap();
    a.send(Kind::Delivered, to_b, 3000, number).unwrap();
    a.next_with(&mut [b]).ok();
    assert!(b.next().ok().bytes == content(number, 3000));
}

#[test]
fn when_descriptors_are_short_new_peers_wait_and_connected_peers_continue() {
    alone(|| {
        let (mut a, mut b) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let to_b = a.insert(b.name());
        exchange(&mut a, &mut b, to_b, 1);
        let mut peer_processes: Vec<_> = (0..6)
            .map(|n| PeerProcess::named(&unique(&format!("new{n}"))))
            .collect();
        for (more, peer_process) in peer_processes.iter_mut().enumerate() {
            limit_descriptors(more);
            let side = peer_process.request(&format!("insert {}", b.name()));
            let number = 1000 + more;
            peer_process.request(&format!("send Tagged {side} 8 {number}"));
            peer_process.request(&format!("send Delivered {side} 8 {}", number + 100));
            peer_process.request("drive on");
            for number in 2..200 {
                exchange(&mut a, &mut b, to_b, number);
            }
            peer_process.request("drive off");
            // The first message is complete, and must not be lost.
            assert_eq!(peer_process.request("next"), format!("done {number}"));
            // The process without descriptors gets the error at the post.
            let new = a.insert(unique(&format!("new{more}")));
            if more < 2 {
                assert_eq!(a.send(Kind::Tagged, new, 8, 9), Err(Errno::MFile));
            }
            if more < 3 {
                let error = NumberedEndpoint::open(None, &info(EpType::Rdm, &[]))
                    .err()
                    .unwrap();
                assert_eq!(error.errno(), Errno::MFile, "{error}");
            }
        }
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        for (number, peer_process) in (1000..).zip(&mut peer_processes) {
            peer_process.request("drive on");
            for number in [number, number + 100] {
                b.recv(Kind::Tagged, FiAddr::UNSPEC, 8, number).unwrap();
                assert!(b.next().ok().bytes == content(number, 8));
            }
            peer_process.request("drive off");
            assert_eq!(
                peer_process.request("next"),
                format!("done {}", number + 100)
            );
        }
        let new = a.insert(unique("new0"));
        peer_processes[0].request("recv Tagged 8 50");
        peer_processes[0].request("drive on");
        a.send(Kind::Delivered, new, 8, 50).unwrap();
        a.next().ok();
    });
}

#[test]
fn announcements_wait_for_a_free_descriptor_and_no_message_is_lost() {
    alone(|| {
        for (number, last_request) in [(100, "drive off"), (200, "close"), (300, "exit")] {
            let mut side = NumberedEndpoint::new();
            let (mut peer_process, index, _) = connected_peer(&mut side);
            limit_descriptors(0);
            assert_eq!(peer_process.request("alloc 1 8192 0"), "ok");
            for number in number..number + 5 {
                assert_eq!(
                    peer_process.request(&format!("send Tagged {index} 3000 {number}")),
                    "ok"
                );
                assert_eq!(peer_process.request("next"), format!("done {number}"));
            }
            peer_process.send_request(last_request);
            // The announcement without a descriptor precedes the messages.
            (0..10_000).for_each(|_| side.drive());
            for number in number..number + 5 {
                side.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number)
                    .unwrap();
                assert!(side.next().ok().bytes == content(number, 3000));
            }
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            if last_request == "drive off" {
                side.until(|_| count_mapped_files() == 1);
            }
        }
    });
}

#[test]
fn a_large_message_waits_for_the_descriptor_of_its_segments() {
    alone(|| {
        let mut side = NumberedEndpoint::with_params(None, &[("FI_SHM_PROTOCOL", "bounce")]);
        let (mut peer_process, index, _) = connected_peer(&mut side);
        limit_descriptors(0);
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 1 << 20, 1).unwrap();
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 8, 2).unwrap();
        peer_process.request(&format!("send Tagged {index} 1048576 1"));
        peer_process.request(&format!("send Tagged {index} 8 2"));
        (0..10).for_each(|_| {
            peer_process.request("drive 1000");
            (0..1000).for_each(|_| side.drive());
        });
        assert_eq!(side.next().ok().context, 2);
        peer_process.request("drive on");
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
        assert!(side.next().ok().bytes == content(1, 1 << 20));
    });
}

#[test]
fn no_message_is_lost_when_memory_is_short_for_an_announcement() {
    alone(|| {
        let params = [
            ("FI_SHM_PROTOCOL", "bounce"),
            ("FI_SHM_UNEXPECTED_SIZE", "8k"),
        ];
        let mut side = NumberedEndpoint::with_params(None, &params);
        let (mut peer_process, index, _) = connected_peer(&mut side);
        side.recv(Kind::Tagged, FiAddr::UNSPEC, 1 << 20, 1).unwrap();
        let request = format!("send Tagged {index} 1048576 1");
        assert_eq!(peer_process.request(&request), "ok");
        // The receiver has the RTS, and requests segments.
        (0..10_000).for_each(|_| side.drive());
        for number in 2..22 {
            let request = format!("send Tagged {index} 3000 {number}");
            assert_eq!(peer_process.request(&request), "ok");
        }
        peer_process.request("drive 10000");
        deny("mmap", libc::ENOMEM);
        (0..10_000).for_each(|_| side.drive());
        for number in 2..22 {
            side.recv(Kind::Tagged, FiAddr::UNSPEC, 3000, number)
                .unwrap();
        }
        let mut events: Vec<_> = (1..22).map(|_| side.next()).collect();
        events.sort_by_key(|event| event.context);
        assert_eq!(events.remove(0).errno(), Errno::ConnReset);
        for (number, event) in (2..22).zip(events) {
            assert!(event.ok().bytes == content(number, 3000));
        }
    });
}

#[test]
fn a_refusal_reports_the_number_of_lost_messages_that_were_complete() {
    alone(|| {
        let (mut a, mut b) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let to_b = a.insert(b.name());
        for number in 1..=3 {
            a.send(Kind::Tagged, to_b, 8, number).unwrap();
            assert_eq!(a.next().ok().context, number);
        }
        deny("mmap", libc::ENOMEM);
        let event = a.next_with(&mut [&mut b]);
        assert_eq!((event.context, event.errno()), (0, Errno::ConnRefused));
        assert_eq!(event.src, to_b);
        let detail = event.error.unwrap().detail;
        assert!(
            detail.ends_with("what was sent to it is lost: 3"),
            "{detail}"
        );
    });
}

#[test]
fn a_bounce_without_memory_fails_on_both_sides() {
    alone(|| {
        let params = [("FI_SHM_PROTOCOL", "bounce")];
        let (mut a, mut b) = (
            NumberedEndpoint::with_params(None, &params),
            NumberedEndpoint::with_params(None, &params),
        );
        let (to_b, to_a) = (a.insert(b.name()), b.insert(a.name()));
        exchange(&mut a, &mut b, to_b, 1);
        deny("memfd_create", libc::ENOMEM);
        b.recv(Kind::Tagged, to_a, 1 << 20, 2).unwrap();
        a.send(Kind::Tagged, to_b, 1 << 20, 2).unwrap();
        let event = a.next_with(&mut [&mut b]);
        assert_eq!((event.errno(), event.src), (Errno::NoMem, to_b));
        let event = b.next_with(&mut [&mut a]);
        assert_eq!((event.errno(), event.src), (Errno::NoMem, to_a));
        exchange(&mut a, &mut b, to_b, 3);
    });
}

#[test]
fn connections_that_fail_for_lack_of_memory_leave_no_resources() {
    alone(|| {
        let calls = ["memfd_create", "fallocate", "mmap", "fcntl", "epoll_ctl"];
        calls.into_iter().for_each(expect_connect_fails_without);
    });
}

fn expect_connect_fails_without(call: &'static str) {
    run_in_thread(move || {
        let (mut a, mut b, mut c) = (
            NumberedEndpoint::new(),
            NumberedEndpoint::new(),
            NumberedEndpoint::new(),
        );
        let (to_b, to_c) = (a.insert(b.name()), a.insert(c.name()));
        let c_to_a = c.insert(a.name());
        exchange(&mut a, &mut b, to_b, 1);
        let before = Usage::now().unwrap();
        // The hello of `c` waits in the backlog of `a`.
        c.send(Kind::Delivered, c_to_a, 8, 1).unwrap();
        deny(call, libc::ENOMEM);
        let event = c.next_with(&mut [&mut a]);
        assert_eq!((event.errno(), event.src), (Errno::ConnRefused, c_to_a));
        let detail = event.error.unwrap().detail;
        assert!(detail.contains("refuses"), "{call}: {detail}");
        assert_eq!(
            a.send(Kind::Tagged, to_c, 8, 2),
            Err(Errno::NoMem),
            "{call}"
        );
        assert_eq!(Usage::now().unwrap(), before, "{call}");
        for number in 10..20 {
            exchange(&mut a, &mut b, to_b, number);
        }
    });
}

#[test]
fn connections_that_the_system_refuses_fail_at_the_post() {
    alone(|| {
        let calls = [
            ("socket", Errno::NoMem),
            ("connect", Errno::Acces),
            ("sendmsg", Errno::Perm),
        ];
        calls
            .into_iter()
            .for_each(|(call, errno)| expect_post_fails(call, errno));
    });
}

fn expect_post_fails(call: &'static str, errno: Errno) {
    run_in_thread(move || {
        let (mut a, mut b, c) = (
            NumberedEndpoint::new(),
            NumberedEndpoint::new(),
            NumberedEndpoint::new(),
        );
        let (to_b, to_c) = (a.insert(b.name()), a.insert(c.name()));
        exchange(&mut a, &mut b, to_b, 1);
        let before = Usage::now().unwrap();
        deny(call, errno.as_raw());
        assert_eq!(a.send(Kind::Tagged, to_c, 8, 2), Err(errno), "{call}");
        assert_eq!(Usage::now().unwrap(), before, "{call}");
        for number in 10..20 {
            exchange(&mut a, &mut b, to_b, number);
        }
    });
}

#[test]
fn short_address_space_fails_a_send_with_enomem() {
    alone(|| {
        let kept = NumberedEndpoint::new();
        let before = Usage::now().unwrap();
        let (_, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = status.split_whitespace().next().unwrap().parse().unwrap();
        // The limit is enough to open an endpoint, and too little for its pool.
        setrlimit(Resource::RLIMIT_AS, pages * 4096 + (8 << 20), hard).unwrap();
        let large = [("FI_SHM_POOL_SIZE", "64m")];
        let mut side = NumberedEndpoint::with_params(None, &large);
        let peer_addr = side.insert(kept.name());
        let sent = side.send(Kind::Tagged, peer_addr, 8, 1);
        setrlimit(Resource::RLIMIT_AS, hard, hard).unwrap();
        assert_eq!(sent, Err(Errno::NoMem));
        side.send(Kind::Tagged, peer_addr, 8, 1).unwrap();
        drop(side);
        assert_eq!(Usage::now().unwrap(), before);
    });
}

#[test]
fn messages_pass_with_a_small_dev_shm() {
    use nix::sched::{CloneFlags, unshare};

    alone(|| {
        let is_unshared = unshare(CloneFlags::CLONE_NEWNS).is_ok()
            || unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).is_ok();
        if !is_unshared || !mount_small_dev_shm() {
            return skip(Need::Rights, "this user cannot create a mount namespace");
        }
        std::fs::write("/dev/shm/full", vec![1; 1 << 20]).unwrap_err();
        let (mut a, mut b) = (NumberedEndpoint::new(), NumberedEndpoint::new());
        let to_b = a.insert(b.name());
        for number in 1..100 {
            exchange(&mut a, &mut b, to_b, number);
        }
        b.recv(Kind::Tagged, FiAddr::UNSPEC, 3 << 20, 200).unwrap();
        a.send(Kind::Tagged, to_b, 3 << 20, 200).unwrap();
        assert!(b.next_with(&mut [&mut a]).ok().bytes == content(200, 3 << 20));
    });
}

/// Mounts a file system of 64 KiB over /dev/shm, for this process alone. Returns whether that
/// succeeded.
fn mount_small_dev_shm() -> bool {
    let run = |args: &[&str]| {
        let status = std::process::Command::new("mount").args(args).status();
        status.is_ok_and(|status| status.success())
    };
    run(&["--make-rprivate", "/"]) && run(&["-t", "tmpfs", "-o", "size=64k", "tmpfs", "/dev/shm"])
}
