//! Opens domains according to the options of a program.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use selvedge::{Fabric, Info};
use selvedge_testkit::domain::{DomainContext, WaitStrategy};

use crate::upstream::options::Options;

/// The time limit of a wait without `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the time limit of a wait.
pub(in crate::upstream) fn timeout(options: &Options) -> Duration {
    options.timeout.unwrap_or(TIMEOUT)
}

/// Opens a domain on a new fabric.
///
/// # Errors
/// The provider's error.
pub(in crate::upstream) fn open(
    options: &Options,
    info: Info,
) -> anyhow::Result<Arc<DomainContext>> {
    let fabric = info.fabric().context("cannot open a fabric")?;
    open_on(options, &*fabric, info)
}

/// Opens a domain on an open fabric.
///
/// # Errors
/// The provider's error.
pub(in crate::upstream) fn open_on(
    options: &Options,
    fabric: &dyn Fabric,
    info: Info,
) -> anyhow::Result<Arc<DomainContext>> {
    let strategy = WaitStrategy::new(options.waiting, timeout(options));
    DomainContext::open(fabric, info, strategy, options.special)
}
