//! Flag sets, one type per parameter, with libfabric's bit values.
//!
//! `from_bits_retain` keeps unknown bits, so that a value from the C interface is unchanged when it
//! is returned. Code that acts on a set checks the set with `contains_unknown_bits` or a mask.

use bitflags::bitflags;

bitflags! {
    /// Capabilities of a provider (fi_getinfo(3), "Capabilities").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Caps: u64 {
        /// Messages (fi_msg(3)).
        const MSG = 1 << 1;
        /// Remote memory access (fi_rma(3)).
        const RMA = 1 << 2;
        /// Tagged messages (fi_tagged(3)).
        const TAGGED = 1 << 3;
        /// Atomics (fi_atomic(3)).
        const ATOMIC = 1 << 4;
        /// Multicast.
        const MULTICAST = 1 << 5;
        /// Collectives (fi_collective(3)).
        const COLLECTIVE = 1 << 6;
        /// The endpoint may read remote memory.
        const READ = 1 << 8;
        /// The endpoint may write remote memory.
        const WRITE = 1 << 9;
        /// The endpoint may receive.
        const RECV = 1 << 10;
        /// The endpoint may send.
        const SEND = 1 << 11;
        /// Another name of [`Caps::SEND`].
        const TRANSMIT = 1 << 11;
        /// Peers may read the endpoint's memory.
        const REMOTE_READ = 1 << 12;
        /// Peers may write the endpoint's memory.
        const REMOTE_WRITE = 1 << 13;
        /// One posted buffer may receive many messages.
        const MULTI_RECV = 1 << 16;
        /// Triggered operations.
        const TRIGGER = 1 << 20;
        /// Operations may be fenced.
        const FENCE = 1 << 21;
        /// Completions report an id that the application sets for a peer, in place of its index.
        const AV_USER_ID = 1 << 41;
        /// Addresses behind a firewall.
        const FIREWALL_ADDR = 1 << 42;
        /// The provider may be stacked under another provider.
        const PEER = 1 << 43;
        /// Accelerator-initiated operations.
        const XPU = 1 << 44;
        /// A tagged receive may name its source.
        const TAGGED_DIRECTED_RECV = 1 << 45;
        /// One posted buffer may receive many tagged messages.
        const TAGGED_MULTI_RECV = 1 << 46;
        /// Device memory.
        const HMEM = 1 << 47;
        /// A directed receive never uses the unspecified address.
        const EXACT_DIRECTED_RECV = 1 << 48;
        /// Persistent memory.
        const RMA_PMEM = 1 << 49;
        /// A message from an unknown source is reported with its raw address.
        const SOURCE_ERR = 1 << 50;
        /// Peers on this machine.
        const LOCAL_COMM = 1 << 51;
        /// Peers on other machines.
        const REMOTE_COMM = 1 << 52;
        /// Address vectors may be shared between processes.
        const SHARED_AV = 1 << 53;
        /// Remote accesses count on the target's counters.
        const RMA_EVENT = 1 << 56;
        /// The source of a message is reported.
        const SOURCE = 1 << 57;
        /// Receive contexts are addressed by number.
        const NAMED_RX_CTX = 1 << 58;
        /// A receive may name its source.
        const DIRECTED_RECV = 1 << 59;
    }
}

impl Caps {
    /// Primary capabilities: returned only if requested.
    pub const PRIMARY: Self = Self::MSG
        .union(Self::RMA)
        .union(Self::TAGGED)
        .union(Self::ATOMIC)
        .union(Self::MULTICAST)
        .union(Self::COLLECTIVE)
        .union(Self::NAMED_RX_CTX)
        .union(Self::DIRECTED_RECV)
        .union(Self::TAGGED_DIRECTED_RECV)
        .union(Self::HMEM)
        .union(Self::XPU)
        .union(Self::AV_USER_ID)
        .union(Self::PEER)
        .union(Self::DIRECTIONS);

    /// The modifiers that narrow a primary capability to directions.
    pub const DIRECTIONS: Self = Self::READ
        .union(Self::WRITE)
        .union(Self::RECV)
        .union(Self::SEND)
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_WRITE);

    /// Secondary capabilities: may be returned without being requested.
    pub const SECONDARY: Self = Self::MULTI_RECV
        .union(Self::TRIGGER)
        .union(Self::FENCE)
        .union(Self::FIREWALL_ADDR)
        .union(Self::TAGGED_MULTI_RECV)
        .union(Self::EXACT_DIRECTED_RECV)
        .union(Self::RMA_PMEM)
        .union(Self::SOURCE_ERR)
        .union(Self::LOCAL_COMM)
        .union(Self::REMOTE_COMM)
        .union(Self::SHARED_AV)
        .union(Self::RMA_EVENT)
        .union(Self::SOURCE);
}

