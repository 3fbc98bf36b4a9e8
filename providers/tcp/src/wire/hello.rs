//! The messages that begin a connection: a request, and an answer or a refusal.
//!
//! Each is a header of 32 bytes and up to 256 bytes of private data: the application's, or for
//! endpoints without connections a [`Card`]. Fields of the header that libfabric leaves zero and
//! never reads carry the [`Introduction`] of a Selvedge endpoint.

use std::hash::{BuildHasher, RandomState};

use super::{Nonsense, Order, byte_at, bytes_at};

/// Bytes of the header.
pub(crate) const HEADER: usize = 32;
/// Most bytes of private data.
pub(crate) const DATA_MAX: usize = 256;
const VERSION: u8 = 3;
/// `SLVG`, where libfabric has a zero.
const MAGIC: u32 = 0x534c_5647;

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Answer,
    Refusal,
}

/// A message, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    /// The order of all numbers that follow. A refusal says nothing of it.
    pub(crate) order: Order,
    pub(crate) introduction: Option<Introduction>,
    pub(crate) data: Vec<u8>,
}

/// What a Selvedge endpoint says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Introduction {
    /// A random number that tells two lives of one address apart; never 0.
    pub(crate) life: u64,
    /// What it knows beyond libfabric's protocol.
    pub(crate) features: u32,
    /// Which context of a scalable endpoint it is: the first one listens as many ports below. 0 for
    /// that one, and for an endpoint of its own.
    pub(crate) context: u16,
}

/// The frames of [`super::frame`] that libfabric does not know.
pub(crate) const FEATURE_ANSWERS: u32 = 1;

impl Introduction {
    /// One for a new endpoint.
    pub(crate) fn new() -> Self {
        Self {
            life: RandomState::new().hash_one(std::process::id()) | 1,
            features: FEATURE_ANSWERS,
            context: 0,
        }
    }

    /// What follows its life: 16 bits that are 0, the context, the features.
    fn encode(&self) -> u64 {
        u64::from(self.context) << u32::BITS | u64::from(self.features)
    }
}

impl Hello {
    pub(crate) fn new(kind: Kind, introduction: Option<Introduction>, data: &[u8]) -> Self {
        Self {
            kind,
            order: Order::Own,
            introduction,
            data: data.to_vec(),
        }
    }

    /// The bytes to send, all in one piece: libfabric does not put pieces together.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Request => 0,
            Kind::Answer => 1,
            Kind::Refusal => 6,
        };
        let len = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        let (magic, life, known) = match self.introduction {
            Some(it) => (MAGIC, it.life, it.encode()),
            None => (0, 0, 0),
        };
        let one = u64::from(self.kind != Kind::Refusal);
        let mut bytes = vec![VERSION, kind];
        bytes.extend(len.to_be_bytes());
        bytes.extend(magic.to_be_bytes());
        bytes.extend(life.to_be_bytes());
        bytes.extend(known.to_be_bytes());
        bytes.extend(one.to_ne_bytes());
        bytes.extend(&self.data);
        bytes
    }

    /// Reads the message at the front, and how many bytes it has; `None` as long as they are not all
    /// there.
    ///
    /// # Errors
    /// When this is none, which shows at the first byte that is wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Nonsense> {
        let is_wrong = |at: usize, right: &[u8]| bytes.get(at).is_some_and(|b| !right.contains(b));
        if is_wrong(0, &[VERSION]) {
            return Err(Nonsense("a greeting of another version"));
        }
        if is_wrong(1, &[0, 1, 6]) {
            return Err(Nonsense("a greeting of no known type"));
        }
        if bytes.len() < HEADER {
            return Ok(None);
        }
        let len = usize::from(u16::from_be_bytes(bytes_at(bytes, 2)));
        if len > DATA_MAX {
            return Err(Nonsense("a greeting with too much private data"));
        }
        let Some(data) = bytes.get(HEADER..).and_then(|data| data.get(..len)) else {
            return Ok(None);
        };
        let hello = Self {
            kind: match byte_at(bytes, 1) {
                0 => Kind::Request,
                1 => Kind::Answer,
                _ => Kind::Refusal,
            },
            order: match u64::from_ne_bytes(bytes_at(bytes, 24)) {
                1 => Order::Own,
                _ => Order::Network,
            },
            introduction: introduction(bytes),
            data: data.to_vec(),
        };
        Ok(Some((hello, HEADER.saturating_add(len))))
    }
}

