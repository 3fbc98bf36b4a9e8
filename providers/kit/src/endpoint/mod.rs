//! Parts of endpoints: the common part, the outer part with the lock, scalable endpoints, and
//! operations that are stored and posted later.

pub(crate) mod ep;
pub(crate) mod report;
pub mod sep;
pub mod shell;
pub(crate) mod stored_op;
pub(crate) mod work;
