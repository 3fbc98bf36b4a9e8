//! The machine that ran the measurements.

pub mod cpu;

use nix::sys::utsname::uname;
use serde::Serialize;

use crate::machine::cpu::{Placement, allowed};
use crate::measure::clock::Clock;

/// The attributes of the machine that influence the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Operating system and its version.
    pub kernel: String,
    /// Instruction set.
    pub arch: &'static str,
    /// Cores of the active and the passive process; `null` when they were not pinned.
    pub pinned: Option<[usize; 2]>,
    /// Whether both processes shared one core. All figures of such a run contain the scheduler's
    /// work.
    pub one_core: bool,
    /// Time of one reading of the clock, in nanoseconds; every percentile contains one reading.
    pub clock_ns: f64,
    /// Version of this program.
    pub selvedge: &'static str,
}

impl Machine {
    /// Describes this machine, for processes with this placement.
    pub fn describe(placement: Placement) -> Self {
        Self {
            cpu: cpu_model(),
            cores: allowed().map_or(1, |cores| cores.len()),
            kernel: kernel(),
            arch: std::env::consts::ARCH,
            pinned: placement.cores(),
            one_core: placement.is_one_core(),
            clock_ns: Clock::calibrate().cost_ns(),
            selvedge: env!("CARGO_PKG_VERSION"),
        }
    }

    /// The machine in one line of text.
    pub fn headline(&self) -> String {
        let pinning = match (self.pinned, self.one_core) {
            (Some([core, _]), true) => {
                format!("both processes share core {core} and yield while they wait")
            }
            (Some([active, passive]), false) => format!("pinned to cores {active} and {passive}"),
            (None, _) => "not pinned".to_owned(),
        };
        format!(
            "{}, {} cores, {}; {pinning}",
            self.cpu, self.cores, self.kernel
        )
    }
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(':'));
    name.map_or_else(
        || "unknown processor".to_owned(),
        |(_, name)| name.trim().to_owned(),
    )
}

fn kernel() -> String {
    uname().map_or_else(
        |_| std::env::consts::OS.to_owned(),
        |uts| {
            let (name, release) = (uts.sysname(), uts.release());
            format!("{} {}", name.to_string_lossy(), release.to_string_lossy())
        },
    )
}
