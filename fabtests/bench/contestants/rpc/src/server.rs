//! The server of a process: a thread with a runtime of its own.

use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// The name of an abstract Unix socket.
#[derive(Clone, Debug)]
pub(crate) struct Address(String);

impl Address {
    pub(crate) fn of_this_process() -> Self {
        Self::named(&format!("selvedge-bench-rpc-{}", std::process::id()))
    }

    pub(crate) fn named(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// The path of the socket: a zero byte makes it an abstract one, which leaves no file.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("\0{}", self.0))
    }
}

/// A runtime of one thread, which waits in `epoll_wait(2)`.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")
}

/// Counts the served requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requests(Arc<(Mutex<Counts>, Condvar)>);

#[derive(Debug, Default)]
struct Counts {
    served: usize,
    /// The number for which a thread waits.
    awaited: usize,
}

impl Requests {
    /// Counts a request. Wakes the waiting thread at the last one only.
    pub(crate) fn count(&self) {
        let (counts, is_complete) = &*self.0;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.served += 1;
        if counts.served == counts.awaited {
            is_complete.notify_all();
        }
    }

    /// Waits until `count` more requests were served than at the end of the last call.
    pub(crate) fn wait_for(&self, count: usize) {
        let (counts, is_complete) = &*self.0;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.awaited = count;
        while counts.served < count {
            let waited = is_complete.wait(counts);
            counts = waited.unwrap_or_else(PoisonError::into_inner);
        }
        counts.served -= count;
        counts.awaited = 0;
    }
}

/// Starts the thread of a server, which ends with the process, and waits until the server listens.
/// `serve` gets a function to call then.
///
/// # Errors
/// The error with which the server ends before that.
pub(crate) fn start<S>(
    serve: impl FnOnce(Box<dyn FnOnce()>) -> S + Send + 'static,
) -> anyhow::Result<()>
where
    S: Future<Output = anyhow::Result<()>>,
{
    let (listens, is_listening) = channel();
    thread::spawn(move || {
        let failed = listens.clone();
        let listening = Box::new(move || _ = listens.send(Ok(())));
        let served = runtime().and_then(|runtime| runtime.block_on(serve(listening)));
        if let Err(error) = served {
            let _ = failed.send(Err(error));
        }
    });
    is_listening.recv().context("the server has ended")?
}
