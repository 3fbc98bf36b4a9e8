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

mod declare;
mod headers;

pub mod addr;
pub mod heap;
pub mod infos;
pub mod number;
pub mod pointer;

pub use declare::handle::Handle;
pub use declare::table::{ErrorReturn, FromHandle, Table};
pub use headers::av::{
    AvAttr, AvSetAttr, CollectiveAddr, FiAddr, FidAv, FidAvSet, OpsAv, OpsAvSet,
};
pub use headers::endpoint::{
    FidEp, FidMc, FidPep, FidStx, OpsAtomic, OpsCm, OpsCollective, OpsEp, OpsMsg, OpsRma, OpsTagged,
};
pub use headers::fid::{Alias, Fid, FidVar, MrMapRaw, MrRawAttr, Ops, fclass};
pub use headers::info::{
    BusAttr, DeviceAttr, DomainAttr, EpAttr, FabricAttr, Info, LinkAttr, Nic, PciAttr, RxAttr,
    TxAttr,
};
pub use headers::layout::{Abi, Layout};
pub use headers::msg::{
    AtomicAttr, CollectiveAttr, Ioc, Iovec, Msg, MsgAtomic, MsgCollective, MsgRma, MsgTagged,
    RmaIoc, RmaIov,
};
pub use headers::objects::{
    FidDomain, FidFabric, FidMr, MrAttr, MrModify, OpsDomain, OpsFabric, OpsMr,
};
pub use headers::provider::{GetInfo, OpenFabric, Provider};
pub use headers::queues::{
    CntrAttr, CqAttr, CqErrEntry, EqAttr, EqCmEntry, EqEntry, EqErrEntry, FidCntr, FidCq, FidEq,
    FidPoll, FidWait, OpsCntr, OpsCq, OpsEq, OpsPoll, OpsWait, Param, PollAttr, WaitAttr,
};
pub use headers::trigger::{
    DeferredWork, MsgElements, OpAtomic, OpCntrChange, OpCompareAtomic, OpFetchAtomic, OpMsg,
    OpRma, OpTagged, TriggeredContext,
};
