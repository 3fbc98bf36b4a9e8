//! Two processes, one of which may be stopped or killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selvedge::cq::ErrEntry;
use selvedge::rma::RmaIov;
use selvedge::{Address, Context, Desc, Errno, FiAddr, IovMut, MrMode, RmaExt};
use selvedge_testkit::local::{LocalEndpoint, until};
use selvedge_testkit::random::Random;

use crate::common::{BOTH, KEY, PROTOCOLS, Write, info, read};

/// The environment variable of a child process: its role, the protocol, and the target's name.
const ROLE: &str = "RMA_ROLE";
/// Bytes of the target's region.
const LEN: usize = 3 << 20;

/// The process that [`ChildProcess`] starts.
#[test]
#[ignore = "run by the other tests"]
fn child_process() {
    prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    nix::unistd::alarm::set(300);
    let role = std::env::var(ROLE).unwrap();
    let mut words = role.split(' ');
    let mut next = || words.next().unwrap();
    match next() {
        "target" => serve_target(next()),
        _ => access_loop(next(), next()),
    }
}

/// Serves registered memory until standard input ends.
fn serve_target(protocol: &str) {
    let side = LocalEndpoint::open(&info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty()));
    let memory = side.memory(LEN);
    let _region = side.register(&memory, BOTH, KEY);
    println!("\n@{}", side.ep.address().unwrap());
    let done = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !done.is_finished() {
        side.progress();
        std::thread::yield_now();
    }
}

/// Reads and writes a target's memory until the process is killed.
fn access_loop(protocol: &str, name: &str) {
    let side = LocalEndpoint::open(&info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty()));
    let to = side.insert(&Address::Str(name.into()));
    println!("\n@ok");
    let (mut buffer, bytes) = (vec![0; LEN], vec![1; LEN]);
    for number in 0_u64.. {
        let len = [8, 1000, LEN][number as usize % 3];
        let segment = [RmaIov {
            addr: 0,
            len,
            key: KEY,
        }];
        let local = [&bytes[..len]];
        let write_posted = Write::new(&local, &segment).post(&side.ep, to);
        let iov = IovMut::new(&mut buffer[..len]);
        // SAFETY: the process ends before the buffer does.
        let read_posted = unsafe { side.ep.read(iov, Desc::NONE, to, 0, KEY, Context(number)) };
        for posted in [write_posted, read_posted] {
            assert!(matches!(posted, Ok(()) | Err(Errno::Again)), "{posted:?}");
        }
        while side.poll().is_some() {}
    }
}

/// A child process with a role. Dropping it kills the process.
struct ChildProcess {
    child: Child,
    reply: String,
}

