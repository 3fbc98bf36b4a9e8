//! Wait objects: how threads wait for a queue or a counter.

/// The wait object of a queue or a counter (`enum fi_wait_obj`, with libfabric's numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Object {
    /// No wait object: non-blocking reads only.
    #[default]
    None = 0,
    /// A wait object of the provider's choice, for blocking reads only.
    Unspec = 1,
    /// A file descriptor for `poll(2)`.
    Fd = 3,
    /// Yield the processor between reads.
    Yield = 5,
}
