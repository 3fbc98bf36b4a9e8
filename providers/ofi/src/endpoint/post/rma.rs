//! Remote memory access.

#![expect(unsafe_code, reason = "each post is a call of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{FiAddr, OpFlags, Result, Rma};
use selvedge_abi as abi;

use super::{Form, check_list};
use crate::endpoint::Endpoint;
use crate::object::{call, to_result};

/// The form of a call: the short forms have one remote segment, as long as the local one.
fn rma_form(form: Form, len: usize, rma_iov: &[RmaIov], flags: OpFlags, defaults: OpFlags) -> Form {
    match (form, rma_iov) {
        (Form::Message(_), _) => form,
        (_, [only]) if only.len == len => form,
        _ => Form::Message((flags.difference(OpFlags::DEFAULT) | defaults).bits()),
    }
}

impl Rma for Endpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        check_list(msg.rma_iov.len(), self.rma_iov_limit)?;
        self.check_peer(msg.src)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let src = msg.src.0;
        let len = msg
            .iov
            .iter()
            .fold(0, |sum, segment| segment.len.saturating_add(sum));
        let form = self.tx.form(count, flags);
        let form = rma_form(form, len, msg.rma_iov, flags, self.tx.defaults);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match form {
                    Form::Short => {
                        let (segment, remote, desc) = (msg.iov[0], msg.rma_iov[0], descs.first());
                        let (buf, len, addr, key) =
                            (segment.base, segment.len, remote.addr, remote.key);
                        call!(ep, (*ep).rma, read, buf, len, desc, src, addr, key, context)
                    }
                    Form::List => {
                        let (desc, remote) = (descs.all(), msg.rma_iov[0]);
                        let (addr, key) = (remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).rma,
                            readv,
                            iov,
                            desc,
                            count,
                            src,
                            addr,
                            key,
                            context
                        )
                    }
                    form => {
                        let msg = abi::MsgRma {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: src,
                            rma_iov: msg.rma_iov.as_ptr().cast(),
                            rma_iov_count: msg.rma_iov.len(),
                            context,
                            data: 0,
                        };
                        let flags = form.flags(flags);
                        call!(ep, (*ep).rma, readmsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        check_list(msg.rma_iov.len(), self.rma_iov_limit)?;
        self.check_peer(msg.dest)?;
        let ep = self.ptr()?;
        let (iov, count) = (msg.iov.as_ptr().cast::<abi::Iovec>(), msg.iov.len());
        let (dest, data) = (msg.dest.0, msg.data);
        let len = msg
            .iov
            .iter()
            .fold(0, |sum, segment| segment.len.saturating_add(sum));
        let form = self.tx.form(count, flags);
        let form = rma_form(form, len, msg.rma_iov, flags, self.tx.defaults);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match form {
                    Form::Short => {
                        let (segment, remote, desc) = (msg.iov[0], msg.rma_iov[0], descs.first());
                        let (buf, len, addr, key) =
                            (segment.base, segment.len, remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).rma,
                            write,
                            buf,
                            len,
                            desc,
                            dest,
                            addr,
                            key,
                            context
                        )
                    }
                    Form::Data => {
                        let (segment, remote, desc) = (msg.iov[0], msg.rma_iov[0], descs.first());
                        let (buf, len, addr, key) =
                            (segment.base, segment.len, remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).rma,
                            writedata,
                            buf,
                            len,
                            desc,
                            data,
                            dest,
                            addr,
                            key,
                            context
                        )
                    }
                    Form::List => {
                        let (desc, remote) = (descs.all(), msg.rma_iov[0]);
                        let (addr, key) = (remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).rma,
                            writev,
                            iov,
                            desc,
                            count,
                            dest,
                            addr,
                            key,
                            context
                        )
                    }
                    Form::Message(flags) => {
                        let msg = abi::MsgRma {
                            msg_iov: iov,
                            desc: descs.all(),
                            iov_count: count,
                            addr: dest,
                            rma_iov: msg.rma_iov.as_ptr().cast(),
                            rma_iov_count: msg.rma_iov.len(),
                            context,
                            data,
                        };
                        call!(ep, (*ep).rma, writemsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        self.check_inject(buf.len())?;
        self.check_peer(dest)?;
        let ep = self.ptr()?;
        let (buf, len, dest) = (buf.as_ptr().cast(), buf.len(), dest.0);
        // SAFETY: the endpoint is open, and the bytes are read during the call.
        to_result(unsafe {
            match data {
                None => call!(ep, (*ep).rma, inject, buf, len, dest, addr, key),
                Some(data) => call!(ep, (*ep).rma, injectdata, buf, len, data, dest, addr, key),
            }
        })
    }
}
