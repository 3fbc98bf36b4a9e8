//! `Abi` and `Layout`: the sizes of structures in each version. Later versions only added members
//! at the ends of structures.

use super::info::{DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};

/// A version of the layout of `struct fi_info` and its parts: the number behind `FABRIC_1.` of a
/// symbol version. Versions that changed no layout are omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "they are numbers")]
pub enum Abi {
    V0 = 0,
    V1 = 1,
    V2 = 2,
    V3 = 3,
    V7 = 7,
    V8 = 8,
    V9 = 9,
    V10 = 10,
}

/// The size of each structure in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the man pages'")]
pub struct Layout {
    pub info: usize,
    pub tx: usize,
    pub rx: usize,
    pub ep: usize,
    pub domain: usize,
    pub fabric: usize,
}

impl Abi {
    /// The newest layout.
    pub const NEWEST: Self = Self::V10;

    /// The layout of programs that were built for `FABRIC_1.minor`. A version that changed no
    /// layout has the layout of the version before.
    pub const fn of_minor(minor: u8) -> Self {
        match minor {
            0 => Self::V0,
            1 => Self::V1,
            2 => Self::V2,
            3..=6 => Self::V3,
            7 => Self::V7,
            8 => Self::V8,
            9 => Self::V9,
            _ => Self::V10,
        }
    }

    /// The layout that programs of an API version use, for structures that are not arguments of
    /// versioned symbols.
    pub const fn of_api(major: u32, minor: u32) -> Self {
        match (major, minor) {
            (0, _) | (1, 0..=4) => Self::V0,
            (1, 5..=6) => Self::V1,
            (1, 7..=8) => Self::V2,
            (1, 9..=19) => Self::V3,
            (1, _) => Self::V7,
            (2, 0..=4) => Self::V8,
            (2, 5..=6) => Self::V9,
            _ => Self::V10,
        }
    }

    /// The sizes of the structures, in bytes.
    pub const fn layout(self) -> Layout {
        let (info, tx, ep, domain) = match self {
            Self::V0 => (112, 72, 80, 120),
            Self::V1 => (112, 72, 96, 184),
            Self::V2 => (120, 72, 96, 184),
            Self::V3 => (120, 80, 96, 192),
            Self::V7 => (120, 80, 96, 200),
            Self::V8 => (120, 80, 96, 208),
            Self::V9 => (120, 80, 96, 224),
            Self::V10 => (120, 80, 104, 232),
        };
        Layout {
            info,
            tx,
            rx: 64,
            ep,
            domain,
            fabric: 32,
        }
    }
}

const NEWEST: Layout = Abi::NEWEST.layout();
const _: () = assert!(NEWEST.info == size_of::<Info>() && NEWEST.tx == size_of::<TxAttr>());
const _: () = assert!(NEWEST.rx == size_of::<RxAttr>() && NEWEST.ep == size_of::<EpAttr>());
const _: () = assert!(NEWEST.domain == size_of::<DomainAttr>());
const _: () = assert!(NEWEST.fabric == size_of::<FabricAttr>());

/// Asserts that a member is the first one behind a version's layout, padding included.
macro_rules! assert_first_added {
    ($abi:ident, $part:ident: $kind:ident, $member:ident) => {
        const _: () = assert!(Abi::$abi.layout().$part == std::mem::offset_of!($kind, $member));
    };
}
assert_first_added!(V1, info: Info, nic);
assert_first_added!(V0, ep: EpAttr, auth_key_size);
assert_first_added!(V9, ep: EpAttr, xpu_ctx);
assert_first_added!(V0, domain: DomainAttr, cntr_cnt);
assert_first_added!(V2, domain: DomainAttr, tclass);
assert_first_added!(V3, domain: DomainAttr, max_ep_auth_key);
assert_first_added!(V7, domain: DomainAttr, max_group_id);
assert_first_added!(V8, domain: DomainAttr, max_cntr_value);
assert_first_added!(V9, domain: DomainAttr, max_xpu_ctx_cnt);
assert_first_added!(V2, tx: TxAttr, tclass);
