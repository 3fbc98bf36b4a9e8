//! Checks of how processes connect, read each other's memory, and detect each other's end.

#![expect(unsafe_code, reason = "one system call without a wrapper")]

use std::hint::black_box;
use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, accept, bind,
    connect, getsockopt, listen, sendmsg, socket, sockopt,
};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::finding::{Finding, Severity, first_line};

/// Tries the rendezvous over a socket: an abstract name, credentials, and passed descriptors.
pub(super) fn sockets() -> Finding {
    const NAME: &str = "rendezvous";
    match try_sockets() {
        Ok(()) => Finding::good(
            NAME,
            "abstract sockets, credentials and the passing of descriptors work",
            "processes of one network namespace find each other by name; others need FI_SHM_DIR",
        ),
        Err((call, cause)) => Finding::new(
            NAME,
            Severity::Broken,
            format!("{call} fails: {cause}"),
            "processes cannot connect",
        )
        .advise("Permit Unix sockets in the system call filter or security module."),
    }
}

fn try_sockets() -> Result<(), (&'static str, Errno)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let open = || socket(AddressFamily::Unix, SockType::SeqPacket, flags, None);
    let (listener, client) = (open(), open());
    let (listener, client) = (
        listener.map_err(|e| ("socket", e))?,
        client.map_err(|e| ("socket", e))?,
    );
    let name = format!("fabtests-doctor/{}", std::process::id());
    let addr = UnixAddr::new_abstract(name.as_bytes()).map_err(|e| ("address", e))?;
    bind(listener.as_raw_fd(), &addr).map_err(|e| ("bind", e))?;
    let backlog = Backlog::new(1).map_err(|e| ("listen", e))?;
    listen(&listener, backlog).map_err(|e| ("listen", e))?;
    connect(client.as_raw_fd(), &addr).map_err(|e| ("connect", e))?;
    accept(listener.as_raw_fd()).map_err(|e| ("accept", e))?;
    getsockopt(&client, sockopt::PeerCredentials).map_err(|e| ("SO_PEERCRED", e))?;
    let fds = [listener.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let iov = [IoSlice::new(b"!")];
    sendmsg::<UnixAddr>(client.as_raw_fd(), &iov, &rights, MsgFlags::empty(), None)
        .map_err(|e| ("SCM_RIGHTS", e))?;
    Ok(())
}

/// Tries whether a process can read the memory of its sibling.
pub(super) fn cross_memory_attach() -> Finding {
    const NAME: &str = "cross-memory attach";
    let observation = match try_reading() {
        Ok(None) => {
            return Finding::good(
                NAME,
                "a process can read a sibling's memory",
                "large messages are copied once, where that is the faster way",
            );
        }
        Ok(Some(cause)) => format!("a process cannot read a sibling's memory: {cause}"),
        Err(error) => format!("the attempt failed: {error:#}"),
    };
    let (reason, advice) = explain_refusal();
    Finding::new(
        NAME,
        Severity::Slow,
        format!("{observation} ({reason})"),
        "large messages are copied twice, through bounce buffers; near cores lose little by that, \
         far ones up to half of the bandwidth",
    )
    .advise(advice)
}

/// Returns why memory cannot be read, as far as system settings show it, and advice.
fn explain_refusal() -> (String, &'static str) {
    let scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or_else(String::new, |value| value.trim().to_owned())
    };
    let filter = field("Seccomp:");
    let caps = u64::from_str_radix(&field("CapEff:"), 16).unwrap_or(0);
    let can_trace = caps & 1 << CAP_SYS_PTRACE != 0;
    match (scope.as_str(), filter.as_str()) {
        ("1" | "2" | "3", _) if !can_trace => (
            format!("kernel.yama.ptrace_scope is {scope} and CAP_SYS_PTRACE is missing"),
            "Set sysctl kernel.yama.ptrace_scope=0, or give the processes CAP_SYS_PTRACE.",
        ),
        (_, "2") => (
            "a system call filter is in force".to_owned(),
            "Permit process_vm_readv in the filter (containers: --security-opt seccomp, or \
             --cap-add SYS_PTRACE).",
        ),
        _ => (
            format!("yama: {scope:?}, seccomp: {filter:?}, CAP_SYS_PTRACE: {can_trace}"),
            "See that the processes are dumpable and of one user, and that no security module \
             forbids ptrace between them.",
        ),
    }
}

