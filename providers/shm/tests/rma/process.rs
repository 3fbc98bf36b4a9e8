//! Two processes, one of which may be stopped or killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selvedge::cq::ErrEntry;
use selvedge::rma::RmaIov;
use selvedge::{Context, Desc, Errno, FiAddr, IovMut, MrMode, RmaExt};

use crate::common::{BOTH, KEY, Memory, Random, Side, WAYS, Write, info, patiently, read, until};

/// What the process is to do, in the environment of a puppet: its part, the way, and the name of the
/// target.
const PART: &str = "RMA_PART";
/// Bytes that the target lets its peers at.
const LEN: usize = 3 << 20;

/// The obeying end of [`Puppet`].
#[test]
#[ignore = "run by the other tests"]
fn puppet() {
    prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    nix::unistd::alarm::set(300);
    let part = std::env::var(PART).unwrap();
    let mut words = part.split(' ');
    let mut next = || words.next().unwrap();
    match next() {
        "target" => target(next()),
        _ => storm(next(), next()),
    }
}

/// Lets peers at memory until the input ends.
fn target(way: &str) {
    let side = Side::open(
        &info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty()),
        |_, _| (),
    );
    let memory = Memory::new(LEN);
    let _region = side.reg(&memory, BOTH, KEY);
    println!("\n@{}", side.ep.address().unwrap());
    let over = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !over.is_finished() {
        side.drive();
        std::thread::yield_now();
    }
}

/// Reads and writes a target's memory without end.
fn storm(way: &str, name: &str) {
    let side = Side::open(
        &info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty()),
        |_, _| (),
    );
    let to = side.insert(name);
    println!("\n@ok");
    let (mut room, bytes) = (vec![0; LEN], vec![1; LEN]);
    for number in 0_u64.. {
        let len = [8, 1000, LEN][number as usize % 3];
        let place = [RmaIov {
            addr: 0,
            len,
            key: KEY,
        }];
        let pieces = [&bytes[..len]];
        let written = Write::new(&pieces, &place).post(&side.ep, to);
        let iov = IovMut::new(&mut room[..len]);
        // SAFETY: the process ends before the buffer does.
        let was_read = unsafe { side.ep.read(iov, Desc::NONE, to, 0, KEY, Context(number)) };
        for posted in [written, was_read] {
            assert!(matches!(posted, Ok(()) | Err(Errno::Again)), "{posted:?}");
        }
        while side.poll().is_some() {}
    }
}

/// A process that plays a part. Killed when dropped.
struct Puppet {
    child: Child,
    answer: String,
}

