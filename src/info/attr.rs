//! The attribute structs of [`super::Info`]: every field of libfabric 2.x.

use std::fmt;
use std::str::FromStr;

use crate::types::names::by_name;
use crate::{Caps, Error, Mode, MrMode, MsgOrder, OpFlags, av};

/// Operations complete in the order in which they were posted or processed (`FI_ORDER_STRICT`): a
/// value of `comp_order`.
pub const COMP_ORDER_STRICT: u64 = 0x1ff;
/// Received bytes are written to memory in their order (`FI_ORDER_DATA`): a bit of `comp_order`.
pub const COMP_ORDER_DATA: u64 = 1 << 16;

/// Transmit attributes (`struct fi_tx_attr`).
#[expect(
    clippy::exhaustive_structs,
    reason = "providers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TxAttr {
    /// Capabilities of transmitting.
    pub caps: Caps,
    /// Modes of transmitting.
    pub mode: Mode,
    /// Default flags of operations posted by the short forms.
    pub op_flags: OpFlags,
    /// Order guarantees.
    pub msg_order: MsgOrder,
    /// Order of completions: 0 or [`COMP_ORDER_STRICT`]. API version 2 has no such order.
    pub comp_order: u64,
    /// Largest injected message, in bytes.
    pub inject_size: usize,
    /// Maximum number of outstanding operations.
    pub size: usize,
    /// Maximum number of segments of a local list.
    pub iov_limit: usize,
    /// Maximum number of segments of a remote list.
    pub rma_iov_limit: usize,
    /// Traffic class.
    pub tclass: TrafficClass,
}

/// Receive attributes (`struct fi_rx_attr`).
#[expect(
    clippy::exhaustive_structs,
    reason = "providers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RxAttr {
    /// Capabilities of receiving.
    pub caps: Caps,
    /// Modes of receiving.
    pub mode: Mode,
    /// Default flags of operations posted by the short forms.
    pub op_flags: OpFlags,
    /// Order guarantees.
    pub msg_order: MsgOrder,
    /// Order of completions: 0 or [`COMP_ORDER_STRICT`], and optionally [`COMP_ORDER_DATA`]. API
    /// version 2 has no such order.
    pub comp_order: u64,
    /// Unused in API version 2; kept for the C interface.
    pub total_buffered_recv: usize,
    /// Maximum number of posted receives.
    pub size: usize,
    /// Maximum number of segments of a list.
    pub iov_limit: usize,
}

/// Attributes of an endpoint (`struct fi_ep_attr`).
#[expect(
    clippy::exhaustive_structs,
    reason = "providers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpAttr {
    /// Kind of endpoint.
    pub ep_type: EpType,
    /// Wire protocol.
    pub protocol: Protocol,
    /// Version of the wire protocol.
    pub protocol_version: u32,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Size of the free prefix of each buffer under [`Mode::MSG_PREFIX`], in bytes.
    pub msg_prefix_size: usize,
    /// Maximum size of ordered reads after writes, in bytes.
    pub max_order_raw_size: usize,
    /// Maximum size of ordered writes after reads, in bytes.
    pub max_order_war_size: usize,
    /// Maximum size of ordered writes after writes, in bytes.
    pub max_order_waw_size: usize,
    /// Structure of tags.
    pub mem_tag_format: MemTagFormat,
    /// Number of transmit contexts; `usize::MAX` for a shared transmit context.
    pub tx_ctx_cnt: usize,
    /// Number of receive contexts; `usize::MAX` for a shared receive context.
    pub rx_ctx_cnt: usize,
    /// Authorization key.
    pub auth_key: Vec<u8>,
}