const CAP_SYS_PTRACE: u32 = 19;

/// Returns `None` if a process has read its sibling's memory, or why it could not.
fn try_reading() -> anyhow::Result<Option<String>> {
    let mut target = helper(&["expose"])?;
    let mut line = String::new();
    let out = target.0.stdout.take().context("no pipe")?;
    BufReader::new(out).read_line(&mut line)?;
    let pid = target.0.id().to_string();
    let mut reading = helper(&["read", &pid, line.trim()])?;
    let mut response = String::new();

    let mut out = reading.0.stdout.take().context("no pipe")?;
    out.read_to_string(&mut response)?;
    Ok(match response.trim() {
        "" => anyhow::bail!("the reading process died"),
        "read" => None,
        reason => Some(reason.to_owned()),
    })
}

/// A child process that runs this program. Dropping the value kills it.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn helper(args: &[&str]) -> anyhow::Result<Helper> {
    let child = Command::new("/proc/self/exe")
        .arg("attach")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a process")?;
    Ok(Helper(child))
}

/// The number that one process exposes and another reads.
const NUMBER: u64 = 0x00d0_c707_5e1f_ed6e;

/// Runs the process whose memory is read. It prints the address of the number, and waits until its
/// standard input is closed.
///
/// # Errors
/// None.
pub fn expose_number() -> anyhow::Result<()> {
    let number = Box::new(NUMBER);
    println!("{}", std::ptr::from_ref(&*number).expose_provenance());
    let _ = std::io::stdin().read(&mut [0]);
    black_box(number);
    Ok(())
}

/// Runs the process that reads. It prints `read`, or the error of the system call.
///
/// # Errors
/// The memory contains another number.
pub fn read_number(pid: i32, addr: usize) -> anyhow::Result<()> {
    let mut bytes = [0; 8];
    let remote = RemoteIoVec {
        base: addr,
        len: bytes.len(),
    };
    match process_vm_readv(
        Pid::from_raw(pid),
        &mut [IoSliceMut::new(&mut bytes)],
        &[remote],
    ) {
        Ok(_) => {
            ensure!(
                u64::from_ne_bytes(bytes) == NUMBER,
                "the memory of the other process has another number"
            );
            println!("read");
        }
        Err(cause) => println!("{cause}"),
    }
    Ok(())
}

/// Finds out how this system lets a process detect the end of a peer.
pub(super) fn peer_failures() -> Finding {
    const NAME: &str = "peers that die";
    let meaning = "a dead peer is noticed within about 20 ms, even while one of its children runs";
    match try_pidfds() {
        Ok("SO_PEERPIDFD") => {
            Finding::good(NAME, "the kernel hands out pidfds with sockets", meaning)
        }
        Ok(call) => Finding::new(
            NAME,
            Severity::Note,
            format!("pidfds by {call} alone"),
            format!("{meaning}; peers in other process namespaces are noticed by their sockets"),
        )
        .advise("Linux 6.5 or later hands pidfds out with sockets."),
        Err(cause) => Finding::new(
            NAME,
            Severity::Note,
            format!("no pidfds: {cause}"),
            "a dead peer is noticed by the end of its socket",
        )
        .advise("Permit pidfd_open and SO_PEERPIDFD in the system call filter."),
    }
}

fn try_pidfds() -> Result<&'static str, Errno> {
    use nix::sys::socket::socketpair;

    let flags = SockFlag::SOCK_CLOEXEC;
    let (socket, _peer) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    if let Ok(pidfd) = getsockopt(&socket, sockopt::PeerPidfd) {
        // This process is running, so its pidfd is not ready.
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::ZERO)? == 0 {
            return Ok("SO_PEERPIDFD");
        }
    }
    // SAFETY: a system call with integers; the descriptor stays open until the process ends.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0) };
    Errno::result(fd).map(|_| "pidfd_open")
}

/// Reports whether membarrier(2) exists: barriers that one process runs on the processors of
/// another.
pub(super) fn barriers() -> Finding {
    // SAFETY: a system call with integers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    let found = match Errno::result(commands) {
        Ok(commands) => format!("membarrier offers commands {commands:#x}"),
        Err(cause) => format!("no membarrier: {cause}"),
    };
    Finding::good("membarrier", found, "shm does not need it")
}
