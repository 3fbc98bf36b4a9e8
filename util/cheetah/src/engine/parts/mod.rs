//! Parts of an engine: the state that its operations share.

pub(crate) mod barrier;
pub(crate) mod blocks;
pub(crate) mod completion;
pub(crate) mod copies;
pub(crate) mod failures;
pub(crate) mod parcel;
pub(crate) mod peer;
pub(crate) mod receive;
pub(crate) mod registered;
