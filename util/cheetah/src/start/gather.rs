//! The exchange of introductions: whoever comes says one line, and gets the lines of all when the
//! last one has come.
//!
//! ```text
//! cheetah 1 JOB RANK SIZE LINE        from each context
//! all LINE0 LINE1 ...                 to each context
//! refused WHY                         instead, to all
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// A context, as it says who it is.
#[derive(Clone, Copy, Debug)]
pub struct Stranger<'a> {
    /// What all contexts of one run have in common.
    pub job: &'a str,
    /// Which context it is.
    pub rank: usize,
    /// Of how many.
    pub size: usize,
    /// How it is reached, without blanks.
    pub line: &'a str,
}

/// A connection between two that introduce themselves.
pub trait Line: Read + Write + AsFd {
    /// Fails reads after this time.
    ///
    /// # Errors
    /// The system's.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Line for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Line for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

/// How long one look for somebody takes.
const STEP: Duration = Duration::from_millis(5);
/// The longest line that is read.
const LONGEST: u64 = 1 << 20;

/// Gathers the lines of all others over connections to them, and sends everybody all of them.
///
/// # Errors
/// Who has not come, or who was refused and why.
pub(crate) fn serve<L: Line>(
    me: &Stranger<'_>,
    others: Vec<L>,
    deadline: Instant,
) -> Result<Vec<String>> {
    let mut room = Room::new(me.job, me.size);
    room.lines[me.rank] = Some(me.line.to_owned());
    for other in others {
        room.admit(other, deadline)?;
    }
    room.finish()
}

/// Gathers as `serve`, for a launcher, which is no context, or context 0, which is one.
///
/// # Errors
/// As `serve`; `is_over` says when to give up.
pub fn listen(
    listener: &TcpListener,
    job: &str,
    size: usize,
    me: Option<&Stranger<'_>>,
    is_over: &mut dyn FnMut() -> Option<String>,
) -> Result<Vec<String>> {
    let mut room = Room::new(job, size);
    if let Some(me) = me {
        room.lines[me.rank] = Some(me.line.to_owned());
    }
    listener
        .set_nonblocking(true)
        .map_err(|error| Error::io("rendezvous", &error))?;
    while !room.is_full() {
        match listener.accept() {
            Ok((stream, _)) => {
                stream
                    .set_nonblocking(false)
                    .map_err(|error| Error::io("rendezvous", &error))?;
                room.admit(stream, Instant::now() + Duration::from_secs(5))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Some(why) = is_over() {
                    let absent = room.absent();
                    return Err(room.refuse(&format!("{why}; {absent}")));
                }
                thread::sleep(STEP);
            }
            Err(error) => return Err(Error::io("rendezvous", &error)),
        }
    }
    room.finish()
}

/// Who has come so far.
struct Room<'a, L> {
    job: &'a str,
    lines: Vec<Option<String>>,
    guests: Vec<L>,
}

