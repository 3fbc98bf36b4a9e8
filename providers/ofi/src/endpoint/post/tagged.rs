//! Tagged messages.

#![expect(unsafe_code, reason = "each post is a call of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use selvedge::tagged::{RecvMsg, SendMsg};
use selvedge::{FiAddr, OpFlags, Result, Tagged};
use selvedge_abi as abi;

use super::Form;
use crate::endpoint::Endpoint;
use crate::object::{call, to_result};

impl Tagged for Endpoint {
    unsafe fn tsendmsg(&self, msg: &SendMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        self.check_peer(msg.dest)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let (dest, tag, data) = (msg.dest.0, msg.tag, msg.data);
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
                            (*ep).tagged,
                            send,
                            segment.base,
                            segment.len,
                            desc,
                            dest,
                            tag,
                            context
                        )
                    }
                    Form::Data => {
                        let (segment, desc) = (msg.iov[0], descs.first());
                        let (buf, len) = (segment.base, segment.len);
                        call!(
                            ep,
                            (*ep).tagged,
                            senddata,
                            buf,
                            len,
                            desc,
                            data,
                            dest,
                            tag,
                            context
                        )
                    }
                    Form::List => {
                        call!(
                            ep,
                            (*ep).tagged,
                            sendv,
                            iov,
                            descs.all(),
                            count,
                            dest,
                            tag,
                            context
                        )
                    }
                    Form::Message(flags) => {
                        let msg = abi::MsgTagged {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: dest,
                            tag,
                            ignore: 0,
                            context,
                            data,
                        };
                        call!(ep, (*ep).tagged, sendmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    unsafe fn trecvmsg(&self, msg: &RecvMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.rx, msg.iov.len(), msg.desc)?;
        self.check_source(msg.src)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let (src, tag, ignore) = (msg.src.0, msg.tag.tag, msg.tag.ignore);
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
                            (*ep).tagged,
                            recv,
                            segment.base,
                            segment.len,
                            desc,
                            src,
                            tag,
                            ignore,
                            context
                        )
                    }
                    Form::List => {
                        call!(
                            ep,
                            (*ep).tagged,
                            recvv,
                            iov,
                            descs.all(),
                            count,
                            src,
                            tag,
                            ignore,
                            context
                        )
                    }
                    form => {
                        let msg = abi::MsgTagged {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: src,
                            tag,
                            ignore,
                            context,
                            data: 0,
                        };
                        let flags = form.flags(flags);
                        call!(ep, (*ep).tagged, recvmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.check_inject(buf.len())?;
        self.check_peer(dest)?;
        let ep = self.ptr()?;
        let (buf, len, dest) = (buf.as_ptr().cast(), buf.len(), dest.0);
        // SAFETY: the endpoint is open, and the bytes are read during the call.
        to_result(unsafe {
            match data {
                None => call!(ep, (*ep).tagged, inject, buf, len, dest, tag),
                Some(data) => call!(ep, (*ep).tagged, injectdata, buf, len, data, dest, tag),
            }
        })
    }
}
