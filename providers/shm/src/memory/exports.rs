//! Exports: what a domain tells every peer of its endpoints, now and later.
//!
//! A *notice* is a packet with or without a descriptor that stands until it is withdrawn. It goes to
//! the peers that there are when it is published, from whatever thread that is done, and to those
//! that come later, behind the hello. A peer whose socket is full gets it as soon as there is room.
//! It does not repeat itself: a notice that a peer was never told is not withdrawn from it either.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connect::packet;
use crate::connect::rendezvous::{ContactError, Link, Speaker};
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::wait::Waiters;
use selvedge_kit::weak_list::WeakList;

/// The notices of a domain, and who has to hear them.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    inner: Mutex<Inner>,
    /// Whether a packet waits for room in a socket.
    is_behind: AtomicBool,
    /// Where threads are parked for the domain's endpoints: any of them catches up.
    parked: Mutex<WeakList<Waiters>>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    standing: BTreeMap<u64, Arc<Notice>>,
    listeners: Vec<Listener>,
}

#[derive(Debug)]
struct Notice {
    packet: packet::Bytes,
    fd: Option<OwnedFd>,
}

/// The other end of a link.
#[derive(Debug)]
struct Listener {
    speaker: Speaker,
    /// What it has not been told yet, with the numbers of the notices.
    pending: VecDeque<(u64, Arc<Notice>)>,
}

/// The number of what nobody withdraws.
const FAREWELL: u64 = 0;

impl Exports {
    /// Tells everybody; the number of the notice.
    pub(crate) fn publish(&self, packet: packet::Bytes, fd: Option<OwnedFd>) -> u64 {
        let mut inner = self.lock();
        inner.last += 1;
        let (number, notice) = (inner.last, Arc::new(Notice { packet, fd }));
        inner.standing.insert(number, Arc::clone(&notice));
        for listener in &mut inner.listeners {
            listener.pending.push_back((number, Arc::clone(&notice)));
        }
        self.speak(&mut inner);
        number
    }

    /// Takes a notice back: whoever was told it gets `farewell`.
    pub(crate) fn withdraw(&self, number: u64, farewell: packet::Bytes) {
        let mut inner = self.lock();
        inner.standing.remove(&number);
        let farewell = Arc::new(Notice {
            packet: farewell,
            fd: None,
        });
        for listener in &mut inner.listeners {
            let before = listener.pending.len();
            listener.pending.retain(|&(pending, _)| pending != number);
            if listener.pending.len() == before {
                let farewell = (FAREWELL, Arc::clone(&farewell));
                listener.pending.push_back(farewell);
            }
        }
        self.speak(&mut inner);
    }

    /// Says hello to a peer by `greet`, and tells it everything that stands, and whatever comes.
    /// Nothing is published in between.
    pub(crate) fn introduce(
        &self,
        link: &Link,
        greet: impl FnOnce() -> Result<(), ContactError>,
    ) -> Result<(), ContactError> {
        let mut inner = self.lock();
        greet()?;
        let standing = inner.standing.iter();
        let pending = standing.map(|(&number, notice)| (number, Arc::clone(notice)));
        let listener = Listener {
            speaker: link.speaker(),
            pending: pending.collect(),
        };
        inner.listeners.push(listener);
        self.speak(&mut inner);
        Ok(())
    }

    /// Tells those whose sockets were full what they have missed.
    #[inline]
    pub(crate) fn catch_up(&self) {
        if self.is_behind.load(Ordering::Relaxed) {
            self.speak(&mut self.lock());
        }
    }

    /// Has threads that are parked at these places catch up.
    pub(crate) fn add_waiters(&self, waiters: &Arc<Waiters>) {
        self.parked().push(Arc::downgrade(waiters));
    }

