//! Options of endpoints: fi_setopt(3), fi_getopt(3).

use crate::{Caps, Errno, Info, Result};

macro_rules! options {
    ($($(#[$doc:meta])+ $name:ident = $number:literal,)+) => {
        /// A settable property of an endpoint (`FI_OPT_*`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum EpOption { $($(#[$doc])+ $name(usize),)+ }

        /// The names of [`EpOption`], with libfabric's numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum EpOptionName { $($(#[$doc])+ $name = $number,)+ }

        impl EpOption {
            /// Creates the option `name` with this value.
            pub const fn new(name: EpOptionName, value: usize) -> Self {
                match name { $(EpOptionName::$name => Self::$name(value),)+ }
            }

            /// Returns the name of the option.
            pub const fn name(self) -> EpOptionName {
                match self { $(Self::$name(_) => EpOptionName::$name,)+ }
            }

            /// Returns the value of the option.
            pub const fn value(self) -> usize {
                match self { $(Self::$name(value) => value,)+ }
            }
        }

        impl EpOptionName {
            /// All options.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

options! {
    /// Minimum number of free bytes in a multi-receive buffer; a buffer with fewer is released.
    MinMultiRecv = 0,
    /// Maximum size of private data of a connection, in bytes.
    CmDataSize = 1,
    /// Whether bytes go from device to device without memory of the system, as a value of
    /// `FI_HMEM_P2P_*`. Providers that copy with the processor do not have this option.
    FiHmemP2p = 8,
    /// Largest untagged message, in bytes.
    MaxMsgSize = 12,
    /// Largest tagged message, in bytes.
    MaxTaggedSize = 13,
    /// Largest remote access, in bytes.
    MaxRmaSize = 14,
    /// Largest atomic, in bytes.
    MaxAtomicSize = 15,
    /// Largest injected untagged message, in bytes.
    InjectMsgSize = 16,
    /// Largest injected tagged message, in bytes.
    InjectTaggedSize = 17,
    /// Largest injected remote write, in bytes.
    InjectRmaSize = 18,
    /// Largest injected atomic, in bytes.
    InjectAtomicSize = 19,
    /// Largest tagged message that is sent before it matches a receive at the peer, in bytes. The
    /// option's number is specific to Selvedge (`FI_PROV_SPECIFIC`). Providers whose large messages
    /// always stay with the sender until they match do not have this option.
    EagerSize = 0x8000_0000,
}

/// The read-only options of an endpoint that are limits of its description.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    caps: Caps,
    max_msg_size: usize,
    inject_size: usize,
}

impl Limits {
    /// Returns the limits in `info`.
    pub const fn of(info: &Info) -> Self {
        Self {
            caps: info.caps,
            max_msg_size: info.ep_attr.max_msg_size,
            inject_size: info.tx_attr.inject_size,
        }
    }

    /// Returns the value of an option. The maximum size of an atomic is that of an injected
    /// operation.
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] for an option of a capability that the description does not have, and
    /// for an option that is not a limit of the description.
    pub fn option(&self, name: EpOptionName) -> Result<EpOption> {
        let (interface, size) = match name {
            EpOptionName::MaxMsgSize => (Caps::MSG, self.max_msg_size),
            EpOptionName::MaxTaggedSize => (Caps::TAGGED, self.max_msg_size),
            EpOptionName::MaxRmaSize => (Caps::RMA, self.max_msg_size),
            EpOptionName::MaxAtomicSize => (Caps::ATOMIC, self.inject_size),
            EpOptionName::InjectMsgSize => (Caps::MSG, self.inject_size),
            EpOptionName::InjectTaggedSize => (Caps::TAGGED, self.inject_size),
            EpOptionName::InjectRmaSize => (Caps::RMA, self.inject_size),
            EpOptionName::InjectAtomicSize => (Caps::ATOMIC, self.inject_size),
            _ => return Err(Errno::NoProtoOpt),
        };
        if self.caps.contains(interface) {
            Ok(EpOption::new(name, size))
        } else {
            Err(Errno::NoProtoOpt)
        }
    }
}
