//! A process with one endpoint, that does what it is told over its standard input.

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

/// What a line begins with that is meant for the test.
const MARK: &str = "talker: ";

/// The process, from outside. It ends with this value.
pub(super) struct Talker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    name: String,
}

impl Talker {
    /// Two that know each other.
    pub(super) fn pair() -> (Self, Self) {
        Self::pair_with(&[])
    }

    /// The same, with more in their environment.
    pub(super) fn pair_with(env: &[(&str, &str)]) -> (Self, Self) {
        let (a, b) = (new_name(), new_name());
        let with = |own: &str, other: &str| {
            let mut env = env.to_vec();
            env.extend([("NAME", own), ("TO", other)]);
            Self::start(&env)
        };
        (with(&a, &b), with(&b, &a))
    }

    /// One, once it has its endpoint.
    pub(super) fn start(env: &[(&str, &str)]) -> Self {
        Self::start_as("talker", env)
    }

    /// One that runs another test of this program.
    pub(super) fn start_as(test: &str, env: &[(&str, &str)]) -> Self {
        let mut talker = Self::spawn(test, env);
        let answer = talker.answer();
        let name = answer.strip_prefix("name ");
        let name = name.unwrap_or_else(|| panic!("{answer}"));
        talker.name = name.trim_start_matches("fi_shm://").to_owned();
        talker
    }

    /// What one says that gets no endpoint.
    pub(super) fn refused(env: &[(&str, &str)]) -> String {
        Self::spawn("talker", env).answer()
    }

    fn spawn(test: &str, env: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
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

    pub(super) fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
    }

    /// Waits until an order has been carried out.
    pub(super) fn done(&mut self) {
        assert_eq!(self.answer(), "done");
    }

    pub(super) fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            let len = self.answers.read_line(&mut line).unwrap();
            assert!(len > 0, "it has ended");
            // What the test harness prints may stand before it in the line.
            if let Some((_, answer)) = line.split_once(MARK) {
                return answer.trim_end().to_owned();
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

    /// The signal that it dies of.
    pub(super) fn end(&mut self) -> Option<Signal> {
        let status = self.child.wait().unwrap();
        status
            .signal()
            .and_then(|signal| Signal::try_from(signal).ok())
    }
}

impl Drop for Talker {
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

pub(super) fn say(what: &str) {
    println!("{MARK}{what}");
}

/// The process, from inside.
pub(super) fn run() {
    let mut end = match End::open() {
        Ok(end) => end,
        Err(error) => return say(&format!("refused {error}")),
    };
    say(&format!("name {}", end.ep.address().unwrap()));
    for order in std::io::stdin().lines() {
        end.obey(&order.unwrap());
    }
}

struct End {
    ep: Endpoint,
    srx: Arc<dyn SharedReceives>,
    pool: Pool,
    to: FiAddr,
    done: Completions,
}

impl End {
    fn open() -> Result<Self, selvedge::Error> {
        let more = match std::env::var_os("COLLECTIVE") {
            Some(_) => Caps::COLLECTIVE,
            None => Caps::empty(),
        };
        let hints = Hints::new().caps(Caps::TAGGED | more);
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
        let to = std::env::var("TO").unwrap_or_else(|_| "nobody".to_owned());
        Ok(Self {
            ep,
            srx: domain.srx(&RxAttr::default())?,
            pool: Pool::new(&*domain, 1 << 17, 16)?,
            to: av.insert_one(&Address::Str(to)).unwrap(),
            done: Completions::with_capacity(16),
        })
    }

    fn obey(&mut self, order: &str) {
        let words: Vec<&str> = order.split(' ').collect();
        let numbers: Vec<usize> = words[1..].iter().map(|it| it.parse().unwrap()).collect();
        match (words[0], &numbers[..]) {
            ("send", &[number, size, tag]) => self.exchange(number, |end| {
                let mut buf = end.pool.take().unwrap();
                buf.write(&vec![7; size]).unwrap();
                let (to, tag) = (end.to, tag as u64);
                end.ep.tsend(buf, to, tag, Context(1)).is_ok()
            }),
            ("recv", &[number, size, tag]) => self.exchange(number, |end| {
                let mut buf = end.pool.take().unwrap();
                buf.set_len(size).unwrap();
                let tag = tag as u64;
                end.ep.trecv(buf, FiAddr::UNSPEC, tag, Context(2)).is_ok()
            }),
            ("cancel", &[context]) => {
                let context = Context(context as u64);
                assert_eq!(self.srx.cancel(context), Err(Errno::NoCq));
                say("done");
            }
            ("abort", _) => std::process::abort(),
            ("fault", _) => fault(),
            ("handlers", _) => say(&format!("handlers {}", handlers())),
            _ => panic!("{order}"),
        }
    }

    /// Posts so many operations, not too many at a time, and waits for them.
    fn exchange(&mut self, number: usize, mut post: impl FnMut(&mut Self) -> bool) {
        let (mut posted, mut complete) = (0, 0);
        while complete < number {
            while posted < number && self.pool.available() > 0 && post(self) {
                posted += 1;
            }
            self.ep.poll(&mut self.done).unwrap();
            complete += self.done.drain().count();
        }
        say("done");
    }
}

#[expect(unsafe_code, reason = "a real fault")]
fn fault() {
    let nothing = std::ptr::without_provenance::<u8>(16);
    // SAFETY: nothing is mapped there: the process ends here, which is what is wanted.
    unsafe { nothing.read_volatile() };
}

/// The signals that something other than Rust's own stack guard catches.
fn handlers() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    let all = [
        Signal::SIGABRT,
        Signal::SIGILL,
        Signal::SIGFPE,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    let caught = all
        .into_iter()
        .filter(|it| caught >> (*it as u64 - 1) & 1 == 1);
    let caught: Vec<&str> = caught.map(Signal::as_str).collect();
    match caught.is_empty() {
        true => "none".to_owned(),
        false => caught.join(" "),
    }
}
