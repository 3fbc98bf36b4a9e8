//! A test, as its author declares it.

use std::time::Duration;

use selvedge::Caps;
use selvedge::info::EpType;

use super::{Cx, Face, Result};
use crate::suite::entry::Set;
use crate::suite::flaw::Flaw;

/// One test: a function, and what it needs.
pub(crate) struct Test {
    /// What it is called within its group.
    pub(crate) name: &'static str,
    /// What each of its processes does.
    pub(crate) run: fn(&mut Cx) -> Result,
    /// The capabilities that it asks for.
    pub(crate) caps: Caps,
    /// How many processes it has.
    pub(crate) processes: usize,
    /// The faces that it runs over.
    pub(crate) faces: &'static [Face],
    /// The endpoint types that it runs with.
    pub(crate) ep_types: &'static [EpType],
    /// The smallest set that it is of.
    pub(crate) set: Set,
    /// Defects of a provider that it must not survive.
    pub(crate) flaws: &'static [Flaw],
    /// How long it may take in the quick set.
    pub(crate) timeout: Duration,
}

/// Every face.
pub(crate) const ALL: &[Face] = &[Face::Raw, Face::Owned, Face::Async];
/// Those that say more than futures do.
pub(crate) const POLLED: &[Face] = &[Face::Raw, Face::Owned];
/// The raw face alone.
pub(crate) const RAW: &[Face] = &[Face::Raw];
/// Connected and unconnected endpoints.
pub(crate) const CONNECTED: &[EpType] = &[EpType::Rdm, EpType::Msg];

impl Test {
    /// A test of two processes over every face, with unconnected endpoints.
    pub(crate) const fn new(
        name: &'static str,
        caps: Caps,
        flaws: &'static [Flaw],
        run: fn(&mut Cx) -> Result,
    ) -> Self {
        Self {
            name,
            run,
            caps,
            processes: 2,
            faces: ALL,
            ep_types: &[EpType::Rdm],
            set: Set::Quick,
            flaws,
            timeout: Duration::from_secs(120),
        }
    }

    /// Over these faces.
    pub(crate) const fn faces(mut self, faces: &'static [Face]) -> Self {
        self.faces = faces;
        self
    }

    /// With these endpoint types.
    pub(crate) const fn ep_types(mut self, ep_types: &'static [EpType]) -> Self {
        self.ep_types = ep_types;
        self
    }

    /// With so many processes.
    pub(crate) const fn processes(mut self, processes: usize) -> Self {
        self.processes = processes;
        self
    }
}
