//! Posting: an operation is queued on the connection with its peer, which the first operation
//! opens; a receive is passed to the matcher.

use selvedge::{Errno, FiAddr, OpFlags, Result};
use selvedge_kit::Ep;
use selvedge_kit::srx::{
    COMMON_FLAGS, Envelope, Kind, Matcher, Posted, ReceivePolicy, Receiver, Source,
};

use super::State;
use crate::connection::Connection;
use crate::connection::delivery::Delivery;
use crate::connection::operation::Operation;
use crate::matching::{PayloadState, UnexpectedMessage};
use crate::wire::ProtocolError;

impl State {
    /// Posts an operation to a peer.
    #[inline]
    pub(crate) fn post(&mut self, peer: usize, operation: Operation) -> Result {
        if operation.report.reports_success && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        if operation.report.flags.contains(OpFlags::FENCE) && !self.is_drained(peer) {
            return Err(Errno::Again);
        }
        if self.config.is_strict && self.may_overtake(peer, &operation) {
            return Err(Errno::Again);
        }
        match self.peers[peer].connection {
            Some(index) if self.connections[index].is_up() => self.post_connected(index, operation),
            Some(index) => self.post_unconnected(index, operation),
            None if self.cm.is_some() => Err(Errno::NotConn),
            None => {
                let index = self.connect_peer(peer);
                // The attempt may have failed at once.
                if self.peers[peer].connection == Some(index) {
                    self.post_unconnected(index, operation)
                } else {
                    Err(Errno::ConnRefused)
                }
            }
        }
    }

    /// Posts an operation to an established connection.
    #[inline]
    fn post_connected(&mut self, index: usize, operation: Operation) -> Result {
        let (flags, max) = (operation.report.flags, self.config.tx_size);
        if !self.connections[index]
            .outgoing
            .has_room_for(&operation, max)
        {
            self.flush(index);
            match self.connections.get(index) {
                Some(it) if it.outgoing.has_room_for(&operation, max) => {}
                Some(_) => return Err(Errno::Again),
                None => return Err(Errno::NotConn),
            }
        }
        self.queue(index, operation);
        self.polling.focus = index;
        let tx = &mut self.connections[index].outgoing.tx;
        if !flags.contains(OpFlags::MORE) && tx.should_flush_now(self.polling.turn) {
            self.flush(index);
        } else {
            self.schedule(index);
        }
        Ok(())
    }

    /// Posts an operation to a connection whose handshake is not complete.
    #[cold]
    fn post_unconnected(&mut self, index: usize, operation: Operation) -> Result {
        let max = self.config.tx_size;
        self.connections[index]
            .outgoing
            .queue_until_connected(operation, max)?;
        self.polling.wake(&self.ep);
        Ok(())
    }

    /// Whether all operations posted to a peer are complete.
    #[cold]
    fn is_drained(&mut self, peer: usize) -> bool {
        let Some(index) = self.peers[peer].connection else {
            return true;
        };
        self.flush(index);
        let connection = self.connections.get(index);
        connection.is_none_or(|it| it.outgoing.is_drained())
    }

    /// Whether an operation might complete before an earlier operation to the same peer. This is
    /// possible when an earlier operation waits for a response or for the handshake, or when the
    /// new operation fails at once.
    #[cold]
    fn may_overtake(&mut self, peer: usize, operation: &Operation) -> bool {
        let connection = self.peers[peer]
            .connection
            .map(|index| &self.connections[index]);
        connection.is_some_and(|it| it.outgoing.is_unanswered() || it.outgoing.waiting() > 0)
            || operation.needs_extensions() && !self.is_drained(peer)
    }

    /// Queues an operation on an established connection.
    #[inline]
    pub(super) fn queue(&mut self, index: usize, operation: Operation) {
        let outgoing = &mut self.connections[index].outgoing;
        if outgoing.supports(&operation) {
            outgoing.queue(operation, self.config.eager_size)
        } else {
            self.fail_unsupported(index, operation)
        }
    }

