//! Packets of connected peers.

use nix::poll::PollFlags;
use selvedge::{Errno, Error, Result};
use selvedge_kit::cq::Sink;

use super::Connector;
use crate::connect::connection::{Connection, PACKETS_MAX, PACKETS_PER_POLL, ReceiveOutcome};
use crate::connect::liveness::is_ready;
use crate::connect::packet::Packet;
use crate::matching::command_receiver::CommandReceiver;
use crate::peers::peer::Peer;
use crate::smr::bounce::{BounceReceiver, Shape};
use crate::transfers::transfer;

/// The maximum number of commands that are taken from a peer when it wakes the endpoint.
const BUDGET: usize = 64;

impl Connector<'_> {
    /// Receives up to [`PACKETS_PER_POLL`] packets of a peer. Returns whether no more wait.
    pub(crate) fn receive_batch(&mut self, index: usize) -> bool {
        self.receive_until(index, PACKETS_PER_POLL, |_| false)
    }

    /// Receives packets of a peer whose socket is ready, up to a wake packet. The wake packet is
    /// usually the only one; packets behind it make the socket ready at the next poll.
    pub(super) fn receive_ready(&mut self, index: usize) {
        self.receive_until(index, PACKETS_PER_POLL, |packet| {
            matches!(packet, Packet::Wake)
        });
    }

    /// Receives from a peer whose next packet waited for free descriptors.
    #[cold]
    pub(super) fn resume_receive(&mut self, index: usize) {
        for connection in &mut self.peers[index].connections {
            if let Err(cause) = connection.rewatch() {
                let error = Error::new(Errno::from_raw(cause as i32), "watching a peer");
                return self.disconnect_after_error(index, &error.because(cause));
            }
        }
        self.receive_ready(index);
    }

    /// Receives all packets of a peer that wait now, and handles the end of its connection. The
    /// limit is [`PACKETS_MAX`] packets, so that a peer that keeps sending does not block the
    /// caller.
    pub(crate) fn receive_all(&mut self, index: usize) {
        self.receive_until(index, PACKETS_MAX, |_| false);
    }

    /// Receives up to `max` packets, or up to one for which `is_last` holds. Returns whether no
    /// more wait.
    fn receive_until(&mut self, index: usize, max: usize, is_last: fn(&Packet) -> bool) -> bool {
        for _ in 0..max {
            match next_packet(&mut self.peers[index]) {
                Ok(ReceiveOutcome::Empty) => return true,
                Ok(ReceiveOutcome::NoDescriptors) => {
                    self.peers[index]
                        .connections
                        .iter_mut()
                        .for_each(Connection::unwatch);
                    self.control.wait_for_descriptors(index);
                    return true;
                }
                Ok(ReceiveOutcome::Closed) => {
                    self.end_incarnation(index, Errno::ConnReset, "it has closed or died");
                    return true;
                }
                Ok(ReceiveOutcome::Packet(packet)) => {
                    if let Packet::Refusal { errno, reason } = *packet {
                        self.handle_refusal(index, errno, &reason);
                        return true;
                    }
                    let is_last = is_last(&packet);
                    if let Err(error) = self.handle_packet(index, *packet) {
                        self.disconnect_after_error(index, &error);
                        return true;
                    }
                    if is_last {
                        return false;
                    }
                }
                Err(error) => {
                    self.disconnect_after_error(index, &error);
                    return true;
                }
            }
        }
        false
    }

    fn handle_packet(&mut self, index: usize, packet: Packet) -> Result<(), Error> {
        let peer = &mut self.peers[index];
        match packet {
            Packet::Hello(received) => self.handle_hello_response(index, received),
            Packet::Bounce {
                segment_count,
                segment_size,
                fd,
            } => {
                let shape = Shape {
                    count: segment_count as usize,
                    size: segment_size as usize,
                };
                if peer.bounce.is_some() {
                    return Err(Error::new(Errno::Proto, "it sends a second bounce region"));
                }
                peer.bounce = Some(BounceReceiver::attach(fd, shape)?);
                Ok(())
            }
            Packet::Block { info, fd } => peer.blocks.map(info, fd),
            Packet::Release { block } => {
                peer.blocks.release(block);
                peer.mapped_regions.clear();
                Ok(())
            }
            Packet::Keys { chunk, fd } => peer.keys.attach(chunk as usize, fd),
            Packet::Abort { msg_id, errno } => {
                let src = peer.fi_addr(&self.setup.av);
                if transfer::abort_incoming(peer, &self.setup.ep, src, msg_id, errno) {
                    Ok(())
                } else {
                    Err(Error::new(
                        Errno::Proto,
                        "it aborts a message whose segments were not requested",
                    ))
                }
            }
            Packet::Wake => {
                self.handle_wake(index);
                Ok(())
            }
            Packet::KeyRequest { .. } | Packet::Nonce(_) | Packet::Proof(_) => Err(Error::new(
                Errno::Proto,
                "it sends a key proof that was not requested",
            )),
            Packet::Refusal { errno, reason } => Err(Error::new(errno, reason)),
        }
    }

    /// Handles a wake packet.
    fn handle_wake(&mut self, index: usize) {
        let ep = &self.setup.ep;
        self.peers[index].wake_up.spend();
        self.schedule.spend_wakeup(ep);
        self.schedule.start_polling(self.peers, index, ep);
        self.take_commands(index, BUDGET);
    }

    /// Takes up to `budget` commands of a peer, outside of a read of a completion queue.
    pub(crate) fn take_commands(&mut self, index: usize, budget: usize) {
        let mut receiver = CommandReceiver {
            setup: self.setup,
            matching: self.matching,
            schedule: self.schedule,
            peers: self.peers.len(),
        };
        receiver.poll(&mut self.peers[index], budget, &mut Sink::none());
    }

    /// Returns the error of a post that found no room for its command. Disconnects a peer that has
    /// published an invalid credit.
    pub(crate) fn reserve_error(&mut self, index: usize, errno: Errno) -> Errno {
        if errno != Errno::Proto {
            return errno;
        }
        self.disconnect_for_violation(index, "credit for commands that were never sent");
        Errno::NotConn
    }
}

