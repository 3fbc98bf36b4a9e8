//! Endpoints with a layer: operations that are posted to them, as [`Op`] values, and their other
//! calls.

#![expect(unsafe_code, reason = "posts are passed on to the endpoint below")]

use std::sync::Arc;

use selvedge::atomic::{self, Datatype, Family};
use selvedge::collective::CollectiveMsg;
use selvedge::{
    Address, Collective, ConnectionManagement, Context, Endpoint, EpOption, EpOptionName, Errno,
    Error, FiAddr, LateBindings, Lending, Membership, Msg, Op, OpFlags, PeerCredentials, Result,
    Tagged, av, msg, tagged,
};

use super::calls::layered;
use super::{Layered, Layers, ObjectLayer};

layered! {
    /// A layer around an endpoint.
    ///
    /// # Safety
    /// For implementors: with an endpoint below that keeps the promise of [`Endpoint`], the layer
    /// keeps it for the operations that are posted to it.
    [unsafe] trait EndpointLayer |below| Endpoint in Layered<dyn Endpoint, L> {
        fn address() -> Result<Address>;
        fn peer_credentials(peer: FiAddr) -> Result<PeerCredentials>;
        fn bind_late(late: &LateBindings) -> Result<(), Error>
            = below.bind_late(&Self::Layers::late_bindings(late));
        fn cancel(context: Context) -> Result;
        fn set(option: EpOption) -> Result;
        fn option(name: EpOptionName) -> Result<EpOption>;
        fn join(group: &Address, context: Context) -> Result<Arc<dyn Membership>>;
    }
    layer {
        /// Posts an operation. The layer may handle some operations in the next six methods
        /// instead.
        ///
        /// # Safety
        /// As [`Op::post`].
        unsafe fn post(&self, below: &dyn Endpoint, op: &Op<'_>, flags: OpFlags) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { op.post(below, flags) }
        }

        /// [`Msg::sendmsg`], for layers whose overhead on every message matters.
        ///
        /// # Safety
        /// As for that call.
        #[inline]
        unsafe fn sendmsg(
            &self,
            below: &dyn Endpoint,
            msg: &msg::SendMsg<'_>,
            flags: OpFlags,
        ) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { self.post(below, &Op::Send(*msg), flags) }
        }

        /// [`Msg::recvmsg`], for the same layers.
        ///
        /// # Safety
        /// As for that call.
        #[inline]
        unsafe fn recvmsg(
            &self,
            below: &dyn Endpoint,
            msg: &msg::RecvMsg<'_>,
            flags: OpFlags,
        ) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { self.post(below, &Op::Recv(*msg), flags) }
        }

        /// [`Msg::inject`], for the same layers.
        #[inline]
        fn inject(
            &self,
            below: &dyn Endpoint,
            buf: &[u8],
            dest: FiAddr,
            data: Option<u64>,
        ) -> Result {
            // SAFETY: an inject requires no promise.
            unsafe { self.post(below, &Op::Inject { buf, dest, data }, OpFlags::empty()) }
        }

        /// [`Tagged::tsendmsg`], for the same layers.
        ///
        /// # Safety
        /// As for that call.
        #[inline]
        unsafe fn tsendmsg(
            &self,
            below: &dyn Endpoint,
            msg: &tagged::SendMsg<'_>,
            flags: OpFlags,
        ) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { self.post(below, &Op::TaggedSend(*msg), flags) }
        }

        /// [`Tagged::trecvmsg`], for the same layers.
        ///
        /// # Safety
        /// As for that call.
        #[inline]
        unsafe fn trecvmsg(
            &self,
            below: &dyn Endpoint,
            msg: &tagged::RecvMsg<'_>,
            flags: OpFlags,
        ) -> Result {
            // SAFETY: passed on from the caller.
            unsafe { self.post(below, &Op::TaggedRecv(*msg), flags) }
        }

        /// [`Tagged::tinject`], for the same layers.
        #[inline]
        fn tinject(
            &self,
            below: &dyn Endpoint,
            buf: &[u8],
            dest: FiAddr,
            tag: u64,
            data: Option<u64>,
        ) -> Result {
            let op = Op::TaggedInject { buf, dest, tag, data };
            // SAFETY: an inject requires no promise.
            unsafe { self.post(below, &op, OpFlags::empty()) }
        }

        /// [`selvedge::Atomic::valid`]
        fn valid(
            &self,
            below: &dyn Endpoint,
            family: Family,
            datatype: Datatype,
            op: atomic::Op,
        ) -> Result<atomic::Attr> {
            below.valid(family, datatype, op)
        }

        /// Whether the endpoint has [`Collective`].
        fn has_collectives(&self, below: &dyn Endpoint) -> bool {
            below.collective().is_some()
        }

        /// [`Collective::join`]
        fn join_collective(
            &self,
            below: &dyn Endpoint,
            set: &av::Set,
            context: Context,
        ) -> Result<Arc<dyn Membership>> {
            below.collective().ok_or(Errno::NoSys)?.join(set, context)
        }

        /// [`ConnectionManagement::connect`]
        fn connect(
            &self,
            below: &dyn ConnectionManagement,
            addr: &Address,
            data: &[u8],
        ) -> Result {
            below.connect(addr, data)
        }

        /// [`ConnectionManagement::accept`]
        fn accept(&self, below: &dyn ConnectionManagement, data: &[u8]) -> Result {
            below.accept(data)
        }

        /// [`ConnectionManagement::shutdown`]
        fn shutdown(&self, below: &dyn ConnectionManagement) -> Result {
            below.shutdown()
        }

        /// [`ConnectionManagement::peer`]
        fn peer(&self, below: &dyn ConnectionManagement) -> Result<Address> {
            below.peer()
        }
    }
    object {
        fn collective(&self) -> Option<&dyn Collective> {
            self.layer.has_collectives(&*self.below).then_some(self)
        }

        fn lending(&self) -> Option<&dyn Lending> {
            self.below.lending()
        }

        fn cm(&self) -> Option<&dyn ConnectionManagement> {
            self.below.cm().map(|_| self as &dyn ConnectionManagement)
        }
    }
}

