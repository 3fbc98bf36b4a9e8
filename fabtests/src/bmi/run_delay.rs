//! `RunDelay`: how long threads of this process were ready to run while other threads had the
//! processors.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The statistics of some threads that the scheduler keeps (`/proc/PID/task/TID/schedstat`).
#[derive(Debug)]
pub(super) struct RunDelay {
    threads: Vec<File>,
}

impl RunDelay {
    /// Opens the statistics of threads of this process.
    ///
    /// # Errors
    /// When the kernel keeps none.
    pub(super) fn of(threads: impl Iterator<Item = i32>) -> io::Result<Self> {
        let open = |thread| File::open(format!("/proc/self/task/{thread}/schedstat"));
        Ok(Self {
            threads: threads.map(open).collect::<Result<_, _>>()?,
        })
    }

    /// The sum over the threads, since they began.
    pub(super) fn read(&self) -> Duration {
        self.threads.iter().map(read).sum()
    }
}

/// The second number of the file; zero if there is none.
fn read(thread: &File) -> Duration {
    let mut text = [0; 80];
    let len = thread.read_at(&mut text, 0).unwrap_or_default();
    let text = std::str::from_utf8(&text[..len]).unwrap_or_default();
    let second = text.split_ascii_whitespace().nth(1);
    Duration::from_nanos(second.and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use nix::unistd::gettid;

    use super::*;

    #[test]
    fn the_kernel_keeps_the_statistics_of_this_thread() {
        let own = RunDelay::of(std::iter::once(gettid().as_raw())).unwrap();
        let first = own.read();
        assert!(own.read() >= first);
    }
}
