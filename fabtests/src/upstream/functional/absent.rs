//! Programs for what the object model does not have. They ask discovery as upstream's do, so that
//! its answer says which provider lacks what, and end with the code for "not there".

use selvedge::info::EpType;
use selvedge::{Caps, Hints};
use selvedge_testkit::failure::unsupported;

use super::letters;
use crate::upstream::discover::{discover, hints};
use crate::upstream::options::{Letters, Options};

/// Letters that all of upstream's programs of this kind have.
pub(in crate::upstream) const ABSENT: Letters = letters("T:VA:u:x:z:n:Uvo:k");

macro_rules! absent {
    ($($(#[$doc:meta])+ $name:ident $what:literal |$hints:ident| $change:expr;)+) => {
        $($(#[$doc])+
        pub(in crate::upstream) fn $name(options: &Options) -> anyhow::Result<()> {
            answer(options, $what, |$hints| $change)
        })+
    };
}

absent! {
    /// `fi_mr_cache_evict`.
    mr_cache_evict "caches of registrations to look into" |hints| hints.caps(Caps::MSG | Caps::RMA);
    /// `fi_check_hmem`.
    check_hmem "memory of devices" |hints| hints.caps(Caps::MSG | Caps::HMEM);
}

fn answer(options: &Options, what: &str, ask: impl FnOnce(Hints) -> Hints) -> anyhow::Result<()> {
    let base = hints(options, Caps::empty(), EpType::Rdm)?;
    let mut hints = ask(base);
    if let Some(ep_type) = options.ep_type {
        hints = hints.ep_type(ep_type);
    }
    let info = discover(options, &hints)?;
    let name = info.fabric_attr.prov_name;
    Err(unsupported(format!(
        "{name} answers, but there is nothing here for {what}"
    )))
}
