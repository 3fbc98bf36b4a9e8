//! Tests of messages and receives.

mod datagrams;
mod messages;
mod pressure;
mod receives;
mod tagged;

