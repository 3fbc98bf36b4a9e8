//! `Defect`: the kinds of defects.

use clap::ValueEnum;

macro_rules! defects {
    ($($(#[doc = $text:literal])+ $name:ident,)+) => {
        /// The defects of a provider.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
        #[value(rename_all = "snake_case")]
        pub(crate) enum Defect { $($(#[doc = $text])+ $name,)+ }

        impl Defect {
            /// Returns the defect in a sentence.
            #[cfg(test)]
            pub(crate) fn text(self) -> &'static str {
                match self { $(Self::$name => concat!($($text),+).trim_ascii(),)+ }
            }
        }
    };
}

defects! {
    /// the last byte of each message has a flipped bit
    FlipsBit,
    /// the last byte of each message above 4096 bytes has a flipped bit
    FlipsBitOfLarge,
    /// the last byte of each message is not sent
    CutsOff,
    /// each message is sent twice
    SendsTwice,
    /// the first message of an endpoint is not sent
    DropsFirst,
    /// the second of two messages is sent first
    SwapsSends,
    /// injected messages are never sent
    DropsInjects,
    /// a buffer sent with the flag FI_INJECT is read after the call
    ReadsInjectLate,
    /// messages above the inject size are injected
    InjectsAnySize,
    /// the upper half of a tag is not sent
    HalvesTags,
    /// the ignore bits of a receive are ignored
    IgnoresIgnoreBits,
    /// the tag of a receive is ignored
    IgnoresTags,
    /// the source of a receive is ignored
    IgnoresSource,
    /// the upper half of remote data is not sent
    HalvesData,
    /// segments are sent and received in reverse order
    SwapsSegments,
    /// receives complete with one byte less
    CountsOneLess,
    /// completions have no flag of their kind: message, tagged message, read or write
    NoKind,
    /// receives complete with another tag
    WrongTag,
    /// the source of a message is not reported
    NoSource,
    /// every source is reported as the first peer
    WrongSource,
    /// some completions are reported twice
    CompletesTwice,
    /// some completions are not reported
    LosesCompletions,
    /// failures are reported as successes
    HidesErrors,
    /// failures have another error number
    WrongErrno,
    /// the number of truncated bytes is not reported
    NoOlen,
    /// a cancelled operation stays posted
    CancelsNothing,
    /// cancelling succeeds, but reports that it was too late
    DeniesCancel,
    /// a peek consumes the message
    PeekConsumes,
    /// a discard leaves the message
    DiscardKeeps,
    /// a claim claims nothing
    ClaimsNothing,
    /// the release of a multi-receive buffer is never reported
    NeverReleases,
    /// messages are reported one byte further on in their multi-receive buffer
    WrongBufferAddress,
    /// options of endpoints are accepted and ignored
    IgnoresOptions,
    /// flags that do not belong to an operation are accepted
    AcceptsAnyFlag,
    /// delivery is reported when the message was sent
    DeliversEarly,
    /// fences are ignored
    IgnoresFences,
    /// selective completion reports everything
    ReportsAll,
    /// remote accesses are one byte further on
    WrongAddress,
    /// every region may be read and written by peers
    GrantsAll,
    /// every region is eight bytes longer than it was registered
    WidensRegions,
    /// regions stay registered when they are closed
    KeepsRegions,
    /// remote data of writes is not sent
    NoRemoteData,
    /// atomics do nothing
    NoAtomics,
    /// atomics carry out a similar operation
    OtherAtomics,
    /// atomics of one element carry out a similar operation
    OtherAtomicsOfOne,
    /// atomics are carried out twice
    TwiceAtomics,
    /// the result of an atomic is discarded
    FetchesNothing,
    /// queries report that there is no atomic
    DeniesAtomics,
    /// counters count everything twice
    CountsTwice,
    /// counters do not count errors
    CountsNoErrors,
    /// sends are counted as receives, and reads as writes
    WrongCounter,
    /// counters of regions count accesses to the next region
    MixesRegions,
    /// counters of bytes count operations
    CountsNoBytes,
    /// waits for counters end immediately
    NoCounterWait,
    /// deferred work is never started
    NeverStartsWork,
    /// deferred work does not wait for its counter
    StartsWorkEarly,
    /// cancelled deferred work is carried out
    CancelsNoWork,
    /// deferred work reports to its endpoint, not to its counter
    ReportsWorkToEndpoint,
    /// a peek at an event consumes it
    EventPeekConsumes,
    /// event queues lose errors
    LosesEvents,
    /// waits see no event and end with their timeout
    NeverWakes,
    /// signals do not wake a waiting thread
    NoSignal,
    /// waits spin
    SpinsInWaits,
    /// descriptors to wait for are never ready
    DeadDescriptor,
    /// fi_trywait always reports that waiting is safe
    AlwaysTryWait,
    /// peers are not removed
    RemovesNothing,
    /// unknown peers may be removed
    RemovesAnything,
    /// a lookup of any index returns the first peer's address
    WrongLookup,
    /// invalid addresses are inserted
    InsertsAnything,
    /// named address vectors are private to a process
    IgnoresVectorNames,
    /// messages to any context go to the first one
    WrongContext,
    /// opening a context that is open or does not exist is reported as successful
    OpensAnyContext,
    /// endpoints are not closed
    NeverCloses,
    /// calls of forked children are reported as successful
    AcceptsForkedCalls,
    /// hints are ignored
    IgnoresHints,
    /// requested capabilities are missing in the result
    DropsCaps,
    /// host names are ignored
    IgnoresHosts,
    /// a fabric has one domain
    OneDomain,
    /// binding objects of other domains is reported as successful
    MixesDomains,
    /// a thread that opens an endpoint has its signals blocked
    BlocksSignals,
    /// programs that are started inherit descriptors
    InheritsDescriptors,
    /// every read completion leaks memory
    LeaksMemory,
    /// the peer's private data of a connection is lost
    LosesCmData,
    /// an endpoint ignores the address of a passive endpoint
    IgnoresPassiveHandle,
    /// a rejection is not sent
    NeverRejects,
    /// a shutdown is not sent
    NeverShutsDown,
    /// receives that are posted to shared receives are dropped
    DropsSharedReceives,
    /// an endpoint's own receives are shared
    SharesOwnReceives,
    /// user identifiers of peers are ignored
    IgnoresUserIds,
    /// queues and counters are never ready
    NeverReady,
    /// queues and counters that were ready stay ready
    StaysReady,
    /// collectives complete before they are carried out
    CompletesCollectivesEarly,
    /// collectives that reduce carry out a similar operation
    OtherCollectives,
    /// every collective's root is the first peer
    WrongRoot,
    /// collectives use the group that was joined last
    MixesGroups,
}
