//! Untagged messages.

#![expect(unsafe_code, reason = "the raw layer, by calls of another library")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a call is an object, its table and a slot of it"
)]

use selvedge::msg::{RecvMsg, SendMsg};
use selvedge::{FiAddr, Msg, OpFlags, Result};
use selvedge_abi as abi;

use super::Form;
use crate::endpoint::Endpoint;
use crate::object::{call, done};

impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        self.check_peer(msg.dest)?;
        let at = self.at()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let (dest, data) = (msg.dest.0, msg.data);
        let posting = self.tx.posting(msg.context, flags);
        self.domain.contexts.with(posting, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches for
            // the memory that they name.
            done(unsafe {
                match self.tx.form(count, flags) {
                    Form::Short => {
                        let (piece, desc) = (msg.iov[0], descs.first());
                        call!(
                            at,
                            (*at).msg,
                            send,
                            piece.base,
                            piece.len,
                            desc,
                            dest,
                            context
                        )
                    }
                    Form::Data => {
                        let (piece, desc) = (msg.iov[0], descs.first());
                        let (buf, len) = (piece.base, piece.len);
                        call!(at, (*at).msg, senddata, buf, len, desc, data, dest, context)
                    }
                    Form::List => {
                        call!(at, (*at).msg, sendv, iov, descs.all(), count, dest, context)
                    }
                    Form::Message(flags) => {
                        let msg = abi::Msg {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: dest,
                            context,
                            data,
                        };
                        call!(at, (*at).msg, sendmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    unsafe fn recvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.rx, msg.iov.len(), msg.desc)?;
        self.check_source(msg.src)?;
        let at = self.at()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let src = msg.src.0;
        let posting = self.rx.posting(msg.context, flags);
        self.domain.contexts.with(posting, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches for
            // the memory that they name.
            done(unsafe {
                match self.rx.form(count, flags) {
                    Form::Short => {
                        let (piece, desc) = (msg.iov[0], descs.first());
                        call!(
                            at,
                            (*at).msg,
                            recv,
                            piece.base,
                            piece.len,
                            desc,
                            src,
                            context
                        )
                    }
                    Form::List => {
                        call!(at, (*at).msg, recvv, iov, descs.all(), count, src, context)
                    }
                    form => {
                        let msg = abi::Msg {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: src,
                            context,
                            data: 0,
                        };
                        let flags = form.flags(flags);
                        call!(at, (*at).msg, recvmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.check_inject(buf.len())?;
        self.check_peer(dest)?;
        let at = self.at()?;
        let (from, len, dest) = (buf.as_ptr().cast(), buf.len(), dest.0);
        // SAFETY: the endpoint is open, and the bytes are read during the call.
        done(unsafe {
            match data {
                None => call!(at, (*at).msg, inject, from, len, dest),
                Some(data) => call!(at, (*at).msg, injectdata, from, len, data, dest),
            }
        })
    }
}
