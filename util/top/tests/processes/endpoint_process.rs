//! A child process with one endpoint, which executes commands from its standard input.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selvedge::info::RxAttr;
use selvedge::owned::{Completions, Endpoint, Pool};
use selvedge::{Address, Caps, Context, Errno, FiAddr, Hints, SharedReceives, av};

/// Prefix of the lines that the child process prints for the test.
const MARK: &str = "endpoint_process: ";

/// Handle of a child process, which is killed when the handle is dropped.
pub(super) struct EndpointProcess {
    child: Child,
    commands: ChildStdin,
    reports: BufReader<ChildStdout>,
    name: String,
}

impl EndpointProcess {
    /// Starts two processes that send to each other.
    pub(super) fn pair() -> (Self, Self) {
        Self::pair_with(&[])
    }

    /// Starts two processes as [`Self::pair`] does, with additional environment variables.
    pub(super) fn pair_with(env: &[(&str, &str)]) -> (Self, Self) {
        let (a, b) = (new_name(), new_name());
        let start = |name: &str, peer: &str| {
            let mut env = env.to_vec();
            env.extend([("NAME", name), ("TO", peer)]);
            Self::start(&env)
        };
        (start(&a, &b), start(&b, &a))
    }

    /// Starts a process, and waits until it has opened its endpoint.
    pub(super) fn start(env: &[(&str, &str)]) -> Self {
        Self::start_as("endpoint_process", env)
    }

    /// Starts a process that runs another ignored test of this program.
    pub(super) fn start_as(test: &str, env: &[(&str, &str)]) -> Self {
        let mut endpoint_process = Self::spawn(test, env);
        let report = endpoint_process.read_report();
        let name = report.strip_prefix("name ");
        let name = name.unwrap_or_else(|| panic!("{report}"));
        endpoint_process.name = name.trim_start_matches("fi_shm://").to_owned();
        endpoint_process
    }

    /// Returns the error of a process that cannot open its endpoint.
    pub(super) fn start_error(env: &[(&str, &str)]) -> String {
        Self::spawn("endpoint_process", env).read_report()
    }

