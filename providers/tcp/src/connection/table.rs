//! `Connections`: the connections of an endpoint, their epoll descriptor, and the lists of those
//! with pending work.

use std::io;
use std::net::Shutdown;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno as System;
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use slab::Slab;

use crate::connection::{Connection, Id, Stage};
use crate::socket::Socket;

/// The connections of an endpoint. The `epoll(7)` token of a connection is its index.
#[derive(Debug)]
pub(crate) struct Connections {
    list: Slab<Connection>,
    last_serial: u64,
    pub(crate) epoll: Arc<Epoll>,
    /// Connections with bytes to send.
    dirty: Vec<usize>,
    /// Connections that must be read again without an event.
    stalled: Vec<usize>,
    /// Connections whose handshake is not complete.
    connecting: Vec<usize>,
}

impl Connections {
    pub(crate) fn new(epoll: Arc<Epoll>) -> Self {
        Self {
            list: Slab::new(),
            last_serial: 0,
            epoll,
            dirty: Vec::new(),
            stalled: Vec::new(),
            connecting: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.list.iter().map(|(_, connection)| connection)
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&Connection> {
        self.list.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut Connection> {
        self.list.get_mut(index)
    }

    /// Returns the connection with this id, if it has not ended.
    pub(crate) fn get_by_id(&mut self, id: Id) -> Option<&mut Connection> {
        self.list.get_mut(id.index).filter(|it| it.id == id)
    }

    /// Whether the connection with this id has not ended.
    pub(crate) fn contains(&self, id: Id) -> bool {
        self.list.get(id.index).is_some_and(|it| it.id == id)
    }

    /// Adds a connection with a peer; `request` is the private data of a local request.
    pub(crate) fn add(
        &mut self,
        peer: usize,
        stage: Stage,
        request: Vec<u8>,
        now: Instant,
    ) -> usize {
        self.last_serial += 1;
        let entry = self.list.vacant_entry();
        let id = Id {
            index: entry.key(),
            serial: self.last_serial,
        };
        entry.insert(Connection::new(id, peer, stage, request, now));
        if stage != Stage::Up {
            self.connecting.push(id.index);
        }
        id.index
    }

    /// Removes a connection and ends it.
    pub(crate) fn remove(&mut self, index: usize) -> Connection {
        self.disconnect(index);
        self.list.remove(index)
    }

    /// Closes all connections gracefully: the peers receive all bytes that were sent.
    pub(crate) fn close_all(&mut self) {
        for connection in self.list.drain() {
            if let Some(mut socket) = connection.socket {
                socket.close_gracefully();
            }
        }
    }

    /// Sets the socket of a connection, and closes the previous one.
    pub(crate) fn set_socket(&mut self, index: usize, socket: Socket) {
        self.disconnect(index);
        self.list[index].socket = Some(socket);
    }

    /// Closes the socket of a connection, for every process that holds it.
    pub(crate) fn disconnect(&mut self, index: usize) {
        let connection = &mut self.list[index];
        connection.watched = EpollFlags::empty();
        if let Some(mut socket) = connection.socket.take() {
            let _ = self.epoll.delete(&socket);
            socket.shutdown(Shutdown::Both);
        }
    }

    /// Updates the epoll events of a connection's socket.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn watch(&mut self, index: usize) -> io::Result<()> {
        let Some(connection) = self.list.get_mut(index).filter(|it| !it.is_draining) else {
            return Ok(());
        };
        let interest = connection.interest();
        let is_new = connection.watched.is_empty();
        let Some(socket) = (connection.socket.as_ref()).filter(|_| connection.watched != interest)
        else {
            return Ok(());
        };
        let mut event = EpollEvent::new(interest, index as u64);
        if is_new {
            match self.epoll.add(socket, event) {
                Err(System::EEXIST) => self.epoll.modify(socket, &mut event)?,
                done => done?,
            }
        } else {
            self.epoll.modify(socket, &mut event)?
        }
        connection.watched = interest;
        Ok(())
    }

    /// Removes a connection's socket from epoll.
    pub(crate) fn unwatch(&mut self, index: usize) {
        if let Some(socket) = &self.list[index].socket {
            let _ = self.epoll.delete(socket);
        }
    }

    /// Marks a connection as having bytes to send.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, index: usize) {
        let tx = &mut self.list[index].outgoing.tx;
        if !std::mem::replace(&mut tx.is_dirty, true) {
            self.dirty.push(index);
        }
    }

    /// Removes and returns the next connection with bytes to send.
    #[inline]
    pub(crate) fn pop_dirty(&mut self) -> Option<usize> {
        while let Some(index) = self.dirty.pop() {
            if let Some(connection) = self.list.get_mut(index) {
                connection.outgoing.tx.is_dirty = false;
                return Some(index);
            }
        }
        None
    }

    /// Marks a connection to be read again without an event.
    pub(crate) fn mark_stalled(&mut self, index: usize) {
        if !self.stalled.contains(&index) {
            self.stalled.push(index);
        }
    }

    #[inline]
    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Removes and returns the connections that must be read again without an event.
    pub(crate) fn take_stalled(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.stalled)
    }

