//! A process under `ptrace(2)`: run instruction by instruction, and killed or stopped at one.
//!
//! Where tracing is not permitted, the process still stops at its marks, and instants between them
//! are all that can be chosen.

use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use selvedge_testkit::process::Process;

use super::part::{self, Part};

/// The process. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Tracee {
    actor: Process,
    is_traced: bool,
}

/// Where a process came to a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Behind the next instruction.
    Stepped,
    /// At a mark of its own.
    Marked,
    /// At its end.
    Over,
}

impl Tracee {
    /// Starts a process in a part, under trace if `is_traced`.
    ///
    /// # Errors
    /// When it cannot be started or traced.
    pub(crate) fn start(part: &Part, is_traced: bool) -> anyhow::Result<Self> {
        let mut actor = part::hire()?;
        if is_traced {
            // It dies with us, whatever we die of.
            let options = ptrace::Options::PTRACE_O_EXITKILL;
            ptrace::seize(actor.pid(), options).context("ptrace(2)")?;
        }
        actor.send(part)?;
        Ok(Self { actor, is_traced })
    }

    /// Why this system does not let processes be traced, if it does not.
    pub(crate) fn refusal() -> Option<String> {
        let tried = part::hire().map(|actor| {
            let options = ptrace::Options::PTRACE_O_EXITKILL;
            ptrace::seize(actor.pid(), options).err()
        });
        match tried {
            Ok(error) => error.map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Where the process has stopped, if it has.
    ///
    /// # Errors
    /// When it has met with something else.
    pub(crate) fn look(&mut self) -> anyhow::Result<Option<Stop>> {
        self.wait(WaitPidFlag::WNOHANG)
    }

    /// Goes on to the next instruction. Only where it is traced.
    ///
    /// # Errors
    /// When it has met with something else than its mark.
    pub(crate) fn step(&mut self) -> anyhow::Result<Stop> {
        match ptrace::step(self.actor.pid(), None) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(Stop::Over),
            Err(error) => return Err(error).context("PTRACE_SINGLESTEP"),
        }
        let stop = self.wait(WaitPidFlag::empty())?;
        stop.context("a wait that ended without news")
    }

    /// The address of its next instruction. Only where it is traced.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn place(&self) -> anyhow::Result<u64> {
        let registers = ptrace::getregs(self.actor.pid()).context("PTRACE_GETREGS")?;
        Ok(registers.rip)
    }

    /// Has it stop at an address; what was there before.
    ///
    /// # Errors
    /// When it is gone, or there is no such address.
    pub(crate) fn set_trap(&self, place: u64) -> anyhow::Result<i64> {
        let pid = self.actor.pid();
        let was = ptrace::read(pid, address(place)).context("PTRACE_PEEKTEXT")?;
        let trap = (was & !0xff) | INT3;
        ptrace::write(pid, address(place), trap).context("PTRACE_POKETEXT")?;
        Ok(was)
    }

    /// Takes a trap away that it has run into, and steps back in front of it.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn clear_trap(&self, place: u64, was: i64) -> anyhow::Result<()> {
        let pid = self.actor.pid();
        ptrace::write(pid, address(place), was).context("PTRACE_POKETEXT")?;
        let mut registers = ptrace::getregs(pid).context("PTRACE_GETREGS")?;
        registers.rip = place;
        ptrace::setregs(pid, registers).context("PTRACE_SETREGS")
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn resume(&mut self) -> anyhow::Result<()> {
        match self.is_traced {
            true => ptrace::cont(self.actor.pid(), None).context("PTRACE_CONT"),
            false => self.actor.signal(Signal::SIGCONT),
        }
    }

    /// Stops it wherever it is. Only where it is not traced.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn halt(&mut self) -> anyhow::Result<()> {
        self.actor.signal(Signal::SIGSTOP)?;
        let stop = self.wait(WaitPidFlag::empty())?;
        ensure!(
            stop == Some(Stop::Marked),
            "a victim did not stop: {stop:?}"
        );
        Ok(())
    }

    /// Kills it; the instant at which that was asked for. It stays a zombie until [`Self::reap`].
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Instant> {
        let at = Instant::now();
        self.actor.signal(Signal::SIGKILL)?;
        Ok(at)
    }

    /// Takes it from the list of processes after its end.
    ///
    /// # Errors
    /// When it does not end.
    pub(crate) fn reap(&mut self) -> anyhow::Result<()> {
        while self.wait(WaitPidFlag::empty())? != Some(Stop::Over) {
            self.resume()?;
        }
        Ok(())
    }

    /// The process itself.
    pub(crate) fn actor(&mut self) -> &mut Process {
        &mut self.actor
    }

    fn wait(&mut self, flags: WaitPidFlag) -> anyhow::Result<Option<Stop>> {
        let flags = flags | WaitPidFlag::WUNTRACED;
        match waitpid(self.actor.pid(), Some(flags)) {
            Ok(WaitStatus::StillAlive) => Ok(None),
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(Some(Stop::Stepped)),
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => Ok(Some(Stop::Marked)),
            Ok(WaitStatus::Exited(_, 0) | WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
                Ok(Some(Stop::Over))
            }
            Err(Errno::ECHILD) => Ok(Some(Stop::Over)),
            Err(Errno::EINTR) => Ok(None),
            other => bail!("the victim has met with {other:?}"),
        }
    }
}

fn address(place: u64) -> ptrace::AddressType {
    std::ptr::without_provenance_mut(place as usize)
}

/// The instruction that is a trap.
const INT3: i64 = 0xcc;

/// Child: stops until it is let go on.
pub(super) fn mark() -> anyhow::Result<()> {
    raise(Signal::SIGSTOP).context("SIGSTOP for this process itself")
}
