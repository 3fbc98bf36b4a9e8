//! Shared receive contexts, fi_srx_context(3): receives that several endpoints of a domain take.
//!
//! The shared context keeps its posted receives itself: they are in no endpoint's matcher. When a
//! message arrives and the endpoint's matcher has no receive for it, the matcher takes one from the
//! shared context, on its slow path. After a post to the shared context, each endpoint searches its
//! unexpected messages for a match. An endpoint stores an unexpected message and makes this search
//! under its own lock, so a message and its receive always find each other.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use selvedge::info::RxAttr;
use selvedge::{
    Caps, Context, Errno, FiAddr, IovMut, Msg, OpFlags, Result, SharedReceives, TagMatch, Tagged,
    msg, tagged,
};

use super::{COMMON_FLAGS, Envelope, Kind, Posted, Source};
use crate::copy::RxBuf;
use crate::domain::identity::{DomainId, OfDomain};
use crate::fork_guard::ForkGuard;
use crate::weak_list::WeakList;

/// A shared receive context.
pub struct Shared {
    fork_guard: ForkGuard,
    domain: DomainId,
    default_flags: OpFlags,
    iov_limit: usize,
    /// Whether the attributes contain a capability for directed receives. If so, a post that
    /// specifies a source address fails, because only endpoints have an address vector to resolve
    /// it. If not, the source address of a post is ignored.
    is_directed: bool,
    posted_receives: Mutex<PostedReceives>,
    members: Mutex<WeakList<dyn Member>>,
}

/// The posted receives of each kind, in the order of their posts.
#[derive(Default)]
struct PostedReceives {
    msg: VecDeque<Posted>,
    tagged: VecDeque<Posted>,
}

/// An endpoint that takes receives from a shared context.
pub trait Member: fmt::Debug + Send + Sync {
    /// Delivers the endpoint's unexpected messages to matching shared receives
    /// ([`super::Receiver::match_shared`]).
    fn match_shared(&self);

    /// Reports the cancellation of a shared receive at the endpoint's completion queue.
    fn cancelled(&self, posted: Posted);
}

impl Shared {
    /// Opens a shared context of a domain. A receive may have at most `iov_limit` segments.
    pub fn open(attr: &RxAttr, domain: &DomainId, iov_limit: usize) -> Arc<Self> {
        Arc::new(Self {
            fork_guard: ForkGuard::current(),
            domain: domain.clone(),
            default_flags: attr.op_flags,
            iov_limit,
            is_directed: attr
                .caps
                .intersects(Caps::DIRECTED_RECV | Caps::TAGGED_DIRECTED_RECV),
            posted_receives: Mutex::default(),
            members: Mutex::default(),
        })
    }

    /// Adds an endpoint whose matchers already take receives from this context.
    pub fn join(&self, member: Weak<dyn Member>) {
        self.members().push(member);
    }

    /// Takes the first posted receive that accepts a message.
    #[cold]
    pub(super) fn take(&self, kind: Kind, env: &Envelope) -> Option<Posted> {
        self.take_if(kind, |rx| rx.accepts(env))
    }

    /// Takes the first posted receive for which `is_wanted` returns `true`.
    #[cold]
    pub(super) fn take_if(
        &self,
        kind: Kind,
        is_wanted: impl FnMut(&Posted) -> bool,
    ) -> Option<Posted> {
        let mut posted_receives = self.posted_receives();
        let queue = posted_receives.queue(kind);
        let index = queue.iter().position(is_wanted)?;
        queue.remove(index)
    }

    /// Posts a receive, and makes the endpoints search their unexpected messages for a match.
    ///
    /// # Safety
    /// As [`RxBuf::new`].
    unsafe fn post(
        &self,
        kind: Kind,
        iov: &[IovMut],
        tag: TagMatch,
        src: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        self.fork_guard.check()?;
        let flags = if flags.contains(OpFlags::DEFAULT) {
            flags.difference(OpFlags::DEFAULT) | self.default_flags
        } else {
            flags
        };
        if !COMMON_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        if self.is_directed && src != FiAddr::UNSPEC {
            return Err(Errno::NoSys);
        }
        if iov.len() > self.iov_limit {
            return Err(Errno::Inval);
        }
        let posted = Posted {
            // SAFETY: passed on from the caller.
            buf: unsafe { RxBuf::new(iov) },
            src: Source::ANY,
            tag,
            context,
            flags,
            kind,
        };
        self.posted_receives().queue(kind).push_back(posted);
        // No lock of this context is held during these calls: an endpoint takes its own lock first,
        // and the locks of this context after it.
        let members: Vec<_> = self.members().iter().collect();
        members.iter().for_each(|member| member.match_shared());
        Ok(())
    }

    fn posted_receives(&self) -> MutexGuard<'_, PostedReceives> {
        self.posted_receives
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, WeakList<dyn Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PostedReceives {
    fn queue(&mut self, kind: Kind) -> &mut VecDeque<Posted> {
        match kind {
            Kind::Msg => &mut self.msg,
            Kind::Tagged => &mut self.tagged,
        }
    }
}

impl SharedReceives for Shared {
    fn cancel(&self, context: Context) -> Result {
        self.fork_guard.check()?;
        // Any member can report the cancellation.
        let member = self.members().iter().next();
        let member = member.ok_or(Errno::NoCq)?;
        let has_context = |rx: &Posted| rx.context == context;
        let posted = self.take_if(Kind::Msg, has_context);
        let posted = posted.or_else(|| self.take_if(Kind::Tagged, has_context));
        member.cancelled(posted.ok_or(Errno::NoEnt)?);
        Ok(())
    }
}

impl Msg for Shared {
    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = TagMatch::exact(0);
        // SAFETY: passed on from the caller.
        unsafe { self.post(Kind::Msg, msg.iov, tag, msg.src, msg.context, flags) }
    }
}

impl Tagged for Shared {
    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.post(Kind::Tagged, msg.iov, msg.tag, msg.src, msg.context, flags) }
    }
}

impl OfDomain for Shared {
    fn domain(&self) -> &DomainId {
        &self.domain
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}