bitflags! {
    /// Requirements of a provider on the application (fi_getinfo(3), "Mode").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Mode: u64 {
        /// The context points to four words that the provider uses.
        const CONTEXT = 1 << 59;
        /// Buffers leave room for a header.
        const MSG_PREFIX = 1 << 58;
        /// The scatter list lives until the operation completes.
        const ASYNC_IOV = 1 << 57;
        /// Remote completion data consumes a receive buffer.
        const RX_CQ_DATA = 1 << 56;
        /// Local buffers must be registered (before API version 1.5).
        const LOCAL_MR = 1 << 55;
        /// The context points to eight words that the provider uses.
        const CONTEXT2 = 1 << 52;
    }
}

bitflags! {
    /// Flags of one operation or default flags of an endpoint (fi_endpoint(3), "Operation flags").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OpFlags: u64 {
        /// An atomic on tagged memory.
        const TAGGED = 1 << 3;
        /// To or from a multicast group.
        const MULTICAST = 1 << 5;
        /// The receive buffer receives many messages.
        const MULTI_RECV = 1 << 16;
        /// The data field is valid and reaches the peer's completion.
        const REMOTE_CQ_DATA = 1 << 17;
        /// Another post follows at once: the provider may delay the transfer.
        const MORE = 1 << 18;
        /// Search the unexpected messages without receiving.
        const PEEK = 1 << 19;
        /// The operation is triggered.
        const TRIGGER = 1 << 20;
        /// Start only after earlier operations to the same peer have finished.
        const FENCE = 1 << 21;
        /// Report the completion, under selective completion.
        const COMPLETION = 1 << 24;
        /// The buffer may be reused when the call returns.
        const INJECT = 1 << 25;
        /// Complete when the source buffer may be reused.
        const INJECT_COMPLETE = 1 << 26;
        /// Complete when the operation no longer depends on the sender.
        const TRANSMIT_COMPLETE = 1 << 27;
        /// Complete when the data has arrived and was processed at the target.
        const DELIVERY_COMPLETE = 1 << 28;
        /// Bind to a processor.
        const AFFINITY = 1 << 29;
        /// Complete when the data is persistent.
        const COMMIT_COMPLETE = 1 << 30;
        /// Complete when the message was matched by a receive.
        const MATCH_COMPLETE = 1 << 31;
        /// Hand the operation to a peer provider.
        const PEER_TRANSFER = 1 << 36;
        /// Receive under the authorization key of the context.
        const AUTH_KEY = 1 << 57;
        /// Use the endpoint's default flags (`tx_attr.op_flags` or `rx_attr.op_flags`) in addition
        /// to the given flags. The bit is specific to Selvedge: short forms pass the bit, and the
        /// `*msg` calls of the man pages correspond to calls without the bit.
        const DEFAULT = 1 << 63;
        /// The operation is deferred work ([`crate::trigger::CompletionTarget::Counter`]), and its
        /// context has a meaning for the endpoint. The bit is specific to Selvedge and internal to
        /// providers; without such work it has no effect.
        const DEFERRED = 1 << 62;
        /// Lend the bytes of a send, or accept a lent message in a receive ([`crate::Lending`]). The
        /// bit is specific to Selvedge.
        const LEND = 1 << 61;
        /// Drop the message that a peek finds, or the claimed message.
        const DISCARD = 1 << 58;
        /// Reserve the message that a peek finds, or receive the reserved message.
        const CLAIM = 1 << 59;
    }
}

bitflags! {
    /// Flags of a completion (fi_cq(3), "Completion flags").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct CompletionFlags: u64 {
        /// A message.
        const MSG = 1 << 1;
        /// Remote memory access.
        const RMA = 1 << 2;
        /// A tagged message.
        const TAGGED = 1 << 3;
        /// An atomic.
        const ATOMIC = 1 << 4;
        /// Multicast.
        const MULTICAST = 1 << 5;
        /// A collective.
        const COLLECTIVE = 1 << 6;
        /// A read by this endpoint.
        const READ = 1 << 8;
        /// A write by this endpoint.
        const WRITE = 1 << 9;
        /// A receive.
        const RECV = 1 << 10;
        /// A send.
        const SEND = 1 << 11;
        /// A read by a peer.
        const REMOTE_READ = 1 << 12;
        /// A write by a peer.
        const REMOTE_WRITE = 1 << 13;
        /// The multi-receive buffer is released with this completion.
        const MULTI_RECV = 1 << 16;
        /// The data field is valid.
        const REMOTE_CQ_DATA = 1 << 17;
        /// Another part of the same message follows.
        const MORE = 1 << 18;
        /// The message was claimed.
        const CLAIM = 1 << 59;
        /// The message is lent ([`crate::Lending`]): its bytes are in memory of the sender, and
        /// [`crate::cq::Entry::buf`] is its number. The bit is specific to Selvedge.
        const LENT = 1 << 61;
    }
}

