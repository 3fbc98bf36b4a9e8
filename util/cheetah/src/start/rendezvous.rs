//! The address exchange: each context sends one line and receives the lines of all contexts when
//! the last one has connected.
//!
//! ```text
//! cheetah 1 job=JOB RANK SIZE LINE    from each context
//! all LINE0 LINE1 ...                 to each context
//! refused WHY                         instead of `all`, to each context
//! ```

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// The identity of a context in the address exchange.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// Identifies the run.
    pub job: &'a str,
    /// Number of the context, from 0.
    pub rank: usize,
    /// Number of contexts.
    pub size: usize,
    /// The addresses of the context, without blanks.
    pub line: &'a str,
}

/// A connection of the address exchange.
pub trait Stream: Read + Write + AsFd {
    /// Sets the time limit of reads.
    ///
    /// # Errors
    /// The system's error.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))
    }
}

/// Interval between two attempts to accept, connect or read.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);
/// Time limit for a new connection to send its line.
const LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections without a line, in addition to the contexts of the run.
const PENDING_MAX: usize = 64;
/// Longest line in bytes.
const LINE_MAX: u64 = 1 << 20;
/// Longest rendezvous file in bytes.
const FILE_MAX: u64 = 4096;

/// Receives the lines of all other contexts over connections to them, and sends the lines of all to
/// each.
///
/// # Errors
/// The contexts that have not connected, or the reason of a rejection.
pub(crate) fn serve<L: Stream>(
    identity: &Identity<'_>,
    others: Vec<L>,
    deadline: Instant,
) -> Result<Vec<String>> {
    let mut exchange = Exchange::new(identity.job, identity.size);
    exchange.lines[identity.rank] = Some(identity.line.to_owned());
    for mut other in others {
        match read_line(&mut other, deadline) {
            Ok(text) => exchange.add(&text, other)?,
            Err(error) => {
                let missing = exchange.missing();
                return Err(
                    exchange.reject(&format!("a context did not start: {error}; {missing}"))
                );
            }
        }
    }
    exchange.finish()
}

/// As `serve`, for contexts that connect to `listener`. The server is a launcher, or context 0,
/// which passes its identity as `identity`.
///
/// # Errors
/// As `serve`; the reason to stop waiting, once `stop_reason` returns one.
pub fn listen(
    listener: &TcpListener,
    job: &str,
    size: usize,
    identity: Option<&Identity<'_>>,
    stop_reason: &mut dyn FnMut() -> Option<String>,
) -> Result<Vec<String>> {
    let mut exchange = Exchange::new(job, size);
    if let Some(identity) = identity {
        exchange.lines[identity.rank] = Some(identity.line.to_owned());
    }
    listener
        .set_nonblocking(true)
        .map_err(|error| Error::io("rendezvous", &error))?;
    let mut pending = Vec::new();
    while !exchange.is_complete() {
        if pending.len() < size + PENDING_MAX
            && let Some(stream) = accept(listener)?
        {
            pending.push(PendingStream::new(stream));
            continue;
        }
        for mut connection in std::mem::take(&mut pending) {
            match connection.read() {
                Ok(Some(text)) => {
                    connection
                        .stream
                        .set_nonblocking(false)
                        .map_err(|error| Error::io("rendezvous", &error))?;
                    exchange.add(&text, connection.stream)?;
                }
                Ok(None) => pending.push(connection),
                Err(error) => {
                    log::warn!("a connection to the rendezvous sent no address line: {error}");
                }
            }
        }
        if let (false, Some(reason)) = (exchange.is_complete(), stop_reason()) {
            let missing = exchange.missing();
            return Err(exchange.reject(&format!("{reason}; {missing}")));
        }
        thread::sleep(RETRY_INTERVAL);
    }
    exchange.finish()
}

/// Accepts a connection without waiting.
fn accept(listener: &TcpListener) -> Result<Option<TcpStream>> {
    let accepted = listener.accept().and_then(|(stream, _)| {
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    match accepted {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        // The connection was closed before it was accepted.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(None),
        Err(error) => Err(Error::io("rendezvous", &error)),
    }
}

/// A connection that has not sent its line. It comes from a context, or from another program that
/// tries ports.
struct PendingStream {
    stream: TcpStream,
    text: Vec<u8>,
    deadline: Instant,
}

impl PendingStream {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            text: Vec::new(),
            deadline: Instant::now() + LINE_TIMEOUT,
        }
    }

    /// Reads without waiting. Returns the line when it is complete.
    fn read(&mut self) -> io::Result<Option<String>> {
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.text.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let is_late = Instant::now() >= self.deadline;
                    return if is_late {
                        Err(io::ErrorKind::TimedOut.into())
                    } else {
                        Ok(None)
                    };
                }
                Err(error) => return Err(error),
            }
            if self.text.ends_with(b"\n") {
                let text = std::mem::take(&mut self.text);
                let text = String::from_utf8(text);
                return text
                    .map(Some)
                    .map_err(|_| io::ErrorKind::InvalidData.into());
            }
            if self.text.len() as u64 > LINE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

