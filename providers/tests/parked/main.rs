//! Two threads share an endpoint. One thread is parked. The other thread polls, posts or reads a
//! queue, and then makes no further call. The parked thread progresses the pending work.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod at_a_counter;
mod at_a_queue;
mod endpoint;
mod work;

use std::time::Duration;

/// The time limit of a test.
const LIMIT: Duration = Duration::from_secs(10);
/// A time that is longer than a thread polls before it parks.
const UNTIL_PARKED: Duration = Duration::from_millis(20);
