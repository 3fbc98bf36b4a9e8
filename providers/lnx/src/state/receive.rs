//! Received frames: messages, which are matched or stored, and responses.

use selvedge::{Errno, FiAddr};
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};

use crate::name::Name;
use crate::state::{Deferred, PendingSend, State, Unexpected};
use crate::wire::{FrameKind, Header};

const TARGET: &str = "selvedge::lnx::ep_data";

/// The largest number of unsolicited peers without a name or an address on their link.
const UNNAMED_MAX: usize = 1024;
/// The largest number of unsolicited peers with a name.
const UNSOLICITED_MAX: usize = 1 << 16;
/// The largest number of control frames that wait for one peer: more than a correct peer requests.
const CONTROLS_MAX: usize = 1 << 16;

impl State {
    /// Handles a frame; `src` is the sender's address index on the link, if it has one.
    pub(crate) fn handle_frame(
        &mut self,
        link: usize,
        bytes: &[u8],
        src: FiAddr,
        sink: &mut Sink<'_>,
    ) {
        let Some((header, payload)) = Header::parse(bytes) else {
            return warn_limited(
                TARGET,
                format_args!("dropped a frame with an invalid header"),
            );
        };
        if header.kind == FrameKind::Hello {
            return self.handle_hello(link, &header, payload, src);
        }
        let existing = self
            .incarnations
            .get(&header.sender)
            .map(|&peer| peer as usize);
        let Some(peer) = existing.or_else(|| self.unnamed_peer(link, header.sender, src)) else {
            return warn_limited(
                TARGET,
                format_args!(
                    "dropped a frame: too many peers ({UNNAMED_MAX}) have not sent their name"
                ),
            );
        };
        if self.peers[peer].link != link {
            let peer = &self.peers[peer];
            return warn_limited(
                TARGET,
                format_args!(
                    "dropped a frame with the incarnation of {peer}, which uses the other link"
                ),
            );
        }
        match header.kind {
            FrameKind::Msg => self.handle_message(Kind::Msg, peer, &header, Some(payload), sink),
            FrameKind::Tagged => {
                self.handle_message(Kind::Tagged, peer, &header, Some(payload), sink)
            }
            FrameKind::LargeMsg => self.handle_message(Kind::Msg, peer, &header, None, sink),
            FrameKind::LargeTagged => self.handle_message(Kind::Tagged, peer, &header, None, sink),
            FrameKind::ClearToSend | FrameKind::Ack => self.handle_response(peer, &header),
            FrameKind::Hello | FrameKind::Probe => {}
        }
    }

    /// Handles the hello of a peer.
    #[cold]
    fn handle_hello(&mut self, link: usize, header: &Header, payload: &[u8], src: FiAddr) {
        let is_new =
            !self.incarnations.contains_key(&header.sender) && !self.has_peer_at(link, src);
        if is_new && self.unsolicited_named >= UNSOLICITED_MAX {
            return warn_limited(
                TARGET,
                format_args!(
                    "dropped a hello: too many unsolicited peers ({UNSOLICITED_MAX}) have connected"
                ),
            );
        }
        self.unsolicited_named += usize::from(is_new);
        let text = std::str::from_utf8(payload).ok();
        let name = text.and_then(|text| text.parse::<Name>().ok());
        let peer = name.and_then(|name| match src {
            // The peer may take this host for another one, so the link of the hello counts.
            FiAddr::UNSPEC => {
                let addr = [&name.near, &name.far][link];
                let link_addr = self.links[link].insert(addr).ok();
                link_addr.map(|link_addr| self.peer_on(link, link_addr, Some(&name)))
            }
            _ => Some(self.peer_on(link, src, Some(&name))),
        });
        let Some(peer) = peer.filter(|&peer| self.peers[peer].link == link) else {
            return warn_limited(TARGET, format_args!("dropped a hello with an invalid name"));
        };
        self.begin_incarnation(peer, header.sender);
    }

    /// Adds a peer that has not sent its name, because it takes this endpoint for an earlier one of
    /// the same name. `None` if there are too many such peers.
    #[cold]
    fn unnamed_peer(&mut self, link: usize, incarnation: u64, src: FiAddr) -> Option<usize> {
        if !self.has_peer_at(link, src) {
            if self.unsolicited_unnamed >= UNNAMED_MAX {
                return None;
            }
            self.unsolicited_unnamed += 1;
        }
        let peer = self.peer_on(link, src, None);
        self.begin_incarnation(peer, incarnation);
        Some(peer)
    }

    /// Sets the incarnation of a peer, and ends the previous one.
    fn begin_incarnation(&mut self, peer: usize, incarnation: u64) {
        let previous = std::mem::replace(&mut self.peers[peer].incarnation, incarnation);
        if previous != 0 && previous != incarnation {
            self.incarnations.remove(&previous);
            let detail = format!("{} has restarted", self.peers[peer]);
            self.fail_peer(peer, Errno::ConnReset, &detail);
        }
        self.incarnations.insert(incarnation, peer as u32);
    }