fn introduction(bytes: &[u8]) -> Option<Introduction> {
    let magic = u32::from_be_bytes(bytes_at(bytes, 4));
    let life = u64::from_be_bytes(bytes_at(bytes, 8));
    (magic == MAGIC && life != 0).then(|| Introduction {
        life,
        features: u32::from_be_bytes(bytes_at(bytes, 20)),
        context: u16::from_be_bytes(bytes_at(bytes, 18)),
    })
}

/// The private data of endpoints without connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Card {
    /// In a request, the newest version that the sender speaks; in an answer, the one to exchange_both_ways, with
    /// [`ANSWERED`].
    pub(crate) version: u8,
    pub(crate) features: u8,
    /// Where the endpoint that asks listens.
    pub(crate) port: u16,
    pub(crate) pid: u32,
}

/// Bytes of a card.
const LEN: usize = 8;
/// Marks a version as an answer: releases before versions were answered send the question back.
const ANSWERED: u8 = 0x80;
/// The newest version, which has offers of tagged messages.
pub(crate) const CARD_VERSION: u8 = 1;
/// "I am behind a firewall", the one feature that may be sent back.
const KNOWN_FEATURES: u8 = 1;

impl Card {
    /// What a request from a listener at this port says.
    pub(crate) fn request(port: u16) -> Self {
        Self {
            version: CARD_VERSION,
            features: 0,
            port,
            pid: std::process::id(),
        }
    }

    /// The answer to this request.
    pub(crate) fn answer(&self) -> Self {
        let version = self.version.min(CARD_VERSION);
        Self {
            version: if version == 0 { 0 } else { ANSWERED | version },
            features: self.features & KNOWN_FEATURES,
            port: self.port,
            pid: std::process::id(),
        }
    }

    /// The version to exchange_both_ways after this answer.
    pub(crate) fn answered(&self) -> u8 {
        u8::from(self.version == ANSWERED | CARD_VERSION)
    }

    /// The version to exchange_both_ways after this request, when it is accepted.
    pub(crate) fn asked(&self) -> u8 {
        self.version.min(CARD_VERSION)
    }

    pub(crate) fn encode(&self) -> [u8; LEN] {
        let [a, b] = self.port.to_be_bytes();
        let [c, d, e, f] = self.pid.to_be_bytes();
        [self.version, self.features, a, b, c, d, e, f]
    }

    /// Reads the card of a greeting.
    ///
    /// # Errors
    /// When there is none. The private data of a stock libfabric's endpoint is a card and nothing
    /// else: other private data comes from a layer over connections, `ofi_rxm`'s has 24 bytes.
    pub(crate) fn of(hello: &Hello) -> Result<Self, Nonsense> {
        match hello.introduction {
            None if hello.data.len() != LEN => Err(Nonsense("a greeting of another layer")),
            _ => Self::parse(&hello.data),
        }
    }

    /// # Errors
    /// When there are not as many bytes. What is behind them means nothing.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, Nonsense> {
        if data.len() < LEN {
            return Err(Nonsense("a greeting that does not say who sends it"));
        }
        Ok(Self {
            version: byte_at(data, 0),
            features: byte_at(data, 1),
            port: u16::from_be_bytes(bytes_at(data, 2)),
            pid: u32::from_be_bytes(bytes_at(data, 4)),
        })
    }
}

/// What both ends of a connection have agreed on, and which peer the other one is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) order: Order,
    /// Offers of tagged messages may be sent.
    pub(crate) offers: bool,
    /// The peer is a Selvedge endpoint: its life.
    pub(crate) life: Option<u64>,
    pub(crate) pid: u32,
}

impl Terms {
    /// What is spoken after this greeting of a peer, in this version of the card.
    pub(crate) fn new(hello: &Hello, card: Option<&Card>, version: u8) -> Self {
        Self {
            order: hello.order,
            // Ends of different orders have never understood each other's offers.
            offers: version > 0 && hello.order == Order::Own,
            life: hello.introduction.map(|it| it.life),
            pid: card.map_or(0, |card| card.pid),
        }
    }