    fn parked(&self) -> MutexGuard<'_, WeakList<Waiters>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a packet waits for room in a socket.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Sends what is pending, and forgets who is gone.
    fn speak(&self, inner: &mut Inner) {
        inner.listeners.retain_mut(Listener::hear);
        let is_behind = inner.listeners.iter().any(|l| !l.pending.is_empty());
        let was_behind = self.is_behind.swap(is_behind, Ordering::Relaxed);
        if is_behind && !was_behind {
            // The peer makes room without waking anybody, and this thread may never come back.
            self.parked().iter().for_each(|waiters| waiters.wake());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// Sends until the socket is full. `false` when nobody is there any more.
    fn hear(&mut self) -> bool {
        while let Some((_, notice)) = self.pending.front() {
            let fds: Vec<_> = notice.fd.iter().map(AsFd::as_fd).collect();
            match self.speaker.send(&notice.packet, &fds) {
                Some(Ok(())) => drop(self.pending.pop_front()),
                Some(Err(ContactError::NotYet(_) | ContactError::Busy(_))) => {
                    return self.speaker.is_there();
                }
                Some(Err(
                    ContactError::Failed(error)
                    | ContactError::Refused(error)
                    | ContactError::Untrusted(error),
                )) => {
                    // Nothing that another try mends, and the peer can do without.
                    warn_limited("selvedge::shm::mr", format_args!("{error}"));
                    self.pending.pop_front();
                }
                None => return false,
            }
        }
        self.speaker.is_there()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::packet::{Packet, encode_abort};
    use crate::connect::rendezvous::{Accepted, Heard, Listener as Rendezvous};
    use crate::peers::name::Name;
    use selvedge::Errno;

    /// Two ends of a connection.
    fn links(name: &str) -> (Link, Link) {
        let name = Name::plain(&format!("exports-{}-{name}", std::process::id())).unwrap();
        let rendezvous = Rendezvous::bind(&name, None).unwrap();
        let ours = Link::connect(&name, None).unwrap();
        match rendezvous.accept() {
            Ok(Accepted::Link(theirs)) => (ours, theirs),
            other => panic!("{other:?}"),
        }
    }

    fn packet(number: u32) -> packet::Bytes {
        encode_abort(number, Errno::Canceled)
    }

    /// The numbers of the packets that have come.
    fn heard(link: &mut Link) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let Heard::Packet(packet) = link.receive().unwrap() {
            if let Packet::Abort { msg_id, .. } = *packet {
                numbers.push(msg_id);
            }
        }
        numbers
    }

    #[test]
    fn those_that_are_there_and_those_that_come_hear_what_stands() {
        let exports = Exports::default();
        let (ours, mut theirs) = links("a");
        exports.introduce(&ours, || Ok(())).unwrap();
        let first = exports.publish(packet(1), None);
        exports.publish(packet(2), None);
        assert_eq!(heard(&mut theirs), [1, 2]);
        exports.withdraw(first, packet(3));
        assert_eq!(heard(&mut theirs), [3]);
        let (late, mut latest) = links("b");
        exports.introduce(&late, || Ok(())).unwrap();
        assert_eq!(heard(&mut latest), [2]);
    }

    #[test]
    fn what_does_not_fit_comes_later_and_what_is_over_by_then_never() {
        let exports = Exports::default();
        let (ours, mut theirs) = links("c");
        exports.introduce(&ours, || Ok(())).unwrap();
        let numbers: Vec<_> = (0..2000)
            .map(|n| exports.publish(packet(n), None))
            .collect();
        exports.withdraw(numbers[1999], packet(5000));
        exports.withdraw(numbers[0], packet(6000));
        let mut all = heard(&mut theirs);
        assert!(all.len() < 1999, "the socket takes everything");
        while exports.is_behind.load(Ordering::Relaxed) {
            exports.catch_up();
            all.extend(heard(&mut theirs));
        }
        all.extend(heard(&mut theirs));
        let expected: Vec<_> = (0..1999).chain([6000]).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_link_that_is_dropped_is_closed_and_forgotten() {
        let exports = Exports::default();
        let (ours, mut theirs) = links("d");
        exports.introduce(&ours, || Ok(())).unwrap();
        drop(ours);
        assert!(matches!(theirs.receive(), Ok(Heard::End)));
        exports.publish(packet(1), None);
        assert!(exports.lock().listeners.is_empty());
    }
}
