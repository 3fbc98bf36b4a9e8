//! The pause between two polls of a cache line that another thread writes.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The spin-loop hint of the processor, where it is short enough.
///
/// A thread that polls again at once takes the cache line from its writer before the whole line is
/// written, and the processor core from a thread that shares the core. Round trips get longer by a
/// quarter where cache lines travel far. On some processors the hint (`PAUSE`) is a pause of the
/// right length; on others it is too long, and [`Self::pause`] does nothing.
#[derive(Clone, Copy, Debug)]
pub struct SpinHint {
    is_short: bool,
}

/// The longest hint that is a pause and not a delay.
const MAX_PAUSE: Duration = Duration::from_nanos(35);
/// The number of hints in a measurement.
const HINTS: u32 = 16;
/// The number of measurements.
const MEASUREMENTS: usize = 5;

impl SpinHint {
    /// The hint for this machine. The first call in a process measures the hint, which takes some
    /// microseconds.
    pub fn measured() -> Self {
        static MEASURED: OnceLock<SpinHint> = OnceLock::new();
        *MEASURED.get_or_init(|| Self {
            is_short: (0..MEASUREMENTS).any(|_| time_hints() <= MAX_PAUSE * HINTS),
        })
    }

    /// Pauses, so that the writer keeps the cache line.
    #[inline(always)]
    pub fn pause(self) {
        if self.is_short {
            spin_loop();
        }
    }
}

fn time_hints() -> Duration {
    let start = Instant::now();
    (0..HINTS).for_each(|_| spin_loop());
    start.elapsed()
}
