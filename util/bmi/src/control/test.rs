//! Testing and waiting: functions that collect completions and unexpected messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::bmi::Bmi;
use super::method_instance::MethodInstance;
use super::queues::Unexpected;
use super::wait::PollMode;
use crate::ids::{OpId, OpKey};
use crate::{Code, Completion, ContextId, Result};

/// Maximum time that the wait functions of the first BMI block.
pub const WAIT: Duration = Duration::from_millis(10);

impl Bmi {
    /// Tests one operation (`BMI_test`) and waits up to `idle` for its completion. Returns `None`
    /// if the operation is not complete by then.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for an unknown or collected operation, for one of another context, and for
    /// a context that is not open.
    #[inline]
    pub fn test(&self, id: OpId, idle: Duration, context: ContextId) -> Result<Option<Completion>> {
        let (instance, key) = self.operation(id)?;
        let context = self.context(context)?;
        self.wait_for(idle, |mode| {
            let mut locked = instance.lock_for_progress(&self.parking);
            let (method, queues) = locked.split();
            match mode {
                PollMode::Progress => {
                    queues.collect_after(key, context, |queues| method.progress(queues))
                }
                PollMode::ReadOnly => queues.collect(key, context),
            }
        })
    }

    /// Tests the operations `ids` of one context (`BMI_testsome`) and waits up to `idle` until one
    /// is complete. Calls `found` for each completion, with its index in `ids`, and returns their
    /// number. `None` entries are skipped.
    ///
    /// # Errors
    /// As [`Self::test`], if it applies to any of the operations; no operation is collected then.
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
        let count = self.wait_for(idle, |mode| {
            if mode == PollMode::Progress {
                self.progress();
            }
            let mut count = 0;
            for (index, id) in ids.iter().enumerate() {
                let Some(id) = id else { continue };
                let (instance, key) = self.operation(*id)?;
                let done = instance.lock(&self.parking).queues().collect(key, context);
                // Skips an operation that another thread has collected since the check.
                if let Ok(Some(done)) = done {
                    found(index, done);
                    count += 1;
                }
            }
            Ok((count > 0).then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Collects up to `max` completions of a context (`BMI_testcontext`), the oldest of each method
    /// first, and waits up to `idle` until there is one. Calls `found` for each completion and
    /// returns their number. An unexpected message ends the wait, unless
    /// [`Self::interrupt_on_unexpected`] has disabled this.
    ///
    /// # Errors
    /// [`Code::EINVAL`] for a context that is not open.
    pub fn testcontext(
        &self,
        max: usize,
        idle: Duration,
        context: ContextId,
        mut found: impl FnMut(Completion),
    ) -> Result<usize> {
        let number = self.context(context)?;
        let interrupts = self.interrupts_on_unexpected.load(Ordering::Relaxed);
        let count = self.wait_for(idle, |mode| {
            let mut collected = Vec::new();
            let mut is_interrupted = false;
            for instance in self.instances_rotated() {
                let mut locked = instance.lock_for_progress(&self.parking);
                if mode == PollMode::Progress {
                    locked.progress();
                }
                while collected.len() < max
                    && let Some(done) = locked.queues().collect_any(number)
                {
                    collected.push(done);
                }
                is_interrupted |= interrupts && locked.queues().has_unexpected();
            }
            let count = collected.len();
            // No lock is held here: the callback may post.
            collected.into_iter().for_each(&mut found);
            let is_over = count > 0 || is_interrupted || self.context(context).is_err();
            Ok(is_over.then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// Takes up to `max` unexpected messages of a class (`BMI_testunexpected_class`) and waits up
    /// to `idle` until there is one. Calls `found` for each message and returns their number.
    ///
    /// # Errors
    /// Only those of the system calls with which a waiting thread parks (eventfd(2), ppoll(2)).
    pub fn testunexpected(
        &self,
        max: usize,
        class: u8,
        idle: Duration,
        mut found: impl FnMut(Unexpected),
    ) -> Result<usize> {
        self.forget_disconnected();
        let count = self.wait_for(idle, |mode| {
            let mut collected = Vec::new();
            for instance in self.instances_rotated() {
                let mut locked = instance.lock_for_progress(&self.parking);
                if mode == PollMode::Progress {
                    locked.progress();
                }
                while collected.len() < max
                    && let Some(message) = locked.queues().take_unexpected(class)
                {
                    self.count_reference(locked.queues(), message.addr);
                    collected.push(message);
                }
            }
            let count = collected.len();
            // No lock is held here: the callback may post.
            collected.into_iter().for_each(&mut found);
            Ok((count > 0).then_some(count))
        })?;
        Ok(count.unwrap_or(0))
    }

    /// As [`Self::test`] with `idle` = [`WAIT`] (`BMI_wait` of the first BMI).
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn wait(&self, id: OpId, context: ContextId) -> Result<Option<Completion>> {
        self.test(id, WAIT, context)
    }

    /// As [`Self::testsome`] with `idle` = [`WAIT`] (`BMI_waitsome` of the first BMI).
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

    /// As [`Self::testunexpected`] with `idle` = [`WAIT`] (`BMI_waitunexpected` of the first
    /// BMI).
    ///
    /// # Errors
    /// As [`Self::testunexpected`].
    pub fn waitunexpected(
        &self,
        max: usize,
        class: u8,
        found: impl FnMut(Unexpected),
    ) -> Result<usize> {
        self.testunexpected(max, class, WAIT, found)
    }

    /// Requests the cancellation of an operation (`BMI_cancel`). An operation that has not begun
    /// ends with [`Code::ECANCEL`]. A running, complete or unknown operation is not affected. A
    /// later test reports the outcome in every case.
    pub fn cancel(&self, id: OpId) {
        if let Ok((instance, key)) = self.operation(id) {
            let mut locked = instance.lock(&self.parking);
            let (method, queues) = locked.split();
            if queues.ops.get(key).is_some_and(|op| op.outcome.is_none()) {
                method.cancel(key, queues);
            }
        }
    }

    /// Cancels an operation and collects it without blocking (`BMI_unpost` of the first BMI). An
    /// operation that has not begun ends with [`Code::ECANCEL`]; a complete one keeps its outcome.
    /// Returns `None` for an operation that is running; a later test reports its outcome.
    ///
    /// # Errors
    /// As [`Self::test`].
    pub fn unpost(&self, id: OpId, context: ContextId) -> Result<Option<Completion>> {
        let (instance, key) = self.operation(id)?;
        let context = self.context(context)?;
        let mut locked = instance.lock(&self.parking);
        let (method, queues) = locked.split();
        let ended = queues.collect_after(key, context, |queues| {
            method.progress(queues);
            if queues.is_tested(key) {
                method.cancel(key, queues);
            }
        })?;
        // Wakes a thread that waits for this operation: its test then fails, as the operation has
        // been collected.
        queues.has_events |= ended.is_some();
        Ok(ended)
    }

    /// Progresses all methods.
    fn progress(&self) {
        self.instances_rotated()
            .for_each(|instance| instance.lock_for_progress(&self.parking).progress());
    }

    #[inline]
    fn operation(&self, id: OpId) -> Result<(&MethodInstance, OpKey)> {
        let (method, key) = id.split().ok_or(Code::EINVAL)?;
        Ok((self.method_instance(method).ok_or(Code::EINVAL)?, key))
    }

    fn check_operation(&self, id: OpId, context: u8) -> Result {
        let (instance, key) = self.operation(id)?;
        let mut locked = instance.lock(&self.parking);
        let op = locked.queues().ops.get(key).ok_or(Code::EINVAL)?;
        if op.context == Some(context) {
            Ok(())
        } else {
            Err(Code::EINVAL)
        }
    }
}
