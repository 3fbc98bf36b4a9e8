//! Collectives with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use std::sync::{Arc, PoisonError};

use selvedge::atomic::Op;
use selvedge::collective::CollectiveMsg;
use selvedge::{
    Collective, CompletionFlags, Context, Errno, FiAddr, Membership, OpFlags, Result, av,
};

use super::FlawedEndpoint;
use super::atomic::similar;
use crate::suite::flaw::Flaw;

impl Collective for FlawedEndpoint {
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>> {
        let joined = self.joiner()?.join(set, context)?;
        *self.group.lock().unwrap_or_else(PoisonError::into_inner) = Some(joined.addr());
        Ok(joined)
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        let (mut msg, flags) = (*msg, self.flags(flags));
        let last = *self.group.lock().unwrap_or_else(PoisonError::into_inner);
        match self.flaw {
            Flaw::HurriesCollectives => {
                return self.invented(msg.context, CompletionFlags::COLLECTIVE);
            }
            Flaw::OtherCollectives if msg.op == Op::Sum => msg.op = Op::Bxor,
            Flaw::OtherCollectives => msg.op = similar(msg.op),
            Flaw::WrongRoot if msg.coll.has_root() => msg.root = FiAddr(0),
            Flaw::MixesGroups => msg.group = last.unwrap_or(msg.group),
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe { self.joiner()?.collective(&msg, flags) }
    }
}

impl FlawedEndpoint {
    fn joiner(&self) -> Result<&dyn Collective> {
        self.inner.collective().ok_or(Errno::NoSys)
    }
}