    /// Whether the peer knows the frames that libfabric does not have.
    pub(crate) const fn knows(&self) -> bool {
        self.life.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request of libfabric 2.7, as it was seen on the wire.
    const SEEN: [u8; 40] = [
        3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0,
        0, 0, 1, 0, 0xa0, 0xf5, 0, 0, 0x0a, 0x63,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn greetings_are_libfabric_s_to_the_byte() {
        let (hello, len) = Hello::parse(&SEEN).unwrap().unwrap();
        assert_eq!(
            (hello.kind, hello.order, len),
            (Kind::Request, Order::Own, 40)
        );
        assert_eq!(hello.introduction, None);
        assert_eq!(hello.encode(), SEEN);
        let card = Card::parse(&hello.data).unwrap();
        assert_eq!((card.version, card.port, card.pid), (1, 41205, 0x0a63));
        assert_eq!(card.encode(), SEEN[32..]);
        assert_eq!(card.answer().encode()[..4], [0x81, 0, 0xa0, 0xf5]);
        let refusal = Hello::new(Kind::Refusal, None, &hello.data).encode();
        assert_eq!(refusal[..2], [3, 6]);
        assert_eq!(refusal[24..32], [0; 8]);
    }

    #[test]
    fn versions_are_agreed_on_as_every_release_does() {
        let card = |version| Card {
            version,
            ..Card::request(1)
        };
        // What was asked, what is answered.
        for (asked, answer) in [(0, 0), (1, 0x81), (2, 0x81), (255, 0x81)] {
            assert_eq!(card(asked).answer().version, answer);
        }
        // What is answered, what is spoken then: a plain echo is no answer.
        for (answer, spoken) in [(0, 0), (1, 0), (0x81, 1), (0x82, 0)] {
            assert_eq!(card(answer).answered(), spoken);
        }
    }

    #[test]
    fn an_introduction_survives_and_a_stock_peer_has_none() {
        let own = Introduction {
            context: 3,
            ..Introduction::new()
        };
        let bytes = Hello::new(Kind::Answer, Some(own), b"data").encode();
        let (hello, _) = Hello::parse(&bytes).unwrap().unwrap();
        assert_eq!(hello.introduction, Some(own));
        assert_eq!(hello.data, b"data");
    }

    /// The private data of a request of libfabric 1.17's `tcp;ofi_rxm`, as it was seen on the wire.
    const SEEN_OF_RXM: [u8; 24] = [
        1, 2, 4, 3, 0xa1, 0xaa, 2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x55, 0x14, 0, 0,
    ];

    #[test]
    fn a_request_of_another_layer_has_no_card() {
        let card = |data| Card::of(&Hello::new(Kind::Request, None, data));
        assert_eq!(card(&SEEN[32..]).unwrap().port, 41205);
        card(&SEEN_OF_RXM).unwrap_err();
        card(&[]).unwrap_err();
        let own = Hello::new(Kind::Request, Some(Introduction::new()), &SEEN_OF_RXM);
        Card::of(&own).unwrap();
    }

    #[test]
    fn the_other_byte_order_is_noticed() {
        let mut bytes = SEEN;
        bytes[24..32].reverse();
        let (hello, _) = Hello::parse(&bytes).unwrap().unwrap();
        assert_eq!(hello.order, Order::Network);
    }

    #[test]
    fn nonsense_is_noticed_at_its_first_byte() {
        for bytes in [&b"GET / HTTP/1.1"[..], &[3, 2], &[2], &[3, 7, 0, 0]] {
            Hello::parse(bytes).unwrap_err();
        }
        let mut long = SEEN;
        long[2..4].copy_from_slice(&257_u16.to_be_bytes());
        Hello::parse(&long).unwrap_err();
        Card::parse(&SEEN[..7]).unwrap_err();
    }

    proptest! {
        #[test]
        fn greetings_survive_the_way_in_any_pieces(
            data in prop::collection::vec(any::<u8>(), 0..=DATA_MAX),
            cut in any::<prop::sample::Index>(),
            behind in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let hello = Hello::new(Kind::Request, Some(Introduction::new()), &data);
            let mut bytes = hello.encode();
            let len = bytes.len();
            prop_assert_eq!(Hello::parse(&bytes[..cut.index(len)]), Ok(None));
            bytes.extend(behind);
            prop_assert_eq!(Hello::parse(&bytes), Ok(Some((hello, len))));
        }

        #[test]
        fn any_bytes_are_a_greeting_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            if let Ok(Some((hello, len))) = Hello::parse(&bytes) {
                prop_assert!(len <= bytes.len());
                prop_assert_eq!(len, HEADER + hello.data.len());
            }
            let _ = Card::parse(&bytes);
        }
    }
}