    /// Whether a connection waits for room in a queue, for which there is no event.
    pub(crate) fn is_backpressured(&self) -> bool {
        let mut stalled = self
            .stalled
            .iter()
            .filter_map(|&index| self.list.get(index));
        stalled.any(|it| it.incoming.held_message.is_none())
    }

    pub(crate) fn has_connecting(&self) -> bool {
        !self.connecting.is_empty()
    }

    /// Returns the connections whose deadline has passed.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<usize> {
        let list = &self.list;
        self.connecting
            .retain(|&index| list.get(index).is_some_and(|it| !it.is_up()));
        let is_overdue = |index: &&usize| {
            list[**index]
                .deadline()
                .is_some_and(|deadline| deadline <= now)
        };
        self.connecting.iter().filter(is_overdue).copied().collect()
    }

    /// Returns the earliest deadline of all connections.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let connecting = self
            .connecting
            .iter()
            .filter_map(|&index| self.list.get(index));
        connecting.filter_map(Connection::deadline).min()
    }
}

impl Index<usize> for Connections {
    type Output = Connection;

    #[inline]
    fn index(&self, index: usize) -> &Connection {
        &self.list[index]
    }
}

impl IndexMut<usize> for Connections {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut Connection {
        &mut self.list[index]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::epoll::EpollCreateFlags;

    use super::*;

    fn connections() -> Connections {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        Connections::new(Arc::new(epoll))
    }

    #[test]
    fn a_reused_index_has_another_id() {
        let mut connections = connections();
        let now = Instant::now();
        let index = connections.add(0, Stage::Up, Vec::new(), now);
        let id = connections[index].id;
        connections.mark_dirty(index);
        connections.mark_dirty(index);
        connections.remove(index);
        assert!(connections.pop_dirty().is_none());
        assert_eq!(connections.add(1, Stage::Up, Vec::new(), now), index);
        assert!(!connections.contains(id) && connections.get_by_id(id).is_none());
        assert!(connections.get_by_id(connections[index].id).is_some());
    }

    #[test]
    fn a_connecting_connection_has_a_deadline() {
        let mut connections = connections();
        let now = Instant::now();
        let until = now + Duration::from_secs(1);
        let overdue_index = connections.add(0, Stage::Connecting { until }, Vec::new(), now);
        connections.add(1, Stage::AwaitingResponse, Vec::new(), now);
        assert_eq!(connections.deadline(), Some(until));
        assert!(connections.overdue(now).is_empty());
        assert_eq!(connections.overdue(until), [overdue_index]);
        connections[overdue_index].stage = Stage::Up;
        assert!(connections.overdue(until).is_empty() && connections.deadline().is_none());
    }
}
