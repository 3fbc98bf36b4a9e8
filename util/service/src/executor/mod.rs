//! How operations make progress: blocked threads, `run`, drivers of other executors.

mod driver;
mod run;
mod step;

pub use self::driver::Driver;
pub(crate) use self::run::is_driven;
pub use self::run::run;
pub(crate) use self::step::{Step, operation, poll_operation, wait_operation};
