//! The pause between two looks at a line that somebody else writes.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Whoever looks again at once takes the line from its writer before all of it is written, and the
/// processor from a thread that shares it: round trips get longer by a quarter where lines travel far.
/// The processor's hint that a thread waits is a pause of the right length on some processors, and too
/// long on others, where there is none.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    hints: bool,
}

/// The longest hint that is a pause and not a delay.
const MOST: Duration = Duration::from_nanos(35);
/// Hints that are timed together, and how often.
const HINTS: u32 = 16;
const TIMES: usize = 5;

impl Pause {
    /// The pause that fits this machine. It is measured once in a process, in some microseconds.
    pub fn here() -> Self {
        static HERE: OnceLock<Pause> = OnceLock::new();
        *HERE.get_or_init(|| Self {
            hints: (0..TIMES).any(|_| timed() <= MOST * HINTS),
        })
    }

    /// Lets the line alone for a moment.
    #[inline(always)]
    pub fn rest(self) {
        if self.hints {
            spin_loop();
        }
    }
}

fn timed() -> Duration {
    let start = Instant::now();
    (0..HINTS).for_each(|_| spin_loop());
    start.elapsed()
}
