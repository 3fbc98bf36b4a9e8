//! A clock that is cheap enough to read in every round trip.
//!
//! On x86-64 the clock is the time-stamp counter, calibrated against the system's clock. On other
//! architectures the clock is the system's clock itself.

use std::time::{Duration, Instant};

/// A calibrated clock: converts [`ticks`] into nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    ns_per_tick: f64,
}

impl Clock {
    /// Compares ticks with the system's clock for twenty milliseconds.
    pub fn calibrate() -> Self {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (elapsed, last) = (start.elapsed(), ticks());
        Self {
            ns_per_tick: elapsed.as_nanos() as f64 / (last - first).max(1) as f64,
        }
    }

    /// Nanoseconds in a number of ticks.
    pub fn ns(self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Time of one reading, in nanoseconds; each single-iteration sample contains one reading.
    pub fn cost_ns(self) -> f64 {
        let first = ticks();
        for _ in 0..COST_READS {
            std::hint::black_box(ticks());
        }
        self.ns(ticks() - first) / f64::from(COST_READS)
    }
}

/// The present reading of the clock, in ticks.
#[cfg(target_arch = "x86_64")]
#[inline]
#[expect(unsafe_code, reason = "reading the counter is an intrinsic")]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// The present reading of the clock, in ticks.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn ticks() -> u64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Duration of the calibration: long enough for an error below one part in ten thousand.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Readings of the clock whose mean time is the cost of one.
const COST_READS: u32 = 10_000;
