//! One piece of work, and how it is carried out.

use std::sync::{Arc, Weak};

use selvedge::cq::Entry;
use selvedge::trigger::{self, CompletionTarget, Work, WorkId};
use selvedge::{Counter, Endpoint, Errno, Error, Op, OpFlags};

use super::ledger::{Debt, Ledger};
use crate::cntr::{Cntr, own};
use crate::identity::DomainId;
use crate::stored_op::StoredOp;

/// Work that was queued. It keeps nothing alive: what ends meanwhile takes its part of it along.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) ticket: WorkId,
    pub(crate) threshold: u64,
    /// The address of the counter that it waits at, which tells it from others.
    pub(crate) at: usize,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Post(Box<Post>),
    Set(Weak<Cntr>, u64),
    Add(Weak<Cntr>, u64),
}

#[derive(Debug)]
struct Post {
    ep: Weak<dyn Endpoint>,
    ledger: Arc<Ledger>,
    op: StoredOp,
    flags: OpFlags,
    told: Told,
}

#[derive(Debug)]
enum Told {
    Endpoint,
    Counter(Weak<Cntr>),
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fired {
    /// It was carried out, has failed, or there is nobody left to do it.
    Over,
    /// There was no room.
    NotYet,
}

impl Item {
    /// Work as it is kept; `ledger` is that of the endpoint, if it is posted to one.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a counter of another domain; the system's, when memory is short.
    pub(crate) fn new(
        work: &Work<'_>,
        ticket: WorkId,
        domain: &DomainId,
        at: usize,
        ledger: Option<&Arc<Ledger>>,
    ) -> Result<Self, Error> {
        let own = |cntr| own(domain, "counter that work tells or changes", cntr);
        let action = match (work.action, ledger) {
            (trigger::Action::Set(cntr, value), _) => {
                Action::Set(Arc::downgrade(&own(cntr)?), value)
            }
            (trigger::Action::Add(cntr, value), _) => {
                Action::Add(Arc::downgrade(&own(cntr)?), value)
            }
            (
                trigger::Action::Post {
                    ep,
                    op,
                    flags,
                    done,
                },
                Some(ledger),
            ) => Action::Post(Box::new(Post {
                ep: Arc::downgrade(ep),
                ledger: Arc::clone(ledger),
                op: StoredOp::new(&op),
                flags,
                told: match done {
                    CompletionTarget::Endpoint => Told::Endpoint,
                    CompletionTarget::Counter(None) => Told::Counter(Weak::new()),
                    CompletionTarget::Counter(Some(cntr)) => {
                        let cntr = own(cntr)?;
                        ledger.follow(&cntr)?;
                        Told::Counter(Arc::downgrade(&cntr))
                    }
                },
            })),
            (trigger::Action::Post { ep, .. }, None) => {
                let what = format!("{ep:?} takes no work that waits");
                return Err(Error::new(Errno::NoSys, what));
            }
        };
        let threshold = work.threshold;
        Ok(Self {
            ticket,
            threshold,
            at,
            action,
        })
    }

    /// Whether it has to wait for another piece of work, which waits for room.
    pub(super) fn is_behind(&self, other: &Self) -> bool {
        match (&self.action, &other.action) {
            (Action::Post(own), Action::Post(other)) => Weak::ptr_eq(&own.ep, &other.ep),
            _ => false,
        }
    }

    /// Carries it out. Takes no lock but those of what it posts to or counts on.
    pub(super) fn fire(&self) -> Fired {
        match &self.action {
            Action::Set(cntr, value) => {
                if let Some(cntr) = cntr.upgrade() {
                    cntr.set(*value);
                }
                Fired::Over
            }
            Action::Add(cntr, value) => {
                if let Some(cntr) = cntr.upgrade() {
                    cntr.add(*value);
                }
                Fired::Over
            }
            Action::Post(post) => post.fire(),
        }
    }
}

impl Post {
    fn fire(&self) -> Fired {
        let Some(ep) = self.ep.upgrade() else {
            return Fired::Over;
        };
        match &self.told {
            Told::Endpoint => self.fire_openly(&*ep),
            Told::Counter(cntr) => self.fire_quietly(&*ep, cntr),
        }
    }

    /// As the application would have posted it.
    fn fire_openly(&self, ep: &dyn Endpoint) -> Fired {
        #[expect(unsafe_code, reason = "the promise of whoever queued the work")]
        // SAFETY: whoever queued it has promised what the post asks for, until the completion.
        let posted = unsafe { self.op.op().post(ep, self.flags) };
        match posted {
            Err(Errno::Again) => return Fired::NotYet,
            Err(errno) => self.ledger.refused(self.entry(), errno),
            Ok(()) => {}
        }
        Fired::Over
    }

    /// So that a counter is told, and nobody else.
    fn fire_quietly(&self, ep: &dyn Endpoint, cntr: &Weak<Cntr>) -> Fired {
        let op = self.op.op();
        let debt = Debt {
            context: op.context(),
            cntr: cntr.clone(),
            reports: self.flags.contains(OpFlags::COMPLETION),
        };
        let id = self.ledger.owe(debt);
        let flags = self.flags | OpFlags::DEFERRED;
        #[expect(unsafe_code, reason = "the promise of whoever queued the work")]
        // SAFETY: as above; until the counter counts it.
        let posted = unsafe { op.with_context(id).post(ep, flags) };
        let Err(errno) = posted else {
            return Fired::Over;
        };
        let debt = self.ledger.settle(id);
        if errno == Errno::Again {
            return Fired::NotYet;
        }
        if let Some(debt) = debt {
            log::warn!(target: "selvedge::core::domain", "deferred work for {ep:?} was refused: {errno}");
            if debt.fail() {
                self.ledger.push_refusal(self.entry(), errno);
            }
        }
        Fired::Over
    }

    /// What an error says of it.
    fn entry(&self) -> Entry {
        let op = self.op.op();
        Entry {
            context: op.context(),
            flags: op.kind(),
            tag: match op {
                Op::TaggedRecv(msg) => msg.tag.tag,
                _ => 0,
            },
            ..Entry::default()
        }
    }
}