    /// Handles a message, with or without its bytes.
    fn handle_message(
        &mut self,
        kind: Kind,
        peer: usize,
        header: &Header,
        payload: Option<&[u8]>,
        sink: &mut Sink<'_>,
    ) {
        let env = Envelope {
            src: Source(peer as u32),
            tag: header.tag,
            len: header.len,
            data: header.data,
            has_data: header.has_data,
        };
        let number = header.wants_ack.then_some(header.number);
        match (self.matcher(kind).match_message(&env), payload) {
            (Some(posted), Some(bytes)) => self.deliver(posted, &env, bytes, number, sink),
            (Some(posted), None) => self.defer_body_request(posted, env, header.number),
            (None, payload) => {
                let unexpected = match payload {
                    Some(bytes) => Unexpected::Data(bytes.to_vec(), number),
                    None => Unexpected::AtSender(header.number),
                };
                self.unexpected_bytes += unexpected.cost();
                self.matcher(kind).store(env, unexpected);
            }
        }
    }

    /// Copies a message into its receive.
    fn deliver(
        &mut self,
        mut posted: Posted,
        env: &Envelope,
        bytes: &[u8],
        number: Option<u64>,
        sink: &mut Sink<'_>,
    ) {
        let copied = posted.buf.write(0, bytes);
        self.send_ack(env, number);
        self.report_received(posted, env, copied, sink);
    }

    /// Matches an unexpected message with a receive.
    #[cold]
    pub(crate) fn match_unexpected(
        &mut self,
        posted: Posted,
        env: Envelope,
        unexpected: Unexpected,
    ) {
        self.release_unexpected(unexpected.cost());
        match unexpected {
            Unexpected::Data(bytes, number) => {
                self.deliver(posted, &env, &bytes, number, &mut Sink::none());
            }
            Unexpected::AtSender(number) => self.defer_body_request(posted, env, number),
        }
    }

    /// Discards a message. For the sender, the message is received.
    #[cold]
    pub(crate) fn discard(&mut self, env: &Envelope, unexpected: &Unexpected) {
        self.release_unexpected(unexpected.cost());
        match *unexpected {
            Unexpected::Data(_, number) => self.send_ack(env, number),
            Unexpected::AtSender(number) => self.send_ack(env, Some(number)),
        }
    }

    /// Releases the memory of an unexpected message. If receives are withheld, a parked thread may
    /// have to post them again.
    fn release_unexpected(&mut self, cost: usize) {
        self.unexpected_bytes -= cost;
        let has_withheld = self.withheld.iter().any(|frames| !frames.is_empty());
        if has_withheld && self.unexpected_bytes < self.unexpected_limit {
            self.ep.wake();
        }
    }

    pub(crate) fn send_ack(&mut self, env: &Envelope, number: Option<u64>) {
        if let Some(number) = number {
            let header = Header {
                number,
                ..Header::new(FrameKind::Ack, self.incarnation)
            };
            let peer = env.src.0 as usize;
            if self.peers[peer].queued_controls >= CONTROLS_MAX {
                let peer = &self.peers[peer];
                return warn_limited(
                    TARGET,
                    format_args!(
                        "dropped an acknowledgement: {CONTROLS_MAX} wait for {peer}, which receives none"
                    ),
                );
            }
            self.peers[peer].queued_controls += 1;
            self.defer(Deferred::Control(peer, header));
        }
    }

    /// Requests the bytes of a large message for its receive.
    fn defer_body_request(&mut self, posted: Posted, env: Envelope, number: u64) {
        self.defer(Deferred::FetchBody(posted, env, number));
    }

    /// Reports a message, of which `len` bytes are in its receive.
    pub(crate) fn report_received(
        &mut self,
        posted: Posted,
        env: &Envelope,
        len: usize,
        sink: &mut Sink<'_>,
    ) {
        let peer = env.src.0 as usize;
        let src = self.peer_addr(peer);
        if self.ep.is_unknown(src)
            && let Some(name) = &self.peers[peer].name
        {
            return self.ep.rx_unknown(posted, env, len, &name.to_address());
        }
        self.ep.rx_done(posted, env, len, src, sink);
    }

    /// Handles a peer's response to a send.
    fn handle_response(&mut self, peer: usize, header: &Header) {
        let Some(pending) = self.take_pending_send(peer, header.number) else {
            let peer = &self.peers[peer];
            return warn_limited(
                TARGET,
                format_args!("dropped a response of {peer} that matches no send"),
            );
        };
        if header.kind == FrameKind::ClearToSend && pending.buf.is_some() {
            let len = match header.len {
                0 => usize::MAX,
                len => len,
            };
            return self.defer(Deferred::Body(pending, header.tag, len));
        }
        let PendingSend { buf, report, .. } = pending;
        // The buffer is released before the completion is reported.
        drop(buf);
        self.report_sent(peer, &report);
    }

    pub(crate) fn take_pending_send(&mut self, peer: usize, number: u64) -> Option<PendingSend> {
        let key = (number & u64::from(u32::MAX)) as usize;
        let pending = self.pending_sends.get(key)?;
        let is_match = pending.number == number && pending.peer == peer;
        is_match.then(|| self.pending_sends.remove(key))
    }
}
