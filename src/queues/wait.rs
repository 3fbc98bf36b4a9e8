//! Wait objects, with which threads wait for a queue or a counter.

/// The wait object of a queue or a counter (`enum fi_wait_obj`, with libfabric's numbers).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Object {
    /// No wait object: the object supports only non-blocking reads.
    #[default]
    None = 0,
    /// A wait object that the provider chooses, only for blocking reads.
    Unspec = 1,
    /// A file descriptor for `poll(2)`.
    Fd = 3,
    /// The thread yields the processor between reads.
    Yield = 5,
}
