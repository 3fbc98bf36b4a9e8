//! `Role`: what a process of a campaign does.

use selvedge_testkit::process::Process;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The configuration of a process, which decides what the process does.
pub(crate) trait Role: Serialize + DeserializeOwned {
    /// The name of the role.
    const NAME: &'static str;

    /// Executes the role to its end.
    ///
    /// # Errors
    /// The first failure in the role.
    fn execute(&self) -> anyhow::Result<()>;

    /// Starts a process in this role.
    ///
    /// # Errors
    /// The process cannot be started.
    fn start(&self) -> anyhow::Result<Process> {
        let mut process = start_process()?;
        self.assign_to(&mut process)?;
        Ok(process)
    }

    /// Gives the role to a process without one.
    ///
    /// # Errors
    /// The process has ended.
    fn assign_to(&self, process: &mut Process) -> anyhow::Result<()> {
        process.send(&(Self::NAME, self))
    }
}

/// Starts a process without a role, which waits for one on its standard input.
///
/// # Errors
/// The process cannot be started.
pub(super) fn start_process() -> anyhow::Result<Process> {
    Process::start([
        "campaign-process",
        "--parent",
        &std::process::id().to_string(),
    ])
}