/// Attributes of a domain (`struct fi_domain_attr`).
#[expect(
    clippy::exhaustive_structs,
    reason = "providers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainAttr {
    /// Name of the domain.
    pub name: String,
    /// Promise of the application about its threads.
    pub threading: Threading,
    /// Progress model of control operations, such as connections.
    pub control_progress: Progress,
    /// Progress model of data transfers.
    pub data_progress: Progress,
    /// Whether queues are protected from overruns.
    pub resource_mgmt: ResourceMgmt,
    /// Kind of address vector.
    pub av_type: av::Type,
    /// Requirements of memory registration.
    pub mr_mode: MrMode,
    /// Size of a key, in bytes.
    pub mr_key_size: usize,
    /// Size of remote completion data, in bytes.
    pub cq_data_size: usize,
    /// Optimal maximum number of open completion queues.
    pub cq_cnt: usize,
    /// Optimal maximum number of open endpoints.
    pub ep_cnt: usize,
    /// Optimal maximum number of transmit contexts.
    pub tx_ctx_cnt: usize,
    /// Optimal maximum number of receive contexts.
    pub rx_ctx_cnt: usize,
    /// Maximum number of transmit contexts of an endpoint.
    pub max_ep_tx_ctx: usize,
    /// Maximum number of receive contexts of an endpoint.
    pub max_ep_rx_ctx: usize,
    /// Maximum number of endpoints of a shared transmit context.
    pub max_ep_stx_ctx: usize,
    /// Maximum number of endpoints of a shared receive context.
    pub max_ep_srx_ctx: usize,
    /// Optimal maximum number of counters.
    pub cntr_cnt: usize,
    /// Maximum number of segments of a registered region.
    pub mr_iov_limit: usize,
    /// Capabilities of the domain.
    pub caps: Caps,
    /// Modes of the domain.
    pub mode: Mode,
    /// Authorization key.
    pub auth_key: Vec<u8>,
    /// Maximum size of error data, in bytes.
    pub max_err_data: usize,
    /// Optimal maximum number of registered regions.
    pub mr_cnt: usize,
    /// Traffic class.
    pub tclass: TrafficClass,
    /// Maximum number of authorization keys of an endpoint.
    pub max_ep_auth_key: usize,
    /// Largest group number.
    pub max_group_id: u32,
    /// Largest value of a counter.
    pub max_cntr_value: u64,
    /// Largest error value of a counter.
    pub max_err_cntr_value: u64,
}

/// Attributes of a fabric (`struct fi_fabric_attr`).
#[expect(
    clippy::exhaustive_structs,
    reason = "providers write it with `..Default::default()`"
)]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FabricAttr {
    /// Name of the fabric.
    pub name: String,
    /// Name of the provider; layers are joined by `;`.
    pub prov_name: String,
    /// Version of the provider.
    pub prov_version: Version,
    /// The requested API version.
    pub api_version: Version,
}

/// A network interface (`struct fid_nic`), as far as the system describes it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Nic {
    /// Name of the device.
    pub name: String,
    /// The vendor's number of the device, such as `0x101b`.
    pub device_id: String,
    /// Revision of the device.
    pub device_version: String,
    /// Number of the vendor, such as `0x15b3`.
    pub vendor_id: String,
    /// The driver of the device.
    pub driver: String,
    /// Version of the firmware.
    pub firmware: String,
    /// The place of the device on the PCI bus.
    pub pci: Option<PciAddress>,
    /// The NUMA node near which the device is. libfabric has no member for it.
    pub numa_node: Option<u32>,
    /// Address of the link.
    pub address: String,
    /// Maximum transfer unit, in bytes.
    pub mtu: usize,
    /// Speed of the link, in bits per second.
    pub speed: u64,
    /// Whether the link is up.
    pub up: bool,
    /// Type of the network, such as `Ethernet`.
    pub network_type: String,
}

/// The place of a device on the PCI bus (`struct fi_pci_attr`).
#[expect(clippy::exhaustive_structs, reason = "four numbers by definition")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciAddress {
    /// Number of the domain.
    pub domain_id: u16,
    /// Number of the bus.
    pub bus_id: u8,
    /// Number of the device on the bus.
    pub device_id: u8,
    /// Number of the function of the device.
    pub function_id: u8,
}

impl PciAddress {
    /// Parses the kernel's form, such as `0000:3b:00.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let byte = |digits| u8::from_str_radix(digits, 16).ok();
        Some(Self {
            domain_id: u16::from_str_radix(domain, 16).ok()?,
            bus_id: byte(bus)?,
            device_id: byte(device)?,
            function_id: byte(function)?,
        })
    }
}

/// A version, as `FI_VERSION(major, minor)`.
#[expect(clippy::exhaustive_structs, reason = "two numbers by definition")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major version: incremented for incompatible changes.
    pub major: u16,
    /// Minor version: incremented for additions.
    pub minor: u16,
}

impl Version {
    /// The API version of this library.
    pub const API: Self = Self::new(2, 6);

    /// Creates a version, as `FI_VERSION(major, minor)`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Returns the number in the C API.
    pub const fn as_raw(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }

