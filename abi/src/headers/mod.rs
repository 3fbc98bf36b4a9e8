//! The structures, handles and tables of functions that the headers declare.

pub(crate) mod av;
pub(crate) mod endpoint;
pub(crate) mod fid;
pub(crate) mod info;
pub(crate) mod layout;
pub(crate) mod msg;
pub(crate) mod objects;
pub(crate) mod provider;
pub(crate) mod queues;
pub(crate) mod trigger;