/// The lines and connections of the contexts that have sent their lines so far.
struct Exchange<'a, L> {
    job: &'a str,
    lines: Vec<Option<String>>,
    streams: Vec<L>,
}

impl<'a, L: Stream> Exchange<'a, L> {
    fn new(job: &'a str, size: usize) -> Self {
        Self {
            job,
            lines: vec![None; size],
            streams: Vec::new(),
        }
    }

    fn is_complete(&self) -> bool {
        self.lines.iter().all(Option::is_some)
    }

    fn missing(&self) -> String {
        let missing = self.lines.iter().enumerate();
        let missing = missing.filter(|(_, line)| line.is_none());
        let missing: Vec<_> = missing.map(|(rank, _)| rank.to_string()).collect();
        format!("contexts that have not connected: {}", missing.join(", "))
    }

    /// Adds the line of a context. A context of another job is rejected; that has no effect on the
    /// contexts of this job.
    fn add(&mut self, text: &str, mut stream: L) -> Result {
        let Some((job, rank, size, line)) = words(text) else {
            // From another program.
            let _ = stream.write_all(b"refused invalid address line\n");
            return Ok(());
        };
        if job != self.job {
            let reason = format!(
                "refused this rendezvous is for job {:?}, not for job {job:?}\n",
                self.job
            );
            let _ = stream.write_all(reason.as_bytes());
            return Ok(());
        }
        let taken = self.lines.get(rank).is_none_or(Option::is_some);
        if size != self.lines.len() || taken {
            let expected = self.lines.len();
            self.streams.push(stream);
            let reason = format!(
                "context {rank} of {size} connected to a run of {expected} contexts, or connected twice"
            );
            return Err(self.reject(&reason));
        }
        self.lines[rank] = Some(line.to_owned());
        self.streams.push(stream);
        Ok(())
    }

    /// Rejects all contexts.
    fn reject(&mut self, reason: &str) -> Error {
        for stream in &mut self.streams {
            let _ = stream.write_all(format!("refused {reason}\n").as_bytes());
        }
        Error::start(reason)
    }

