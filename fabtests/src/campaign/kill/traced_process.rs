//! A process under `ptrace(2)`: single-stepped, and killed or stopped at an instruction.
//!
//! Where tracing is not permitted, the process still stops at its marks, and faults happen at
//! instants between them.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use selvedge_testkit::process::Process;

use crate::campaign::role::{self, Role};

/// The process, which is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct TracedProcess {
    process: Process,
    is_traced: bool,
}

/// Where a process has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// After the next instruction, or at a breakpoint.
    Stepped,
    /// At a mark: the process has stopped itself.
    Marked,
    /// After its end: the process has exited or was killed.
    Over,
}

impl TracedProcess {
    /// Starts a process in a role, traced if `is_traced`.
    ///
    /// # Errors
    /// The process cannot be started or traced.
    pub(crate) fn start(role: &impl Role, is_traced: bool) -> anyhow::Result<Self> {
        let mut process = role::start_process()?;
        if is_traced {
            // The kernel kills the traced process when this process ends.
            let options = ptrace::Options::PTRACE_O_EXITKILL;
            ptrace::seize(process.pid(), options).context("ptrace(2)")?;
        }
        role.assign_to(&mut process)?;
        Ok(Self { process, is_traced })
    }

    /// Returns the error of ptrace(2) if this system does not permit tracing.
    pub(crate) fn trace_error() -> Option<String> {
        let result = role::start_process().map(|process| {
            let options = ptrace::Options::PTRACE_O_EXITKILL;
            ptrace::seize(process.pid(), options).err()
        });
        match result {
            Ok(error) => error.map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns where the process has stopped, if it has.
    ///
    /// # Errors
    /// The process ended or stopped in an unexpected way.
    pub(crate) fn poll_stop(&mut self) -> anyhow::Result<Option<Stop>> {
        self.wait(WaitPidFlag::WNOHANG)
    }

    /// Executes the next instruction. The process must be traced.
    ///
    /// # Errors
    /// The process ended or stopped in an unexpected way.
    pub(crate) fn step(&mut self) -> anyhow::Result<Stop> {
        match ptrace::step(self.process.pid(), None) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(Stop::Over),
            Err(error) => return Err(error).context("PTRACE_SINGLESTEP"),
        }
        let stop = self.wait(WaitPidFlag::empty())?;
        stop.context("waitpid(2) returned without a stop")
    }

    /// Returns the address of the next instruction. The process must be traced.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn instruction_pointer(&self) -> anyhow::Result<u64> {
        let registers = ptrace::getregs(self.process.pid()).context("PTRACE_GETREGS")?;
        Ok(registers.rip)
    }

    /// Sets a breakpoint and returns the original word at its address.
    ///
    /// # Errors
    /// The process has ended, or the address is not mapped.
    pub(crate) fn set_breakpoint(&self, addr: u64) -> anyhow::Result<i64> {
        let pid = self.process.pid();
        let original = ptrace::read(pid, address(addr)).context("PTRACE_PEEKTEXT")?;
        let breakpoint = (original & !0xff) | INT3;
        ptrace::write(pid, address(addr), breakpoint).context("PTRACE_POKETEXT")?;
        Ok(original)
    }

    /// Removes a breakpoint that the process has reached, and sets its instruction pointer back to
    /// it.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn clear_breakpoint(&self, addr: u64, original: i64) -> anyhow::Result<()> {
        let pid = self.process.pid();
        ptrace::write(pid, address(addr), original).context("PTRACE_POKETEXT")?;
        let mut registers = ptrace::getregs(pid).context("PTRACE_GETREGS")?;
        registers.rip = addr;
        ptrace::setregs(pid, registers).context("PTRACE_SETREGS")
    }

    /// Continues the process.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        if self.is_traced {
            ptrace::cont(self.process.pid(), None).context("PTRACE_CONT")
        } else {
            self.process.signal(Signal::SIGCONT)
        }
    }

    /// Stops the process wherever it is. The process must not be traced.
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn stop_anywhere(&mut self) -> anyhow::Result<()> {
        self.process.signal(Signal::SIGSTOP)?;
        let stop = self.wait(WaitPidFlag::empty())?;
        ensure!(
            stop == Some(Stop::Marked),
            "the target did not stop: {stop:?}"
        );
        Ok(())
    }

    /// Kills the process and returns the instant before. It stays a zombie until [`Self::reap`].
    ///
    /// # Errors
    /// The process has ended.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Instant> {
        let killed = Instant::now();
        self.process.signal(Signal::SIGKILL)?;
        Ok(killed)
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// The process does not end.
    pub(crate) fn reap(&mut self) -> anyhow::Result<()> {
        while self.wait(WaitPidFlag::empty())? != Some(Stop::Over) {
            self.resume()?;
        }
        Ok(())
    }

    /// Returns the process itself.
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn wait(&mut self, flags: WaitPidFlag) -> anyhow::Result<Option<Stop>> {
        let flags = flags | WaitPidFlag::WUNTRACED;
        match waitpid(self.process.pid(), Some(flags)) {
            Ok(WaitStatus::StillAlive) => Ok(None),
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(Some(Stop::Stepped)),
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => Ok(Some(Stop::Marked)),
            Ok(WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
                Ok(Some(Stop::Over))
            }
            Err(Errno::ECHILD) => Ok(Some(Stop::Over)),
            Err(Errno::EINTR) => Ok(None),
            other => bail!("waitpid(2) for the target returned {other:?}"),
        }
    }
}

fn address(addr: u64) -> ptrace::AddressType {
    std::ptr::without_provenance_mut(addr as usize)
}

/// The breakpoint instruction.
const INT3: i64 = 0xcc;

/// Child process: stops itself until it is continued.
pub(crate) fn mark() -> anyhow::Result<()> {
    raise(Signal::SIGSTOP).context("SIGSTOP for this process itself")
}
