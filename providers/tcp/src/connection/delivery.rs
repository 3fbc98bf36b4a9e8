//! `Delivery`: executes the frames of a peer. It decides which operation each type of frame starts,
//! where the frame's payload is stored, and which operation the end of the frame completes.

use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};
use selvedge_kit::cq::Sink;
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};
use selvedge_kit::{Ep, Report};

use crate::config::Config;
use crate::connection::Connection;
use crate::connection::incoming::{Destination, IncomingPayload};
use crate::connection::one_sided::{IncomingAtomic, OneSided, begin_write};
use crate::matching::{Matching, PayloadState, UnexpectedMessage};
use crate::peers::Peers;
use crate::wire::ProtocolError;
use crate::wire::frame::{AckPolicy, Header};

/// The parts of an endpoint that frames act on.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) ep: &'a Ep,
    pub(crate) config: &'a Config,
    pub(crate) keys: &'a Keys,
    pub(crate) peers: &'a mut Peers,
    pub(crate) matching: &'a mut Matching,
}

impl Delivery<'_> {
    /// The fast path: delivers a completely received message without remote data or acknowledgement
    /// to the oldest receive. Returns the length of the message's payload, or `None` if the fast
    /// path does not apply.
    #[inline]
    pub(crate) fn deliver_fast(
        &mut self,
        peer: usize,
        header: &Header,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Option<usize> {
        let &Header::Message {
            kind,
            tag,
            data: None,
            ack: AckPolicy::Never,
            len,
        } = header
        else {
            return None;
        };
        let payload = bytes.get(..len)?;
        let addr = self.peers.fi_addr(peer);
        let matcher = self.matching.matcher(kind);
        let posted = matcher.oldest(Source(peer as u32), tag)?;
        if posted.buf.len() < len || self.ep.is_unknown(addr) {
            return None;
        }
        posted.buf.write(0, payload);
        let flags = posted.flags;
        let entry = Entry {
            context: posted.context,
            flags: kind.received(),
            len,
            tag,
            ..Entry::default()
        };
        matcher.drop_oldest();
        self.ep.rx_report(entry, flags, addr, sink);
        Some(len)
    }

    /// The slow path: starts a frame. `number` is the acknowledgement number of a frame that
    /// requests an acknowledgement. Returns the payload to receive, if the frame has one.
    ///
    /// # Errors
    /// When the frame violates the protocol at this point.
    pub(crate) fn begin_frame(
        &mut self,
        connection: &mut Connection,
        header: Header,
        number: Option<u64>,
    ) -> Result<Option<IncomingPayload>, ProtocolError> {
        match header {
            Header::Message {
                kind,
                tag,
                data,
                ack,
                len,
            } => {
                let env = envelope(connection.peer, tag, data, len);
                return Ok(self.begin_message(connection, kind, env, number, ack));
            }
            Header::Rts {
                id, tag, data, len, ..
            } => {
                let env = envelope(connection.peer, tag, data, len);
                self.begin_rendezvous(connection, id, env)?;
            }
            Header::Data { id, len, .. } => {
                let requested = connection.incoming.requested.remove(&id);
                let requested = requested.filter(|(_, env)| env.len == len);
                let (posted, env) =
                    requested.ok_or(ProtocolError("rendezvous data that were not requested"))?;
                let destination = match posted {
                    Some(posted) => Destination::Receive(posted, env, number),
                    None => Destination::Discard(number),
                };
                return Ok(Some(IncomingPayload::new(destination, len)));
            }
            Header::Cts { id } => connection.outgoing.send_rendezvous_data(id)?,
            Header::Ack => connection.outgoing.take_acked(None)?.done(self.ep),
            Header::AckStatus { number, status } => {
                let report = connection.outgoing.take_acked(Some(number))?;
                self.report_response(connection.peer, &report, status);
            }
            Header::ReadRequest { segments } => self.one_sided(connection).read(segments)?,
            Header::ReadResponse { len, is_checked } => {
                let fetch = connection.outgoing.take_read(len)?;
                return Ok(Some(IncomingPayload::new(
                    Destination::Read(fetch, is_checked),
                    len,
                )));
            }
            Header::ReadEnd { status } => {
                let report = connection.outgoing.take_unchecked_read()?;
                self.report_response(connection.peer, &report, status);
            }
            Header::ReadError { status } => {
                let report = connection.outgoing.take_refused_read()?;
                self.report_response(connection.peer, &report, status.max(1));
            }
            Header::Write { segments, data, .. } => {
                let len = segments.len();
                let has_extensions = connection.negotiated().has_extensions();
                let write = begin_write(self.keys, segments, data, number, has_extensions)?;
                return Ok(Some(IncomingPayload::new(Destination::Write(write), len)));
            }
            Header::Atomic {
                operation,
                data,
                targets,
                len,
            } => {
                let atomic = IncomingAtomic::new(operation, data, targets, len)?;
                return Ok(Some(IncomingPayload::new(
                    Destination::Atomic(Box::new(atomic)),
                    len,
                )));
            }
            Header::AtomicResult { status, len } => {
                let fetch = connection.outgoing.take_atomic(status, len)?;
                return Ok(Some(IncomingPayload::new(
                    Destination::AtomicResult(fetch, status),
                    len,
                )));
            }
        }
        Ok(None)
    }

    /// Starts a message: matches it with a receive, stores it, or holds it.
    fn begin_message(
        &mut self,
        connection: &mut Connection,
        kind: Kind,
        env: Envelope,
        number: Option<u64>,
        ack: AckPolicy,
    ) -> Option<IncomingPayload> {
        if let Some(posted) = self.matching.matcher(kind).match_message(&env) {
            return Some(IncomingPayload::new(
                Destination::Receive(posted, env, number),
                env.len,
            ));
        }
        let state = if self
            .matching
            .has_room(connection.peer, env.len, self.peers.len())
        {
            PayloadState::Partial
        } else {
            PayloadState::Held
        };
        let mut message = UnexpectedMessage::new(connection.id, connection.peer, state, env.len);
        message.number = number;
        message.acks_on_receive = ack == AckPolicy::OnReceive;
        let key = self.matching.store(kind, env, message);
        if state == PayloadState::Held {
            connection.incoming.held_message = Some(key);
            return None;
        }
        Some(IncomingPayload::new(Destination::Unexpected(key), env.len))
    }

    /// Handles an RTS: requests the bytes if a receive matches, else stores the RTS.
    fn begin_rendezvous(
        &mut self,
        connection: &mut Connection,
        id: u8,
        env: Envelope,
    ) -> Result<(), ProtocolError> {
        if self.matching.has_rts(connection.id, id)
            || connection.incoming.requested.contains_key(&id)
        {
            return Err(ProtocolError("two RTS with one id"));
        }
        match self.matching.matcher(Kind::Tagged).match_message(&env) {
            Some(posted) => connection.send_cts(id, Some(posted), env),
            None => {
                let message = UnexpectedMessage::new(
                    connection.id,
                    connection.peer,
                    PayloadState::AtSender(id),
                    env.len,
                );
                self.matching.store(Kind::Tagged, env, message);
            }
        }
        Ok(())
    }

    /// Stores a part of a payload at its destination.
    pub(crate) fn store(&mut self, payload: &mut IncomingPayload, bytes: &[u8]) {
        let offset = payload.stored;
        match &mut payload.destination {
            Destination::Receive(posted, ..) => {
                posted.buf.write(offset, bytes);
            }
            Destination::Unexpected(key) => self.matching.append(*key, bytes),
            Destination::Write(write) => write.store(self.keys, offset, bytes),
            Destination::Read(fetch, _) | Destination::AtomicResult(fetch, _) => {
                fetch.buf.write(offset, bytes);
            }
            Destination::Atomic(atomic) => atomic.operands.extend_from_slice(bytes),
            Destination::Discard(_) => {}
        }
    }

    /// Completes a frame whose payload has arrived.
    ///
    /// # Errors
    /// When the frame's access was denied, and the peer does not support error responses.
    pub(crate) fn payload_complete(
        &mut self,
        connection: &mut Connection,
        payload: IncomingPayload,
    ) -> Result<(), ProtocolError> {
        match payload.destination {
            Destination::Receive(posted, env, number) => {
                connection.outgoing.queue_ack(number, None);
                let fits = env.len.min(posted.buf.len());
                self.report_received(posted, &env, fits);
            }
            Destination::Unexpected(key) => {
                let number = self.matching.complete(key);
                connection.outgoing.queue_ack(number, None);
            }
            Destination::Write(write) => return self.one_sided(connection).finish_write(&write),
            Destination::Read(fetch, is_checked) => {
                drop(fetch.buf);
                if is_checked {
                    connection.outgoing.hold_unchecked_read(fetch.report)
                } else {
                    fetch.report.done(self.ep)
                }
            }
            Destination::Atomic(atomic) => self.one_sided(connection).apply_atomic(&atomic),
            Destination::AtomicResult(fetch, status) => {
                drop(fetch.buf);
                self.report_response(connection.peer, &fetch.report, status);
            }
            Destination::Discard(number) => connection.outgoing.queue_ack(number, None),
        }
        Ok(())
    }

    /// Borrows the state that one-sided operations of a peer act on.
    fn one_sided<'a>(&'a mut self, connection: &'a mut Connection) -> OneSided<'a> {
        OneSided {
            ep: self.ep,
            keys: self.keys,
            src: self.peers.fi_addr(connection.peer),
            outgoing: &mut connection.outgoing,
        }
    }

    /// Reports an operation with the status that the peer returned.
    fn report_response(&mut self, peer: usize, report: &Report, status: u32) {
        if status == 0 {
            return report.done(self.ep);
        }
        let errno = i32::try_from(status).map_or(Errno::Other, Errno::from_raw);
        let reason = match errno {
            Errno::KeyRejected => "the key is not registered",
            Errno::Acces => "the region does not grant the right",
            Errno::Fault => "the bytes are not all inside the region",
            Errno::Inval => "the target address is invalid for the operation",
            _ => "the operation was not executed",
        };
        let detail = format!("{} rejects the access: {reason}", self.peers[peer]);
        report.failed(self.ep, errno, self.peers.fi_addr(peer), detail);
    }

    /// Delivers an unexpected message to a receive. `connection` is the message's connection, or
    /// `None` if that connection has ended.
    #[cold]
    pub(crate) fn deliver_unexpected(
        &mut self,
        connection: Option<&mut Connection>,
        mut posted: Posted,
        env: Envelope,
        message: &UnexpectedMessage,
    ) -> Result<(), ProtocolError> {
        match (message.state, connection) {
            (PayloadState::Complete, connection) => {
                let fits = posted.buf.write(0, &message.bytes);
                if let Some(connection) = connection {
                    connection.outgoing.queue_ack(message.number, None);
                }
                self.report_received(posted, &env, fits);
            }
            (PayloadState::Partial, Some(connection)) => {
                posted.buf.write(0, &message.bytes);
                let destination = Destination::Receive(posted, env, message.number);
                connection.incoming.set_destination(destination);
            }
            (PayloadState::Held, Some(connection)) => {
                let destination = Destination::Receive(posted, env, message.number);
                return connection.resume_with(IncomingPayload::new(destination, env.len), self);
            }
            (PayloadState::AtSender(id), Some(connection)) => {
                connection.send_cts(id, Some(posted), env)
            }
            (PayloadState::Lost, _) | (_, None) => {
                let src = self.peers.fi_addr(message.peer);
                let peer = &self.peers[message.peer];
                let detail = format!("{peer} is disconnected, and its message is lost");
                self.ep.rx_failed(posted, Errno::ConnReset, src, detail);
            }
        }
        Ok(())
    }

    /// Discards an unexpected message. The sender gets the acknowledgement of a received message.
    #[cold]
    pub(crate) fn discard(
        &mut self,
        connection: Option<&mut Connection>,
        message: &UnexpectedMessage,
    ) -> Result<(), ProtocolError> {
        let Some(connection) = connection else {
            return Ok(());
        };
        let destination = Destination::Discard(message.number);
        match message.state {
            PayloadState::Complete => connection.outgoing.queue_ack(message.number, None),
            PayloadState::Partial => connection.incoming.set_destination(destination),
            PayloadState::Held => {
                return connection
                    .resume_with(IncomingPayload::new(destination, message.len), self);
            }
            PayloadState::AtSender(id) => {
                connection.send_cts(id, None, envelope(connection.peer, 0, None, message.len))
            }
            PayloadState::Lost => {}
        }
        Ok(())
    }

    /// Resumes a connection whose message was held, if the quota has room again.
    pub(crate) fn retry_held(&mut self, connection: &mut Connection) -> Result<(), ProtocolError> {
        let key = connection.incoming.held_message;
        let admitted = key.and_then(|key| {
            let len = self.matching.admit(key, self.peers.len())?;
            Some(IncomingPayload::new(Destination::Unexpected(key), len))
        });
        match admitted {
            Some(payload) => connection.resume_with(payload, self),
            None => Ok(()),
        }
    }

    /// Reports a received message; `len` bytes are in its buffer.
    fn report_received(&mut self, posted: Posted, env: &Envelope, len: usize) {
        let peer = env.src.0 as usize;
        let src = self.peers.fi_addr(peer);
        if self.ep.is_unknown(src) {
            let address = self.peers[peer].to_address();
            return self.ep.rx_unknown(posted, env, len, &address);
        }
        self.ep.rx_done(posted, env, len, src, &mut Sink::none());
    }

    /// Fails the receives and reads whose data were arriving on a connection that has ended.
    pub(crate) fn fail(&mut self, connection: &mut Connection, errno: Errno, detail: &str) {
        let src: FiAddr = self.peers.fi_addr(connection.peer);
        let requested = connection.incoming.requested.drain();
        for posted in requested.filter_map(|(_, (posted, _))| posted) {
            self.ep.rx_failed(posted, errno, src, detail);
        }
        match connection
            .incoming
            .payload
            .take()
            .map(|payload| payload.destination)
        {
            Some(Destination::Receive(posted, ..)) => self.ep.rx_failed(posted, errno, src, detail),
            Some(Destination::Read(fetch, _) | Destination::AtomicResult(fetch, _)) => {
                drop(fetch.buf);
                fetch.report.failed(self.ep, errno, src, detail);
            }
            _ => {}
        }
    }
}

