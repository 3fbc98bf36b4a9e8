//! What peers say: messages, matched or kept, and answers.

use selvedge::{Errno, FiAddr};
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;
use selvedge_kit::srx::{Envelope, Kind, Posted, Source};

use crate::name::Name;
use crate::state::{Ask, Later, State};
use crate::wire::{Header, What};

const TARGET: &str = "selvedge::lnx::ep_data";

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is here; the number of the answer that its sender waits for.
    Here(Vec<u8>, Option<u64>),
    /// It is with its sender, under this number.
    There(u64),
}

/// Peers that may have come without a name and without an address on their link.
const UNNAMED_MAX: usize = 1024;
/// Peers that may have come by themselves, with a name.
const INTRODUCED_MAX: usize = 1 << 16;
/// Answers that may wait for a peer to take them: more than an honest one has asked for.
const ANSWERS_MAX: usize = 1 << 16;

/// What a message counts for beside its bytes.
const ENTRY: usize = 128;

impl Kept {
    fn cost(&self) -> usize {
        match self {
            Self::Here(bytes, _) => bytes.len() + ENTRY,
            Self::There(_) => ENTRY,
        }
    }
}

impl State {
    /// Somebody has said something on a link; `from` is its index there, if it has one.
    pub(crate) fn hear(&mut self, link: usize, bytes: &[u8], from: FiAddr, sink: &mut Sink<'_>) {
        let Some((header, payload)) = Header::parse(bytes) else {
            return warn_limited(
                TARGET,
                format_args!("somebody sends what no endpoint sends"),
            );
        };
        if header.what == What::Hello {
            return self.greeted(link, &header, payload, from);
        }
        let known = self.lives.get(&header.sender).map(|&peer| peer as usize);
        let Some(peer) = known.or_else(|| self.stranger(link, header.sender, from)) else {
            return warn_limited(TARGET, format_args!("too many peers without a name send"));
        };
        if self.peers[peer].link != link {
            let peer = &self.peers[peer];
            return warn_limited(TARGET, format_args!("somebody says to be {peer}"));
        }
        match header.what {
            What::Msg => self.message(Kind::Msg, peer, &header, Some(payload), sink),
            What::Tagged => self.message(Kind::Tagged, peer, &header, Some(payload), sink),
            What::LargeMsg => self.message(Kind::Msg, peer, &header, None, sink),
            What::LargeTagged => self.message(Kind::Tagged, peer, &header, None, sink),
            What::Clear | What::Done => self.answered(peer, &header),
            What::Hello => {}
        }
    }

    /// A peer says who it is.
    #[cold]
    fn greeted(&mut self, link: usize, header: &Header, payload: &[u8], from: FiAddr) {
        let is_new = !self.lives.contains_key(&header.sender) && !self.is_met(link, from);
        if is_new && self.introduced >= INTRODUCED_MAX {
            return warn_limited(TARGET, format_args!("too many peers introduce themselves"));
        }
        self.introduced += usize::from(is_new);
        let text = std::str::from_utf8(payload).ok();
        let name = text.and_then(|text| text.parse::<Name>().ok());
        let peer = name.and_then(|name| match from {
            FiAddr::UNSPEC => self.peer_named(&name).ok(),
            _ => Some(self.peer_on(link, from, Some(&name))),
        });
        let Some(peer) = peer.filter(|&peer| self.peers[peer].link == link) else {
            return warn_limited(TARGET, format_args!("somebody has a name that is none"));
        };
        self.begin_life(peer, header.sender);
    }

    /// A peer that has said no name: it takes this endpoint for another one that had its name. `None`
    /// when there are too many of them.
    #[cold]
    fn stranger(&mut self, link: usize, life: u64, from: FiAddr) -> Option<usize> {
        if !self.is_met(link, from) {
            if self.unnamed >= UNNAMED_MAX {
                return None;
            }
            self.unnamed += 1;
        }
        let peer = self.peer_on(link, from, None);
        self.begin_life(peer, life);
        Some(peer)
    }

