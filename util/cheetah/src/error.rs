//! Errors of calls and operations.

use std::io;

/// Result of a call of this crate.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// The error of a call, or of an operation that was started earlier.
///
/// Errors can be cloned, because one error may end several waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The program's arguments or its environment are invalid.
    #[error("cannot start: {0}")]
    Usage(String),
    /// The contexts could not connect.
    #[error("cannot start: {0}")]
    Start(String),
    /// The fabric reported an error.
    #[error("context {context}: {detail}")]
    Fabric {
        /// The context that reports it.
        context: usize,
        /// The operation and the fabric's error.
        detail: String,
    },
    /// A context has ended before its finalize was complete, or an operation names a context that
    /// has finalized.
    #[error("context {context} of {size} has failed: {detail}")]
    PeerFailed {
        /// The failed context.
        context: usize,
        /// Number of contexts.
        size: usize,
        /// The exit status if it is known, otherwise the error by which the failure was detected.
        detail: String,
    },
    /// A pointer in a call or message does not name memory of the target context.
    #[error(
        "{operation} of {len} bytes at {address:#x} of context {context}: no such memory, or not writable"
    )]
    BadPointer {
        /// The context of the memory.
        context: usize,
        /// The first byte.
        address: u64,
        /// Length in bytes.
        len: u64,
        /// The operation.
        operation: &'static str,
    },
    /// There is no such context.
    #[error("there is no context {context}: contexts are 0 to {last}")]
    NoContext {
        /// The invalid number.
        context: usize,
        /// The largest valid number.
        last: usize,
    },
    /// An invocation names a function that its target has not registered.
    #[error(
        "context {caller} invokes function {id} of context {target}, which has registered {registered}"
    )]
    NoFunction {
        /// The calling context.
        caller: usize,
        /// The target context.
        target: usize,
        /// The number of the function.
        id: u32,
        /// Number of registered functions.
        registered: u32,
    },
    /// The contexts have not registered the same functions in the same order.
    #[error("contexts have registered different functions or handlers: {0}")]
    Mismatch(String),
    /// A call after [`finalize`](crate::Controller::finalize).
    #[error("{0} after finalize")]
    Finalized(&'static str),
    /// A blocking call within a handler.
    #[error("{0} within a handler: a handler must not wait")]
    InHandler(&'static str),
    /// A wait or barrier has reached its time limit.
    #[error("{operation} has lasted {millis} ms; missing: {}", contexts(.missing))]
    TimedOut {
        /// The operation.
        operation: String,
        /// Its duration in milliseconds.
        millis: u64,
        /// The contexts that have not entered the barrier or do not respond.
        missing: Vec<usize>,
    },
    /// Memory is exhausted.
    #[error("context {context}: no memory for {purpose}")]
    NoMemory {
        /// The context that reports it.
        context: usize,
        /// The purpose of the memory.
        purpose: String,
    },
    /// Invalid bytes or arguments.
    #[error("{0}")]
    Garbled(String),
    /// Forked contexts have failed.
    #[error("{0}")]
    Children(String),
}

impl Error {
    pub(crate) fn start(message: impl Into<String>) -> Self {
        Self::Start(message.into())
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    /// An operation at memory that is not mapped.
    pub(crate) fn bad_pointer(context: usize, address: u64, len: u64, call: &'static str) -> Self {
        Self::BadPointer {
            context,
            address,
            len,
            operation: call,
        }
    }

    pub(crate) fn io(object: &str, error: &io::Error) -> Self {
        Self::Start(format!("{object}: {error}"))
    }
}

fn contexts(list: &[usize]) -> String {
    match list {
        [] => "none; all contexts respond".to_owned(),
        [one] => format!("context {one}"),
        many => {
            let names: Vec<_> = many.iter().map(ToString::to_string).collect();
            format!("contexts {}", names.join(", "))
        }
    }
}