/// Receives the next packet of a peer, over any connection. The end of the connection is reported
/// last: if the process has exited, the sockets are read once more, because the process may have
/// sent packets after the first read.
fn next_packet(peer: &mut Peer) -> Result<ReceiveOutcome, Error> {
    match receive_any(peer)? {
        ReceiveOutcome::Empty if has_exited(peer) => Ok(match receive_any(peer)? {
            ReceiveOutcome::Empty => ReceiveOutcome::Closed,
            outcome => outcome,
        }),
        outcome => Ok(outcome),
    }
}

fn receive_any(peer: &mut Peer) -> Result<ReceiveOutcome, Error> {
    let mut is_closed = false;
    for connection in &mut peer.connections {
        match connection.receive()? {
            ReceiveOutcome::Empty => {}
            ReceiveOutcome::Closed => is_closed = true,
            outcome @ (ReceiveOutcome::Packet(_) | ReceiveOutcome::NoDescriptors) => {
                return Ok(outcome);
            }
        }
    }
    Ok(if is_closed {
        ReceiveOutcome::Closed
    } else {
        ReceiveOutcome::Empty
    })
}

/// Whether the peer has closed a connection or its process has exited. Only packets that wait
/// already can follow.
pub(super) fn has_ended(peer: &Peer) -> bool {
    has_exited(peer) || peer.connections.iter().any(Connection::has_ended)
}

/// Whether the peer's process has exited.
fn has_exited(peer: &Peer) -> bool {
    let pidfd = peer.pidfd.as_ref();
    pidfd.is_some_and(|fd| is_ready(fd, PollFlags::POLLIN))
}
