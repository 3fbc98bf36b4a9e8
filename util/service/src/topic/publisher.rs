//! `Publisher`: keeps the last publications and responds to subscribers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selvedge::owned::SharedBuf;

use super::publication::PublicationMut;
use super::subscriber::{REQUESTS, Start};
use crate::port::Buffers;
use crate::{Error, Event, Listener, Options, Peer, Request};

/// A publisher of a topic. It keeps the last publications, and never waits for a subscriber: one
/// that is slow loses the oldest and is told their number.
///
/// Over shared memory, a publication is written once, and all subscribers read it in place. Over
/// TCP, each receives a copy. Subscribers make progress while the publisher publishes, while
/// [`Self::serve`] runs, and with each [`Self::progress`].
///
/// A publisher that is dropped waits until subscribers have given back the publications that are in
/// its memory, for a second at most. They cannot read them afterwards.
///
/// # Examples
///
/// ```no_run
/// use selvedge_service::{Error, Publisher};
///
/// fn main() -> Result<(), Error> {
///     let publisher = Publisher::bind("shm://camera", 4)?;
///     loop {
///         let mut frame = publisher.message(1920 * 1080)?;
///         frame.fill(7);
///         publisher.publish_message(frame)?;
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Publisher {
    listener: Listener,
    topic: Mutex<Topic>,
    /// The memory of publications.
    buffers: Mutex<Buffers>,
}

#[derive(Debug)]
struct Topic {
    /// The last publications, the oldest first.
    history: VecDeque<SharedBuf>,
    history_max: usize,
    /// The number of the next publication.
    next: u64,
    subscribers: Vec<Subscription>,
}

/// The publisher's state for one subscriber.
#[derive(Debug)]
struct Subscription {
    peer: Peer,
    /// The number of the next publication for the subscriber, if the publisher still has it.
    cursor: u64,
    /// Requests without a response.
    requests: VecDeque<Request>,
}

impl Publisher {
    /// Publishes at an address, or at several that are separated by commas. The publisher keeps the
    /// last `history` publications, at least one.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn bind(addresses: &str, history: usize) -> Result<Self, Error> {
        Self::bind_with(addresses, history, &Options::new())
    }

    /// As [`Self::bind`], with options.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn bind_with(addresses: &str, history: usize, options: &Options) -> Result<Self, Error> {
        let topic = Topic {
            history: VecDeque::new(),
            history_max: history.max(1),
            next: 0,
            subscribers: Vec::new(),
        };
        let listener = Listener::bind_with(addresses, &options.lending())?;
        Ok(Self {
            buffers: Mutex::new(listener.lendable_buffers()),
            listener,
            topic: Mutex::new(topic),
        })
    }

    /// The addresses, as [`Listener::addresses`].
    ///
    /// # Errors
    /// As [`Listener::addresses`].
    pub fn addresses(&self) -> Result<Vec<String>, Error> {
        self.listener.addresses()
    }

    /// A publication of `len` bytes, to be filled and published without a copy. Its bytes are
    /// zeros, or those of an earlier publication of this publisher.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory.
    pub fn message(&self, len: usize) -> Result<PublicationMut, Error> {
        let buf = self.buffers().take(PublicationMut::buffer_len(len))?;
        Ok(PublicationMut::new(buf))
    }

    /// Publishes a copy of `bytes`, and returns its number. The call does not wait.
    ///
    /// # Errors
    /// [`Error::Transport`] when there is no memory, or when a transport has failed.
    pub fn publish(&self, bytes: &[u8]) -> Result<u64, Error> {
        let mut publication = self.message(bytes.len())?;
        publication.copy_from_slice(bytes);
        self.publish_message(publication)
    }

    /// Publishes a publication of [`Self::message`], and returns its number. The call does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::Transport`] when a transport has failed.
    pub fn publish_message(&self, publication: PublicationMut) -> Result<u64, Error> {
        let number = self.lock().publish(publication);
        self.progress()?;
        Ok(number)
    }

    /// Handles what subscribers have done. The call does not wait.
    ///
    /// # Errors
    /// [`Error::Transport`] when a transport has failed.
    pub fn progress(&self) -> Result<(), Error> {
        while let Some(event) = self.listener.try_event()? {
            self.lock().handle(event);
        }
        Ok(())
    }

    /// Handles subscribers until a transport fails. The future may be dropped at any time.
    ///
    /// # Errors
    /// [`Error::Transport`] when a transport has failed. There is no other end.
    pub async fn serve(&self) -> Result<(), Error> {
        loop {
            let event = self.listener.event().await?;
            self.lock().handle(event);
        }
    }

    /// The number of connected subscribers.
    pub fn subscribers(&self) -> usize {
        self.lock().subscribers.len()
    }

    /// The length of the memory for publications, in bytes. It grows until it holds the history,
    /// the publications that are lent to subscribers, and those that are being filled.
    pub fn memory(&self) -> usize {
        self.buffers().allocated()
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Topic> {
        self.topic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.listener.await_lent();
    }
}

impl Topic {
    fn publish(&mut self, publication: PublicationMut) -> u64 {
        if self.history.len() >= self.history_max {
            self.history.pop_front();
        }
        let number = self.next;
        self.history.push_back(publication.finish(number));
        self.next += 1;
        for index in 0..self.subscribers.len() {
            self.respond(index);
        }
        number
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request(request) => self.request(request),
            Event::Lost(peer, _) => self.subscribers.retain(|it| it.peer != peer),
            Event::Connected(_) | Event::Message(..) => {}
        }
    }

    fn request(&mut self, request: Request) {
        let peer = request.peer();
        let known = self.subscribers.iter().position(|it| it.peer == *peer);
        let index = known.unwrap_or_else(|| {
            let cursor = match Start::parse(&request) {
                Start::History => self.oldest(),
                Start::Now => self.next,
            };
            self.subscribers.push(Subscription {
                peer: peer.clone(),
                cursor,
                requests: VecDeque::new(),
            });
            self.subscribers.len() - 1
        });
        let requests = &mut self.subscribers[index].requests;
        if requests.len() >= REQUESTS {
            return request.fail("a subscriber has too many requests outstanding");
        }
        requests.push_back(request);
        self.respond(index);
    }

    /// The number of the oldest publication that the publisher has.
    fn oldest(&self) -> u64 {
        self.next - self.history.len() as u64
    }

    /// Responds to a subscriber while it has requests and the publisher has publications for it.
    fn respond(&mut self, index: usize) {
        let oldest = self.oldest();
        let subscription = &mut self.subscribers[index];
        while subscription.cursor < self.next
            && let Some(request) = subscription.requests.pop_front()
        {
            let number = subscription.cursor.max(oldest);
            subscription.cursor = number + 1;
            let publication = &self.history[(number - oldest) as usize];
            request.respond_shared(publication.clone());
        }
    }
}
