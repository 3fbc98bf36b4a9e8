//! `Announcements`: the packets that a domain sends to every present and later peer of its
//! endpoints.
//!
//! An *announcement* is a packet with an optional descriptor, which is active until it is
//! withdrawn. The publishing thread sends it to all connected peers; a later peer receives it after
//! the `Hello`. A peer whose socket is full receives it as soon as there is room. A withdrawal is
//! sent only to peers that have received the announcement.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connect::connection::{ConnectError, Connection, PacketSender};
use crate::connect::packet;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::wait::Waiters;
use selvedge_kit::weak_list::WeakList;

/// The active announcements of a domain, and the peers that receive them.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    table: Mutex<AnnouncementTable>,
    /// Whether a packet waits for room in a peer's socket.
    is_behind: AtomicBool,
    /// The wait objects of the domain's endpoints. Any thread that is parked on one of them can
    /// send pending packets.
    parked: Mutex<WeakList<Waiters>>,
}

/// The announcements and the subscribers, behind one lock.
#[derive(Debug, Default)]
struct AnnouncementTable {
    /// The number of the last announcement.
    last_number: u64,
    /// The announcements that are not withdrawn, by number.
    active: BTreeMap<u64, Arc<Announcement>>,
    subscribers: Vec<Subscriber>,
}

/// A packet for all subscribers, with its descriptor.
#[derive(Debug)]
struct Announcement {
    packet: packet::Bytes,
    fd: Option<OwnedFd>,
}

/// A peer that receives announcements.
#[derive(Debug)]
struct Subscriber {
    sender: PacketSender,
    /// Announcements that were not sent to the peer yet, with their numbers.
    pending: VecDeque<(u64, Arc<Announcement>)>,
}

/// The number of every withdrawal. A withdrawal is never withdrawn, so it needs no number of its
/// own.
const WITHDRAWAL: u64 = 0;

impl Announcements {
    /// Sends an announcement to all subscribers. Returns its number.
    pub(crate) fn publish(&self, packet: packet::Bytes, fd: Option<OwnedFd>) -> u64 {
        let mut table = self.lock();
        table.last_number += 1;
        let (number, announcement) = (table.last_number, Arc::new(Announcement { packet, fd }));
        table.active.insert(number, Arc::clone(&announcement));
        for subscriber in &mut table.subscribers {
            subscriber
                .pending
                .push_back((number, Arc::clone(&announcement)));
        }
        self.send_pending(&mut table);
        number
    }

    /// Withdraws an announcement. Sends `withdrawal` to every subscriber that has received the
    /// announcement.
    pub(crate) fn withdraw(&self, number: u64, withdrawal: packet::Bytes) {
        let mut table = self.lock();
        table.active.remove(&number);
        let withdrawal = Arc::new(Announcement {
            packet: withdrawal,
            fd: None,
        });
        for subscriber in &mut table.subscribers {
            let previous_len = subscriber.pending.len();
            subscriber.pending.retain(|&(pending, _)| pending != number);
            if subscriber.pending.len() == previous_len {
                let withdrawal = (WITHDRAWAL, Arc::clone(&withdrawal));
                subscriber.pending.push_back(withdrawal);
            }
        }
        self.send_pending(&mut table);
    }

    /// Adds a peer: calls `handshake`, then sends the peer all active and later announcements. No
    /// announcement is published between the two steps.
    ///
    /// # Errors
    /// The error of `handshake`; the peer is not added then.
    pub(crate) fn add_subscriber(
        &self,
        connection: &Connection,
        handshake: impl FnOnce() -> Result<(), ConnectError>,
    ) -> Result<(), ConnectError> {
        let mut table = self.lock();
        handshake()?;
        let active = table.active.iter();
        let pending = active.map(|(&number, announcement)| (number, Arc::clone(announcement)));
        let subscriber = Subscriber {
            sender: connection.packet_sender(),
            pending: pending.collect(),
        };
        table.subscribers.push(subscriber);
        self.send_pending(&mut table);
        Ok(())
    }

    /// Sends pending packets to subscribers whose sockets were full.
    #[inline]
    pub(crate) fn catch_up(&self) {
        if self.is_behind.load(Ordering::Relaxed) {
            self.send_pending(&mut self.lock());
        }
    }

    /// Adds the wait objects of an endpoint, whose parked threads are woken when packets become
    /// pending.
    pub(crate) fn add_waiters(&self, waiters: &Arc<Waiters>) {
        self.lock_parked().push(Arc::downgrade(waiters));
    }

