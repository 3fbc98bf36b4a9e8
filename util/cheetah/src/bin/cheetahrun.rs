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

use selvedge_cheetah::rendezvous;

const USAGE: &str = "\
Starts the contexts of a program for Cheetah.

Usage: cheetahrun -n N [OPTIONS] PROGRAM [ARGUMENTS]

  -n, --np N        start N contexts (also -np N)
  -f, --fabric P    use this provider (CHEETAH_FABRIC)
  -t, --timeout S   fail if the contexts have not connected after S seconds (30)
  -q, --plain       no context numbers before output lines
  -h, --help        this text

Each output line begins with the number of its context. The exit code is that of the first
context that fails; the others are killed if they have not ended two seconds later.";

/// Time for the other contexts to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(2);

struct Options {
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
    let options = match Options::parse(env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("cheetahrun: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("cheetahrun: {message}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// `None` if the help text is requested.
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            contexts: 0,
            fabric: None,
            timeout: Duration::from_secs(30),
            is_plain: false,
            program: Vec::new(),
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            match &*arg {
                "-n" | "-np" | "--np" => options.contexts = parse_contexts(&value()?)?,
                "-f" | "--fabric" => options.fabric = Some(value()?),
                "-t" | "--timeout" => options.timeout = parse_seconds(&value()?)?,
                "-q" | "--plain" => options.is_plain = true,
                "-h" | "--help" => return Ok(None),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}"));
                }
                _ => {
                    options.program.push(arg);
                    options.program.extend(args.by_ref());
                }
            }
        }
        match (options.contexts, options.program.is_empty()) {
            (0, _) => Err("the number of contexts is missing: -n N".to_owned()),
            (_, true) => Err("the program is missing".to_owned()),
            _ => Ok(Some(options)),
        }
    }
}

fn parse_contexts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(parse_contexts @ 1..=1024) => Ok(parse_contexts),
        _ => Err(format!(
            "{text:?} is not a number of contexts from 1 to 1024"
        )),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let parsed = text.parse().ok();
    let time = parsed.and_then(|parse_seconds| Duration::try_from_secs_f64(parse_seconds).ok());
    time.ok_or_else(|| format!("{text:?} is not a number of seconds"))
}

/// The running contexts.
struct Run {
    children: Vec<Child>,
    ended: Vec<Option<ExitStatus>>,
    failed: Option<(usize, ExitStatus)>,
    failed_at: Option<Instant>,
}

fn run(options: &Options) -> Result<ExitCode, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener
        .local_addr()
        .map_err(|error| error.to_string())?
        .port();
    let job = format!("{}-{port}", std::process::id());
    let mut processes = Run::start(options, port, &job)?;
    let printers = processes.print(options.is_plain);
    let has_ended = Arc::new(AtomicBool::new(false));
    let rendezvous = serve_rendezvous(listener, job, options, &has_ended);
    while !processes.poll() {
        thread::sleep(Duration::from_millis(5));
    }
    has_ended.store(true, Ordering::Release);
    for printer in printers {
        let _ = printer.join();
    }
    let exchanged = rendezvous
        .join()
        .unwrap_or_else(|_| Err("the rendezvous failed".to_owned()));
    if let (Err(message), None) = (&exchanged, &processes.failed) {
        // The contexts have run, although they never connected to the rendezvous.
        log::debug!("{message}");
    }
    Ok(processes.exit_code())
}

/// Serves the rendezvous of the contexts in a thread, because they may never connect.
fn serve_rendezvous(
    listener: TcpListener,
    job: String,
    options: &Options,
    has_ended: &Arc<AtomicBool>,
) -> JoinHandle<Result<(), String>> {
    let (size, deadline) = (options.contexts, Instant::now() + options.timeout);
    let has_ended = Arc::clone(has_ended);
    thread::spawn(move || {
        let exchanged = rendezvous::listen(&listener, &job, size, None, &mut || {
            if has_ended.load(Ordering::Acquire) {
                return Some("a context has ended".to_owned());
            }
            (Instant::now() >= deadline).then(|| "time limit reached".to_owned())
        });
        exchanged.map(|_| ()).map_err(|error| error.to_string())
    })
}

impl Run {
    fn start(options: &Options, port: u16, job: &str) -> Result<Self, String> {
        let mut children = Vec::new();
        for rank in 0..options.contexts {
            let mut command = Command::new(&options.program[0]);
            command
                .args(&options.program[1..])
                .env("CHEETAH_RANK", rank.to_string())
                .env("CHEETAH_SIZE", options.contexts.to_string())
                .env("CHEETAH_JOB", job)
                .env("CHEETAH_SERVER", format!("127.0.0.1:{port}"))
                .stdin(if rank == 0 {
                    Stdio::inherit()
                } else {
                    Stdio::null()
                })
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            if let Some(fabric) = &options.fabric {
                command.env("CHEETAH_FABRIC", fabric);
            }
            match command.spawn() {
                Ok(child) => children.push(child),
                Err(error) => {
                    children.iter_mut().for_each(kill);
                    return Err(format!("cannot start {:?}: {error}", options.program[0]));
                }
            }
        }
        Ok(Self {
            ended: vec![None; children.len()],
            children,
            failed: None,
            failed_at: None,
        })
    }

    /// Prints the contexts' output in whole lines.
    fn print(&mut self, is_plain: bool) -> Vec<JoinHandle<()>> {
        let lock = Arc::new(Mutex::new(()));
        let width = (self.children.len() - 1).to_string().len();
        let mut printers = Vec::new();
        for (rank, child) in self.children.iter_mut().enumerate() {
            let name = if is_plain {
                String::new()
            } else {
                format!("[{rank:width$}] ")
            };
            if let Some(out) = child.stdout.take() {
                printers.push(print(out, io::stdout(), name.clone(), Arc::clone(&lock)));
            }
            if let Some(err) = child.stderr.take() {
                printers.push(print(err, io::stderr(), name, Arc::clone(&lock)));
            }
        }
        printers
    }

    /// Returns whether all contexts have ended. Kills the remaining ones [`GRACE`] after a failure.
    fn poll(&mut self) -> bool {
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
                self.failed_at = Some(Instant::now());
            }
        }
        if self.failed_at.is_some_and(|since| since.elapsed() > GRACE) {
            let remaining = self.children.iter_mut().zip(&self.ended);
            remaining
                .filter(|(_, ended)| ended.is_none())
                .for_each(|(child, _)| kill(child));
        }
        self.ended.iter().all(Option::is_some)
    }

    fn exit_code(&self) -> ExitCode {
        let Some((rank, status)) = self.failed else {
            return ExitCode::SUCCESS;
        };
        eprintln!("cheetahrun: context {rank} failed: {status}");
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        code.map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

fn kill(child: &mut Child) {
    // The context may have ended by itself.
    let _ = child.kill();
}

fn print(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    name: String,
    lock: Arc<Mutex<()>>,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while from.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            let lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
            // A closed output stream is not an error of the contexts.
            let _ = to
                .write_all(name.as_bytes())
                .and_then(|()| to.write_all(&line));
            let _ = to.flush();
            drop(lock);
            line.clear();
        }
    })
}