bitflags! {
    /// Access rights of a memory region (fi_mr(3)).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MrAccess: u64 {
        /// Result buffer of a read.
        const READ = 1 << 8;
        /// Source buffer of a write.
        const WRITE = 1 << 9;
        /// Receive buffer.
        const RECV = 1 << 10;
        /// Send buffer.
        const SEND = 1 << 11;
        /// Peers may read the region.
        const REMOTE_READ = 1 << 12;
        /// Peers may write the region.
        const REMOTE_WRITE = 1 << 13;
        /// Collective operations may use the region.
        const COLLECTIVE = 1 << 6;
    }
}

bitflags! {
    /// Requirements of memory registration on the application (fi_mr(3), "MR mode").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MrMode: u32 {
        /// Deprecated: `VIRT_ADDR | ALLOCATED | PROV_KEY`.
        const BASIC = 1 << 0;
        /// Deprecated: no requirements.
        const SCALABLE = 1 << 1;
        /// Local buffers must be registered.
        const LOCAL = 1 << 2;
        /// Keys are larger than eight bytes.
        const RAW = 1 << 3;
        /// Remote memory is addressed by the target's virtual addresses.
        const VIRT_ADDR = 1 << 4;
        /// Regions must be backed by memory when registered.
        const ALLOCATED = 1 << 5;
        /// The provider chooses the keys.
        const PROV_KEY = 1 << 6;
        /// The application reports page changes.
        const MMU_NOTIFY = 1 << 7;
        /// Regions are enabled after a counter is bound.
        const RMA_EVENT = 1 << 8;
        /// Regions are bound to an endpoint and enabled.
        const ENDPOINT = 1 << 9;
        /// Device memory must be registered.
        const HMEM = 1 << 10;
        /// Buffers of collectives must be registered.
        const COLLECTIVE = 1 << 11;
        /// Accelerator descriptors.
        const XPU_DESC = 1 << 12;
    }
}

bitflags! {
    /// Order guarantees between operations of one endpoint pair (fi_endpoint(3), "Message order").
    ///
    /// The first letter names the later operation, and the last letter the earlier operation: `RAW`
    /// is "read after write".
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MsgOrder: u64 {
        /// Reads after reads.
        const RAR = 1 << 0;
        /// Reads after writes.
        const RAW = 1 << 1;
        /// Reads after sends.
        const RAS = 1 << 2;
        /// Writes after reads.
        const WAR = 1 << 3;
        /// Writes after writes.
        const WAW = 1 << 4;
        /// Writes after sends.
        const WAS = 1 << 5;
        /// Sends after reads.
        const SAR = 1 << 6;
        /// Sends after writes.
        const SAW = 1 << 7;
        /// Sends after sends.
        const SAS = 1 << 8;
        /// RMA reads after RMA reads.
        const RMA_RAR = 1 << 32;
        /// RMA reads after RMA writes.
        const RMA_RAW = 1 << 33;
        /// RMA writes after RMA reads.
        const RMA_WAR = 1 << 34;
        /// RMA writes after RMA writes.
        const RMA_WAW = 1 << 35;
        /// Atomic reads after atomic reads.
        const ATOMIC_RAR = 1 << 36;
        /// Atomic reads after atomic writes.
        const ATOMIC_RAW = 1 << 37;
        /// Atomic writes after atomic reads.
        const ATOMIC_WAR = 1 << 38;
        /// Atomic writes after atomic writes.
        const ATOMIC_WAW = 1 << 39;
    }
}

bitflags! {
    /// Flags of [`crate::Registry::getinfo`] (fi_getinfo(3), "Flags").
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InfoFlags: u64 {
        /// Return only the name and version of every provider.
        const PROV_ATTR_ONLY = 1 << 54;
        /// `node` is a numeric address, and is not resolved by name services.
        const NUMERICHOST = 1 << 55;
        /// `node` and `service` name the local address.
        const SOURCE = 1 << 57;
        /// Scan for devices again.
        const RESCAN = 1 << 35;
    }
}
