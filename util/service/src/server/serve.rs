//! `Listener::serve`: an asynchronous function for each request.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;

use super::request::Request;
use super::{Event, Listener};
use crate::hub::Cancellation;
use crate::{Error, Peer};

/// The maximum number of requests that [`Listener::serve`] handles at the same time. Further
/// requests wait in the windows of their connections.
const HANDLERS_MAX: usize = 1024;

impl Listener {
    /// Calls `handler` for each request, and polls the futures that it returns, up to 1024 of them
    /// at the same time. The future of a request that is cancelled, or whose client is lost, is
    /// dropped.
    ///
    /// Messages without a request are dropped. The listener counts them, and a warning of the
    /// crate `log` reports the first one, and the count each time that it has doubled. A server that
    /// wants these messages takes [`Event::Message`] from [`Self::event`] instead.
    ///
    /// # Errors
    /// As [`Self::event`]. There is no other end.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use selvedge_service::{Error, Listener, run};
    ///
    /// fn main() -> Result<(), Error> {
    ///     let listener = Listener::bind("shm://upper")?;
    ///     let serve = listener.serve(async |request| {
    ///         request.respond(&request.to_ascii_uppercase());
    ///     });
    ///     run(serve)?
    /// }
    /// ```
    pub async fn serve(&self, handler: impl AsyncFn(Request)) -> Result<(), Error> {
        let mut handlers = FuturesUnordered::new();
        loop {
            while handlers.len() >= HANDLERS_MAX {
                handlers.next().await;
            }
            let event = match select(pin!(self.event()), handlers.next()).await {
                Either::Left((event, _)) => event?,
                Either::Right((Some(()), _)) => continue,
                Either::Right((None, event)) => event.await?,
            };
            let request = match event {
                Event::Request(request) => request,
                Event::Message(peer, _) => {
                    self.note_dropped(&peer);
                    continue;
                }
                Event::Connected(_) | Event::Lost(..) => continue,
            };
            let cancelled = Cancelled(request.cancellation());
            let handled = handler(request);
            handlers.push(async move {
                // Dropping the future drops the request.
                select(cancelled, pin!(handled)).await;
            });
        }
    }

    /// Counts a message that no handler receives. Only counts that are a power of two are logged, so
    /// that a client cannot fill the log.
    fn note_dropped(&self, peer: &Peer) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        if dropped.is_power_of_two() {
            log::warn!(
                "messages without a request dropped: {dropped}, the last one from {}: \
                 `Listener::serve` handles requests only, `Listener::event` reports messages",
                peer.address()
            );
        }
    }
}

/// Completes when a request is cancelled.
struct Cancelled(Arc<Cancellation>);

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.is_set(Some(cx.waker())) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