impl<L: EndpointLayer> Layered<dyn Endpoint, L> {
    /// # Safety
    /// As [`Op::post`].
    unsafe fn post(&self, op: &Op<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.post(&*self.below, op, flags) }
    }

    fn cm_below(&self) -> Result<&dyn ConnectionManagement> {
        self.below.cm().ok_or(Errno::NoSys)
    }
}

impl<L: EndpointLayer> Msg for Layered<dyn Endpoint, L> {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.sendmsg(&*self.below, msg, flags) }
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.recvmsg(&*self.below, msg, flags) }
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.layer.inject(&*self.below, buf, dest, data)
    }
}

impl<L: EndpointLayer> Tagged for Layered<dyn Endpoint, L> {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.tsendmsg(&*self.below, msg, flags) }
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.layer.trecvmsg(&*self.below, msg, flags) }
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.layer.tinject(&*self.below, buf, dest, tag, data)
    }
}

impl<L: EndpointLayer> Collective for Layered<dyn Endpoint, L> {
    fn join(&self, set: &av::Set, context: Context) -> Result<Arc<dyn Membership>> {
        self.layer.join_collective(&*self.below, set, context)
    }

    unsafe fn collective(&self, msg: &CollectiveMsg, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        unsafe { self.post(&Op::Collective(*msg), flags) }
    }
}

impl<L: EndpointLayer> ConnectionManagement for Layered<dyn Endpoint, L> {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        self.layer.connect(self.cm_below()?, addr, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.layer.accept(self.cm_below()?, data)
    }

    fn shutdown(&self) -> Result {
        self.layer.shutdown(self.cm_below()?)
    }

    fn peer(&self) -> Result<Address> {
        self.layer.peer(self.cm_below()?)
    }
}

