//! Windows of accesses: a run posts a whole window, then reads all its completions. Each access of
//! a window has its own buffer and offset.

use selvedge::cq;

use super::Run;
use crate::measure::clock::Clock;
use crate::measure::timing::{Counts, Timing, stream};
use crate::pair::Side;

impl Run<'_> {
    /// Runs one side of windows of puts.
    pub(super) fn put_windows(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
        window: usize,
    ) -> anyhow::Result<Timing> {
        self.windows(side, clock, counts, window, |run, number| {
            run.post_put(number)
        })
    }

    /// Runs one side of windows of gets.
    pub(super) fn get_windows(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
        window: usize,
    ) -> anyhow::Result<Timing> {
        self.windows(side, clock, counts, window, Self::post_get)
    }

    fn windows(
        &mut self,
        side: Side,
        clock: Clock,
        counts: Counts,
        window: usize,
        post: impl Fn(&mut Self, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Timing> {
        if side == Side::Passive {
            return Ok(Timing::default());
        }
        let mut entries = vec![cq::Entry::default(); window];
        stream(clock, counts, window, || {
            for number in 0..window {
                post(self, number)?;
            }
            let mut outstanding = window;
            while outstanding > 0 {
                outstanding -= self.read_completions(&mut entries)?;
            }
            Ok(())
        })
    }
}