impl<'a, L: Line> Room<'a, L> {
    fn new(job: &'a str, size: usize) -> Self {
        Self {
            job,
            lines: vec![None; size],
            guests: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.lines.iter().all(Option::is_some)
    }

    fn absent(&self) -> String {
        let absent = self.lines.iter().enumerate();
        let absent = absent.filter(|(_, line)| line.is_none());
        let absent: Vec<_> = absent.map(|(rank, _)| rank.to_string()).collect();
        format!("contexts that have not come: {}", absent.join(", "))
    }

    /// Hears who somebody is. One who belongs to another run is turned away, and the others wait on.
    fn admit(&mut self, guest: L, deadline: Instant) -> Result {
        let mut guest = guest;
        let text = match read_line(&mut guest, deadline) {
            Ok(text) => text,
            Err(error) => {
                let absent = self.absent();
                return Err(self.refuse(&format!("a context did not start: {error}; {absent}")));
            }
        };
        let Some((job, rank, size, line)) = words(&text) else {
            // Whoever else knocks at the port.
            let _ = guest.write_all(b"refused that is no introduction\n");
            return Ok(());
        };
        if job != self.job {
            let why = format!("refused this is job {:?}, not {job:?}\n", self.job);
            let _ = guest.write_all(why.as_bytes());
            return Ok(());
        }
        let taken = self.lines.get(rank).is_none_or(Option::is_some);
        if size != self.lines.len() || taken {
            let here = self.lines.len();
            self.guests.push(guest);
            let why = format!("context {rank} of {size} came to a run of {here}, or came twice");
            return Err(self.refuse(&why));
        }
        self.lines[rank] = Some(line.to_owned());
        self.guests.push(guest);
        Ok(())
    }

    /// Sends everybody away.
    fn refuse(&mut self, why: &str) -> Error {
        for guest in &mut self.guests {
            let _ = guest.write_all(format!("refused {why}\n").as_bytes());
        }
        Error::start(why)
    }

    fn finish(mut self) -> Result<Vec<String>> {
        let lines: Vec<String> = self.lines.into_iter().flatten().collect();
        let answer = format!("all {}\n", lines.join(" "));
        for guest in &mut self.guests {
            // One that has gone meanwhile is missed later.
            let _ = guest.write_all(answer.as_bytes());
        }
        Ok(lines)
    }
}

fn words(text: &str) -> Option<(&str, usize, usize, &str)> {
    let mut words = text.trim_end().split(' ');
    if (words.next(), words.next()) != (Some("cheetah"), Some("1")) {
        return None;
    }
    let job = words.next()?.strip_prefix("job=")?;
    let (rank, size) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let line = words.next()?;
    words.next().is_none().then_some((job, rank, size, line))
}

/// Introduces a context to whoever gathers, and waits for all others.
///
/// # Errors
/// Why it was refused, or that it took too long.
pub(crate) fn join(me: &Stranger<'_>, mut to: impl Line, deadline: Instant) -> Result<Vec<String>> {
    let Stranger {
        job,
        rank,
        size,
        line,
    } = me;
    let text = format!("cheetah 1 job={job} {rank} {size} {line}\n");
    to.write_all(text.as_bytes())
        .map_err(|error| Error::io("introduction", &error))?;
    let answer = read_line(&mut to, deadline)
        .map_err(|error| Error::start(format!("context {rank} waits for the others: {error}")))?;
    match answer.trim_end().split_once(' ') {
        Some(("all", lines)) => {
            let lines: Vec<_> = lines.split(' ').map(str::to_owned).collect();
            match lines.len() == me.size {
                true => Ok(lines),
                false => Err(Error::start(format!(
                    "{} contexts, not {size}",
                    lines.len()
                ))),
            }
        }
        Some(("refused", why)) => Err(Error::start(why)),
        _ => Err(Error::start(format!("the rendezvous says {answer:?}"))),
    }
}

fn read_line(from: &mut impl Line, deadline: Instant) -> io::Result<String> {
    let left = deadline.saturating_duration_since(Instant::now());
    from.limit(left.max(Duration::from_millis(1)))?;
    let mut text = String::new();
    BufReader::new(from.take(LONGEST)).read_line(&mut text)?;
    match text.ends_with('\n') {
        true => Ok(text),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Meets the others where context 0 listens.
pub(crate) fn at_host(me: &Stranger<'_>, at: &str, deadline: Instant) -> Result<Vec<String>> {
    if me.rank != 0 {
        return at_server(me, at, deadline);
    }
    let what = format!("listening at {at}");
    let listener = TcpListener::bind(at).map_err(|error| Error::io(&what, &error))?;
    listen_until(me, &listener, deadline)
}

/// Meets the others where a launcher listens.
pub(crate) fn at_server(me: &Stranger<'_>, at: &str, deadline: Instant) -> Result<Vec<String>> {
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => return join(me, stream, deadline),
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::io(&format!("nobody listens at {at}"), &error));
            }
            Err(_) => thread::sleep(STEP),
        }
    }
}

/// Meets the others where a file says that context 0 listens.
pub(crate) fn at_file(me: &Stranger<'_>, path: &Path, deadline: Instant) -> Result<Vec<String>> {
    let failed = |error: &io::Error| Error::io(&format!("rendezvous file {path:?}"), error);
    if me.rank == 0 {
        let listener = TcpListener::bind(("0.0.0.0", 0)).map_err(|error| failed(&error))?;
        let port = listener
            .local_addr()
            .map_err(|error| failed(&error))?
            .port();
        let text = format!("{}:{port} {}\n", hostname(), me.job);
        let draft = path.with_extension(format!("{}", std::process::id()));
        let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, path));
        written.map_err(|error| failed(&error))?;
        let lines = listen_until(me, &listener, deadline);
        let _ = fs::remove_file(path);
        return lines;
    }
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        // The file of a run that has ended otherwise names another job, or nobody listens there.
        let known = text.trim_end().split_once(' ');
        let at = known.filter(|known| known.1 == me.job).map(|known| known.0);
        if let Some(stream) = at.and_then(|at| TcpStream::connect(at).ok()) {
            return join(me, stream, deadline);
        }
        if Instant::now() >= deadline {
            let what = format!("no context 0 of job {:?} in {path:?}", me.job);
            return Err(Error::start(what));
        }
        thread::sleep(STEP);
    }
}

fn listen_until(
    me: &Stranger<'_>,
    listener: &TcpListener,
    deadline: Instant,
) -> Result<Vec<String>> {
    listen(listener, me.job, me.size, Some(me), &mut || {
        (Instant::now() >= deadline).then(|| "the time is over".to_owned())
    })
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}