/// Implements [`selvedge::Rma`] or [`selvedge::Atomic`] for a type that has one method for all
/// operations, `unsafe fn post(&self, op: &Op<'_>, flags: OpFlags) -> Result`, with the safety
/// requirements of [`Op::post`]. Injects are posted without flags. Methods that post nothing follow
/// in braces.
///
/// [`Op::post`]: selvedge::Op::post
#[macro_export]
macro_rules! one_sided_as_ops {
    (impl $(<$L:ident: $Bound:ident>)? Rma for $Type:ty) => {
        impl $(<$L: $Bound>)? ::selvedge::Rma for $Type {
            unsafe fn readmsg(
                &self,
                msg: &::selvedge::rma::ReadMsg<'_>,
                flags: ::selvedge::OpFlags,
            ) -> ::selvedge::Result {
                // SAFETY: passed on from the caller.
                unsafe { self.post(&::selvedge::Op::Read(*msg), flags) }
            }

            unsafe fn writemsg(
                &self,
                msg: &::selvedge::rma::WriteMsg<'_>,
                flags: ::selvedge::OpFlags,
            ) -> ::selvedge::Result {
                // SAFETY: passed on from the caller.
                unsafe { self.post(&::selvedge::Op::Write(*msg), flags) }
            }

            fn inject_write(
                &self,
                buf: &[u8],
                dest: ::selvedge::FiAddr,
                addr: u64,
                key: u64,
                data: Option<u64>,
            ) -> ::selvedge::Result {
                let op = ::selvedge::Op::InjectWrite { buf, dest, addr, key, data };
                // SAFETY: an inject requires no promise.
                unsafe { self.post(&op, ::selvedge::OpFlags::empty()) }
            }
        }
    };
    (impl $(<$L:ident: $Bound:ident>)? Atomic for $Type:ty { $($rest:tt)* }) => {
        impl $(<$L: $Bound>)? ::selvedge::Atomic for $Type {
            unsafe fn atomicmsg(
                &self,
                msg: &::selvedge::atomic::AtomicMsg<'_>,
                flags: ::selvedge::OpFlags,
            ) -> ::selvedge::Result {
                // SAFETY: passed on from the caller.
                unsafe { self.post(&::selvedge::Op::Atomic(*msg), flags) }
            }

            unsafe fn fetch_atomicmsg(
                &self,
                msg: &::selvedge::atomic::AtomicMsg<'_>,
                iov: &[::selvedge::atomic::IocMut],
                desc: &[::selvedge::Desc],
                flags: ::selvedge::OpFlags,
            ) -> ::selvedge::Result {
                let fetched = ::selvedge::op::Fetched { iov, desc };
                // SAFETY: passed on from the caller.
                unsafe { self.post(&::selvedge::Op::FetchAtomic(*msg, fetched), flags) }
            }

            unsafe fn compare_atomicmsg(
                &self,
                msg: &::selvedge::atomic::AtomicMsg<'_>,
                compare: &[::selvedge::atomic::Ioc],
                compare_desc: &[::selvedge::Desc],
                iov: &[::selvedge::atomic::IocMut],
                desc: &[::selvedge::Desc],
                flags: ::selvedge::OpFlags,
            ) -> ::selvedge::Result {
                let compared = ::selvedge::op::Compared { iov: compare, desc: compare_desc };
                let fetched = ::selvedge::op::Fetched { iov, desc };
                // SAFETY: passed on from the caller.
                unsafe { self.post(&::selvedge::Op::CompareAtomic(*msg, compared, fetched), flags) }
            }

            fn inject_atomic(
                &self,
                buf: &[u8],
                target: &::selvedge::atomic::Target,
            ) -> ::selvedge::Result {
                let op = ::selvedge::Op::InjectAtomic { buf, target: *target };
                // SAFETY: an inject requires no promise.
                unsafe { self.post(&op, ::selvedge::OpFlags::empty()) }
            }

            $($rest)*
        }
    };
}

one_sided_as_ops!(impl<L: EndpointLayer> Rma for Layered<dyn Endpoint, L>);

one_sided_as_ops! {
    impl<L: EndpointLayer> Atomic for Layered<dyn Endpoint, L> {
        fn valid(
            &self,
            family: Family,
            datatype: Datatype,
            op: atomic::Op,
        ) -> Result<atomic::Attr> {
            self.layer.valid(&*self.below, family, datatype, op)
        }
    }
}
