//! `Publisher`: keeps the last publications and responds to subscribers.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::subscriber::{NUMBER_LEN, REQUESTS, Start};
use crate::{Error, Event, Listener, Options, Peer, Request};

/// A publisher of a topic. It keeps the last publications, and never waits for a subscriber: one
/// that is slow loses the oldest and is told their number.
///
/// Each subscriber receives a copy. Subscribers make progress while the publisher publishes, while
/// [`Self::serve`] runs, and with each [`Self::progress`].
///
/// # Examples
///
/// ```no_run
/// use selvedge_service::{Error, Publisher};
///
/// fn main() -> Result<(), Error> {
///     let publisher = Publisher::bind("shm://camera", 4)?;
///     loop {
///         publisher.publish(&vec![0; 1920 * 1080])?;
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Publisher {
    listener: Listener,
    topic: Mutex<Topic>,
}

#[derive(Debug)]
struct Topic {
    /// The last publications, the oldest first.
    history: VecDeque<Box<[u8]>>,
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
        Ok(Self {
            listener: Listener::bind_with(addresses, options)?,
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

    /// Publishes a copy of `bytes`, and returns its number. The call does not wait.
    ///
    /// # Errors
    /// [`Error::Transport`] when a transport has failed.
    pub fn publish(&self, bytes: &[u8]) -> Result<u64, Error> {
        let number = self.lock().publish(bytes);
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

    fn lock(&self) -> MutexGuard<'_, Topic> {
        self.topic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Topic {
    fn publish(&mut self, bytes: &[u8]) -> u64 {
        if self.history.len() >= self.history_max {
            self.history.pop_front();
        }
        self.history.push_back(bytes.into());
        let number = self.next;
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
            let bytes = &self.history[(number - oldest) as usize];
            match subscription.peer.message(NUMBER_LEN + bytes.len()) {
                Ok(mut message) => {
                    let (head, body) = message.split_at_mut(NUMBER_LEN);
                    head.copy_from_slice(&number.to_le_bytes());
                    body.copy_from_slice(bytes);
                    request.respond_message(message);
                }
                Err(error) => request.fail(&error.to_string()),
            }
        }
    }
}