impl ChildProcess {
    fn start(role: &str) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args([
                "process::child_process",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let reply = lines.find_map(|line| line.strip_prefix('@').map(str::to_owned));
        Self {
            child,
            reply: reply.expect("the child prints its reply"),
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a target in another process. Returns it with a local side and the target's address.
fn start_target(protocol: &str) -> (ChildProcess, LocalEndpoint, FiAddr) {
    let target = ChildProcess::start(&format!("target {protocol}"));
    let side = LocalEndpoint::open(&info(&[("FI_SHM_PROTOCOL", protocol)], MrMode::empty()));
    let to = side.insert(&Address::Str(target.reply.clone()));
    (target, side, to)
}

#[test]
fn another_process_is_read_and_written() {
    for protocol in PROTOCOLS {
        let (_target, side, to) = start_target(protocol);
        for len in [8, 40, 4096, 100_000, LEN] {
            let bytes = Random::new(len as u64).bytes(len);
            let segment = [RmaIov {
                addr: 0,
                len,
                key: KEY,
            }];
            let local = [&bytes[..]];
            let delivered = selvedge::OpFlags::DELIVERY_COMPLETE | selvedge::OpFlags::COMPLETION;
            let write = Write::new(&local, &segment).flags(delivered);
            side.post_retrying(&[], || write.post(&side.ep, to));
            side.wait(&[]).unwrap();
            assert!(
                read(&side, &[], to, &segment, &[len]).unwrap() == bytes,
                "{protocol} {len}"
            );
        }
        let segment = [RmaIov {
            addr: 1,
            len: LEN,
            key: KEY,
        }];
        let error = read(&side, &[], to, &segment, &[LEN]).unwrap_err();
        assert_eq!(error.errno, Errno::Fault);
    }
}

#[test]
fn a_read_of_a_stopped_target_completes() {
    let (target, side, to) = start_target("cma");
    let segment = [RmaIov {
        addr: 0,
        len: LEN,
        key: KEY,
    }];
    read(&side, &[], to, &segment, &[LEN]).unwrap();
    target.signal(Signal::SIGSTOP);
    assert!(read(&side, &[], to, &segment, &[LEN]).unwrap() == vec![0; LEN]);
    target.signal(Signal::SIGCONT);
}

/// Outstanding operations complete or fail, and an error names the killed target.
#[test]
fn operations_on_a_killed_target_complete_or_fail() {
    for protocol in PROTOCOLS {
        for round in 0..6 {
            let (mut target, side, to) = start_target(protocol);
            let segment = |len| {
                [RmaIov {
                    addr: 0,
                    len,
                    key: KEY,
                }]
            };
            if round > 2 {
                read(&side, &[], to, &segment(8), &[8]).unwrap();
            }
            if round % 3 == 1 {
                target.signal(Signal::SIGSTOP);
            }
            let (bytes, mut buffer) = (vec![1; LEN], vec![0; LEN]);
            let local = [&bytes[..]];
            let iov = IovMut::new(&mut buffer);
            Write::new(&local, &segment(LEN))
                .post(&side.ep, to)
                .unwrap();
            // SAFETY: the buffer outlives the completion, which is waited for.
            unsafe { side.ep.read(iov, Desc::NONE, to, 0, KEY, Context(1)) }.unwrap();
            if round % 3 == 2 {
                side.progress();
            }
            target.kill();
            // Both operations may complete before the kill.
            for _ in 0..2 {
                if let Err(error) = until(|| side.poll()) {
                    assert_disconnect_error(&error, to, protocol, round);
                }
            }
            let refused = until(|| {
                match Write::new(&local, &segment(LEN)).post(&side.ep, to) {
                    Err(Errno::Again) => None,
                    // The write was posted before the disconnect was detected, and too late to be
                    // executed.
                    Ok(()) => {
                        assert_disconnect_error(
                            &until(|| side.poll()).unwrap_err(),
                            to,
                            protocol,
                            round,
                        );
                        None
                    }
                    reply => Some(reply),
                }
            });
            assert_eq!(refused, Err(Errno::NotConn), "{protocol} {round}");
        }
    }
}

#[track_caller]
fn assert_disconnect_error(error: &ErrEntry, target: FiAddr, protocol: &str, round: usize) {
    let is_disconnect = matches!(error.errno, Errno::ConnReset | Errno::ConnRefused);
    assert!(is_disconnect, "{protocol} {round}: {error:?}");
    assert_eq!(error.src, target);
}

/// The target continues to serve its other peers.
#[test]
fn a_target_serves_other_peers_after_the_kill_of_an_initiator() {
    for protocol in PROTOCOLS {
        let (target, side, to) = start_target(protocol);
        let segment = [RmaIov {
            addr: 0,
            len: 8,
            key: KEY,
        }];
        for round in 0..8 {
            let mut initiator = ChildProcess::start(&format!("access {protocol} {}", target.reply));
            for _ in 0..20 * round {
                read(&side, &[], to, &segment, &[8]).unwrap();
            }
            initiator.kill();
            let number = [round as u8; 8];
            let local = [&number[..]];
            let delivered = selvedge::OpFlags::DELIVERY_COMPLETE | selvedge::OpFlags::COMPLETION;
            let write = Write::new(&local, &segment).flags(delivered);
            let stored = until(|| {
                // Commands that the killed initiator had committed may still be executed.
                side.post_retrying(&[], || write.post(&side.ep, to));
                side.wait(&[]).unwrap();
                let stored = read(&side, &[], to, &segment, &[8]).unwrap();
                (stored == number).then_some(stored)
            });
            assert_eq!(stored, number);
        }
    }
}
