//! `Delivery`: the parts of an endpoint that the frames of a peer act on, and what each kind of frame
//! begins, where its payload goes, and what its end means.

use selvedge::cq::Entry;
use selvedge::{Errno, FiAddr};
use selvedge_kit::cq::Sink;
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};
use selvedge_kit::{Ep, Report};

use crate::config::Config;
use crate::connection::Connection;
use crate::connection::incoming::{Arrival, Goal};
use crate::connection::one_sided::{Change, OneSided, arriving};
use crate::matching::{Kept, Matching, Where};
use crate::peers::Peers;
use crate::wire::Nonsense;
use crate::wire::frame::{Head, Wish};

/// What the frames of peers act on.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) ep: &'a Ep,
    pub(crate) config: &'a Config,
    pub(crate) keys: &'a Keys,
    pub(crate) peers: &'a mut Peers,
    pub(crate) matching: &'a mut Matching,
}

impl Delivery<'_> {
    /// The fast path: a plain message of which all is here, for the oldest receive. How many bytes of
    /// payload it has, if it is one.
    #[inline]
    pub(crate) fn deliver_whole(
        &mut self,
        peer: usize,
        head: &Head,
        bytes: &[u8],
        sink: &mut Sink<'_>,
    ) -> Option<usize> {
        let &Head::Message {
            kind,
            tag,
            data: None,
            wish: Wish::Never,
            len,
        } = head
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

    /// The general path: takes a frame, of which `number` is its own among those that want an answer,
    /// if it does. What is to be done with its payload, unless nothing is left to do.
    ///
    /// # Errors
    /// When no peer would send it at this point.
    pub(crate) fn open(
        &mut self,
        from: &mut Connection,
        head: Head,
        number: Option<u64>,
    ) -> Result<Option<Arrival>, Nonsense> {
        match head {
            Head::Message {
                kind,
                tag,
                data,
                wish,
                len,
            } => {
                let env = envelope(from.peer, tag, data, len);
                return Ok(self.message(from, kind, env, number, wish));
            }
            Head::Offer {
                id, tag, data, len, ..
            } => {
                let env = envelope(from.peer, tag, data, len);
                self.offered(from, id, env)?;
            }
            Head::Data { id, len, .. } => {
                let coming = from.incoming.coming.remove(&id);
                let coming = coming.filter(|(_, env)| env.len == len);
                let (posted, env) = coming.ok_or(Nonsense("bytes that were not asked for"))?;
                let goal = match posted {
                    Some(posted) => Goal::Receive(posted, env, number),
                    None => Goal::Nothing(number),
                };
                return Ok(Some(Arrival::new(goal, len)));
            }
            Head::Clear { id } => from.outgoing.send_offered(id)?,
            Head::Ack => from.outgoing.answered(None)?.done(self.ep),
            Head::Answer { number, status } => {
                let report = from.outgoing.answered(Some(number))?;
                self.completed(from.peer, &report, status);
            }
            Head::ReadRequest { places } => self.one_sided(from).read(places)?,
            Head::ReadResponse { len, is_checked } => {
                let fetch = from.outgoing.read_answered(len)?;
                return Ok(Some(Arrival::new(Goal::Read(fetch, is_checked), len)));
            }
            Head::ReadEnd { status } => {
                let report = from.outgoing.read_ended()?;
                self.completed(from.peer, &report, status);
            }
            Head::Refused { status } => {
                let report = from.outgoing.read_refused()?;
                self.completed(from.peer, &report, status.max(1));
            }
            Head::Write { places, data, .. } => {
                let len = places.len();
                let knows = from.terms().knows();
                let write = arriving(self.keys, places, data, number, knows)?;
                return Ok(Some(Arrival::new(Goal::Write(write), len)));
            }
            Head::Atomic {
                what,
                data,
                targets,
                len,
            } => {
                let change = Change::new(what, data, targets, len)?;
                return Ok(Some(Arrival::new(Goal::Change(Box::new(change)), len)));
            }
            Head::Outcome { status, len } => {
                let fetch = from.outgoing.atomic_answered(status, len)?;
                return Ok(Some(Arrival::new(Goal::Outcome(fetch, status), len)));
            }
        }
        Ok(None)
    }

    /// A message begins.
    fn message(
        &mut self,
        from: &mut Connection,
        kind: Kind,
        env: Envelope,
        number: Option<u64>,
        wish: Wish,
    ) -> Option<Arrival> {
        if let Some(posted) = self.matching.matcher(kind).match_message(&env) {
            return Some(Arrival::new(Goal::Receive(posted, env, number), env.len));
        }
        let place = match self.matching.has_room(from.peer, env.len, self.peers.len()) {
            true => Where::Coming,
            false => Where::Held,
        };
        let mut kept = Kept::new(from.id, from.peer, place, env.len);
        kept.number = number;
        kept.is_answered_by_receive = wish == Wish::Received;
        let key = self.matching.keep(kind, env, kept);
        if place == Where::Held {
            from.incoming.held = Some(key);
            return None;
        }
        Some(Arrival::new(Goal::Keep(key), env.len))
    }

    /// A message is offered.
    fn offered(&mut self, from: &mut Connection, id: u8, env: Envelope) -> Result<(), Nonsense> {
        if self.matching.is_offered(from.id, id) || from.incoming.coming.contains_key(&id) {
            return Err(Nonsense("two offers of one number"));
        }
        match self.matching.matcher(Kind::Tagged).match_message(&env) {
            Some(posted) => from.ask_for(id, Some(posted), env),
            None => {
                let kept = Kept::new(from.id, from.peer, Where::Offered(id), env.len);
                self.matching.keep(Kind::Tagged, env, kept);
            }
        }
        Ok(())
    }

    /// Puts a stretch of a payload where it belongs.
    pub(crate) fn place(&mut self, arrival: &mut Arrival, bytes: &[u8]) {
        let at = arrival.at;
        match &mut arrival.goal {
            Goal::Receive(posted, ..) => {
                posted.buf.write(at, bytes);
            }
            Goal::Keep(key) => self.matching.keep_more(*key, bytes),
            Goal::Write(arriving) => arriving.write(self.keys, at, bytes),
            Goal::Read(fetch, _) | Goal::Outcome(fetch, _) => {
                fetch.buf.write(at, bytes);
            }
            Goal::Change(change) => change.operands.extend_from_slice(bytes),
            Goal::Nothing(_) => {}
        }
    }

    /// A payload is there.
    ///
    /// # Errors
    /// When the peer was not allowed to send it, and cannot be told.
    pub(crate) fn arrived(
        &mut self,
        from: &mut Connection,
        arrival: Arrival,
    ) -> Result<(), Nonsense> {
        match arrival.goal {
            Goal::Receive(posted, env, number) => {
                from.outgoing.acknowledge(number, None);
                let fits = env.len.min(posted.buf.len());
                self.received(posted, &env, fits);
            }
            Goal::Keep(key) => {
                let number = self.matching.kept_whole(key);
                from.outgoing.acknowledge(number, None);
            }
            Goal::Write(arriving) => return self.one_sided(from).written(&arriving),
            Goal::Read(fetch, is_checked) => {
                drop(fetch.buf);
                match is_checked {
                    true => from.outgoing.read_unchecked(fetch.report),
                    false => fetch.report.done(self.ep),
                }
            }
            Goal::Change(change) => self.one_sided(from).change(&change),
            Goal::Outcome(fetch, status) => {
                drop(fetch.buf);
                self.completed(from.peer, &fetch.report, status);
            }
            Goal::Nothing(number) => from.outgoing.acknowledge(number, None),
        }
        Ok(())
    }

    /// Our memory, as the peer of a connection uses it.
    fn one_sided<'a>(&'a mut self, from: &'a mut Connection) -> OneSided<'a> {
        OneSided {
            ep: self.ep,
            keys: self.keys,
            src: self.peers.fi_addr(from.peer),
            outgoing: &mut from.outgoing,
        }
    }

    /// Reports an operation that a peer has answered.
    fn completed(&mut self, peer: usize, report: &Report, status: u32) {
        if status == 0 {
            return report.done(self.ep);
        }
        let errno = i32::try_from(status).map_or(Errno::Other, Errno::from_raw);
        let why = match errno {
            Errno::KeyRejected => "nobody there has the key",
            Errno::Acces => "the region does not grant the right",
            Errno::Fault => "the bytes are not all inside the region",
            Errno::Inval => "the target has an address that the operation cannot have",
            _ => "it was not carried out",
        };
        let detail = format!("{} refuses: {why}", self.peers[peer]);
        report.failed(self.ep, errno, self.peers.fi_addr(peer), detail);
    }

    /// A receive takes a message that waited for it; `from` is the connection that the message came
    /// by, if that has not ended.
    #[cold]
    pub(crate) fn meet(
        &mut self,
        from: Option<&mut Connection>,
        mut posted: Posted,
        env: Envelope,
        kept: &Kept,
    ) -> Result<(), Nonsense> {
        match (kept.place, from) {
            (Where::Here, from) => {
                let fits = posted.buf.write(0, &kept.bytes);
                if let Some(from) = from {
                    from.outgoing.acknowledge(kept.number, None);
                }
                self.received(posted, &env, fits);
            }
            (Where::Coming, Some(from)) => {
                posted.buf.write(0, &kept.bytes);
                let goal = Goal::Receive(posted, env, kept.number);
                from.incoming.redirect(goal);
            }
            (Where::Held, Some(from)) => {
                let goal = Goal::Receive(posted, env, kept.number);
                return from.release(Arrival::new(goal, env.len), self);
            }
            (Where::Offered(id), Some(from)) => from.ask_for(id, Some(posted), env),
            (Where::Lost, _) | (_, None) => {
                let src = self.peers.fi_addr(kept.peer);
                let peer = &self.peers[kept.peer];
                let detail = format!("{peer} is gone, and its message with it");
                self.ep.rx_failed(posted, Errno::ConnReset, src, detail);
            }
        }
        Ok(())
    }

    /// Drops a message. To its sender it is received.
    #[cold]
    pub(crate) fn discard(
        &mut self,
        from: Option<&mut Connection>,
        kept: &Kept,
    ) -> Result<(), Nonsense> {
        let Some(from) = from else {
            return Ok(());
        };
        let goal = Goal::Nothing(kept.number);
        match kept.place {
            Where::Here => from.outgoing.acknowledge(kept.number, None),
            Where::Coming => from.incoming.redirect(goal),
            Where::Held => return from.release(Arrival::new(goal, kept.len), self),
            Where::Offered(id) => from.ask_for(id, None, envelope(from.peer, 0, None, kept.len)),
            Where::Lost => {}
        }
        Ok(())
    }

    /// Lets a connection go on whose message had no room, if there is room for it by now.
    pub(crate) fn make_room_for(&mut self, from: &mut Connection) -> Result<(), Nonsense> {
        let key = from.incoming.held;
        let admitted = key.and_then(|key| {
            let len = self.matching.admit(key, self.peers.len())?;
            Some(Arrival::new(Goal::Keep(key), len))
        });
        match admitted {
            Some(arrival) => from.release(arrival, self),
            None => Ok(()),
        }
    }

    /// Reports a message: `len` bytes of it are in its receive.
    fn received(&mut self, posted: Posted, env: &Envelope, len: usize) {
        let peer = env.src.0 as usize;
        let src = self.peers.fi_addr(peer);
        if self.ep.is_unknown(src) {
            let address = self.peers[peer].to_address();
            return self.ep.rx_unknown(posted, env, len, &address);
        }
        self.ep.rx_done(posted, env, len, src, &mut Sink::none());
    }

    /// Fails the receives and reads whose bytes were coming by a connection that has ended.
    pub(crate) fn fail(&mut self, from: &mut Connection, errno: Errno, detail: &str) {
        let src: FiAddr = self.peers.fi_addr(from.peer);
        let coming = from.incoming.coming.drain();
        for posted in coming.filter_map(|(_, (posted, _))| posted) {
            self.ep.rx_failed(posted, errno, src, detail);
        }
        match from.incoming.body.take().map(|arrival| arrival.goal) {
            Some(Goal::Receive(posted, ..)) => self.ep.rx_failed(posted, errno, src, detail),
            Some(Goal::Read(fetch, _) | Goal::Outcome(fetch, _)) => {
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
    use std::time::{Duration, Instant};

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

    use super::*;
    use crate::connection::Stage;
    use crate::connection::table::Connections;

    /// The parts of an endpoint with one peer, and a connection of that without a socket.
    struct Parts {
        ep: Ep,
        config: Config,
        keys: Keys,
        peers: Peers,
        matching: Matching,
        connections: Connections,
        cq: Arc<dyn CompletionQueue>,
    }

    impl Parts {
        fn new() -> Self {
            let hints = Hints::new()
                .caps(Caps::TAGGED)
                .ep_type(EpType::Rdm)
                .src_addr("127.0.0.1:0".parse().unwrap());
            let registry = Registry::new().with(&crate::PROVIDER);
            let info = registry.infos(&hints).unwrap().remove(0);
            let fabric = FabricId::of(&info);
            let base = Base::open(&info, &fabric, "a domain".to_owned(), Duration::ZERO).unwrap();
            let cq = base.cq(&cq::Attr::default()).unwrap();
            let av = Av::open(&av::Attr::default(), base.id(), "tcp", "test").unwrap();
            let bind = Bindings::new(Arc::clone(&cq), Arc::new(av));
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
            let mut parts = Self {
                ep: Ep::resolve(&bind, &info, base.id()).unwrap(),
                config: Config::read(&Params::default()).unwrap(),
                keys: Keys::new(MrMode::empty()),
                peers: Peers::new(None),
                matching: Matching::new(ReceivePolicy::new(&info, 0), 1 << 20),
                connections: Connections::new(Arc::new(epoll)),
                cq,
            };
            let peer = parts.peers.named(([127, 0, 0, 1], 1).into(), |_| true);
            parts
                .connections
                .add(peer, Stage::Up, Vec::new(), Instant::now());
            parts
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

        /// The tags of the messages that were received.
        fn received(&self) -> Vec<u64> {
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

    fn message(tag: u64, wish: Wish) -> Head {
        Head::Message {
            kind: Kind::Tagged,
            tag,
            data: None,
            wish,
            len: 0,
        }
    }

    #[test]
    fn a_plain_message_goes_straight_to_the_oldest_receive_and_no_other_does() {
        let mut parts = Parts::new();
        let plain = message(7, Wish::Never);
        let whole = |parts: &mut Parts, head: &Head| {
            let (mut delivery, _) = parts.delivery();
            delivery.deliver_whole(0, head, &[], &mut Sink::none())
        };
        assert_eq!(whole(&mut parts, &plain), None, "no receive waits");
        parts.matching.matcher(Kind::Tagged).post(receive(7));
        let answered = message(7, Wish::Arrived);
        assert_eq!(whole(&mut parts, &answered), None, "it wants an answer");
        assert_eq!(whole(&mut parts, &plain), Some(0));
        assert_eq!(parts.received(), [7]);
        assert_eq!(whole(&mut parts, &plain), None, "the receive is over");
    }

    #[test]
    fn a_message_that_waited_is_received_and_answered_once() {
        let mut parts = Parts::new();
        let head = message(7, Wish::Received);
        let (mut delivery, from) = parts.delivery();
        let number = from.incoming.number(&head);
        let arrival = delivery.open(from, head, number).unwrap().unwrap();
        delivery.arrived(from, arrival).unwrap();
        assert!(!from.outgoing.take_owing(), "no receive has met it");
        let matcher = parts.matching.matcher(Kind::Tagged);
        let (posted, env, key) = matcher.post(receive(7)).unwrap();
        let kept = parts.matching.take(key);
        let (mut delivery, from) = parts.delivery();
        delivery.meet(Some(from), posted, env, &kept).unwrap();
        assert!(from.outgoing.take_owing());
        assert_eq!(parts.received(), [7]);
    }

    #[test]
    fn frames_that_answer_nothing_are_nonsense() {
        let mut parts = Parts::new();
        let (mut delivery, from) = parts.delivery();
        let data = Head::Data {
            id: 1,
            wants_answer: false,
            len: 0,
        };
        for head in [Head::Ack, Head::Clear { id: 1 }, data] {
            let text = format!("{head:?}");
            assert!(delivery.open(from, head, None).is_err(), "{text}");
        }
    }
}
