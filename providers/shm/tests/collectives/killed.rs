//! Members in separate processes, which are killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use selvedge::atomic::Datatype;
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::eq::Event;
use selvedge::{Address, Caps, Context, Errno};

use crate::members::{Member, WATCHDOG};

/// The environment variable with the role of a process.
const ROLE: &str = "COLLECTIVES_ROLE";
/// Collectives that all members complete before the parent kills one.
const COLLECTIVES_BEFORE_KILL: u64 = 200;

/// A process with one member. Dropping it kills the process.
pub(crate) struct Process {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Runs an ignored test, with its role in the environment.
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

    /// Starts several processes, and writes the names of all to each.
    pub(crate) fn start_all(test: &str, roles: impl Iterator<Item = String>) -> Vec<Self> {
        let mut all: Vec<_> = roles.map(|role| Self::start(test, &role)).collect();
        let names: Vec<_> = all.iter_mut().map(|it| it.read_line("name")).collect();
        for process in &mut all {
            for name in &names {
                writeln!(process.input, "{name}").unwrap();
            }
        }
        all
    }

    /// Reads lines until one has `word`. Returns the rest of that line.
    pub(crate) fn read_line(&mut self, word: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let len = self.output.read_line(&mut line).unwrap();
            assert!(len > 0, "the process ended without a line {word:?}");
            // The test harness may have written to the same line.
            if let Some(start) = line.find(&format!("#{word}")) {
                return line[start + word.len() + 1..].trim().to_owned();
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

pub(crate) fn print_line(line: &str) {
    println!("#{line}");
}

/// Returns the words of this process's role, and starts a watchdog that aborts the process, so that
/// its parent does not wait for ever.
pub(crate) fn role() -> Vec<String> {
    std::thread::spawn(|| {
        std::thread::sleep(WATCHDOG);
        std::process::abort();
    });
    let role = std::env::var(ROLE).unwrap();
    role.split(' ').map(str::to_owned).collect()
}

/// A member process. Its role: rank, number of ranks, and whether it parks.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn member() {
    let role = role();
    let (rank, ranks): (usize, usize) = (role[0].parse().unwrap(), role[1].parse().unwrap());
    let parks = role[2].parse().unwrap();
    let mut member = Member::open(Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE, &|_| {});
    print_line(&format!("name {}", member.address()));
    let lines = std::io::stdin().lines().map(Result::unwrap);
    let addresses = lines.take(ranks).map(|line| {
        let address: Address = line.parse().unwrap();
        member.insert(&address)
    });
    member.addrs = addresses.collect();
    let order: Vec<_> = (0..ranks).collect();
    let set = member.open_set(&order, &[]);
    let group = member.coll().join(&set, Context(0)).unwrap();
    let joined = member.eq.wait(Some(WATCHDOG)).unwrap();
    assert!(matches!(joined, Event::JoinComplete { .. }), "{joined:?}");
    for number in 1.. {
        let coll = match number % 2 {
            0 => Op::Barrier,
            _ => Op::Allreduce,
        };
        let (value, mut sum) = (number + rank as u64, 0_u64);
        let mut msg = CollectiveMsg::new(coll, group.addr(), Datatype::Uint64, Context(number));
        msg.count = 1;
        msg.buf = (&raw const value).cast();
        msg.result = (&raw mut sum).cast();
        match member.post(&msg) {
            Ok(()) => {}
            Err(errno) => return print_line(&format!("lost in a post: {errno:?}")),
        }
        match next_outcome(&member, parks) {
            Ok(entry) => assert_eq!(entry.context, Context(number)),
            Err(error) => return print_line(&format!("lost: {}", error.detail)),
        }
        let all = (0..ranks as u64).map(|rank| number + rank).sum::<u64>();
        assert!(coll == Op::Barrier || sum == all, "{sum} in place of {all}");
        if number == COLLECTIVES_BEFORE_KILL {
            print_line("going");
        }
    }
}

pub(crate) fn next_outcome(member: &Member, parks: bool) -> Result<Entry, ErrEntry> {
    loop {
        if parks {
            let mut entry = [Entry::default()];
            match member.cq().wait(&mut entry, Some(WATCHDOG)) {
                Ok(_) => return Ok(entry[0]),
                Err(Errno::Avail) => return Err(member.cq().read_err().unwrap()),
                Err(errno) => panic!("{errno:?}"),
            }
        }
        if let Some(outcome) = member.poll() {
            return outcome;
        }
    }
}

fn kill_one(ranks: usize, killed: usize, parks: bool) {
    let roles = (0..ranks).map(|rank| format!("{rank} {ranks} {parks}"));
    let mut processes = Process::start_all("killed::member", roles);
    for process in &mut processes {
        process.read_line("going");
    }
    // SIGKILL during a collective.
    processes[killed].child.kill().unwrap();
    for (rank, process) in processes.iter_mut().enumerate() {
        if rank != killed {
            let line = process.read_line("lost");
            assert!(line.contains(':'), "rank {rank} printed {line:?}");
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
