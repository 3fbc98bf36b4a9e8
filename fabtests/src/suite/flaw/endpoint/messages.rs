//! Messages with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use selvedge::{FiAddr, Msg, OpFlags, Result, TagMatch, Tagged, msg, tagged};

use super::FlawedEndpoint;
use super::outgoing::{Outgoing, copied, lent};
use crate::suite::flaw::Flaw;

impl Msg for FlawedEndpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let outgoing = |bytes| Outgoing {
            bytes,
            dest: msg.dest,
            tag: None,
            context: msg.context,
            data: msg.data,
            flags,
        };
        if self.flaw == Flaw::ReadsInjectLate && flags.contains(OpFlags::INJECT) {
            // SAFETY: the test that this is for keeps the buffer and changes it.
            return self.send_late(outgoing(unsafe { lent(msg.iov) }));
        }
        // SAFETY: the caller's promise.
        let out = outgoing(unsafe { copied(msg.iov) });
        let iov = self.pieces(msg.iov);
        let whole = msg::SendMsg { iov: &iov, ..*msg };
        // SAFETY: the caller's promise.
        self.send(out, || unsafe { self.inner.sendmsg(&whole, flags) })
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let (iov, src) = (self.pieces(msg.iov), self.source(msg.src));
        let msg = msg::RecvMsg {
            iov: &iov,
            src,
            ..*msg
        };
        match &self.srx {
            // SAFETY: the caller's promise.
            Some(srx) if self.flaw == Flaw::SharesOwn => unsafe { srx.recvmsg(&msg, flags) },
            // SAFETY: the caller's promise.
            _ => unsafe { self.inner.recvmsg(&msg, self.flags(flags)) },
        }
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.injected(buf, dest, None, data)
    }
}

impl Tagged for FlawedEndpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let outgoing = |bytes| Outgoing {
            bytes,
            dest: msg.dest,
            tag: Some(msg.tag),
            context: msg.context,
            data: msg.data,
            flags,
        };
        if self.flaw == Flaw::ReadsInjectLate && flags.contains(OpFlags::INJECT) {
            // SAFETY: the test that this is for keeps the buffer and changes it.
            return self.send_late(outgoing(unsafe { lent(msg.iov) }));
        }
        // SAFETY: the caller's promise.
        let out = outgoing(unsafe { copied(msg.iov) });
        let iov = self.pieces(msg.iov);
        let whole = tagged::SendMsg { iov: &iov, ..*msg };
        // SAFETY: the caller's promise.
        self.send(out, || unsafe { self.inner.tsendmsg(&whole, flags) })
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = match self.flaw {
            Flaw::IgnoresIgnore => TagMatch::exact(msg.tag.tag),
            Flaw::IgnoresTags => TagMatch::ANY,
            _ => msg.tag,
        };
        let (iov, src) = (self.pieces(msg.iov), self.source(msg.src));
        let msg = tagged::RecvMsg {
            iov: &iov,
            src,
            tag,
            ..*msg
        };
        // SAFETY: the caller's promise.
        unsafe { self.inner.trecvmsg(&msg, self.flags(flags)) }
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.injected(buf, dest, Some(tag), data)
    }
}

impl FlawedEndpoint {
    fn source(&self, src: FiAddr) -> FiAddr {
        match self.flaw {
            Flaw::IgnoresSource => FiAddr::UNSPEC,
            _ => src,
        }
    }
}
