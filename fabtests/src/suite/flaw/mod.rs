//! Defects on purpose: a provider around a provider, which does one thing wrong.
//!
//! A test that was never seen to fail is not counted. Every test names defects of the kind that it
//! guards against, and `fabtests run --mutants` runs it over the provider with each of them: whoever
//! passes then is no test. The defects are planted between the application and the provider, so
//! that the same ones serve for every provider.

mod endpoint;
mod mixed;
mod objects;
mod op;
mod provider;
mod queue;
mod region;

use std::sync::Arc;

use clap::ValueEnum;
use selvedge::{Errno, Error, Provider, Registry};
use selvedge_kit::layer::LayeredProvider;

/// The variable that says which defect is planted.
pub(crate) const VARIABLE: &str = "FABTESTS_FLAW";

macro_rules! flaws {
    ($($(#[doc = $text:literal])+ $name:ident,)+) => {
        /// What may be wrong with a provider.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
        #[value(rename_all = "snake_case")]
        pub(crate) enum Flaw { $($(#[doc = $text])+ $name,)+ }

        impl Flaw {
            /// What is wrong, in a sentence.
            #[cfg(test)]
            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$name => concat!($($text),+).trim_ascii(),)+ }
            }
        }
    };
}

flaws! {
    /// the last byte of each message has a bit turned over
    FlipsBit,
    /// the last byte of each message above 4096 bytes has a bit turned over
    FlipsBitOfLarge,
    /// the last byte of each message is not sent
    CutsOff,
    /// each message is sent twice
    SendsTwice,
    /// the first message of an endpoint is not sent
    LosesFirst,
    /// of two messages the second is sent first
    SwapsSends,
    /// what is injected is never sent
    ForgetsInjects,
    /// a buffer sent with the flag FI_INJECT is read after the call
    ReadsInjectLate,
    /// messages longer than they may be are injected
    InjectsAnySize,
    /// the upper half of a tag is not sent
    HalvesTags,
    /// the ignore bits of a receive are not looked at
    IgnoresIgnore,
    /// the tag of a receive is not looked at
    IgnoresTags,
    /// the source of a receive is not looked at
    IgnoresSource,
    /// the upper half of remote data is not sent
    HalvesData,
    /// pieces are sent and received in the opposite order
    SwapsPieces,
    /// receives complete with one byte less than they have
    CountsOneLess,
    /// completions do not say whether they are of messages, tagged messages, reads or writes
    NoKind,
    /// receives complete with another tag
    WrongTag,
    /// the source of a message is not told
    NoSource,
    /// every other source is told as the first
    WrongSource,
    /// some completions come twice
    CompletesTwice,
    /// some completions do not come
    LosesCompletions,
    /// failures are reported as successes
    HidesErrors,
    /// failures have another number
    WrongErrno,
    /// the bytes that did not fit are not counted
    NoOlen,
    /// what is cancelled stays posted
    CancelsNothing,
    /// what was cancelled is said to be too late to cancel
    DeniesCancel,
    /// a look takes the message
    LookTakes,
    /// a discard leaves the message
    DiscardLeaves,
    /// a claim claims nothing
    ClaimsNothing,
    /// a multi-receive buffer is never said to be released
    NeverReleases,
    /// messages are said to be one byte further on in their multi-receive buffer
    WrongPlace,
    /// options of endpoints are taken and forgotten
    ForgetsOptions,
    /// flags that do not belong to an operation are not looked at
    TakesAnyFlag,
    /// delivery is reported when the message has left
    DeliversEarly,
    /// fences are not looked at
    IgnoresFences,
    /// selective completion reports everything
    ReportsAll,
    /// remote accesses go one byte further on
    WrongAddress,
    /// every region may be read and written by peers
    GrantsAll,
    /// every region is eight bytes longer than it was registered
    WidensRegions,
    /// regions stay when they are closed
    KeepsRegions,
    /// data of writes is not sent
    NoRemoteData,
    /// atomics do nothing
    NoAtomics,
    /// atomics do something similar
    OtherAtomics,
    /// atomics of one element do something similar
    OtherAtomicsOfOne,
    /// atomics are carried out twice
    TwiceAtomics,
    /// what an atomic fetches goes elsewhere
    FetchesNothing,
    /// queries say that there is no atomic
    DeniesAtomics,
    /// counters count everything twice
    CountsTwice,
    /// counters do not count errors
    CountsNoErrors,
    /// sends are counted as receives, and reads as writes
    WrongCounter,
    /// counters of regions count what is done to the next one
    MixesRegions,
    /// counters of bytes count operations
    CountsNoBytes,
    /// waits for counters end at once
    NoCounterWait,
    /// work that waits for a counter is never done
    ForgetsWork,
    /// work does not wait for its counter
    HurriesWork,
    /// work that was taken back is done all the same
    KeepsWork,
    /// work tells everybody, and not its counter
    TellsAll,
    /// a look at an event takes it
    PeekTakes,
    /// event queues lose errors
    LosesEvents,
    /// waits see nothing and end with the time
    NeverWakes,
    /// signals wake nobody
    NoSignal,
    /// waits spin
    SpinsInWaits,
    /// descriptors to wait for are never ready
    DeadDescriptor,
    /// it is always said to be safe to sleep
    AlwaysTryWait,
    /// peers are not removed
    RemovesNothing,
    /// peers that are not there may be removed
    RemovesAnything,
    /// every index is that of the first peer when it is looked up
    WrongLookup,
    /// addresses that are none are inserted
    InsertsAnything,
    /// address vectors with a name are a process's own
    ForgetsNames,
    /// what is sent to a context goes to the first
    WrongContext,
    /// contexts that are open or not there are said to be opened
    OpensAnyContext,
    /// endpoints are not closed
    NeverCloses,
    /// calls of forked children are said to have succeeded
    ServesChildren,
    /// hints are not looked at
    IgnoresHints,
    /// capabilities that were asked for are not in the result
    DropsCaps,
    /// names of hosts are not looked at
    IgnoresHosts,
    /// a fabric has one domain
    OneDomain,
    /// objects of other domains are said to be bound
    MixesDomains,
    /// signals are blocked by whoever opens an endpoint
    BlocksSignals,
    /// descriptors are left to programs that are started
    Inherits,
    /// memory is taken with every completion that is read
    Hoards,
    /// the peer's private data of a connection is lost
    LosesCmData,
    /// an endpoint does not take the place of a passive one
    TakesNoPlace,
    /// a rejection is not sent
    RejectsNobody,
    /// a shutdown is not sent
    NeverShutsDown,
    /// what is posted to shared receives is forgotten
    ForgetsShared,
    /// an endpoint's own receives are shared
    SharesOwn,
    /// numbers that peers are to be called by are forgotten
    ForgetsUserIds,
    /// queues and counters are never ready
    NeverReady,
    /// queues and counters that were ready stay so
    StaysReady,
    /// collectives complete before they are carried out
    HurriesCollectives,
    /// collectives that reduce do something similar
    OtherCollectives,
    /// every collective's root is the first peer
    WrongRoot,
    /// collectives are those of the group that was joined last
    MixesGroups,
}

/// The built-in providers, each with the defect that the environment names, if it names one.
///
/// # Errors
/// When it names none that there is.
pub(crate) fn registry() -> Result<Registry, Error> {
    let mut registry = Registry::new();
    for provider in selvedge_providers::builtin().providers() {
        let planted = planted(Arc::clone(provider));
        let planted = planted.map_err(|error| Error::new(Errno::Inval, error.to_string()))?;
        registry = registry.with_shared(planted);
    }
    Ok(registry)
}

/// The provider, with the defect that the environment names.
///
/// # Errors
/// When it names none.
pub(crate) fn planted(provider: Arc<dyn Provider>) -> anyhow::Result<Arc<dyn Provider>> {
    let Ok(name) = std::env::var(VARIABLE) else {
        return Ok(provider);
    };
    let flaw = Flaw::from_str(&name, false);
    let flaw = flaw.map_err(|_| anyhow::anyhow!("{VARIABLE}={name} is no defect"))?;
    Ok(Arc::new(LayeredProvider::new(provider, flaw)))
}