impl Puppet {
    fn play(part: &str) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args(["process::puppet", "--exact", "--ignored", "--nocapture"])
            .env(PART, part)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let answer = lines.find_map(|line| line.strip_prefix('@').map(str::to_owned));
        Self {
            child,
            answer: answer.expect("the puppet says something"),
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

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A target in another process, and a side of ours that knows it.
fn meet(way: &str) -> (Puppet, Side, FiAddr) {
    let target = Puppet::play(&format!("target {way}"));
    let side = Side::open(
        &info(&[("FI_SHM_PROTOCOL", way)], MrMode::empty()),
        |_, _| (),
    );
    let to = side.insert(&target.answer);
    (target, side, to)
}

#[test]
fn another_process_is_read_and_written() {
    for way in WAYS {
        let (_target, side, to) = meet(way);
        for len in [8, 40, 4096, 100_000, LEN] {
            let bytes = Random::new(len as u64).bytes(len);
            let place = [RmaIov {
                addr: 0,
                len,
                key: KEY,
            }];
            let pieces = [&bytes[..]];
            let delivered = selvedge::OpFlags::DELIVERY_COMPLETE | selvedge::OpFlags::COMPLETION;
            let write = Write::new(&pieces, &place).flags(delivered);
            patiently(&side, || write.post(&side.ep, to));
            side.wait(&side).unwrap();
            assert!(
                read(&side, &side, to, &place, &[len]).unwrap() == bytes,
                "{way} {len}"
            );
        }
        let place = [RmaIov {
            addr: 1,
            len: LEN,
            key: KEY,
        }];
        let error = read(&side, &side, to, &place, &[LEN]).unwrap_err();
        assert_eq!(error.errno, Errno::Fault);
    }
}

#[test]
fn a_target_that_is_stopped_is_read_all_the_same() {
    let (target, side, to) = meet("cma");
    let place = [RmaIov {
        addr: 0,
        len: LEN,
        key: KEY,
    }];
    read(&side, &side, to, &place, &[LEN]).unwrap();
    target.signal(Signal::SIGSTOP);
    assert!(read(&side, &side, to, &place, &[LEN]).unwrap() == vec![0; LEN]);
    target.signal(Signal::SIGCONT);
}

/// What was outstanding ends, one way or the other, and is told whose fault it was.
#[test]
fn operations_on_a_target_that_is_killed_end() {
    for way in WAYS {
        for round in 0..6 {
            let (mut target, side, to) = meet(way);
            let place = |len| {
                [RmaIov {
                    addr: 0,
                    len,
                    key: KEY,
                }]
            };
            if round > 2 {
                read(&side, &side, to, &place(8), &[8]).unwrap();
            }
            if round % 3 == 1 {
                target.signal(Signal::SIGSTOP);
            }
            let (bytes, mut room) = (vec![1; LEN], vec![0; LEN]);
            let pieces = [&bytes[..]];
            let iov = IovMut::new(&mut room);
            Write::new(&pieces, &place(LEN)).post(&side.ep, to).unwrap();
            // SAFETY: the buffer outlives the completion, which is waited for.
            unsafe { side.ep.read(iov, Desc::NONE, to, 0, KEY, Context(1)) }.unwrap();
            if round % 3 == 2 {
                side.drive();
            }
            target.kill();
            // Both may be over before they can fail.
            for _ in 0..2 {
                if let Err(error) = until(|| side.poll()) {
                    assert_death(&error, to, way, round);
                }
            }
            let again = until(|| {
                match Write::new(&pieces, &place(LEN)).post(&side.ep, to) {
                    Err(Errno::Again) => None,
                    // Posted before the death was noticed, and too late to be carried out.
                    Ok(()) => {
                        assert_death(&until(|| side.poll()).unwrap_err(), to, way, round);
                        None
                    }
                    answer => Some(answer),
                }
            });
            assert_eq!(again, Err(Errno::NotConn), "{way} {round}");
        }
    }
}

#[track_caller]
fn assert_death(error: &ErrEntry, target: FiAddr, way: &str, round: usize) {
    let is_death = matches!(error.errno, Errno::ConnReset | Errno::ConnRefused);
    assert!(is_death, "{way} {round}: {error:?}");
    assert_eq!(error.src, target);
}

/// The target and its other peers go on as if nothing had been.
#[test]
fn a_killed_initiator_leaves_its_target_working() {
    for way in WAYS {
        let (target, side, to) = meet(way);
        let place = [RmaIov {
            addr: 0,
            len: 8,
            key: KEY,
        }];
        for round in 0..8 {
            let mut initiator = Puppet::play(&format!("storm {way} {}", target.answer));
            for _ in 0..20 * round {
                read(&side, &side, to, &place, &[8]).unwrap();
            }
            initiator.kill();
            let number = [round as u8; 8];
            let pieces = [&number[..]];
            let delivered = selvedge::OpFlags::DELIVERY_COMPLETE | selvedge::OpFlags::COMPLETION;
            let write = Write::new(&pieces, &place).flags(delivered);
            let seen = until(|| {
                // What the dead one had committed may still come.
                patiently(&side, || write.post(&side.ep, to));
                side.wait(&side).unwrap();
                let seen = read(&side, &side, to, &place, &[8]).unwrap();
                (seen == number).then_some(seen)
            });
            assert_eq!(seen, number);
        }
    }
}
