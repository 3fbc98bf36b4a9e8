//! Programs that check messages and receives.

mod cancel;
mod completion_data;
mod flood;
mod greeting;
mod inject;
mod multi_recv;
mod multicast;
mod peek;
mod unexpected;

