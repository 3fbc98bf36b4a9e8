//! What can go wrong, in words for whoever runs the program.

use std::io;

/// What a call of this crate answers.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Why a call failed, or an operation that was started earlier.
///
/// It can be had several times: an error that ends one wait ends the next one, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program's arguments or its environment make no sense.
    #[error("cannot start: {0}")]
    Usage(String),
    /// The contexts did not find each other.
    #[error("cannot start: {0}")]
    Start(String),
    /// The fabric refused something.
    #[error("context {context}: {what}")]
    Fabric {
        /// Where.
        context: usize,
        /// What was tried, and the fabric's words.
        what: String,
    },
    /// A context has ended before it finalized.
    #[error("context {context} of {size} is gone: {detail}")]
    Lost {
        /// The context that is gone.
        context: usize,
        /// How many there were.
        size: usize,
        /// How it was noticed, and what is known of the cause.
        detail: String,
    },
    /// A pointer that a call or a peer named is no memory of the context that it was meant for.
    #[error(
        "{what} of {len} bytes at {address:#x} of context {context}: no such memory, or not writable"
    )]
    BadPointer {
        /// Whose memory was meant.
        context: usize,
        /// The first byte that was named.
        address: u64,
        /// Bytes from there on.
        len: u64,
        /// The operation.
        what: &'static str,
    },
    /// There is no such context.
    #[error("there is no context {context}: contexts are 0 to {last}")]
    NoContext {
        /// The number that was given.
        context: usize,
        /// The last one that there is.
        last: usize,
    },
    /// An invocation names a function that its target has not registered.
    #[error(
        "context {caller} invokes function {id} of context {target}, which has registered {known}"
    )]
    NoFunction {
        /// Who calls.
        caller: usize,
        /// Who was called.
        target: usize,
        /// The function.
        id: u32,
        /// How many there are.
        known: u32,
    },
    /// The contexts have not registered the same functions in the same order.
    #[error("contexts have registered different things: {0}")]
    Mismatch(String),
    /// A call after [`finalize`](crate::Controller::finalize).
    #[error("{0} after finalize")]
    Finalized(&'static str),
    /// A call that waits, within a handler.
    #[error("{0} within a handler: a handler must not wait")]
    InHandler(&'static str),
    /// A wait or barrier has lasted too long.
    #[error("{what} has lasted {millis} ms; missing: {}", contexts(.missing))]
    TimedOut {
        /// What was waited for.
        what: String,
        /// For how long.
        millis: u64,
        /// The contexts that are not there, or do not answer.
        missing: Vec<usize>,
    },
    /// Memory is short.
    #[error("context {context}: no memory for {what}")]
    NoMemory {
        /// Where.
        context: usize,
        /// What it was for.
        what: String,
    },
    /// Bytes that are not what they should be.
    #[error("{0}")]
    Garbled(String),
    /// Contexts that were forked have failed.
    #[error("{0}")]
    Children(String),
}

impl Error {
    pub(crate) fn start(what: impl Into<String>) -> Self {
        Self::Start(what.into())
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::Usage(what.into())
    }

    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        Self::Start(format!("{what}: {error}"))
    }
}

fn contexts(list: &[usize]) -> String {
    match list {
        [] => "nobody; all contexts answer".to_owned(),
        [one] => format!("context {one}"),
        many => {
            let names: Vec<_> = many.iter().map(ToString::to_string).collect();
            format!("contexts {}", names.join(", "))
        }
    }
}
