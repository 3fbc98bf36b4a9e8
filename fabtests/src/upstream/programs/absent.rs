//! Programs that need capabilities that no provider has. They query discovery as upstream's
//! programs do, so that the error of discovery names the missing capability, and exit with the code
//! of a missing capability.

use selvedge::info::EpType;
use selvedge::{Caps, Hints};
use selvedge_testkit::failure::unsupported;

use crate::upstream::functional::option_set;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover, hints};

/// The options of upstream's programs of this kind.
pub(super) const ABSENT: OptionSet = option_set("T:VA:u:x:z:n:Uvo:k");

macro_rules! absent {
    ($($(#[$doc:meta])+ $name:ident $missing:literal |$hints:ident| $change:expr;)+) => {
        $($(#[$doc])+
        pub(super) fn $name(options: &Options) -> anyhow::Result<()> {
            query(options, $missing, |$hints| $change)
        })+
    };
}

absent! {
    /// `fi_mr_cache_evict`.
    mr_cache_evict "access to caches of registrations" |hints| hints.caps(Caps::MSG | Caps::RMA);
    /// `fi_check_hmem`.
    check_hmem "device memory" |hints| hints.caps(Caps::MSG | Caps::HMEM);
}

fn query(
    options: &Options,
    missing: &str,
    change: impl FnOnce(Hints) -> Hints,
) -> anyhow::Result<()> {
    let base = hints(options, Caps::empty(), EpType::Rdm)?;
    let mut hints = change(base);
    if let Some(ep_type) = options.ep_type {
        hints = hints.ep_type(ep_type);
    }
    let info = discover(options, &hints)?;
    let name = info.fabric_attr.prov_name;
    Err(unsupported(format!(
        "{name} matches the hints, but this suite has no {missing}"
    )))
}
