//! Atomics: each post is one call of the library's table of atomics.

#![expect(unsafe_code, reason = "each post is a call of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use std::ffi::c_void;

use selvedge::atomic::{Attr, Datatype, Family, Ioc, IocMut, Op, Target};
use selvedge::{Atomic, Desc, Errno, OpFlags, Result, atomic::AtomicMsg};
use selvedge_abi as abi;

use super::{Form, check_list};
use crate::domain::Words;
use crate::endpoint::Endpoint;
use crate::object::{call, to_result};

impl Endpoint {
    /// Checks the arguments that libraries do not check, but use as indices into their tables.
    fn check_atomic(&self, family: Family, msg: &AtomicMsg<'_>) -> Result<Words> {
        let descs = self.descs(&self.tx, msg.iov.len(), msg.desc)?;
        check_list(msg.rma_iov.len(), self.rma_iov_limit)?;
        self.check_peer(msg.dest)?;
        let max_count = self.valid(family, msg.datatype, msg.op)?.count;
        if elements(msg.iov.iter().map(|segment| segment.count)) <= max_count {
            Ok(descs)
        } else {
            Err(Errno::Inval)
        }
    }

    /// The form of a call: the short forms have one target, as long as the operands.
    fn atomic_form(&self, msg: &AtomicMsg<'_>, segments: usize, flags: OpFlags) -> Form {
        let count = elements(msg.iov.iter().map(|segment| segment.count));
        let form = self.tx.form(segments, flags);
        match (form, msg.rma_iov) {
            (Form::Short | Form::List, [only]) if only.count == count => form,
            (Form::Message(_), _) => form,
            _ => {
                let op_flags = flags.difference(OpFlags::DEFAULT);
                Form::Message((op_flags | self.tx.defaults).bits())
            }
        }
    }

    fn raw_msg(msg: &AtomicMsg<'_>, descs: &Words, context: *mut c_void) -> abi::MsgAtomic {
        abi::MsgAtomic {
            msg_iov: msg.iov.as_ptr().cast(),
            desc: descs.all(),
            iov_count: msg.iov.len(),
            addr: msg.dest.0,
            rma_iov: msg.rma_iov.as_ptr().cast(),
            rma_iov_count: msg.rma_iov.len(),
            datatype: msg.datatype as u32,
            op: msg.op as u32,
            context,
            data: msg.data,
        }
    }
}

fn elements(counts: impl Iterator<Item = usize>) -> usize {
    counts.fold(0, usize::saturating_add)
}