    fn lock_parked(&self) -> MutexGuard<'_, WeakList<Waiters>> {
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a packet waits for room in a peer's socket.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// Sends all pending packets, and removes disconnected subscribers.
    fn send_pending(&self, table: &mut AnnouncementTable) {
        table.subscribers.retain_mut(Subscriber::send_pending);
        let is_behind = table
            .subscribers
            .iter()
            .any(|subscriber| !subscriber.pending.is_empty());
        let was_behind = self.is_behind.swap(is_behind, Ordering::Relaxed);
        if is_behind && !was_behind {
            // A peer makes room in its socket without a wake-up, and this thread may never make
            // progress again.
            self.lock_parked().iter().for_each(|waiters| waiters.wake());
        }
    }

    fn lock(&self) -> MutexGuard<'_, AnnouncementTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber {
    /// Sends until the socket is full. Returns `false` if the peer has disconnected.
    fn send_pending(&mut self) -> bool {
        while let Some((_, announcement)) = self.pending.front() {
            let fds: Vec<_> = announcement.fd.iter().map(AsFd::as_fd).collect();
            match self.sender.send(&announcement.packet, &fds) {
                Some(Ok(())) => drop(self.pending.pop_front()),
                Some(Err(ConnectError::NotYet(_) | ConnectError::Busy(_))) => {
                    return self.sender.is_open();
                }
                Some(Err(
                    ConnectError::Failed(error)
                    | ConnectError::Refused(error)
                    | ConnectError::Untrusted(error),
                )) => {
                    // A retry would not help, and the peer works without the announcement.
                    warn_limited("selvedge::shm::mr", format_args!("{error}"));
                    self.pending.pop_front();
                }
                None => return false,
            }
        }
        self.sender.is_open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::connection::{AcceptOutcome, Listener, ReceiveOutcome};
    use crate::connect::packet::{Packet, encode_abort};
    use crate::peers::name::Name;
    use selvedge::Errno;

    /// Opens a connection and returns both sides of it.
    fn connect_pair(name: &str) -> (Connection, Connection) {
        let name = Name::plain(&format!("announcements-{}-{name}", std::process::id())).unwrap();
        let listener = Listener::bind(&name, None).unwrap();
        let local = Connection::connect(&name, None).unwrap();
        match listener.accept() {
            Ok(AcceptOutcome::Connection(remote)) => (local, remote),
            other => panic!("{other:?}"),
        }
    }

    fn packet(number: u32) -> packet::Bytes {
        encode_abort(number, Errno::Canceled)
    }

    /// Receives all packets that wait, and returns their numbers.
    fn receive_numbers(connection: &mut Connection) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let ReceiveOutcome::Packet(packet) = connection.receive().unwrap() {
            if let Packet::Abort { msg_id, .. } = *packet {
                numbers.push(msg_id);
            }
        }
        numbers
    }

    #[test]
    fn present_and_later_subscribers_receive_active_announcements() {
        let announcements = Announcements::default();
        let (local, mut remote) = connect_pair("a");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        let first = announcements.publish(packet(1), None);
        announcements.publish(packet(2), None);
        assert_eq!(receive_numbers(&mut remote), [1, 2]);
        announcements.withdraw(first, packet(3));
        assert_eq!(receive_numbers(&mut remote), [3]);
        let (late_local, mut late_remote) = connect_pair("b");
        announcements
            .add_subscriber(&late_local, || Ok(()))
            .unwrap();
        assert_eq!(receive_numbers(&mut late_remote), [2]);
    }

    #[test]
    fn announcements_beyond_a_full_socket_are_sent_later_unless_withdrawn() {
        let announcements = Announcements::default();
        let (local, mut remote) = connect_pair("c");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        let numbers: Vec<_> = (0..2000)
            .map(|n| announcements.publish(packet(n), None))
            .collect();
        announcements.withdraw(numbers[1999], packet(5000));
        announcements.withdraw(numbers[0], packet(6000));
        let mut all = receive_numbers(&mut remote);
        assert!(
            all.len() < 1999,
            "the socket took all packets: the test needs a full socket"
        );
        while announcements.is_behind.load(Ordering::Relaxed) {
            announcements.catch_up();
            all.extend(receive_numbers(&mut remote));
        }
        all.extend(receive_numbers(&mut remote));
        let expected: Vec<_> = (0..1999).chain([6000]).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_dropped_connection_is_closed_and_its_subscriber_removed() {
        let announcements = Announcements::default();
        let (local, mut remote) = connect_pair("d");
        announcements.add_subscriber(&local, || Ok(())).unwrap();
        drop(local);
        assert!(matches!(remote.receive(), Ok(ReceiveOutcome::Closed)));
        announcements.publish(packet(1), None);
        assert!(announcements.lock().subscribers.is_empty());
    }
}