    fn finish(mut self) -> Result<Vec<String>> {
        let lines: Vec<String> = self.lines.into_iter().flatten().collect();
        let response = format!("all {}\n", lines.join(" "));
        for stream in &mut self.streams {
            // A context that has disconnected is detected later.
            let _ = stream.write_all(response.as_bytes());
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

/// Sends the line of a context, and waits for the lines of all.
///
/// # Errors
/// The reason of the server's rejection, or a timeout.
pub(crate) fn join(
    identity: &Identity<'_>,
    mut stream: impl Stream,
    deadline: Instant,
) -> Result<Vec<String>> {
    let Identity {
        job,
        rank,
        size,
        line,
    } = identity;
    let text = format!("cheetah 1 job={job} {rank} {size} {line}\n");
    stream
        .write_all(text.as_bytes())
        .map_err(|error| Error::io("address line", &error))?;
    let response = read_line(&mut stream, deadline).map_err(|error| {
        Error::start(format!(
            "context {rank} received no addresses of the others: {error}"
        ))
    })?;
    match response.trim_end().split_once(' ') {
        Some(("all", lines)) => {
            let lines: Vec<_> = lines.split(' ').map(str::to_owned).collect();
            if lines.len() == identity.size {
                Ok(lines)
            } else {
                Err(Error::start(format!(
                    "the rendezvous sent the addresses of {} contexts, not of {size}",
                    lines.len()
                )))
            }
        }
        Some(("refused", reason)) => Err(Error::start(reason)),
        _ => Err(Error::start(format!(
            "invalid response of the rendezvous: {response:?}"
        ))),
    }
}

fn read_line(from: &mut impl Stream, deadline: Instant) -> io::Result<String> {
    let left = deadline.saturating_duration_since(Instant::now());
    from.limit(left.max(Duration::from_millis(1)))?;
    let mut text = String::new();
    BufReader::new(from.take(LINE_MAX)).read_line(&mut text)?;
    if text.ends_with('\n') {
        Ok(text)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Exchanges addresses at `host:port`, where context 0 listens.
pub(crate) fn at_host(identity: &Identity<'_>, at: &str, deadline: Instant) -> Result<Vec<String>> {
    if identity.rank != 0 {
        return at_server(identity, at, deadline);
    }
    let message = format!("listening at {at}");
    let listener = TcpListener::bind(at).map_err(|error| Error::io(&message, &error))?;
    listen_until(identity, &listener, deadline)
}

/// Exchanges addresses at `host:port`, where a launcher listens.
pub(crate) fn at_server(
    identity: &Identity<'_>,
    at: &str,
    deadline: Instant,
) -> Result<Vec<String>> {
    loop {
        match TcpStream::connect(at) {
            Ok(stream) => return join(identity, stream, deadline),
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::io(&format!("no listener at {at}"), &error));
            }
            Err(_) => thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// Exchanges addresses through a file with the address of context 0.
pub(crate) fn at_file(
    identity: &Identity<'_>,
    path: &Path,
    deadline: Instant,
) -> Result<Vec<String>> {
    let failed = |error: &io::Error| Error::io(&format!("rendezvous file {path:?}"), error);
    if identity.rank == 0 {
        let listener = TcpListener::bind(("0.0.0.0", 0)).map_err(|error| failed(&error))?;
        let port = listener
            .local_addr()
            .map_err(|error| failed(&error))?
            .port();
        let text = format!("{}:{port} {}\n", hostname(), identity.job);
        let draft = path.with_extension(format!("{}", std::process::id()));
        let written = write_new(&draft, &text).and_then(|()| fs::rename(&draft, path));
        written.map_err(|error| failed(&error))?;
        let lines = listen_until(identity, &listener, deadline);
        let _ = fs::remove_file(path);
        return lines;
    }
    loop {
        let text = read_beginning(path).unwrap_or_default();
        // A stale file names another job, or an address without a listener.
        let entry = text.trim_end().split_once(' ');
        let at = entry
            .filter(|entry| entry.1 == identity.job)
            .map(|entry| entry.0);
        if let Some(stream) = at.and_then(|at| TcpStream::connect(at).ok()) {
            return join(identity, stream, deadline);
        }
        if Instant::now() >= deadline {
            let message = format!(
                "rendezvous file {path:?} names no listener of context 0 of job {:?}",
                identity.job
            );
            return Err(Error::start(message));
        }
        thread::sleep(RETRY_INTERVAL);
    }
}

/// Creates a new file in place of an existing one; does not follow links or write into pipes.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    options.open(path)?.write_all(text.as_bytes())
}

/// Reads the beginning of a file without waiting. A pipe without a writer reads as an empty file.
fn read_beginning(path: &Path) -> io::Result<String> {
    let mut options = fs::OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut text = String::new();
    let file = options.open(path)?;
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn listen_until(
    identity: &Identity<'_>,
    listener: &TcpListener,
    deadline: Instant,
) -> Result<Vec<String>> {
    listen(
        listener,
        identity.job,
        identity.size,
        Some(identity),
        &mut || (Instant::now() >= deadline).then(|| "time limit reached".to_owned()),
    )
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(rank: usize) -> Identity<'static> {
        Identity {
            job: "job",
            rank,
            size: 2,
            line: ["zero", "one"][rank],
        }
    }

    #[test]
    fn connections_without_an_address_line_do_not_block_contexts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(TcpStream::connect(at).unwrap());
        let _silent = TcpStream::connect(at).unwrap();
        let mut other = TcpStream::connect(at).unwrap();
        other.write_all(&[0xff; 100]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let joined = thread::spawn(move || {
            let stream = TcpStream::connect(at).unwrap();
            join(&context(1), stream, deadline).unwrap()
        });
        let lines = listen_until(&context(0), &listener, deadline).unwrap();
        assert_eq!(lines, ["zero", "one"]);
        assert_eq!(joined.join().unwrap(), lines);
    }

    #[test]
    fn a_rendezvous_file_is_written_through_no_link_and_read_from_no_pipe() {
        let directory = std::env::temp_dir().join(format!("gather-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let (target, link) = (directory.join("target"), directory.join("link"));
        fs::write(&target, "untouched").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_new(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
        assert_eq!(read_beginning(&link).unwrap(), "new");
        let pipe = directory.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(read_beginning(&pipe).unwrap(), "");
        fs::remove_dir_all(&directory).unwrap();
    }
}