    /// Fails an operation that the peer does not support.
    #[cold]
    fn fail_unsupported(&mut self, index: usize, operation: Operation) {
        let peer = self.connections[index].peer;
        let report = operation.report;
        // The caller's memory must not be in use when the completion is written.
        drop(operation);
        let detail = format!(
            "{} is a stock libfabric, which supports neither atomics nor FI_MATCH_COMPLETE",
            self.peers[peer]
        );
        let src = self.peers.fi_addr(peer);
        report.failed(&self.ep, Errno::OpNotSupp, src, detail);
    }

    /// Posts a receive from the peer at `src`, or from any peer.
    pub(crate) fn recv_from(&mut self, src: FiAddr, mut posted: Posted) -> Result {
        if !COMMON_FLAGS.contains(posted.flags) {
            return self.recv_with_flags(posted, src);
        }
        if src != self.matching.policy.any_source {
            self.direct(&mut posted, src)?;
        }
        let source = posted.src;
        match self.matching.matcher(posted.kind).post(posted) {
            Some((posted, env, key)) => self.deliver(posted, env, key),
            None if source != Source::ANY => self.reconnect_if_disconnected(source.0 as usize),
            None => {}
        }
        Ok(())
    }

    /// Reconnects to a disconnected peer for which a directed receive waits. Without a connection
    /// the receive would never complete. The receive fails if no connection can be established.
    fn reconnect_if_disconnected(&mut self, peer: usize) {
        let is_disconnected =
            self.peers[peer].is_disconnected && self.peers[peer].connection.is_none();
        if is_disconnected && self.cm.is_none() {
            self.connect_peer(peer);
            self.polling.wake(&self.ep);
        }
    }

    /// Removes an unexpected message and passes it to `act`, with the message's connection if that
    /// connection has not ended.
    #[cold]
    fn take_unexpected(
        &mut self,
        key: usize,
        act: impl FnOnce(
            &mut Delivery<'_>,
            Option<&mut Connection>,
            UnexpectedMessage,
        ) -> Result<(), ProtocolError>,
    ) {
        let message = self.matching.take(key);
        let (id, was_held) = (message.connection, message.state == PayloadState::Held);
        let (connections, mut delivery) = self.connections_and_delivery();
        if let Err(error) = act(&mut delivery, connections.get_by_id(id), message) {
            return self.disconnect(id.index, error.into());
        }
        let connection = connections.get_by_id(id);
        if connection.is_some_and(|it| it.outgoing.take_response_queued()) {
            self.schedule(id.index);
        }
        // The quota may have room again for another held message, or for a later message of this
        // connection.
        if was_held || self.connections.has_stalled() {
            self.polling.wake(&self.ep);
        }
    }
}

impl Receiver for State {
    type Kept = usize;

    fn matcher(&mut self, kind: Kind) -> &mut Matcher<usize> {
        self.matching.matcher(kind)
    }

    fn policy(&self) -> &ReceivePolicy {
        &self.matching.policy
    }

    fn ep(&self) -> &Ep {
        &self.ep
    }

    fn source_at(&mut self, addr: FiAddr) -> Result<Source> {
        Ok(Source(self.peer_at(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peers.fi_addr(source.0 as usize)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if self.matching.policy.is_directed(posted.kind) {
            posted.src = self.source_at(src)?;
        }
        Ok(())
    }

    fn poll_unexpected(&mut self) {
        self.poll_now();
    }

    fn deliver(&mut self, posted: Posted, env: Envelope, key: usize) {
        self.take_unexpected(key, |delivery, connection, message| {
            delivery.deliver_unexpected(connection, posted, env, &message)
        });
    }

    fn discard(&mut self, _env: &Envelope, key: usize) {
        self.take_unexpected(key, |delivery, connection, message| {
            delivery.discard(connection, &message)
        });
    }
}
