//! Untagged messages.

#![expect(unsafe_code, reason = "each post is a call of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use selvedge::msg::{RecvMsg, SendMsg};
use selvedge::{FiAddr, Msg, OpFlags, Result};
use selvedge_abi as abi;

use super::Form;
use crate::endpoint::Endpoint;
use crate::object::{call, to_result};

impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        self.check_peer(msg.dest)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let (dest, data) = (msg.dest.0, msg.data);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match self.tx.form(count, flags) {
                    Form::Short => {
                        let (segment, desc) = (msg.iov[0], descs.first());
                        call!(
                            ep,
                            (*ep).msg,
                            send,
                            segment.base,
                            segment.len,
                            desc,
                            dest,
                            context
                        )
                    }
                    Form::Data => {
                        let (segment, desc) = (msg.iov[0], descs.first());
                        let (buf, len) = (segment.base, segment.len);
                        call!(ep, (*ep).msg, senddata, buf, len, desc, data, dest, context)
                    }
                    Form::List => {
                        call!(ep, (*ep).msg, sendv, iov, descs.all(), count, dest, context)
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
                        call!(ep, (*ep).msg, sendmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    unsafe fn recvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.rx, msg.iov.len(), msg.desc)?;
        self.check_source(msg.src)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let src = msg.src.0;
        let posted_op = self.rx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match self.rx.form(count, flags) {
                    Form::Short => {
                        let (segment, desc) = (msg.iov[0], descs.first());
                        call!(
                            ep,
                            (*ep).msg,
                            recv,
                            segment.base,
                            segment.len,
                            desc,
                            src,
                            context
                        )
                    }
                    Form::List => {
                        call!(ep, (*ep).msg, recvv, iov, descs.all(), count, src, context)
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
                        call!(ep, (*ep).msg, recvmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.check_inject(buf.len())?;
        self.check_peer(dest)?;
        let ep = self.ptr()?;
        let (buf, len, dest) = (buf.as_ptr().cast(), buf.len(), dest.0);
        // SAFETY: the endpoint is open, and the bytes are read during the call.
        to_result(unsafe {
            match data {
                None => call!(ep, (*ep).msg, inject, buf, len, dest),
                Some(data) => call!(ep, (*ep).msg, injectdata, buf, len, data, dest),
            }
        })
    }
}
