//! `SchedStat`: the scheduler's times of a thread: on a processor, and ready to run while other
//! threads had the processors.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The statistics of one thread (`/proc/PID/task/TID/schedstat`).
#[derive(Debug)]
pub struct SchedStat(File);

/// Times of a thread since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// On a processor.
    pub on_processor: Duration,
    /// Ready to run, without a processor.
    pub run_delay: Duration,
}

impl SchedStat {
    /// Opens the statistics of a thread, by the kernel's identifier.
    ///
    /// # Errors
    /// There is no such thread, or the kernel keeps no statistics.
    pub fn of(thread: i32) -> io::Result<Self> {
        let path = format!("/proc/{thread}/task/{thread}/schedstat");
        File::open(path).map(Self)
    }

    /// Returns the times so far; zero for a thread that has ended.
    pub fn read(&self) -> Times {
        let mut text = [0; 80];
        let len = self.0.read_at(&mut text, 0).unwrap_or_default();
        let text = std::str::from_utf8(&text[..len]).unwrap_or_default();
        let mut numbers = text.split_ascii_whitespace();
        let mut next = || {
            let number = numbers.next().and_then(|number| number.parse().ok());
            Duration::from_nanos(number.unwrap_or(0))
        };
        Times {
            on_processor: next(),
            run_delay: next(),
        }
    }
}

impl Times {
    /// Returns the times since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            on_processor: self.on_processor.saturating_sub(earlier.on_processor),
            run_delay: self.run_delay.saturating_sub(earlier.run_delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn processor_time_of_a_computing_thread_grows() {
        let stat = SchedStat::of(gettid().as_raw()).unwrap();
        let first = stat.read();
        while stat.read().on_processor <= first.on_processor {
            std::hint::spin_loop();
        }
        assert!(stat.read().run_delay >= first.run_delay);
    }
}
