//! Forked contexts: context 0 is the initial process, the others are its children.
//!
//! The fork happens before the library has an endpoint, thread or lock. Output streams are flushed
//! first, so that buffered text is printed once. Context 0 waits for its children when it
//! finalizes, and fails if one of them has failed.

#![expect(unsafe_code, reason = "fork, wait and exit")]

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::ExitLookup;
use crate::{Error, Result};

/// A context after the fork.
pub(crate) struct Forked {
    pub(crate) rank: usize,
    pub(crate) role: Role,
    /// A random number that only the contexts of this run know.
    pub(crate) secret: u64,
}

/// Parent or child.
pub(crate) enum Role {
    Parent(Children),
    /// A child, with a connection to context 0.
    Child(UnixStream),
}

/// The children of context 0.
pub(crate) struct Children {
    children: Arc<Mutex<Vec<Child>>>,
    sockets: Vec<UnixStream>,
}

#[derive(Debug)]
struct Child {
    rank: usize,
    pid: libc::pid_t,
    /// The exit status of the child, once it is known.
    exit: Option<ExitStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExitStatus {
    Exit(i32),
    Signal(i32),
}

/// Forks this process into `size` contexts.
///
/// # Errors
/// When the process has other threads, whose locks would stay locked in a child; an error of
/// fork(2) or socketpair(2).
pub(crate) fn fork(size: usize) -> Result<Forked> {
    let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        let message = format!("a process with {threads} threads cannot be forked into contexts");
        return Err(Error::start(message));
    }
    flush();
    let secret = random();
    let children = Arc::new(Mutex::new(Vec::new()));
    let mut sockets = Vec::new();
    for rank in 1..size {
        let pair = UnixStream::pair().map_err(|error| Error::io("a socket", &error))?;
        // SAFETY: the process has one thread, and the child continues as this process would.
        match unsafe { libc::fork() } {
            0 => {
                return Ok(Forked {
                    rank,
                    role: Role::Child(pair.1),
                    secret,
                });
            }
            -1 => {
                let error = io::Error::last_os_error();
                let message = format!("context {rank} of {size} cannot be forked");
                kill_all(&children);
                return Err(Error::io(&message, &error));
            }
            pid => lock(&children).push(Child {
                rank,
                pid,
                exit: None,
            }),
        }
        sockets.push(pair.0);
    }
    wait_at_exit(&children);
    Ok(Forked {
        rank: 0,
        role: Role::Parent(Children { children, sockets }),
        secret,
    })
}

/// A number that is not predictable.
pub(super) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(process::id());
    hasher.finish()
}

impl Children {
    /// Takes the connections to the children.
    pub(crate) fn take_sockets(&mut self) -> Vec<UnixStream> {
        std::mem::take(&mut self.sockets)
    }

    /// Returns a lookup of the exit status of failed contexts.
    pub(crate) fn exit_lookup(&self) -> ExitLookup {
        let children = Arc::clone(&self.children);
        Box::new(move |rank| {
            let mut children = lock(&children);
            let child = children.iter_mut().find(|child| child.rank == rank)?;
            child.poll_exit(libc::WNOHANG);
            child.exit.map(|exit| format!("the process {exit}"))
        })
    }

    /// Adds the exit statuses of ended children to an error of the start.
    pub(crate) fn add_exit_statuses(&self, error: Error) -> Error {
        let mut children = lock(&self.children);
        let mut ended = Vec::new();
        for child in children.iter_mut() {
            child.poll_exit(libc::WNOHANG);
            ended.extend(
                child
                    .exit
                    .map(|exit| format!("context {} {exit}", child.rank)),
            );
        }
        if ended.is_empty() {
            error
        } else {
            Error::start(format!("{}: {error}", ended.join(", ")))
        }
    }

    /// Waits for all children to end.
    ///
    /// # Errors
    /// The children that have failed, with their exit status.
    pub(crate) fn wait(&self) -> Result {
        match failures(&self.children) {
            None => Ok(()),
            Some(message) => Err(Error::Children(message)),
        }
    }
}

impl Child {
    fn poll_exit(&mut self, flags: i32) {
        if self.exit.is_some() {
            return;
        }
        let mut status = 0;
        loop {
            // SAFETY: the call writes `status`.
            let result = unsafe { libc::waitpid(self.pid, &raw mut status, flags) };
            if result == self.pid {
                self.exit = Some(ExitStatus::from_wait_status(status));
            } else if result < 0 {
                if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                // Other code of the process has waited for the child.
                self.exit = Some(ExitStatus::Exit(0));
            }
            return;
        }
    }
}

impl ExitStatus {
    fn from_wait_status(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signal(libc::WTERMSIG(status))
        } else {
            Self::Exit(libc::WEXITSTATUS(status))
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "has ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "was killed by signal {signal}"),
        }
    }
}

/// Waits for all children. Describes those that have failed.
fn failures(children: &Mutex<Vec<Child>>) -> Option<String> {
    let mut children = lock(children);
    let mut failed = Vec::new();
    for child in children.iter_mut() {
        child.poll_exit(0);
        let exit = child.exit.filter(|&exit| exit != ExitStatus::Exit(0));
        failed.extend(exit.map(|exit| format!("context {} {exit}", child.rank)));
    }
    (!failed.is_empty()).then(|| failed.join("; "))
}

fn kill_all(children: &Mutex<Vec<Child>>) {
    for child in lock(children).iter() {
        // SAFETY: the pid is of a child of this process that was not waited for.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
    }
    let _ = failures(children);
}

fn lock(children: &Mutex<Vec<Child>>) -> std::sync::MutexGuard<'_, Vec<Child>> {
    children.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Flushes all output streams, so that no child prints buffered text again.
fn flush() {
    let _ = io::stdout().flush();
    // SAFETY: null selects all of C's output streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// The children of a process, shared with its exit handler.
type ChildList = Arc<Mutex<Vec<Child>>>;

/// The children that the exit handler waits for, with the id of the forking process.
static AT_EXIT: Mutex<Vec<(u32, ChildList)>> = Mutex::new(Vec::new());

/// Registers an exit handler, which waits for the children if the program exits without finalizing.
fn wait_at_exit(children: &Arc<Mutex<Vec<Child>>>) {
    let mut registered = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.is_empty() {
        // SAFETY: the function has the C ABI and does not unwind.
        unsafe { libc::atexit(wait_for_registered_children) };
    }
    registered.push((process::id(), Arc::clone(children)));
}

extern "C" fn wait_for_registered_children() {
    let registered = {
        let mut registered = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *registered)
    };
    let local = registered
        .iter()
        .filter(|children| children.0 == process::id());
    let failed: Vec<_> = local.filter_map(|children| failures(&children.1)).collect();
    if failed.is_empty() {
        return;
    }
    flush();
    let _ = writeln!(io::stderr(), "cheetah: {}", failed.join("; "));
    // SAFETY: the process is exiting; the remaining exit handlers are skipped.
    unsafe { libc::_exit(1) };
}
