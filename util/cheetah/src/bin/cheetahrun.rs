//! `cheetahrun -n N PROGRAM [ARGUMENTS]`: starts each context of a program as a process and
//! prefixes its output lines with its number.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use selvedge_cheetah::gather;

const USAGE: &str = "\
Starts the contexts of a program for Cheetah.

usage: cheetahrun -n N [options] PROGRAM [ARGUMENTS]

  -n N, -np N       start N contexts
  -f, --fabric P    over the fabric of this provider (CHEETAH_FABRIC)
  -t, --timeout S   fail if they have not found each other after S seconds (30)
  -q, --plain       no names of contexts before their lines
  -h, --help        this text

Lines of the contexts begin with their number. The first context that fails decides the exit
code; the others have two seconds to notice, and are ended then.";

/// Time for the other contexts to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(2);

struct Order {
    contexts: usize,
    fabric: Option<String>,
    timeout: Duration,
    is_plain: bool,
    program: Vec<String>,
}

fn main() -> ExitCode {
    if let Err(error) = selvedge::log::init() {
        eprintln!("cheetahrun: {error}");
        return ExitCode::from(2);
    }
    let order = match Order::parse(env::args().skip(1)) {
        Ok(Some(order)) => order,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("cheetahrun: {why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&order) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("cheetahrun: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Order {
    /// `None` if the help text is requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut order = Self {
            contexts: 0,
            fabric: None,
            timeout: Duration::from_secs(30),
            is_plain: false,
            program: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "-n" | "-np" | "--np" => order.contexts = contexts(&value()?)?,
                "-f" | "--fabric" => order.fabric = Some(value()?),
                "-t" | "--timeout" => order.timeout = seconds(&value()?)?,
                "-q" | "--plain" => order.is_plain = true,
                "-h" | "--help" => return Ok(None),
                option if option.starts_with('-') => return Err(format!("no option {option}")),
                _ => {
                    order.program.push(arg);
                    order.program.extend(args.by_ref());
                }
            }
        }
        match (order.contexts, order.program.is_empty()) {
            (0, _) => Err("how many contexts? -n N".to_owned()),
            (_, true) => Err("no program".to_owned()),
            _ => Ok(Some(order)),
        }
    }
}

fn contexts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(contexts @ 1..=1024) => Ok(contexts),
        _ => Err(format!("{text:?} is no number of contexts from 1 to 1024")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse().ok();
    let time = parsed.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("{text:?} is no number of seconds"))
}

/// The running contexts.
struct Crowd {
    children: Vec<Child>,
    ended: Vec<Option<ExitStatus>>,
    failed: Option<(usize, ExitStatus)>,
    since: Option<Instant>,
}

fn run(order: &Order) -> Result<ExitCode, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener
        .local_addr()
        .map_err(|error| error.to_string())?
        .port();
    let job = format!("{}-{port}", std::process::id());
    let mut crowd = Crowd::start(order, port, &job)?;
    let printers = crowd.print(order.is_plain);
    let is_over = Arc::new(AtomicBool::new(false));
    let host = host(listener, job, order, &is_over);
    while !crowd.look() {
        thread::sleep(Duration::from_millis(5));
    }
    is_over.store(true, Ordering::Release);
    for printer in printers {
        let _ = printer.join();
    }
    let met = host
        .join()
        .unwrap_or_else(|_| Err("the rendezvous failed".to_owned()));
    if let (Err(why), None) = (&met, &crowd.failed) {
        // Contexts that never connected to the rendezvous ran nevertheless.
        log::debug!("{why}");
    }
    Ok(crowd.verdict())
}

/// Serves the rendezvous of the contexts in a thread, because they may never connect.
fn host(
    listener: TcpListener,
    job: String,
    order: &Order,
    is_over: &Arc<AtomicBool>,
) -> JoinHandle<Result<(), String>> {
    let (size, deadline) = (order.contexts, Instant::now() + order.timeout);
    let is_over = Arc::clone(is_over);
    thread::spawn(move || {
        let gathered = gather::listen(&listener, &job, size, None, &mut || {
            if is_over.load(Ordering::Acquire) {
                return Some("a context has ended".to_owned());
            }
            (Instant::now() >= deadline).then(|| "the time is over".to_owned())
        });
        gathered.map(|_| ()).map_err(|error| error.to_string())
    })
}

impl Crowd {
    fn start(order: &Order, port: u16, job: &str) -> Result<Self, String> {
        let mut children = Vec::new();
        for rank in 0..order.contexts {
            let mut command = Command::new(&order.program[0]);
            command
                .args(&order.program[1..])
                .env("CHEETAH_RANK", rank.to_string())
                .env("CHEETAH_SIZE", order.contexts.to_string())
                .env("CHEETAH_JOB", job)
                .env("CHEETAH_SERVER", format!("127.0.0.1:{port}"))
                .stdin(if rank == 0 {
                    Stdio::inherit()
                } else {
                    Stdio::null()
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            if let Some(fabric) = &order.fabric {
                command.env("CHEETAH_FABRIC", fabric);
            }
            match command.spawn() {
                Ok(child) => children.push(child),
                Err(error) => {
                    children.iter_mut().for_each(end);
                    return Err(format!("cannot start {:?}: {error}", order.program[0]));
                }
            }
        }
        Ok(Self {
            ended: vec![None; children.len()],
            children,
            failed: None,
            since: None,
        })
    }

    /// Prints the contexts' output in whole lines.
    fn print(&mut self, is_plain: bool) -> Vec<JoinHandle<()>> {
        let turn = Arc::new(Mutex::new(()));
        let width = (self.children.len() - 1).to_string().len();
        let mut printers = Vec::new();
        for (rank, child) in self.children.iter_mut().enumerate() {
            let name = match is_plain {
                true => String::new(),
                false => format!("[{rank:width$}] "),
            };
            if let Some(out) = child.stdout.take() {
                printers.push(print(out, io::stdout(), name.clone(), Arc::clone(&turn)));
            }
            if let Some(err) = child.stderr.take() {
                printers.push(print(err, io::stderr(), name, Arc::clone(&turn)));
            }
        }
        printers
    }

    /// Returns whether all contexts have ended. Kills the remaining ones [`GRACE`] after a failure.
    fn look(&mut self) -> bool {
        for (rank, child) in self.children.iter_mut().enumerate() {
            if self.ended[rank].is_some() {
                continue;
            }
            let Ok(Some(status)) = child.try_wait() else {
                continue;
            };
            self.ended[rank] = Some(status);
            if !status.success() && self.failed.is_none() {
                self.failed = Some((rank, status));
                self.since = Some(Instant::now());
            }
        }
        if self.since.is_some_and(|since| since.elapsed() > GRACE) {
            let left = self.children.iter_mut().zip(&self.ended);
            left.filter(|(_, ended)| ended.is_none())
                .for_each(|(child, _)| end(child));
        }
        self.ended.iter().all(Option::is_some)
    }

    fn verdict(&self) -> ExitCode {
        let Some((rank, status)) = self.failed else {
            return ExitCode::SUCCESS;
        };
        eprintln!("cheetahrun: context {rank} failed: {status}");
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        code.map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

fn end(child: &mut Child) {
    // The context may have ended by itself.
    let _ = child.kill();
}

fn print(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    name: String,
    turn: Arc<Mutex<()>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            let turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            // A closed output stream is not an error of the contexts.
            let _ = to
                .write_all(name.as_bytes())
                .and_then(|()| to.write_all(&line));
            let _ = to.flush();
            drop(turn);
            line.clear();
        }
    })
}
