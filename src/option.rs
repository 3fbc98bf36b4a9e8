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
            /// The option that has this value.
            pub const fn new(name: EpOptionName, value: usize) -> Self {
                match name { $(EpOptionName::$name => Self::$name(value),)+ }
            }

            /// Its name.
            pub const fn name(self) -> EpOptionName {
                match self { $(Self::$name(_) => EpOptionName::$name,)+ }
            }

            /// Its value.
            pub const fn value(self) -> usize {
                match self { $(Self::$name(value) => value,)+ }
            }
        }

        impl EpOptionName {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

options! {
    /// Free bytes below which a multi-receive buffer is released.
    MinMultiRecv = 0,
    /// Bytes of private data that a connection carries.
    CmDataSize = 1,
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
    /// Largest tagged message that is sent before a receive of the peer has met it, in bytes. Of our
    /// own, among the numbers that are for providers (`FI_PROV_SPECIFIC`): providers whose large
    /// messages wait with their sender in any case do not know it.
    EagerSize = 0x8000_0000,
}

/// The options of an endpoint that are sizes of its description.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    caps: Caps,
    max_msg_size: usize,
    inject_size: usize,
}

impl Limits {
    /// The sizes in `info`.
    pub const fn of(info: &Info) -> Self {
        Self {
            caps: info.caps,
            max_msg_size: info.ep_attr.max_msg_size,
            inject_size: info.tx_attr.inject_size,
        }
    }

    /// The size that an option stands for. An atomic is no larger than what can be injected.
    ///
    /// # Errors
    /// [`Errno::NoProtoOpt`] for an option of an interface that the description does not have, and
    /// for one that is no size of a description.
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
        match self.caps.contains(interface) {
            true => Ok(EpOption::new(name, size)),
            false => Err(Errno::NoProtoOpt),
        }
    }
}