fn envelope(peer: usize, tag: u64, data: Option<u64>, len: usize) -> Envelope {
    Envelope {
        src: Source(peer as u32),
        tag,
        len,
        data: data.unwrap_or(0),
        has_data: data.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use nix::sys::epoll::{Epoll, EpollCreateFlags};
    use selvedge::info::EpType;
    use selvedge::param::Params;
    use selvedge::{
        Bindings, Caps, CompletionQueue, Context, Hints, MrMode, OpFlags, Registry, TagMatch, av,
        cq,
    };
    use selvedge_kit::FabricId;
    use selvedge_kit::copy::RxBuf;
    use selvedge_kit::domain::Base;
    use selvedge_kit::ip::Av;
    use selvedge_kit::srx::ReceivePolicy;
    use selvedge_kit::wait::PollPolicy;

    use super::*;
    use crate::connection::Stage;
    use crate::connection::table::Connections;

    /// The state of an endpoint with one peer, and a connection without a socket.
    struct TestEndpoint {
        ep: Ep,
        config: Config,
        keys: Keys,
        peers: Peers,
        matching: Matching,
        connections: Connections,
        cq: Arc<dyn CompletionQueue>,
    }

    impl TestEndpoint {
        fn new() -> Self {
            let hints = Hints::new()
                .caps(Caps::TAGGED)
                .ep_type(EpType::Rdm)
                .src_addr("127.0.0.1:0".parse().unwrap());
            let registry = Registry::new().with(&crate::PROVIDER);
            let info = registry.infos(&hints).unwrap().remove(0);
            let fabric = FabricId::of(&info);
            let base =
                Base::open(&info, &fabric, "a domain".to_owned(), PollPolicy::default()).unwrap();
            let cq = base.cq(&cq::Attr::default()).unwrap();
            let av = Av::open(&av::Attr::default(), base.id(), "tcp", "test").unwrap();
            let bind = Bindings::new(Arc::clone(&cq), Arc::new(av));
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            let mut endpoint = Self {
                ep: Ep::resolve(&bind, &info, base.id()).unwrap(),
                config: Config::read(&Params::default()).unwrap(),
                keys: Keys::new(MrMode::empty()),
                peers: Peers::new(None),
                matching: Matching::new(ReceivePolicy::new(&info, 0), 1 << 20),
                connections: Connections::new(Arc::new(epoll)),
                cq,
            };
            let peer = endpoint
                .peers
                .find_or_insert(([127, 0, 0, 1], 1).into(), |_| true);
            endpoint
                .connections
                .add(peer, Stage::Up, Vec::new(), Instant::now());
            endpoint
        }

        fn delivery(&mut self) -> (Delivery<'_>, &mut Connection) {
            let delivery = Delivery {
                ep: &self.ep,
                config: &self.config,
                keys: &self.keys,
                peers: &mut self.peers,
                matching: &mut self.matching,
            };
            (delivery, &mut self.connections[0])
        }

        /// Reads the completion queue and returns the tags of the received messages.
        fn read_received_tags(&self) -> Vec<u64> {
            let mut entries = [Entry::default(); 4];
            let count = self.cq.read(&mut entries).unwrap_or(0);
            entries[..count].iter().map(|entry| entry.tag).collect()
        }
    }

    fn receive(tag: u64) -> Posted {
        Posted {
            buf: RxBuf::default(),
            src: Source::ANY,
            tag: TagMatch::exact(tag),
            context: Context(tag),
            flags: OpFlags::empty(),
            kind: Kind::Tagged,
        }
    }

    fn message(tag: u64, ack: AckPolicy) -> Header {
        Header::Message {
            kind: Kind::Tagged,
            tag,
            data: None,
            ack,
            len: 0,
        }
    }

    #[test]
    fn only_plain_messages_take_the_fast_path_to_the_oldest_receive() {
        let mut endpoint = TestEndpoint::new();
        let plain = message(7, AckPolicy::Never);
        let deliver = |endpoint: &mut TestEndpoint, header: &Header| {
            let (mut delivery, _) = endpoint.delivery();
            delivery.deliver_fast(0, header, &[], &mut Sink::none())
        };
        assert_eq!(deliver(&mut endpoint, &plain), None, "no receive is posted");
        endpoint.matching.matcher(Kind::Tagged).post(receive(7));
        let acked = message(7, AckPolicy::OnArrival);
        assert_eq!(
            deliver(&mut endpoint, &acked),
            None,
            "an acknowledgement is requested"
        );
        assert_eq!(deliver(&mut endpoint, &plain), Some(0));
        assert_eq!(endpoint.read_received_tags(), [7]);
        assert_eq!(
            deliver(&mut endpoint, &plain),
            None,
            "the receive is complete"
        );
    }

    #[test]
    fn an_unexpected_message_is_received_and_acknowledged_once() {
        let mut endpoint = TestEndpoint::new();
        let header = message(7, AckPolicy::OnReceive);
        let (mut delivery, connection) = endpoint.delivery();
        let number = connection.incoming.ack_number(&header);
        let payload = delivery
            .begin_frame(connection, header, number)
            .unwrap()
            .unwrap();
        delivery.payload_complete(connection, payload).unwrap();
        assert!(
            !connection.outgoing.take_response_queued(),
            "no receive has matched the message"
        );
        let matcher = endpoint.matching.matcher(Kind::Tagged);
        let (posted, env, key) = matcher.post(receive(7)).unwrap();
        let message = endpoint.matching.take(key);
        let (mut delivery, connection) = endpoint.delivery();
        delivery
            .deliver_unexpected(Some(connection), posted, env, &message)
            .unwrap();
        assert!(connection.outgoing.take_response_queued());
        assert_eq!(endpoint.read_received_tags(), [7]);
    }

    #[test]
    fn unrequested_frames_are_protocol_errors() {
        let mut endpoint = TestEndpoint::new();
        let (mut delivery, connection) = endpoint.delivery();
        let data = Header::Data {
            id: 1,
            wants_ack: false,
            len: 0,
        };
        for header in [Header::Ack, Header::Cts { id: 1 }, data] {
            let text = format!("{header:?}");
            assert!(
                delivery.begin_frame(connection, header, None).is_err(),
                "{text}"
            );
        }
    }
}
