//! The declaration of a test.

use std::time::Duration;

use selvedge::Caps;
use selvedge::info::EpType;

use super::{Api, Result, TestContext};
use crate::suite::defect::Defect;
use crate::suite::entry::Set;

/// A test: a function and its requirements.
pub(crate) struct Test {
    /// The name within its group.
    pub(crate) name: &'static str,
    /// The function that each process runs.
    pub(crate) run: fn(&mut TestContext) -> Result,
    /// The capabilities that the test requests.
    pub(crate) caps: Caps,
    /// The number of processes.
    pub(crate) processes: usize,
    /// The APIs that the test runs over.
    pub(crate) apis: &'static [Api],
    /// The endpoint types that the test runs with.
    pub(crate) ep_types: &'static [EpType],
    /// The smallest set that contains the test.
    pub(crate) set: Set,
    /// Defects of a provider that the test must detect.
    pub(crate) defects: &'static [Defect],
    /// The time limit in a run of the quick set.
    pub(crate) timeout: Duration,
}

/// Every API.
pub(crate) const ALL: &[Api] = &[Api::Raw, Api::Owned, Api::Async];
/// The APIs whose completions have all fields.
pub(crate) const POLLED: &[Api] = &[Api::Raw, Api::Owned];
/// The raw API alone.
pub(crate) const RAW: &[Api] = &[Api::Raw];
/// Connected and unconnected endpoints.
pub(crate) const CONNECTED: &[EpType] = &[EpType::Rdm, EpType::Msg];

impl Test {
    /// Returns a test of the quick set with two processes, over every API, with unconnected
    /// endpoints.
    pub(crate) const fn new(
        name: &'static str,
        caps: Caps,
        defects: &'static [Defect],
        run: fn(&mut TestContext) -> Result,
    ) -> Self {
        Self {
            name,
            run,
            caps,
            processes: 2,
            apis: ALL,
            ep_types: &[EpType::Rdm],
            set: Set::Quick,
            defects,
            timeout: Duration::from_secs(120),
        }
    }

    /// Sets the APIs.
    pub(crate) const fn apis(mut self, apis: &'static [Api]) -> Self {
        self.apis = apis;
        self
    }

    /// Sets the endpoint types.
    pub(crate) const fn ep_types(mut self, ep_types: &'static [EpType]) -> Self {
        self.ep_types = ep_types;
        self
    }

    /// Sets the number of processes.
    pub(crate) const fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }
}
