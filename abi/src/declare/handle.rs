//! Handles, whose tables are exchanged when they are closed.

use std::ffi::c_int;

use crate::headers::fid::Fid;

/// A handle of C.
pub trait Handle {
    /// A handle with tables whose every function returns this error number.
    fn failing<const ERRNO: c_int>(fid: Fid) -> Self;
}

impl Handle for Fid {
    fn failing<const ERRNO: c_int>(fid: Fid) -> Self {
        fid
    }
}

/// Declares handles, each with its size: a fid, pointers to tables, and other members. Each of the
/// other members has a value for a handle whose functions fail.
macro_rules! c_handles {
    ($($(#[$meta:meta])* $name:ident = $size:literal {
        $($table:ident: $ops:ident,)* $(; $($member:ident: $kind:ty = $value:expr,)+)?
    })+) => {$(
        $crate::declare::structs::c_structs! {
            $(#[$meta])*
            $name = $size {
                fid: $crate::headers::fid::Fid,
                $($table: *const $ops,)*
                $($($member: $kind,)+)?
            }
        }

        impl $crate::declare::handle::Handle for $name {
            fn failing<const ERRNO: std::ffi::c_int>(fid: $crate::headers::fid::Fid) -> Self {
                Self {
                    fid,
                    $($table: const { &$ops::failing::<ERRNO>() },)*
                    $($($member: $value,)+)?
                }
            }
        }
    )+};
}

pub(crate) use c_handles;
