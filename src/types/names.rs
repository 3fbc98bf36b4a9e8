//! Conversion of flags and formats to the names that fi_tostr(3) prints, and back.

use std::fmt;
use std::str::FromStr;

use crate::{
    AddrFormat, Caps, CompletionFlags, Errno, Error, InfoFlags, Mode, MrAccess, MrMode, MsgOrder,
    OpFlags, av,
};

macro_rules! flag_names {
    ($($flags:ident $prefix:literal,)+) => {$(
        impl $flags {
            /// Returns the names of the set bits in the order of their declaration, with
            /// libfabric's prefix. All bits without a name form one hexadecimal number at the end.
            pub fn names(self) -> impl Iterator<Item = String> {
                let unnamed = self.difference(Self::all()).bits();
                self.iter_names()
                    .map(|(name, _)| format!(concat!($prefix, "{}"), name))
                    .chain((unnamed != 0).then(|| format!("{unnamed:#x}")))
            }
        }

        /// Formats a set as `A | B`, and the empty set as `nothing`.
        impl fmt::Display for $flags {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_empty() {
                    return f.write_str("nothing");
                }
                f.write_str(&self.names().collect::<Vec<_>>().join(" | "))
            }
        }

        /// Parses `A|B`. The prefix is optional, and case does not matter.
        impl FromStr for $flags {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                text.split('|').try_fold(Self::empty(), |flags, word| {
                    Ok(flags.union(find(word, $prefix, Self::from_name)?))
                })
            }
        }
    )+};
}

flag_names! {
    Caps "FI_",
    Mode "FI_",
    OpFlags "FI_",
    CompletionFlags "FI_",
    MrAccess "FI_",
    InfoFlags "FI_",
    MrMode "FI_MR_",
    MsgOrder "FI_ORDER_",
}

impl AddrFormat {
    /// All formats.
    pub const ALL: &[Self] = &[
        Self::Unspec,
        Self::Sockaddr,
        Self::SockaddrIn,
        Self::SockaddrIn6,
        Self::SockaddrIb,
        Self::Psmx,
        Self::Gni,
        Self::Bgq,
        Self::Mlx,
        Self::Str,
        Self::Psmx2,
        Self::IbUd,
        Self::Efa,
        Self::Psmx3,
        Self::Opx,
        Self::Cxi,
        Self::Ucx,
        Self::SockaddrIp,
    ];

    /// Returns the name that fi_tostr(3) prints.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unspec => "FI_FORMAT_UNSPEC",
            Self::Sockaddr => "FI_SOCKADDR",
            Self::SockaddrIn => "FI_SOCKADDR_IN",
            Self::SockaddrIn6 => "FI_SOCKADDR_IN6",
            Self::SockaddrIb => "FI_SOCKADDR_IB",
            Self::Psmx => "FI_ADDR_PSMX",
            Self::Gni => "FI_ADDR_GNI",
            Self::Bgq => "FI_ADDR_BGQ",
            Self::Mlx => "FI_ADDR_MLX",
            Self::Str => "FI_ADDR_STR",
            Self::Psmx2 => "FI_ADDR_PSMX2",
            Self::IbUd => "FI_ADDR_IB_UD",
            Self::Efa => "FI_ADDR_EFA",
            Self::Psmx3 => "FI_ADDR_PSMX3",
            Self::Opx => "FI_ADDR_OPX",
            Self::Cxi => "FI_ADDR_CXI",
            Self::Ucx => "FI_ADDR_UCX",
            Self::SockaddrIp => "FI_SOCKADDR_IP",
        }
    }
}

impl fmt::Display for AddrFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Parses the name that [`AddrFormat::text`] returns. Case does not matter.
impl FromStr for AddrFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        by_name(Self::ALL, Self::text, text)
    }
}

impl av::Type {
    /// Returns the name that fi_tostr(3) prints.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unspec => "FI_AV_UNSPEC",
            Self::Map => "FI_AV_MAP",
            Self::Table => "FI_AV_TABLE",
        }
    }
}

impl fmt::Display for av::Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Returns the value of `all` whose name is `text`. Case and surrounding spaces do not matter.
///
/// # Errors
/// [`Errno::Inval`] if no value has the name.
pub(crate) fn by_name<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    text: &str,
) -> Result<T, Error> {
    all.iter()
        .copied()
        .find(|&value| name(value).eq_ignore_ascii_case(text.trim()))
        .ok_or_else(|| unknown_name(text))
}

fn unknown_name(text: &str) -> Error {
    Error::new(
        Errno::Inval,
        format!("{text:?} is no name that is known here"),
    )
}

fn find<T>(word: &str, prefix: &str, by_name: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
    let upper = word.trim().to_ascii_uppercase();
    let name = upper.strip_prefix(prefix).unwrap_or(&upper);
    by_name(name).ok_or_else(|| unknown_name(word.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_libfabric_s_names() {
        let caps = Caps::MSG | Caps::TAGGED | Caps::REMOTE_COMM;
        assert_eq!(caps.to_string(), "FI_MSG | FI_TAGGED | FI_REMOTE_COMM");
        assert_eq!(MsgOrder::SAS.to_string(), "FI_ORDER_SAS");
        assert_eq!(MrMode::VIRT_ADDR.to_string(), "FI_MR_VIRT_ADDR");
        assert_eq!(Mode::empty().to_string(), "nothing");
    }

    #[test]
    fn a_bit_without_a_name_is_printed_as_a_number() {
        let caps = Caps::from_bits_retain(1 << 61) | Caps::MSG;
        assert_eq!(caps.to_string(), "FI_MSG | 0x2000000000000000");
    }

    #[test]
    fn names_are_read_back() -> Result<(), Error> {
        assert_eq!(
            "FI_MSG|fi_tagged | rma".parse::<Caps>()?,
            Caps::MSG | Caps::TAGGED | Caps::RMA
        );
        assert_eq!("FI_TRANSMIT".parse::<Caps>()?, Caps::SEND);
        assert_eq!(Caps::SEND.to_string(), "FI_SEND");
        assert_eq!("FI_MR_LOCAL".parse::<MrMode>()?, MrMode::LOCAL);
        for flag in Caps::all().iter() {
            assert_eq!(flag.to_string().parse::<Caps>()?, flag);
        }
        for &format in AddrFormat::ALL {
            assert_eq!(format.text().parse::<AddrFormat>()?, format);
        }
        Ok(())
    }

    #[test]
    fn an_unknown_name_is_reported() {
        let error = "FI_MSG|FI_MGS".parse::<Caps>().unwrap_err();
        assert_eq!(error.message(), "\"FI_MGS\" is no name that is known here");
    }
}
