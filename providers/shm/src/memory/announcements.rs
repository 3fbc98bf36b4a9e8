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

use crate::connect::connection::{ConnectError, Connection, PacketSender};
use crate::connect::packet;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::wait::Waiters;
use selvedge_kit::weak_list::WeakList;

/// The notices of a domain, and who has to hear them.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    inner: Mutex<Inner>,
    /// Whether a packet waits for room in a socket.
    is_behind: AtomicBool,
    /// Where threads are parked for the domain's endpoints: any of them catches up.
    parked: Mutex<WeakList<Waiters>>,
}

#[derive(Debug, Default)]
struct Inner {
    last: u64,
    active: BTreeMap<u64, Arc<Announcement>>,
    subscribers: Vec<Subscriber>,
}

#[derive(Debug)]
struct Announcement {
    packet: packet::Bytes,
    fd: Option<OwnedFd>,
}

/// The other end of a link.
#[derive(Debug)]
struct Subscriber {
    speaker: PacketSender,
    /// What it has not been told yet, with the numbers of the notices.
    pending: VecDeque<(u64, Arc<Announcement>)>,
}

/// The number of what nobody withdraws.
const WITHDRAWAL: u64 = 0;

impl Announcements {
    /// Tells everybody; the number of the notice.
    pub(crate) fn publish(&self, packet: packet::Bytes, fd: Option<OwnedFd>) -> u64 {
        let mut inner = self.lock();
        inner.last += 1;
        let (number, announcement) = (inner.last, Arc::new(Announcement { packet, fd }));
        inner.active.insert(number, Arc::clone(&announcement));
        for subscriber in &mut inner.subscribers {
            subscriber
                .pending
                .push_back((number, Arc::clone(&announcement)));
        }
        self.send_pending(&mut inner);
        number
    }

    /// Takes a notice back: whoever was told it gets `withdrawal`.
    pub(crate) fn withdraw(&self, number: u64, withdrawal: packet::Bytes) {
        let mut inner = self.lock();
        inner.active.remove(&number);
        let withdrawal = Arc::new(Announcement {
            packet: withdrawal,
            fd: None,
        });
        for subscriber in &mut inner.subscribers {
            let before = subscriber.pending.len();
            subscriber.pending.retain(|&(pending, _)| pending != number);
            if subscriber.pending.len() == before {
                let withdrawal = (WITHDRAWAL, Arc::clone(&withdrawal));
                subscriber.pending.push_back(withdrawal);
            }
        }
        self.send_pending(&mut inner);
    }

    /// Says hello to a peer by `handshake`, and tells it everything that stands, and whatever comes.
    /// Nothing is published in between.
    pub(crate) fn add_subscriber(
        &self,
        link: &Connection,
        handshake: impl FnOnce() -> Result<(), ConnectError>,
    ) -> Result<(), ConnectError> {
        let mut inner = self.lock();
        handshake()?;
        let active = inner.active.iter();
        let pending = active.map(|(&number, announcement)| (number, Arc::clone(announcement)));
        let subscriber = Subscriber {
            speaker: link.packet_sender(),
            pending: pending.collect(),
        };
        inner.subscribers.push(subscriber);
        self.send_pending(&mut inner);
        Ok(())
    }

    /// Tells those whose sockets were full what they have missed.
    #[inline]
    pub(crate) fn catch_up(&self) {
        if self.is_behind.load(Ordering::Relaxed) {
            self.send_pending(&mut self.lock());
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
    fn send_pending(&self, inner: &mut Inner) {
        inner.subscribers.retain_mut(Subscriber::send_pending);
        let is_behind = inner.subscribers.iter().any(|l| !l.pending.is_empty());
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

impl Subscriber {
    /// Sends until the socket is full. `false` when nobody is there any more.
    fn send_pending(&mut self) -> bool {
        while let Some((_, announcement)) = self.pending.front() {
            let fds: Vec<_> = announcement.fd.iter().map(AsFd::as_fd).collect();
            match self.speaker.send(&announcement.packet, &fds) {
                Some(Ok(())) => drop(self.pending.pop_front()),
                Some(Err(ConnectError::NotYet(_) | ConnectError::Busy(_))) => {
                    return self.speaker.is_open();
                }
                Some(Err(
                    ConnectError::Failed(error)
                    | ConnectError::Refused(error)
                    | ConnectError::Untrusted(error),
                )) => {
                    // Nothing that another try mends, and the peer can do without.
                    warn_limited("selvedge::shm::mr", format_args!("{error}"));
                    self.pending.pop_front();
                }
                None => return false,
            }
        }
        self.speaker.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::connection::{AcceptOutcome, Listener as Rendezvous, ReceiveOutcome};
    use crate::connect::packet::{Packet, encode_abort};
    use crate::peers::name::Name;
    use selvedge::Errno;

    /// Two ends of a connection.
    fn links(name: &str) -> (Connection, Connection) {
        let name = Name::plain(&format!("exports-{}-{name}", std::process::id())).unwrap();
        let rendezvous = Rendezvous::bind(&name, None).unwrap();
        let local = Connection::connect(&name, None).unwrap();
        match rendezvous.accept() {
            Ok(AcceptOutcome::Connection(remote)) => (local, remote),
            other => panic!("{other:?}"),
        }
    }

    fn packet(number: u32) -> packet::Bytes {
        encode_abort(number, Errno::Canceled)
    }

    /// The numbers of the packets that have come.
    fn received_numbers(link: &mut Connection) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let ReceiveOutcome::Packet(packet) = link.receive().unwrap() {
            if let Packet::Abort { msg_id, .. } = *packet {
                numbers.push(msg_id);
            }
        }
        numbers
    }

    #[test]
    fn present_and_later_subscribers_receive_active_announcements() {
        let announcements = Announcements::default();
        let (local, mut remote) = links("a");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        let first = announcements.publish(packet(1), None);
        announcements.publish(packet(2), None);
        assert_eq!(received_numbers(&mut remote), [1, 2]);
        announcements.withdraw(first, packet(3));
        assert_eq!(received_numbers(&mut remote), [3]);
        let (late, mut latest) = links("b");
        announcements.add_subscriber(&late, || Ok(())).unwrap();
        assert_eq!(received_numbers(&mut latest), [2]);
    }

    #[test]
    fn announcements_beyond_a_full_socket_are_sent_later_unless_withdrawn() {
        let announcements = Announcements::default();
        let (local, mut remote) = links("c");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        let numbers: Vec<_> = (0..2000)
            .map(|n| announcements.publish(packet(n), None))
            .collect();
        announcements.withdraw(numbers[1999], packet(5000));
        announcements.withdraw(numbers[0], packet(6000));
        let mut all = received_numbers(&mut remote);
        assert!(all.len() < 1999, "the socket takes everything");
        while announcements.is_behind.load(Ordering::Relaxed) {
            announcements.catch_up();
            all.extend(received_numbers(&mut remote));
        }
        all.extend(received_numbers(&mut remote));
        let expected: Vec<_> = (0..1999).chain([6000]).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_dropped_link_is_closed_and_its_subscriber_removed() {
        let announcements = Announcements::default();
        let (local, mut remote) = links("d");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        drop(local);
        assert!(matches!(remote.receive(), Ok(ReceiveOutcome::Closed)));
        announcements.publish(packet(1), None);
        assert!(announcements.lock().subscribers.is_empty());
    }
}