    /// From here on the peer is known by this life alone. An earlier one is over.
    fn begin_life(&mut self, peer: usize, life: u64) {
        let before = std::mem::replace(&mut self.peers[peer].life, life);
        if before != 0 && before != life {
            self.lives.remove(&before);
            let detail = format!("{} has started anew", self.peers[peer]);
            self.lose(peer, Errno::ConnReset, &detail);
        }
        self.lives.insert(life, peer as u32);
    }

    /// A message, with its bytes or without them.
    fn message(
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
        let number = header.wants_answer.then_some(header.number);
        match (self.matcher(kind).match_message(&env), payload) {
            (Some(posted), Some(bytes)) => self.give(posted, &env, bytes, number, sink),
            (Some(posted), None) => self.fetch(posted, env, header.number),
            (None, payload) => {
                let kept = match payload {
                    Some(bytes) => Kept::Here(bytes.to_vec(), number),
                    None => Kept::There(header.number),
                };
                self.kept += kept.cost();
                self.matcher(kind).store(env, kept);
            }
        }
    }

    /// A message that is here meets its receive.
    fn give(
        &mut self,
        mut posted: Posted,
        env: &Envelope,
        bytes: &[u8],
        number: Option<u64>,
        sink: &mut Sink<'_>,
    ) {
        let fits = posted.buf.write(0, bytes);
        self.answer(env, number);
        self.received(posted, env, fits, sink);
    }

    /// A message that waited meets its receive.
    #[cold]
    pub(crate) fn deliver(&mut self, posted: Posted, env: Envelope, kept: Kept) {
        self.free(kept.cost());
        match kept {
            Kept::Here(bytes, number) => {
                self.give(posted, &env, &bytes, number, &mut Sink::none());
            }
            Kept::There(number) => self.fetch(posted, env, number),
        }
    }

    /// Drops a message. To its sender it is received.
    #[cold]
    pub(crate) fn discard(&mut self, env: &Envelope, kept: &Kept) {
        self.free(kept.cost());
        match *kept {
            Kept::Here(_, number) => self.answer(env, number),
            Kept::There(number) => self.answer(env, Some(number)),
        }
    }

    /// A message is kept no more. There may be room to listen again, which a parked thread has to do.
    fn free(&mut self, cost: usize) {
        self.kept -= cost;
        let is_muted = self.muted.iter().any(|frames| !frames.is_empty());
        if is_muted && self.kept < self.most {
            self.ep.wake();
        }
    }

    fn answer(&mut self, env: &Envelope, number: Option<u64>) {
        if let Some(number) = number {
            let header = Header {
                number,
                ..Header::new(What::Done, self.life)
            };
            let peer = env.src.0 as usize;
            if self.peers[peer].owed >= ANSWERS_MAX {
                let peer = &self.peers[peer];
                return warn_limited(TARGET, format_args!("{peer} takes none of its answers"));
            }
            self.peers[peer].owed += 1;
            self.do_later(Later::Answer(peer, header));
        }
    }

    /// Has the bytes of a large message sent to its receive.
    fn fetch(&mut self, posted: Posted, env: Envelope, number: u64) {
        self.do_later(Later::Fetch(posted, env, number));
    }

    /// Reports a message: `len` bytes of it are in its receive.
    pub(crate) fn received(
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

    /// A peer answers a send.
    fn answered(&mut self, peer: usize, header: &Header) {
        let Some(ask) = self.take_ask(peer, header.number) else {
            let peer = &self.peers[peer];
            return warn_limited(TARGET, format_args!("{peer} answers what was not asked"));
        };
        if header.what == What::Clear && ask.buf.is_some() {
            return self.do_later(Later::Body(ask, header.tag));
        }
        let Ask { buf, report, .. } = ask;
        // The caller's memory goes before the completion comes.
        drop(buf);
        self.sent(peer, &report);
    }

    pub(crate) fn take_ask(&mut self, peer: usize, number: u64) -> Option<Ask> {
        let key = (number & u64::from(u32::MAX)) as usize;
        let ask = self.asks.get(key)?;
        let is_it = ask.number == number && ask.peer == peer;
        is_it.then(|| self.asks.remove(key))
    }
}
