//! Wait objects: how a thread sleeps until a queue has something for it.

/// `enum fi_wait_obj`, with libfabric's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Object {
    /// No waiting: reads only.
    #[default]
    None = 0,
    /// The provider's choice; blocking reads only.
    Unspec = 1,
    /// A file descriptor for `poll(2)`.
    Fd = 3,
    /// Yield the processor between reads.
    Yield = 5,
}
