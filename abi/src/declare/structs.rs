//! `c_structs`: declares structures of C, with their sizes and the offsets of their members.

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

pub(crate) use c_structs;