    fn spawn(test: &str, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        Self {
            commands: child.stdin.take().unwrap(),
            reports: BufReader::new(child.stdout.take().unwrap()),
            child,
            name: String::new(),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn send_command(&mut self, text: &str) {
        writeln!(self.commands, "{text}").unwrap();
    }

    /// Waits until a command has been executed.
    pub(super) fn wait_done(&mut self) {
        assert_eq!(self.read_report(), "done");
    }

    pub(super) fn read_report(&mut self) -> String {
        loop {
            let mut line = String::new();
            let len = self.reports.read_line(&mut line).unwrap();
            assert!(len > 0, "the process has ended");
            // Output of the test harness may precede the prefix in the line.
            if let Some((_, report)) = line.split_once(MARK) {
                return report.trim_end().to_owned();
            }
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the end of the process. Returns the signal that killed it.
    pub(super) fn wait_signal(&mut self) -> Option<Signal> {
        let status = self.child.wait().unwrap();
        status
            .signal()
            .and_then(|signal| Signal::try_from(signal).ok())
    }
}

impl Drop for EndpointProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn new_name() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("top-{}-{number}", std::process::id())
}

pub(super) fn report(text: &str) {
    println!("{MARK}{text}");
}

/// Main function of the child process.
pub(super) fn run() {
    let mut local = match LocalEndpoint::open() {
        Ok(local) => local,
        Err(error) => return report(&format!("refused {error}")),
    };
    report(&format!("name {}", local.ep.address().unwrap()));
    for command in std::io::stdin().lines() {
        local.execute(&command.unwrap());
    }
}

struct LocalEndpoint {
    ep: Endpoint,
    srx: Arc<dyn SharedReceives>,
    pool: Pool,
    peer: FiAddr,
    completions: Completions,
}

impl LocalEndpoint {
    fn open() -> Result<Self, selvedge::Error> {
        let collective = match std::env::var_os("COLLECTIVE") {
            Some(_) => Caps::COLLECTIVE,
            None => Caps::empty(),
        };
        let hints = Hints::new().caps(Caps::TAGGED | collective);
        let mut info = selvedge_providers::builtin()
            .infos(&hints)?
            .into_iter()
            .find(|info| info.fabric_attr.prov_name == "shm")
            .unwrap();
        if let Ok(name) = std::env::var("NAME") {
            info.src_addr = Some(Address::Str(name));
        }
        let domain = info.open()?;
        let av = domain.av(&av::Attr::default())?;
        let ep = Endpoint::open(&*domain, &info, av.clone())?;
        let peer = std::env::var("TO").unwrap_or_else(|_| "no-peer".to_owned());
        Ok(Self {
            ep,
            srx: domain.srx(&RxAttr::default())?,
            pool: Pool::new(&*domain, 1 << 17, 16)?,
            peer: av.insert_one(&Address::Str(peer)).unwrap(),
            completions: Completions::with_capacity(16),
        })
    }

    fn execute(&mut self, command: &str) {
        let words: Vec<&str> = command.split(' ').collect();
        let numbers: Vec<usize> = words[1..]
            .iter()
            .map(|word| word.parse().unwrap())
            .collect();
        match (words[0], &numbers[..]) {
            ("send", &[number, size, tag]) => self.post_and_wait(number, |local| {
                let mut buf = local.pool.take().unwrap();
                buf.write(&vec![7; size]).unwrap();
                let (peer, tag) = (local.peer, tag as u64);
                local.ep.tsend(buf, peer, tag, Context(1)).is_ok()
            }),
            ("recv", &[number, size, tag]) => self.post_and_wait(number, |local| {
                let mut buf = local.pool.take().unwrap();
                buf.set_len(size).unwrap();
                let tag = tag as u64;
                local.ep.trecv(buf, FiAddr::UNSPEC, tag, Context(2)).is_ok()
            }),
            ("cancel", &[context]) => {
                let context = Context(context as u64);
                assert_eq!(self.srx.cancel(context), Err(Errno::NoCq));
                report("done");
            }
            ("abort", _) => std::process::abort(),
            ("fault", _) => fault(),
            ("handlers", _) => report(&format!("handlers {}", handled_signals())),
            _ => panic!("{command}"),
        }
    }

    /// Posts `number` operations, and waits until all are complete. The number of outstanding
    /// operations is at most that of the pool's buffers.
    fn post_and_wait(&mut self, number: usize, mut post: impl FnMut(&mut Self) -> bool) {
        let (mut posted, mut complete) = (0, 0);
        while complete < number {
            while posted < number && self.pool.available() > 0 && post(self) {
                posted += 1;
            }
            self.ep.poll(&mut self.completions).unwrap();
            complete += self.completions.drain().count();
        }
        report("done");
    }
}

/// Raises SIGSEGV by a read of an address that is not mapped.
#[expect(unsafe_code, reason = "a real fault")]
fn fault() {
    let unmapped = std::ptr::without_provenance::<u8>(16);
    // SAFETY: the address is not mapped. The signal ends the process before the read returns.
    unsafe { unmapped.read_volatile() };
}

/// Returns the names of the signals with a handler. The list leaves out those that the Rust runtime
/// handles for its stack guard.
fn handled_signals() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    let signals = [
        Signal::SIGABRT,
        Signal::SIGILL,
        Signal::SIGFPE,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    let handled = signals
        .into_iter()
        .filter(|signal| mask >> (*signal as u64 - 1) & 1 == 1);
    let handled: Vec<&str> = handled.map(Signal::as_str).collect();
    if handled.is_empty() {
        "none".to_owned()
    } else {
        handled.join(" ")
    }
}
