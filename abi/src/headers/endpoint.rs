//! Endpoints and groups: their handles, and the tables of functions.

use std::ffi::{c_int, c_void};

use super::av::FiAddr;
use super::fid::Fid;
use super::info::{RxAttr, TxAttr};
use super::msg::{Ioc, Iovec, Msg, MsgAtomic, MsgRma, MsgTagged};
use crate::declare::handle::c_handles;
use crate::declare::table::c_tables;

c_handles! {
    /// `struct fid_ep`.
    FidEp = 80 {
        ops: OpsEp,
        cm: OpsCm,
        msg: OpsMsg,
        rma: OpsRma,
        tagged: OpsTagged,
        atomic: OpsAtomic,
        collective: OpsCollective,
    }
    /// `struct fid_pep`.
    FidPep = 40 {
        ops: OpsEp,
        cm: OpsCm,
    }
    /// `struct fid_stx`.
    FidStx = 32 {
        ops: OpsEp,
    }
    /// `struct fid_mc`.
    FidMc = 32 {
        ; fi_addr: FiAddr = FiAddr::MAX,
    }
}

type Buf = *const c_void;
type BufMut = *mut c_void;
type Desc = *mut c_void;
type Descs = *const *mut c_void;
type Context = *mut c_void;

c_tables! {
    /// `struct fi_ops_ep`.
    OpsEp = 72 {
        cancel(fid: *mut Fid, context: Context) -> isize,
        getopt(fid: *mut Fid, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize)
            -> c_int,
        setopt(fid: *mut Fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize)
            -> c_int,
        tx_ctx(
            sep: *mut FidEp, index: c_int, attr: *mut TxAttr, tx_ep: *mut *mut FidEp,
            context: Context,
        ) -> c_int,
        rx_ctx(
            sep: *mut FidEp, index: c_int, attr: *mut RxAttr, rx_ep: *mut *mut FidEp,
            context: Context,
        ) -> c_int,
        rx_size_left(ep: *mut FidEp) -> isize,
        tx_size_left(ep: *mut FidEp) -> isize,
        export_xpu(ep: *mut FidEp, flags: u64, attr: *mut c_void) -> c_int,
    }
    /// `struct fi_ops_cm`.
    OpsCm = 80 {
        setname(fid: *mut Fid, addr: *mut c_void, addrlen: usize) -> c_int,
        getname(fid: *mut Fid, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        getpeer(ep: *mut FidEp, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        connect(ep: *mut FidEp, addr: *const c_void, param: *const c_void, paramlen: usize) -> c_int,
        listen(pep: *mut FidPep) -> c_int,
        accept(ep: *mut FidEp, param: *const c_void, paramlen: usize) -> c_int,
        reject(pep: *mut FidPep, handle: *mut Fid, param: *const c_void, paramlen: usize) -> c_int,
        shutdown(ep: *mut FidEp, flags: u64) -> c_int,
        join(
            ep: *mut FidEp, addr: *const c_void, flags: u64, mc: *mut *mut FidMc, context: Context,
        ) -> c_int,
    }
    /// `struct fi_ops_msg`.
    OpsMsg = 80 {
        recv(ep: *mut FidEp, buf: BufMut, len: usize, desc: Desc, src: FiAddr, context: Context)
            -> isize,
        recvv(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, src: FiAddr,
            context: Context,
        ) -> isize,
        recvmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize,
        send(ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, dest: FiAddr, context: Context)
            -> isize,
        sendv(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, dest: FiAddr,
            context: Context,
        ) -> isize,
        sendmsg(ep: *mut FidEp, msg: *const Msg, flags: u64) -> isize,
        inject(ep: *mut FidEp, buf: Buf, len: usize, dest: FiAddr) -> isize,
        senddata(
            ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, data: u64, dest: FiAddr,
            context: Context,
        ) -> isize,
        injectdata(ep: *mut FidEp, buf: Buf, len: usize, data: u64, dest: FiAddr) -> isize,
    }
    /// `struct fi_ops_tagged`.
    OpsTagged = 80 {
        recv(
            ep: *mut FidEp, buf: BufMut, len: usize, desc: Desc, src: FiAddr, tag: u64, ignore: u64,
            context: Context,
        ) -> isize,
        recvv(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, src: FiAddr, tag: u64,
            ignore: u64, context: Context,
        ) -> isize,
        recvmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize,
        send(
            ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, dest: FiAddr, tag: u64,
            context: Context,
        ) -> isize,
        sendv(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, dest: FiAddr, tag: u64,
            context: Context,
        ) -> isize,
        sendmsg(ep: *mut FidEp, msg: *const MsgTagged, flags: u64) -> isize,
        inject(ep: *mut FidEp, buf: Buf, len: usize, dest: FiAddr, tag: u64) -> isize,
        senddata(
            ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, data: u64, dest: FiAddr, tag: u64,
            context: Context,
        ) -> isize,
        injectdata(ep: *mut FidEp, buf: Buf, len: usize, data: u64, dest: FiAddr, tag: u64)
            -> isize,
    }
    /// `struct fi_ops_rma`.
    OpsRma = 80 {
        read(
            ep: *mut FidEp, buf: BufMut, len: usize, desc: Desc, src: FiAddr, addr: u64, key: u64,
            context: Context,
        ) -> isize,
        readv(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, src: FiAddr, addr: u64,
            key: u64, context: Context,
        ) -> isize,
        readmsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize,
        write(
            ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, dest: FiAddr, addr: u64, key: u64,
            context: Context,
        ) -> isize,
        writev(
            ep: *mut FidEp, iov: *const Iovec, desc: Descs, count: usize, dest: FiAddr, addr: u64,
            key: u64, context: Context,
        ) -> isize,
        writemsg(ep: *mut FidEp, msg: *const MsgRma, flags: u64) -> isize,
        inject(ep: *mut FidEp, buf: Buf, len: usize, dest: FiAddr, addr: u64, key: u64) -> isize,
        writedata(
            ep: *mut FidEp, buf: Buf, len: usize, desc: Desc, data: u64, dest: FiAddr, addr: u64,
            key: u64, context: Context,
        ) -> isize,
        injectdata(
            ep: *mut FidEp, buf: Buf, len: usize, data: u64, dest: FiAddr, addr: u64, key: u64,
        ) -> isize,
    }
    /// `struct fi_ops_atomic`.
    OpsAtomic = 112 {
        write(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, dest: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32, context: Context,
        ) -> isize,
        writev(
            ep: *mut FidEp, iov: *const Ioc, desc: Descs, count: usize, dest: FiAddr, addr: u64,
            key: u64, datatype: u32, op: u32, context: Context,
        ) -> isize,
        writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> isize,
        inject(
            ep: *mut FidEp, buf: Buf, count: usize, dest: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32,
        ) -> isize,
        readwrite(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32, context: Context,
        ) -> isize,
        readwritev(
            ep: *mut FidEp, iov: *const Ioc, desc: Descs, count: usize, resultv: *mut Ioc,
            result_desc: Descs, result_count: usize, dest: FiAddr, addr: u64, key: u64,
            datatype: u32, op: u32, context: Context,
        ) -> isize,
        readwritemsg(
            ep: *mut FidEp, msg: *const MsgAtomic, resultv: *mut Ioc, result_desc: Descs,
            result_count: usize, flags: u64,
        ) -> isize,
        compwrite(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, compare: Buf, compare_desc: Desc,
            result: BufMut, result_desc: Desc, dest: FiAddr, addr: u64, key: u64, datatype: u32,
            op: u32, context: Context,
        ) -> isize,
        compwritev(
            ep: *mut FidEp, iov: *const Ioc, desc: Descs, count: usize, comparev: *const Ioc,
            compare_desc: Descs, compare_count: usize, resultv: *mut Ioc, result_desc: Descs,
            result_count: usize, dest: FiAddr, addr: u64, key: u64, datatype: u32, op: u32,
            context: Context,
        ) -> isize,
        compwritemsg(
            ep: *mut FidEp, msg: *const MsgAtomic, comparev: *const Ioc, compare_desc: Descs,
            compare_count: usize, resultv: *mut Ioc, result_desc: Descs, result_count: usize,
            flags: u64,
        ) -> isize,
        writevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int,
        readwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int,
        compwritevalid(ep: *mut FidEp, datatype: u32, op: u32, count: *mut usize) -> c_int,
    }
    /// `struct fi_ops_collective`.
    OpsCollective = 96 {
        barrier(ep: *mut FidEp, coll: FiAddr, context: Context) -> isize,
        broadcast(
            ep: *mut FidEp, buf: BufMut, count: usize, desc: Desc, coll: FiAddr, root: FiAddr,
            datatype: u32, flags: u64, context: Context,
        ) -> isize,
        alltoall(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, datatype: u32, flags: u64, context: Context,
        ) -> isize,
        allreduce(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, datatype: u32, op: u32, flags: u64, context: Context,
        ) -> isize,
        allgather(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, datatype: u32, flags: u64, context: Context,
        ) -> isize,
        reduce_scatter(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, datatype: u32, op: u32, flags: u64, context: Context,
        ) -> isize,
        reduce(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, root: FiAddr, datatype: u32, op: u32, flags: u64, context: Context,
        ) -> isize,
        scatter(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, root: FiAddr, datatype: u32, flags: u64, context: Context,
        ) -> isize,
        gather(
            ep: *mut FidEp, buf: Buf, count: usize, desc: Desc, result: BufMut, result_desc: Desc,
            coll: FiAddr, root: FiAddr, datatype: u32, flags: u64, context: Context,
        ) -> isize,
        msg(
            ep: *mut FidEp, msg: *const c_void, resultv: *mut Ioc, result_desc: Descs,
            result_count: usize, flags: u64,
        ) -> isize,
        barrier2(ep: *mut FidEp, coll: FiAddr, flags: u64, context: Context) -> isize,
    }
}
