//! libfabric's binary contract of API version 2.7: the structures that its headers lay out and the
//! numbers that its inline functions pass.
//!
//! [`infos`] and [`addr`] convert between these structures and the object model, in both
//! directions. [`mod@pointer`] reads and writes at pointers of C, and [`heap`] allocates memory
//! that C frees.
//!
//! Names are the headers' without `fi_` and `fid_`: `struct fi_tx_attr` is [`TxAttr`], `struct
//! fid_ep` is [`FidEp`], `struct fi_ops_msg` is [`OpsMsg`]. Sizes are asserted where structures are
//! declared; `programs_in_c_see_the_same_layout` compares every member with the system's headers.
//! Slots of tables are optional, because a table of another library may lack some.

mod fid;
mod info;
mod layout;
mod objects;
mod ops;
mod queues;
mod table;
mod trigger;

pub mod addr;
pub mod heap;
pub mod infos;
pub mod number;
pub mod pointer;

pub use fid::{Alias, Fid, FidVar, MrMapRaw, MrRawAttr, Ops, fclass};
pub use info::{
    BusAttr, DeviceAttr, DomainAttr, EpAttr, FabricAttr, Info, LinkAttr, Nic, PciAttr, RxAttr,
    TxAttr,
};
pub use layout::{Abi, Layout};
pub use objects::{
    AvAttr, AvSetAttr, FidAv, FidAvSet, FidDomain, FidEp, FidFabric, FidMc, FidMr, FidPep, FidStx,
    MrAttr, MrModify, OpsAv, OpsDomain, OpsFabric, OpsMr,
};
pub use ops::{
    AtomicAttr, CollectiveAddr, CollectiveAttr, Ioc, Iovec, Msg, MsgAtomic, MsgCollective, MsgRma,
    MsgTagged, OpsAtomic, OpsAvSet, OpsCm, OpsCollective, OpsEp, OpsMsg, OpsRma, OpsTagged, RmaIoc,
    RmaIov,
};
pub use queues::{
    CntrAttr, CqAttr, CqErrEntry, EqAttr, EqCmEntry, EqEntry, EqErrEntry, FidCntr, FidCq, FidEq,
    FidPoll, FidWait, OpsCntr, OpsCq, OpsEq, OpsPoll, OpsWait, Param, PollAttr, WaitAttr,
};
pub use table::{ErrorReturn, FromHandle, Handle, Table};
pub use trigger::{
    DeferredWork, MsgElements, OpAtomic, OpCntrChange, OpCompareAtomic, OpFetchAtomic, OpMsg,
    OpRma, OpTagged, TriggeredContext,
};

/// `fi_addr_t`.
pub type FiAddr = u64;

/// Declares structures of C, each with its size on machines with pointers of eight bytes.
macro_rules! c_structs {
    ($($(#[$meta:meta])* $name:ident = $size:literal {
        $($(#[$fmeta:meta])* $field:ident: $kind:ty,)*
    })+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        #[expect(missing_docs, reason = "the names are the man pages'")]
        pub struct $name { $($(#[$fmeta])* pub $field: $kind,)* }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// The members' names and byte offsets, in their order.
            pub const MEMBERS: &[(&str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
        }
    )+};
}

use c_structs;
use table::{c_handles, c_tables};
