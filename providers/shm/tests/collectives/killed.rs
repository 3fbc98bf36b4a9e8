//! Members that are killed, in processes of their own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::eq::Event;
use selvedge::{Address, Caps, Context, Errno};

use crate::crew::{Member, WATCHDOG};

/// The part of a process.
const ROLE: &str = "COLLECTIVES_ROLE";
/// Collectives that all have seen before one is killed.
const BEFORE: u64 = 200;

/// A process with one member. Killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs an ignored test, with its part in the environment.
    fn start(test: &str, role: &str) -> Self {
        let mut child = Command::new("/proc/self/exe")
            .args([test, "--exact", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Starts several, and tells each the names of all.
    pub(crate) fn start_all(test: &str, roles: impl Iterator<Item = String>) -> Vec<Self> {
        let mut all: Vec<_> = roles.map(|role| Self::start(test, &role)).collect();
        let names: Vec<_> = all.iter_mut().map(|it| it.says("name")).collect();
        for process in &mut all {
            for name in &names {
                writeln!(process.input, "{name}").unwrap();
            }
        }
        all
    }

    /// What stands behind the word that the process says next.
    pub(crate) fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.output.read_line(&mut line).unwrap();
            assert!(len > 0, "the process has ended and never said {word:?}");
            // The harness may have said something in the same line.
            if let Some(at) = line.find(&format!("#{word}")) {
                return line[at + word.len() + 1..].trim().to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn say(line: &str) {
    println!("#{line}");
}

/// The words of this process's part. It ends by itself: whoever starts it would wait for it.
pub(crate) fn role() -> Vec<String> {
    std::thread::spawn(|| {
        std::thread::sleep(WATCHDOG);
        std::process::abort();
    });
    let role = std::env::var(ROLE).unwrap();
    role.split(' ').map(str::to_owned).collect()
}

/// One of the processes: rank, number of ranks, and how it waits.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn member() {
    let role = role();
    let (rank, ranks): (usize, usize) = (role[0].parse().unwrap(), role[1].parse().unwrap());
    let waits = role[2].parse().unwrap();
    let mut member = Member::open(Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE, &|_| {});
    say(&format!("name {}", member.ep.address().unwrap()));
    let lines = std::io::stdin().lines().map(Result::unwrap);
    let addresses = lines.take(ranks).map(|line| {
        let address: Address = line.parse().unwrap();
        member.av.insert_one(&address).unwrap()
    });
    member.addrs = addresses.collect();
    let order: Vec<_> = (0..ranks).collect();
    let set = member.set(&order, &[]);
    let group = member.coll().join(&set, Context(0)).unwrap();
    let joined = member.eq.wait(Some(WATCHDOG)).unwrap();
    assert!(matches!(joined, Event::JoinComplete { .. }), "{joined:?}");
    for number in 1.. {
        let coll = match number % 2 {
            0 => Op::Barrier,
            _ => Op::Allreduce,
        };
        let (own, mut sum) = (number + rank as u64, 0_u64);
        let mut msg = CollectiveMsg::new(coll, group.addr(), Datatype::Uint64, Context(number));
        msg.count = 1;
        msg.buf = (&raw const own).cast();
        msg.result = (&raw mut sum).cast();
        match member.post(&msg) {
            Ok(()) => {}
            Err(errno) => return say(&format!("lost in a post: {errno:?}")),
        }
        match one(&member, waits) {
            Ok(entry) => assert_eq!(entry.context, Context(number)),
            Err(error) => return say(&format!("lost: {}", error.detail)),
        }
        let all = (0..ranks as u64).map(|rank| number + rank).sum::<u64>();
        assert!(coll == Op::Barrier || sum == all, "{sum} in place of {all}");
        if number == BEFORE {
            say("going");
        }
    }
}

pub(crate) fn one(member: &Member, waits: bool) -> Result<Entry, ErrEntry> {
    loop {
        if waits {
            let mut entry = [Entry::default()];
            match member.cq.wait(&mut entry, Some(WATCHDOG)) {
                Ok(_) => return Ok(entry[0]),
                Err(Errno::Avail) => return Err(member.cq.read_err().unwrap()),
                Err(errno) => panic!("{errno:?}"),
            }
        }
        if let Some(outcome) = member.outcome() {
            return outcome;
        }
    }
}

fn kill_one(ranks: usize, killed: usize, waits: bool) {
    let roles = (0..ranks).map(|rank| format!("{rank} {ranks} {waits}"));
    let mut processes = Process::start_all("killed::member", roles);
    for process in &mut processes {
        process.says("going");
    }
    // SIGKILL, in the middle of whatever it does.
    processes[killed].child.kill().unwrap();
    for (rank, process) in processes.iter_mut().enumerate() {
        if rank != killed {
            let said = process.says("lost");
            assert!(said.contains(':'), "rank {rank} says {said:?}");
            assert!(process.child.wait().unwrap().success());
        }
    }
}

#[test]
fn a_killed_member_ends_the_collectives_of_polling_members() {
    kill_one(3, 1, false);
}

#[test]
fn a_killed_member_ends_the_collectives_of_parked_members() {
    kill_one(4, 0, true);
}
