//! There and back: puts that the other side sees by looking at its memory, and writes with data, of
//! which its queue says so.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use selvedge::{CompletionFlags, cq};

use super::{DATA, Run};
use crate::clock::Clock;
use crate::pair::Side;
use crate::timing::{Counts, Timing, round_trips};

impl Run<'_> {
    /// Puts there and back: each side waits until it sees the last byte of the other's.
    pub(super) fn puts(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
    ) -> anyhow::Result<Timing> {
        let mut turn = 0_u8;
        self.window
            .byte(DATA + self.size - 1)
            .store(0, Ordering::Relaxed);
        self.agree()?;
        round_trips(clock, counts, || {
            turn = turn % 251 + 1;
            if side == Side::Passive {
                self.see(turn);
            }
            self.put(turn)?;
            if side == Side::Active {
                self.see(turn);
            }
            Ok(())
        })
    }

    #[inline]
    fn see(&self, turn: u8) {
        let last = self.window.byte(DATA + self.size - 1);
        while last.load(Ordering::Acquire) != turn {
            self.idle.pause();
        }
    }

    /// Writes with data there and back: each side waits for the data of the other's. The same loop
    /// as a round trip of messages, but that no receive is posted.
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
                    self.hear(turn, inject)
                }
                Side::Passive => {
                    self.hear(turn, true)?;
                    self.post_data(inject, turn)?;
                    if inject { Ok(()) } else { self.complete() }
                }
            }
        })
    }

    /// Waits for the other side's data, and for the own write unless it does not complete.
    #[inline]
    fn hear(&self, turn: u64, mut written: bool) -> anyhow::Result<()> {
        let mut heard = false;
        let mut entry = [cq::Entry::default()];
        while !heard || !written {
            if self.completed(&mut entry)? == 0 {
                self.idle.rest();
            } else if entry[0].flags.contains(CompletionFlags::REMOTE_WRITE) {
                let data = entry[0].data;
                ensure!(data == turn, "data {data} came with write {turn}");
                heard = true;
            } else {
                written = true;
            }
        }
        Ok(())
    }
}
