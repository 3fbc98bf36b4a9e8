//! Testing and waiting: what is done, and what has arrived.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Bmi;
use super::desk::Unexpected;
use super::sleep::Look;
use super::station::Station;
use crate::ids::{OpId, OpKey};
use crate::{Code, Completion, ContextId, Result};

/// How long the waits of the seed block when there is nothing.
pub const WAIT: Duration = Duration::from_millis(10);

impl Bmi {
    /// Tests one operation (`BMI_test`), and idles for up to `idle` while it is not done.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an operation that there is not (any more), or not in this context.
    #[inline]
    pub fn test(&self, id: OpId, idle: Duration, context: ContextId) -> Result<Option<Completion>> {
        let (station, key) = self.operation(id)?;
        let context = self.context(context)?;
        self.wait_for(idle, |look| {
            let mut held = station.hold_for_pass(&self.sleepers);
            let (method, desk) = held.parts();
            match look {
                Look::Drive => desk.collect_or(key, context, |desk| method.progress(desk)),
                Look::Glance => desk.collect(key, context),
            }
        })
    }

    /// Tests some operations of one context (`BMI_testsome`), and idles while none of them is done.
    /// Hands each that is done to `found`, with its place among `ids`. `None` are holes.
    ///
    /// # Errors
    /// As [`Self::test`], for any of them; nothing is collected then.
    pub fn testsome(
        &self,
        ids: &[Option<OpId>],
        idle: Duration,
        context: ContextId,
        mut found: impl FnMut(usize, Completion),
    ) -> Result<usize> {
        let context = self.context(context)?;
        for id in ids.iter().flatten() {
            self.check_operation(*id, context)?;
        }
        let count = self.wait_for(idle, |look| {
            if look == Look::Drive {
                self.progress();
            }
            let mut count = 0;
            for (place, id) in ids.iter().enumerate() {
                let Some(id) = id else { continue };
                let (station, key) = self.operation(*id)?;
                let done = station.hold(&self.sleepers).desk().collect(key, context);
                // One that another thread has collected meanwhile is not there any more.
                if let Ok(Some(done)) = done {
                    found(place, done);
                    count += 1;
                }
            }
            Ok((count > 0).then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Tests for whatever is done in a context (`BMI_testcontext`), at most `most`, the oldest
    /// first, and idles while there is nothing. An unexpected message ends the idling.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for a context that is not open.
    pub fn testcontext(
        &self,
        most: usize,
        idle: Duration,
        context: ContextId,
        mut found: impl FnMut(Completion),
    ) -> Result<usize> {
        let number = self.context(context)?;
        let heeds = self.heeds_unexpected.load(Ordering::Relaxed);
        let count = self.wait_for(idle, |look| {
            let mut told = Vec::new();
            let mut is_interrupted = false;
            for station in self.stations_in_turn() {
                let mut held = station.hold_for_pass(&self.sleepers);
                if look == Look::Drive {
                    held.progress();
                }
                while told.len() < most
                    && let Some(done) = held.desk().collect_any(number)
                {
                    told.push(done);
                }
                is_interrupted |= heeds && held.desk().has_unexpected();
            }
            let count = told.len();
            // Without any lock: it may post.
            told.into_iter().for_each(&mut found);
            let is_over = count > 0 || is_interrupted || self.context(context).is_err();
            Ok(is_over.then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Tests for unexpected messages of a class (`BMI_testunexpected_class`), at most `most`, and
    /// idles while there is none.
    ///
    /// # Errors
    /// None but those of sleeping.
    pub fn testunexpected(
        &self,
        most: usize,
        class: u8,
        idle: Duration,
        mut found: impl FnMut(Unexpected),
    ) -> Result<usize> {
        self.forget_gone();
        let count = self.wait_for(idle, |look| {
            let mut told = Vec::new();
            for station in self.stations_in_turn() {
                let mut held = station.hold_for_pass(&self.sleepers);
                if look == Look::Drive {
                    held.progress();
                }
                while told.len() < most
                    && let Some(message) = held.desk().take_unexpected(class)
                {
                    self.count_reference(held.desk(), message.addr);
                    told.push(message);
                }
            }
            let count = told.len();
            // Without any lock: it may post.
            told.into_iter().for_each(&mut found);
            Ok((count > 0).then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// As [`Self::test`], and blocks for [`WAIT`] (the seed's `BMI_wait`).
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn wait(&self, id: OpId, context: ContextId) -> Result<Option<Completion>> {
        self.test(id, WAIT, context)
    }

    /// As [`Self::testsome`], and blocks for [`WAIT`] (the seed's `BMI_waitsome`).
    ///
    /// # Errors
    /// As [`Self::testsome`].
    pub fn waitsome(
        &self,
        ids: &[Option<OpId>],
        context: ContextId,
        found: impl FnMut(usize, Completion),
    ) -> Result<usize> {
        self.testsome(ids, WAIT, context, found)
    }

    /// As [`Self::testunexpected`], and blocks for [`WAIT`] (the seed's `BMI_waitunexpected`).
    ///
    /// # Errors
    /// As [`Self::testunexpected`].
    pub fn waitunexpected(
        &self,
        most: usize,
        class: u8,
        found: impl FnMut(Unexpected),
    ) -> Result<usize> {
        self.testunexpected(most, class, WAIT, found)
    }

    /// Asks for an operation to end (`BMI_cancel`). If it has not begun, it ends with
    /// [`Code::ECANCEL`]; otherwise, and if it is over or unknown, nothing happens. Either way a test
    /// tells how it ended.
    pub fn cancel(&self, id: OpId) {
        if let Ok((station, key)) = self.operation(id) {
            let mut held = station.hold(&self.sleepers);
            let (method, desk) = held.parts();
            if desk.ops.get(key).is_some_and(|op| op.outcome.is_none()) {
                method.cancel(key, desk);
            }
        }
    }

    /// Takes an operation back (the seed's `BMI_unpost`) and collects it, without blocking. An
    /// operation that has not begun ends with [`Code::ECANCEL`], one that is done as it was done.
    /// `None` if it has begun and goes on: a test tells of its end.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn unpost(&self, id: OpId, context: ContextId) -> Result<Option<Completion>> {
        let (station, key) = self.operation(id)?;
        let context = self.context(context)?;
        let mut held = station.hold(&self.sleepers);
        let (method, desk) = held.parts();
        let ended = desk.collect_or(key, context, |desk| {
            method.progress(desk);
            if desk.is_wanted(key) {
                method.cancel(key, desk);
            }
        })?;
        // A thread that waits for this very operation looks again, and finds that it is over.
        desk.has_news |= ended.is_some();
        Ok(ended)
    }

    /// Moves what can move with all methods.
    fn progress(&self) {
        self.stations_in_turn()
            .for_each(|station| station.hold_for_pass(&self.sleepers).progress());
    }

    #[inline]
    fn operation(&self, id: OpId) -> Result<(&Station, OpKey)> {
        let (method, key) = id.split().ok_or(Code::EINVAL)?;
        Ok((self.station(method).ok_or(Code::EINVAL)?, key))
    }

    fn check_operation(&self, id: OpId, context: u8) -> Result {
        let (station, key) = self.operation(id)?;
        let mut held = station.hold(&self.sleepers);
        let op = held.desk().ops.get(key).ok_or(Code::EINVAL)?;
        match op.context == Some(context) {
            true => Ok(()),
            false => Err(Code::EINVAL),
        }
    }
}
