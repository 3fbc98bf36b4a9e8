//! Shared receives with a defect.

#![expect(unsafe_code, reason = "receives around receives")]

use std::any::Any;
use std::sync::Arc;

use selvedge::{Context, Msg, OpFlags, Result, SharedReceives, TagMatch, Tagged, msg, tagged};

use super::Flaw;
use super::provider::unwrapped;

#[derive(Debug)]
pub(super) struct FlawedShared {
    inner: Arc<dyn SharedReceives>,
    flaw: Flaw,
}

impl FlawedShared {
    pub(super) fn new(inner: Arc<dyn SharedReceives>, flaw: Flaw) -> Self {
        Self { inner, flaw }
    }

    pub(super) fn inner(srx: Arc<dyn SharedReceives>) -> Arc<dyn SharedReceives> {
        unwrapped(
            srx,
            |srx| srx as &dyn Any,
            |own: &Self| Arc::clone(&own.inner),
        )
    }

    fn flags(&self, flags: OpFlags) -> OpFlags {
        match self.flaw {
            Flaw::TakesAnyFlag => flags - OpFlags::MULTI_RECV - OpFlags::PEEK,
            _ => flags,
        }
    }
}

impl Msg for FlawedShared {
    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        match self.flaw {
            Flaw::ForgetsShared => Ok(()),
            // SAFETY: the caller's promise.
            _ => unsafe { self.inner.recvmsg(msg, self.flags(flags)) },
        }
    }
}

impl Tagged for FlawedShared {
    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = match self.flaw {
            Flaw::ForgetsShared => return Ok(()),
            Flaw::IgnoresTags => TagMatch::ANY,
            _ => msg.tag,
        };
        let msg = tagged::RecvMsg { tag, ..*msg };
        // SAFETY: the caller's promise.
        unsafe { self.inner.trecvmsg(&msg, self.flags(flags)) }
    }
}

impl SharedReceives for FlawedShared {
    fn cancel(&self, context: Context) -> Result {
        match self.flaw {
            Flaw::CancelsNothing => Ok(()),
            Flaw::DeniesCancel => {
                self.inner.cancel(context)?;
                Err(selvedge::Errno::NoEnt)
            }
            _ => self.inner.cancel(context),
        }
    }
}
