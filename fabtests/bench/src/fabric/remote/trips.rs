//! Round trips of puts and of writes with data. The target of a put polls its memory; a write with
//! data completes in the target's queue.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use selvedge::{CompletionFlags, cq};

use super::{DATA, Run};
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, round_trips};
use crate::pair::Side;

impl Run<'_> {
    /// Runs one side of round trips of puts. Each side polls for the last byte of the peer's put.
    pub(super) fn puts(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let mut turn = 0_u8;
        self.region
            .byte(DATA + self.size - 1)
            .store(0, Ordering::Relaxed);
        self.synchronise()?;
        round_trips(clock, counts, || {
            turn = turn % 251 + 1;
            if side == Side::Passive {
                self.wait_for_put(turn);
            }
            self.put(turn)?;
            if side == Side::Active {
                self.wait_for_put(turn);
            }
            Ok(())
        })
    }

    #[inline]
    fn wait_for_put(&self, turn: u8) {
        let last = self.region.byte(DATA + self.size - 1);
        while last.load(Ordering::Acquire) != turn {
            self.idle.wait_between_polls();
        }
    }

    /// Runs one side of round trips of writes with data. Each side waits for the data of the peer's
    /// write. The loop is that of round trips of messages, without posted receives.
    pub(super) fn writes_with_data(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
        inject: bool,
    ) -> anyhow::Result<Timing> {
        let mut turn = 0;
        round_trips(clock, counts, || {
            turn += 1;
            match side {
                Side::Active => {
                    self.post_data(inject, turn)?;
                    self.wait_for_data(turn, inject)
                }
                Side::Passive => {
                    self.wait_for_data(turn, true)?;
                    self.post_data(inject, turn)?;
                    if inject {
                        Ok(())
                    } else {
                        self.wait_for_completion()
                    }
                }
            }
        })
    }

    /// Waits for the peer's data, and for the local write's completion unless `is_written`.
    #[inline]
    fn wait_for_data(&self, turn: u64, mut is_written: bool) -> anyhow::Result<()> {
        let mut is_received = false;
        let mut entry = [cq::Entry::default()];
        while !is_received || !is_written {
            if self.read_completions(&mut entry)? == 0 {
                self.idle.wait_between_calls();
            } else if entry[0].flags.contains(CompletionFlags::REMOTE_WRITE) {
                let data = entry[0].data;
                ensure!(data == turn, "received data {data} with write {turn}");
                is_received = true;
            } else {
                is_written = true;
            }
        }
        Ok(())
    }
}
