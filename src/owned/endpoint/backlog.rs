//! Posts that found a full queue, in the order in which they were made.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::port::Port;
use super::post::{Operands, Post};
use super::slots::Key;
use super::told::{After, Task};
use crate::owned::{Buf, Refused, lock};
use crate::{Errno, FiAddr};

/// Posts between which an order is kept: a full queue for one peer holds no other one up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Receives,
    To(FiAddr),
}

/// The posts that wait for room. Those that come after one of their lane wait behind it.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// How many lanes there are: where there are none, as nearly always, nobody takes the lock.
    count: AtomicUsize,
    lanes: Mutex<VecDeque<(Lane, VecDeque<Arc<Ticket>>)>>,
}

/// What becomes of one post that waits, for its future and for whoever posts it at last.
#[derive(Debug)]
pub(super) struct Ticket(Mutex<Fate>);

#[derive(Debug)]
enum Fate {
    Waiting(Waiting),
    Posted(Key),
    Refused(Refused),
    /// The future has looked, or is gone.
    Over,
}

/// A post, with a copy of what it borrowed.
#[derive(Debug)]
struct Waiting {
    what: Post,
    operand: Box<[u8]>,
    compare: Box<[u8]>,
    buf: Buf,
    task: Task,
}

/// What one more try has brought.
enum Tried {
    /// There is no room yet.
    Full,
    /// The ticket waits no more.
    Done(After),
}

impl Lane {
    pub(super) fn of(what: Post) -> Self {
        what.dest().map_or(Self::Receives, Self::To)
    }
}

impl Backlog {
    /// Whether a post of this lane waits.
    pub(super) fn holds(&self, lane: Lane) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && lock(&self.lanes).iter().any(|(other, _)| *other == lane)
    }

    /// Has a post wait behind those of its lane.
    pub(super) fn add(
        &self,
        what: Post,
        operands: Operands<'_>,
        buf: Buf,
        task: Task,
    ) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket(Mutex::new(Fate::Waiting(Waiting {
            what,
            operand: operands.operand.into(),
            compare: operands.compare.into(),
            buf,
            task,
        }))));
        let (lane, last) = (Lane::of(what), Arc::clone(&ticket));
        let mut lanes = lock(&self.lanes);
        match lanes.iter_mut().find(|(other, _)| *other == lane) {
            Some((_, tickets)) => tickets.push_back(last),
            None => lanes.push_back((lane, VecDeque::from([last]))),
        }
        self.count.store(lanes.len(), Ordering::Release);
        ticket
    }

    /// Posts what there is room for, each lane in its order; what is to be done then, without locks.
    pub(super) fn flush(&self, port: &Port<Task>) -> Vec<After> {
        let mut aftermath = Vec::new();
        if self.count.load(Ordering::Acquire) == 0 {
            return aftermath;
        }
        let mut lanes = lock(&self.lanes);
        lanes.retain_mut(|(_, tickets)| {
            while let Some(first) = tickets.front() {
                let Tried::Done(after) = first.post(port) else {
                    return true;
                };
                aftermath.push(after);
                tickets.pop_front();
            }
            false
        });
        // What little room there is goes to another lane the next time.
        if !lanes.is_empty() {
            lanes.rotate_left(1);
        }
        self.count.store(lanes.len(), Ordering::Release);
        aftermath
    }
}

impl Drop for Backlog {
    /// Frees the buffers of futures that were leaked.
    fn drop(&mut self) {
        for (_, tickets) in mem::take(&mut *lock(&self.lanes)) {
            for ticket in tickets {
                ticket.leave();
            }
        }
    }
}

impl Ticket {
    fn post(&self, port: &Port<Task>) -> Tried {
        let mut fate = lock(&self.0);
        let Waiting {
            what,
            operand,
            compare,
            buf,
            task,
        } = match mem::replace(&mut *fate, Fate::Over) {
            Fate::Waiting(waiting) => waiting,
            other => {
                *fate = other;
                return Tried::Done(After::Nothing);
            }
        };
        let operands = Operands {
            operand: &operand,
            compare: &compare,
        };
        match port.post(what, operands, buf, task.clone()) {
            Ok(key) => {
                *fate = Fate::Posted(key);
                Tried::Done(After::Forget(task))
            }
            Err(Refused {
                errno: Errno::Again,
                buf,
            }) => {
                *fate = Fate::Waiting(Waiting {
                    what,
                    operand,
                    compare,
                    buf,
                    task,
                });
                Tried::Full
            }
            Err(refused) => {
                *fate = Fate::Refused(refused);
                Tried::Done(task.waker().map_or(After::Nothing, After::Wake))
            }
        }
    }

    /// The key once it is posted; `None` while it waits, and then `task` is told.
    pub(super) fn look(&self, task: Task) -> Result<Option<Key>, Refused> {
        let before;
        {
            let mut fate = lock(&self.0);
            match &mut *fate {
                Fate::Waiting(waiting) => before = mem::replace(&mut waiting.task, task),
                other => return mem::replace(other, Fate::Over).ended(),
            }
        }
        drop(before);
        Ok(None)
    }

    /// Posts it no more: the key if it was posted, its buffer if not.
    pub(super) fn withdraw(&self) -> (Option<Key>, Option<Buf>) {
        match mem::replace(&mut *lock(&self.0), Fate::Over) {
            Fate::Waiting(waiting) => (None, Some(waiting.buf)),
            Fate::Refused(refused) => (None, Some(refused.buf)),
            Fate::Posted(key) => (Some(key), None),
            Fate::Over => (None, None),
        }
    }

    /// Posts it no more. The key if that has happened.
    pub(super) fn leave(&self) -> Option<Key> {
        let fate = mem::replace(&mut *lock(&self.0), Fate::Over);
        fate.ended().ok().flatten()
    }
}

impl Fate {
    fn ended(self) -> Result<Option<Key>, Refused> {
        match self {
            Self::Posted(key) => Ok(Some(key)),
            Self::Refused(refused) => Err(refused),
            Self::Waiting(_) | Self::Over => Ok(None),
        }
    }
}
