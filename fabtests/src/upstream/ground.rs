//! Opening a domain as the options of a program say.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use selvedge::{Fabric, Info};
use selvedge_testkit::domain::{DomainContext, WaitStrategy};

use super::options::Options;

/// How long a wait may take without `--timeout`.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long a wait may take.
pub(super) fn timeout(options: &Options) -> Duration {
    options.timeout.unwrap_or(TIMEOUT)
}

/// Opens a domain.
///
/// # Errors
/// The provider's.
pub(super) fn open(options: &Options, info: Info) -> anyhow::Result<Arc<DomainContext>> {
    let fabric = info.fabric().context("cannot open a fabric")?;
    on(options, &*fabric, info)
}

/// The same on a fabric that is open.
///
/// # Errors
/// The provider's.
pub(super) fn on(
    options: &Options,
    fabric: &dyn Fabric,
    info: Info,
) -> anyhow::Result<Arc<DomainContext>> {
    let strategy = WaitStrategy::new(options.waiting, timeout(options));
    DomainContext::open(fabric, info, strategy, options.special)
}
