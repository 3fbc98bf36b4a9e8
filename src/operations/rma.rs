//! Remote memory access: fi_rma(3).

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]
#![expect(
    clippy::exhaustive_structs,
    reason = "callers and providers write every field, as with the man page's structures"
)]

use crate::{Context, Desc, Errno, FiAddr, Iov, IovMut, OpFlags, Result};

/// A segment of a peer's registered memory: `struct fi_rma_iov`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RmaIov {
    /// Offset into the region, or the peer's virtual address under
    /// [`crate::MrMode::VIRT_ADDR`].
    pub addr: u64,
    /// Length in bytes.
    pub len: usize,
    /// The region's key.
    pub key: u64,
}

/// A write to a peer's memory (`struct fi_msg_rma`).
#[derive(Clone, Copy, Debug)]
pub struct WriteMsg<'a> {
    /// The local segments to write; valid until the completion.
    pub iov: &'a [Iov],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub dest: FiAddr,
    /// The remote segments, with as many bytes in total as `iov`.
    pub rma_iov: &'a [RmaIov],
    /// The context of the completion.
    pub context: Context,
    /// Data for the peer's completion, under [`OpFlags::REMOTE_CQ_DATA`].
    pub data: u64,
}

/// A read of a peer's memory (`struct fi_msg_rma`).
#[derive(Clone, Copy, Debug)]
pub struct ReadMsg<'a> {
    /// The local segments to fill; valid until the completion.
    pub iov: &'a [IovMut],
    /// Registration descriptors, one for each segment, or empty.
    pub desc: &'a [Desc],
    /// The peer.
    pub src: FiAddr,
    /// The remote segments, with as many bytes in total as `iov`.
    pub rma_iov: &'a [RmaIov],
    /// The context of the completion.
    pub context: Context,
}

/// Reads and writes of a peer's memory. The return values have the meanings of those of
/// [`crate::Msg`].
pub trait Rma {
    /// Posts a read (fi_readmsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::recvmsg`], for `msg.iov`.
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts a write (fi_writemsg(3)).
    ///
    /// # Safety
    /// As [`crate::Msg::sendmsg`], for `msg.iov`.
    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let _ = (msg, flags);
        Err(Errno::NoSys)
    }

    /// Posts a read into one buffer with the endpoint's default flags (fi_read(3)). A provider
    /// overrides this method to avoid the cost of a [`ReadMsg`]: over shm, a read of eight bytes
    /// with its completion takes 358 instructions here and 389 by [`Self::readmsg`]. For a write,
    /// the numbers are 336 and 359.
    ///
    /// # Safety
    /// As [`Self::readmsg`], for `buf`.
    unsafe fn read_one(
        &self,
        buf: IovMut,
        desc: Desc,
        src: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = buf.len;
        let msg = ReadMsg {
            iov: &[buf],
            desc: &[desc],
            src,
            rma_iov: &[RmaIov { addr, len, key }],
            context,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.readmsg(&msg, OpFlags::DEFAULT) }
    }

    /// Posts a write from one buffer with the endpoint's default flags (fi_write(3)); see
    /// [`Self::read_one`].
    ///
    /// # Safety
    /// As [`Self::writemsg`], for `buf`.
    unsafe fn write_one(
        &self,
        buf: Iov,
        desc: Desc,
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = buf.len;
        let msg = WriteMsg {
            iov: &[buf],
            desc: &[desc],
            dest,
            rma_iov: &[RmaIov { addr, len, key }],
            context,
            data: 0,
        };
        // SAFETY: passed on from the caller.
        unsafe { self.writemsg(&msg, OpFlags::DEFAULT) }
    }

    /// Writes a copy of `buf` (fi_inject_write(3), and fi_inject_writedata(3) with `data`). An
    /// inject has no completion at the initiator.
    ///
    /// # Errors
    /// [`Errno::MsgSize`] for more than `tx_attr.inject_size` bytes; [`Errno::Again`] when a queue is full.
    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        let _ = (buf, dest, addr, key, data);
        Err(Errno::NoSys)
    }
}

/// Short forms of [`Rma`], under the man page's names, with the endpoint's default flags.
pub trait RmaExt: Rma {
    /// fi_read(3).
    ///
    /// # Safety
    /// As [`Rma::readmsg`].
    #[inline]
    unsafe fn read(
        &self,
        buf: IovMut,
        desc: Desc,
        src: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `readmsg` for `buf`.
        unsafe { self.read_one(buf, desc, src, addr, key, context) }
    }

    /// fi_readv(3): several local segments, one remote segment.
    ///
    /// # Safety
    /// As [`Rma::readmsg`].
    #[inline]
    unsafe fn readv(
        &self,
        iov: &[IovMut],
        desc: &[Desc],
        src: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = iov
            .iter()
            .fold(0_usize, |sum, segment| sum.saturating_add(segment.len));
        let msg = ReadMsg {
            iov,
            desc,
            src,
            rma_iov: &[RmaIov { addr, len, key }],
            context,
        };
        // SAFETY: the caller makes the promise of `readmsg` for `iov`.
        unsafe { self.readmsg(&msg, OpFlags::DEFAULT) }
    }

    /// fi_write(3).
    ///
    /// # Safety
    /// As [`Rma::writemsg`].
    #[inline]
    unsafe fn write(
        &self,
        buf: Iov,
        desc: Desc,
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        // SAFETY: the caller makes the promise of `writemsg` for `buf`.
        unsafe { self.write_one(buf, desc, dest, addr, key, context) }
    }

    /// fi_writev(3): several local segments, one remote segment.
    ///
    /// # Safety
    /// As [`Rma::writemsg`].
    #[inline]
    unsafe fn writev(
        &self,
        iov: &[Iov],
        desc: &[Desc],
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = iov
            .iter()
            .fold(0_usize, |sum, segment| sum.saturating_add(segment.len));
        let msg = WriteMsg {
            iov,
            desc,
            dest,
            rma_iov: &[RmaIov { addr, len, key }],
            context,
            data: 0,
        };
        // SAFETY: the caller makes the promise of `writemsg` for `iov`.
        unsafe { self.writemsg(&msg, OpFlags::DEFAULT) }
    }

    /// fi_writedata(3).
    ///
    /// # Safety
    /// As [`Rma::writemsg`].
    #[expect(clippy::too_many_arguments, reason = "the parameters of the man page")]
    #[inline]
    unsafe fn writedata(
        &self,
        buf: Iov,
        desc: Desc,
        data: u64,
        dest: FiAddr,
        addr: u64,
        key: u64,
        context: Context,
    ) -> Result {
        let len = buf.len;
        let msg = WriteMsg {
            iov: &[buf],
            desc: &[desc],
            dest,
            rma_iov: &[RmaIov { addr, len, key }],
            context,
            data,
        };
        let flags = OpFlags::DEFAULT | OpFlags::REMOTE_CQ_DATA;
        // SAFETY: the caller makes the promise of `writemsg` for `buf`.
        unsafe { self.writemsg(&msg, flags) }
    }

    /// fi_inject_writedata(3).
    ///
    /// # Errors
    /// As [`Rma::inject_write`].
    #[inline]
    fn inject_writedata(&self, buf: &[u8], data: u64, dest: FiAddr, addr: u64, key: u64) -> Result {
        self.inject_write(buf, dest, addr, key, Some(data))
    }
}

impl<T: Rma + ?Sized> RmaExt for T {}

const _: () = assert!(size_of::<RmaIov>() == 24);