    /// Returns the version of a number of the C API.
    pub const fn from_raw(raw: u32) -> Self {
        Self {
            major: (raw >> 16) as u16,
            minor: (raw & 0xffff) as u16,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

macro_rules! c_enum {
    ($(#[$doc:meta])+ $name:ident: $($(#[$vdoc:meta])* $variant:ident = $value:literal $text:literal,)+) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum $name { $($(#[$vdoc])* #[doc = concat!("`", $text, "`")] $variant = $value,)+ }

        impl $name {
            /// Every value, in libfabric's order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name that fi_tostr(3) prints.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the value of a number of the C API, or `None` for an unknown number.
            pub const fn from_raw(raw: u32) -> Option<Self> {
                $(if raw == $value { return Some(Self::$variant); })+
                None
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }

        /// Parses the name, ignoring case.
        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                by_name(Self::ALL, Self::text, text)
            }
        }
    };
}

c_enum! {
    /// Kind of endpoint (`enum fi_ep_type`).
    EpType:
    #[default] Unspec = 0 "FI_EP_UNSPEC",
    Msg = 1 "FI_EP_MSG",
    Dgram = 2 "FI_EP_DGRAM",
    Rdm = 3 "FI_EP_RDM",
}

c_enum! {
    /// Threading model: a promise of the application about its threads (`enum fi_threading`).
    Threading:
    #[default] Unspec = 0 "FI_THREAD_UNSPEC",
    Safe = 1 "FI_THREAD_SAFE",
    Fid = 2 "FI_THREAD_FID",
    Domain = 3 "FI_THREAD_DOMAIN",
    Completion = 4 "FI_THREAD_COMPLETION",
    Endpoint = 5 "FI_THREAD_ENDPOINT",
}

c_enum! {
    /// Progress model (`enum fi_progress`).
    Progress:
    #[default] Unspec = 0 "FI_PROGRESS_UNSPEC",
    Auto = 1 "FI_PROGRESS_AUTO",
    Manual = 2 "FI_PROGRESS_MANUAL",
    ControlUnified = 3 "FI_PROGRESS_CONTROL_UNIFIED",
}

c_enum! {
    /// Whether queues are protected from overruns (`enum fi_resource_mgmt`).
    ResourceMgmt:
    #[default] Unspec = 0 "FI_RM_UNSPEC",
    Disabled = 1 "FI_RM_DISABLED",
    Enabled = 2 "FI_RM_ENABLED",
}

c_enum! {
    /// Wire protocol (`FI_PROTO_*`).
    Protocol:
    #[default] Unspec = 0 "FI_PROTO_UNSPEC",
    RdmaCmIbRc = 1 "FI_PROTO_RDMA_CM_IB_RC",
    Iwarp = 2 "FI_PROTO_IWARP",
    IbUd = 3 "FI_PROTO_IB_UD",
    Psmx = 4 "FI_PROTO_PSMX",
    Udp = 5 "FI_PROTO_UDP",
    SockTcp = 6 "FI_PROTO_SOCK_TCP",
    Mxm = 7 "FI_PROTO_MXM",
    IwarpRdm = 8 "FI_PROTO_IWARP_RDM",
    IbRdm = 9 "FI_PROTO_IB_RDM",
    Gni = 10 "FI_PROTO_GNI",
    Rxm = 11 "FI_PROTO_RXM",
    Rxd = 12 "FI_PROTO_RXD",
    Mlx = 13 "FI_PROTO_MLX",
    NetworkDirect = 14 "FI_PROTO_NETWORKDIRECT",
    Psmx2 = 15 "FI_PROTO_PSMX2",
    Shm = 16 "FI_PROTO_SHM",
    Mrail = 17 "FI_PROTO_MRAIL",
    Rstream = 18 "FI_PROTO_RSTREAM",
    RdmaCmIbXrc = 19 "FI_PROTO_RDMA_CM_IB_XRC",
    Efa = 20 "FI_PROTO_EFA",
    Psmx3 = 21 "FI_PROTO_PSMX3",
    RxmTcp = 22 "FI_PROTO_RXM_TCP",
    Opx = 23 "FI_PROTO_OPX",
    Cxi = 24 "FI_PROTO_CXI",
    Xnet = 25 "FI_PROTO_XNET",
    Coll = 26 "FI_PROTO_COLL",
    Ucx = 27 "FI_PROTO_UCX",
    Sm2 = 28 "FI_PROTO_SM2",
    CxiRnr = 29 "FI_PROTO_CXI_RNR",
    Lpp = 30 "FI_PROTO_LPP",
    Lnx = 31 "FI_PROTO_LNX",
}

c_enum! {
    /// Traffic class (`FI_TC_*`).
    TrafficClass:
    #[default] Unspec = 0 "FI_TC_UNSPEC",
    BestEffort = 0x200 "FI_TC_BEST_EFFORT",
    LowLatency = 0x201 "FI_TC_LOW_LATENCY",
    DedicatedAccess = 0x202 "FI_TC_DEDICATED_ACCESS",
    BulkData = 0x203 "FI_TC_BULK_DATA",
    Scavenger = 0x204 "FI_TC_SCAVENGER",
    NetworkCtrl = 0x205 "FI_TC_NETWORK_CTRL",
}

/// Structure of tags (`ep_attr.mem_tag_format`).
#[expect(clippy::exhaustive_structs, reason = "a number of the man page's")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct MemTagFormat(pub u64);

impl MemTagFormat {
    /// `FI_TAG_BITS`: no structure.
    pub const BITS: Self = Self(0);
}
