//! Words on cache lines of their own.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// A word on a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub(in crate::limits) struct CacheLine(pub(in crate::limits) AtomicU64);

/// A futex on a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub(in crate::limits) struct FutexLine(pub(in crate::limits) AtomicU32);

const _: () = assert!(size_of::<CacheLine>() == 64);
const _: () = assert!(size_of::<FutexLine>() == 64);