impl Atomic for Endpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, flags: OpFlags) -> Result {
        let descs = self.check_atomic(Family::Base, msg)?;
        let ep = self.ptr()?;
        let (iov, segments, dest) = (msg.iov.as_ptr().cast(), msg.iov.len(), msg.dest.0);
        let (datatype, op) = (msg.datatype as u32, msg.op as u32);
        let form = self.atomic_form(msg, segments, flags);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match form {
                    Form::Short => {
                        let (local, remote, desc) = (msg.iov[0], msg.rma_iov[0], descs.first());
                        let (addr, key) = (remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).atomic,
                            write,
                            local.addr,
                            local.count,
                            desc,
                            dest,
                            addr,
                            key,
                            datatype,
                            op,
                            context
                        )
                    }
                    Form::List => {
                        let (remote, desc) = (msg.rma_iov[0], descs.all());
                        let (addr, key) = (remote.addr, remote.key);
                        call!(
                            ep,
                            (*ep).atomic,
                            writev,
                            iov,
                            desc,
                            segments,
                            dest,
                            addr,
                            key,
                            datatype,
                            op,
                            context
                        )
                    }
                    form => {
                        let msg = Self::raw_msg(msg, &descs, context);
                        let flags = form.flags(flags);
                        call!(ep, (*ep).atomic, writemsg, &raw const msg, flags)
                    }
                }
            })
        })
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let mut descs = self.check_atomic(Family::Fetch, msg)?;
        let result_descs = self.descs(&self.tx, result.len(), result_desc)?;
        // A read has no operands, but libraries count its elements by its operands.
        let results: Vec<Ioc>;
        let mut msg = *msg;
        if msg.iov.is_empty() {
            let operand = |result: &IocMut| Ioc::from_raw(result.addr, result.count);
            results = result.iter().map(operand).collect();
            (msg.iov, descs) = (&results, result_descs.clone());
        }
        let msg = &msg;
        let ep = self.ptr()?;
        let (iov, dest) = (msg.iov.as_ptr().cast::<abi::Ioc>(), msg.dest.0);
        let (datatype, op) = (msg.datatype as u32, msg.op as u32);
        let resultv = result.as_ptr().cast::<abi::Ioc>().cast_mut();
        let is_one = msg.iov.len() == 1 && result.len() == 1;
        let form = self.atomic_form(msg, if is_one { 1 } else { 2 }, flags);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match form {
                    Form::Short => {
                        let (local, remote, result_segment) =
                            (msg.iov[0], msg.rma_iov[0], result[0]);
                        let (desc, first_result_desc) = (descs.first(), result_descs.first());
                        call!(
                            ep,
                            (*ep).atomic,
                            readwrite,
                            local.addr,
                            local.count,
                            desc,
                            result_segment.addr,
                            first_result_desc,
                            dest,
                            remote.addr,
                            remote.key,
                            datatype,
                            op,
                            context
                        )
                    }
                    Form::List => {
                        let (remote, desc, segments) = (msg.rma_iov[0], descs.all(), msg.iov.len());
                        call!(
                            ep,
                            (*ep).atomic,
                            readwritev,
                            iov,
                            desc,
                            segments,
                            resultv,
                            result_descs.all(),
                            result.len(),
                            dest,
                            remote.addr,
                            remote.key,
                            datatype,
                            op,
                            context
                        )
                    }
                    form => {
                        let msg = Self::raw_msg(msg, &descs, context);
                        let (desc, count) = (result_descs.all(), result.len());
                        let (msg, flags) = (&raw const msg, form.flags(flags));
                        call!(
                            ep,
                            (*ep).atomic,
                            readwritemsg,
                            msg,
                            resultv,
                            desc,
                            count,
                            flags
                        )
                    }
                }
            })
        })
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        compare_desc: &[Desc],
        result: &[IocMut],
        result_desc: &[Desc],
        flags: OpFlags,
    ) -> Result {
        let descs = self.check_atomic(Family::Compare, msg)?;
        let compare_descs = self.descs(&self.tx, compare.len(), compare_desc)?;
        let result_descs = self.descs(&self.tx, result.len(), result_desc)?;
        let ep = self.ptr()?;
        let (iov, dest) = (msg.iov.as_ptr().cast::<abi::Ioc>(), msg.dest.0);
        let (datatype, op) = (msg.datatype as u32, msg.op as u32);
        let comparev = compare.as_ptr().cast::<abi::Ioc>();
        let resultv = result.as_ptr().cast::<abi::Ioc>().cast_mut();
        let is_one = [msg.iov.len(), compare.len(), result.len()] == [1; 3];
        let form = self.atomic_form(msg, if is_one { 1 } else { 2 }, flags);
        let posted_op = self.tx.posted_op(msg.context, flags)?;
        self.domain.contexts.post(posted_op, |context| {
            // SAFETY: the endpoint is open; lists live during the call, and the caller vouches
            // for the memory that they name.
            to_result(unsafe {
                match form {
                    Form::Short => {
                        let (local, remote) = (msg.iov[0], msg.rma_iov[0]);
                        let (compare_segment, result_segment) = (compare[0], result[0]);
                        let (desc, first_compare_desc) = (descs.first(), compare_descs.first());
                        call!(
                            ep,
                            (*ep).atomic,
                            compwrite,
                            local.addr,
                            local.count,
                            desc,
                            compare_segment.addr,
                            first_compare_desc,
                            result_segment.addr,
                            result_descs.first(),
                            dest,
                            remote.addr,
                            remote.key,
                            datatype,
                            op,
                            context
                        )
                    }
                    Form::List => {
                        let (remote, desc, segments) = (msg.rma_iov[0], descs.all(), msg.iov.len());
                        call!(
                            ep,
                            (*ep).atomic,
                            compwritev,
                            iov,
                            desc,
                            segments,
                            comparev,
                            compare_descs.all(),
                            compare.len(),
                            resultv,
                            result_descs.all(),
                            result.len(),
                            dest,
                            remote.addr,
                            remote.key,
                            datatype,
                            op,
                            context
                        )
                    }
                    form => {
                        let msg = Self::raw_msg(msg, &descs, context);
                        call!(
                            ep,
                            (*ep).atomic,
                            compwritemsg,
                            &raw const msg,
                            comparev,
                            compare_descs.all(),
                            compare.len(),
                            resultv,
                            result_descs.all(),
                            result.len(),
                            form.flags(flags)
                        )
                    }
                }
            })
        })
    }

    fn inject_atomic(&self, buf: &[u8], target: &Target) -> Result {
        self.check_inject(buf.len())?;
        self.check_peer(target.dest)?;
        let size = target.datatype.size();
        let max_count = self.valid(Family::Base, target.datatype, target.op)?.count;
        let count = buf.len() / size;
        if !buf.len().is_multiple_of(size) || count > max_count {
            return Err(Errno::Inval);
        }
        let ep = self.ptr()?;
        let (buf, dest, key) = (buf.as_ptr().cast(), target.dest.0, target.key);
        let (datatype, op) = (target.datatype as u32, target.op as u32);
        // SAFETY: the endpoint is open, and the bytes are read during the call.
        to_result(unsafe {
            call!(
                ep,
                (*ep).atomic,
                inject,
                buf,
                count,
                dest,
                target.addr,
                key,
                datatype,
                op
            )
        })
    }

    fn valid(&self, family: Family, datatype: Datatype, op: Op) -> Result<Attr> {
        let ep = self.ptr()?;
        let mut count = 0;
        let (number, op, out) = (datatype as u32, op as u32, &raw mut count);
        // SAFETY: the endpoint is open, and the pointer is valid for the result.
        to_result(unsafe {
            match family {
                Family::Base => call!(ep, (*ep).atomic, writevalid, number, op, out),
                Family::Fetch => call!(ep, (*ep).atomic, readwritevalid, number, op, out),
                Family::Compare => call!(ep, (*ep).atomic, compwritevalid, number, op, out),
            }
        })?;
        let size = datatype.size();
        Ok(Attr { count, size })
    }
}
