//! `Hello`: the messages that establish a connection: a request, and a response or a rejection.
//!
//! A hello message has a header of 32 bytes and up to 256 bytes of private data: the application's,
//! or an [`RdmData`] for endpoints without connections (`FI_EP_RDM`). Header fields that libfabric
//! leaves zero and never reads carry the [`Extension`] of a Selvedge endpoint.

use std::hash::{BuildHasher, RandomState};

use super::{ByteOrder, ProtocolError, byte_at, bytes_at};

/// The length of the header.
pub(crate) const HEADER: usize = 32;
/// The maximum length of private data.
pub(crate) const DATA_MAX: usize = 256;
const VERSION: u8 = 3;
/// `SLVG`, where libfabric has a zero.
const MAGIC: u32 = 0x534c_5647;

/// The type of a hello message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Response,
    Reject,
}

/// A complete hello message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    /// The byte order of all later numbers. A rejection does not carry the byte order.
    pub(crate) order: ByteOrder,
    pub(crate) extension: Option<Extension>,
    pub(crate) data: Vec<u8>,
}

/// The fields that a Selvedge endpoint adds to its hello messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extension {
    /// A random number, never 0, that distinguishes two incarnations of one address.
    pub(crate) incarnation: u64,
    /// The supported extensions, as FEATURE_ flags.
    pub(crate) features: u32,
    /// The number of the context within its scalable endpoint, 0 for an ordinary endpoint. Context
    /// `n` listens at the port of context 0 plus `n`.
    pub(crate) context: u16,
}

/// The flag of an endpoint that supports the extension frames of [`super::frame`].
pub(crate) const FEATURE_EXTENSION_FRAMES: u32 = 1;

impl Extension {
    /// Creates the extension of a new endpoint, with a random incarnation.
    pub(crate) fn new() -> Self {
        Self {
            incarnation: RandomState::new().hash_one(std::process::id()) | 1,
            features: FEATURE_EXTENSION_FRAMES,
            context: 0,
        }
    }

    /// Encodes the word after the incarnation: 16 zero bits, the context, the features.
    fn encode(&self) -> u64 {
        u64::from(self.context) << u32::BITS | u64::from(self.features)
    }
}

impl Hello {
    pub(crate) fn new(kind: Kind, extension: Option<Extension>, data: &[u8]) -> Self {
        Self {
            kind,
            order: ByteOrder::Native,
            extension,
            data: data.to_vec(),
        }
    }

    /// Encodes the message. The caller must send the message with one call, because libfabric does
    /// not reassemble fragments.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Request => 0,
            Kind::Response => 1,
            Kind::Reject => 6,
        };
        let len = u16::try_from(self.data.len()).unwrap_or(u16::MAX);
        let (magic, incarnation, capabilities) = match self.extension {
            Some(extension) => (MAGIC, extension.incarnation, extension.encode()),
            None => (0, 0, 0),
        };
        let order_mark = u64::from(self.kind != Kind::Reject);
        let mut bytes = vec![VERSION, kind];
        bytes.extend(len.to_be_bytes());
        bytes.extend(magic.to_be_bytes());
        bytes.extend(incarnation.to_be_bytes());
        bytes.extend(capabilities.to_be_bytes());
        bytes.extend(order_mark.to_ne_bytes());
        bytes.extend(&self.data);
        bytes
    }

    /// Parses the message at the front of `bytes`. Returns the message and its length, or `None`
    /// while the message is incomplete.
    ///
    /// # Errors
    /// When the bytes do not begin a hello message; the first wrong byte is enough.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProtocolError> {
        let is_wrong = |offset: usize, allowed: &[u8]| {
            bytes
                .get(offset)
                .is_some_and(|byte| !allowed.contains(byte))
        };
        if is_wrong(0, &[VERSION]) {
            return Err(ProtocolError("a hello message of another version"));
        }
        if is_wrong(1, &[0, 1, 6]) {
            return Err(ProtocolError("a hello message of unknown type"));
        }
        if bytes.len() < HEADER {
            return Ok(None);
        }
        let len = usize::from(u16::from_be_bytes(bytes_at(bytes, 2)));
        if len > DATA_MAX {
            return Err(ProtocolError("a hello message with too much private data"));
        }
        let Some(data) = bytes.get(HEADER..).and_then(|data| data.get(..len)) else {
            return Ok(None);
        };
        let hello = Self {
            kind: match byte_at(bytes, 1) {
                0 => Kind::Request,
                1 => Kind::Response,
                _ => Kind::Reject,
            },
            order: match u64::from_ne_bytes(bytes_at(bytes, 24)) {
                1 => ByteOrder::Native,
                _ => ByteOrder::Network,
            },
            extension: parse_extension(bytes),
            data: data.to_vec(),
        };
        Ok(Some((hello, HEADER.saturating_add(len))))
    }
}

/// Returns the extension in the header, or `None` for the header of a stock libfabric.
fn parse_extension(bytes: &[u8]) -> Option<Extension> {
    let magic = u32::from_be_bytes(bytes_at(bytes, 4));
    let incarnation = u64::from_be_bytes(bytes_at(bytes, 8));
    (magic == MAGIC && incarnation != 0).then(|| Extension {
        incarnation,
        features: u32::from_be_bytes(bytes_at(bytes, 20)),
        context: u16::from_be_bytes(bytes_at(bytes, 18)),
    })
}

/// The private data of an `FI_EP_RDM` endpoint's hello messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RdmData {
    /// In a request, the newest version that the sender supports; in a response, the version to
    /// use, with [`RESPONSE_FLAG`].
    pub(crate) version: u8,
    pub(crate) features: u8,
    /// The port at which the requesting endpoint listens.
    pub(crate) port: u16,
    pub(crate) pid: u32,
}

/// The length of an encoded [`RdmData`].
const RDM_DATA_LEN: usize = 8;
/// Marks a version as a response. Releases that do not negotiate versions echo the request.
const RESPONSE_FLAG: u8 = 0x80;
/// The newest version, which adds RTS for tagged messages.
pub(crate) const RDM_VERSION: u8 = 1;
/// The features that a response may return; the only one is "behind a firewall".
const KNOWN_FEATURES: u8 = 1;

impl RdmData {
    /// The data of a request from an endpoint that listens at this port.
    pub(crate) fn request(port: u16) -> Self {
        Self {
            version: RDM_VERSION,
            features: 0,
            port,
            pid: std::process::id(),
        }
    }

    /// The data of the response to this request.
    pub(crate) fn response(&self) -> Self {
        let version = self.version.min(RDM_VERSION);
        Self {
            version: if version == 0 {
                0
            } else {
                RESPONSE_FLAG | version
            },
            features: self.features & KNOWN_FEATURES,
            port: self.port,
            pid: std::process::id(),
        }
    }

    /// The version to use after this response.
    pub(crate) fn version_after_response(&self) -> u8 {
        u8::from(self.version == RESPONSE_FLAG | RDM_VERSION)
    }

    /// The version to use after this request, if it is accepted.
    pub(crate) fn version_after_request(&self) -> u8 {
        self.version.min(RDM_VERSION)
    }

    pub(crate) fn encode(&self) -> [u8; RDM_DATA_LEN] {
        let [a, b] = self.port.to_be_bytes();
        let [c, d, e, f] = self.pid.to_be_bytes();
        [self.version, self.features, a, b, c, d, e, f]
    }

    /// Parses the data of a hello message.
    ///
    /// # Errors
    /// When a stock peer's private data have another length. A stock libfabric endpoint sends
    /// exactly these data. Private data of another length come from a protocol layer over
    /// connections; those of `ofi_rxm` have 24 bytes.
    pub(crate) fn from_hello(hello: &Hello) -> Result<Self, ProtocolError> {
        match hello.extension {
            None if hello.data.len() != RDM_DATA_LEN => {
                Err(ProtocolError("a hello message of another protocol layer"))
            }
            _ => Self::parse(&hello.data),
        }
    }

    /// Parses private data. Bytes after the first [`RDM_DATA_LEN`] are ignored.
    ///
    /// # Errors
    /// When the data are shorter.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, ProtocolError> {
        if data.len() < RDM_DATA_LEN {
            return Err(ProtocolError("a hello message without port and process id"));
        }
        Ok(Self {
            version: byte_at(data, 0),
            features: byte_at(data, 1),
            port: u16::from_be_bytes(bytes_at(data, 2)),
            pid: u32::from_be_bytes(bytes_at(data, 4)),
        })
    }
}

/// The parameters that both sides of a connection have negotiated, and the identity of the peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiated {
    pub(crate) order: ByteOrder,
    /// Whether RTS frames may be sent.
    pub(crate) has_rts: bool,
    /// The incarnation of a Selvedge endpoint; `None` for a stock libfabric.
    pub(crate) incarnation: Option<u64>,
    pub(crate) pid: u32,
}

impl Negotiated {
    /// Derives the parameters from the peer's hello message, and the negotiated version.
    pub(crate) fn new(hello: &Hello, rdm_data: Option<&RdmData>, version: u8) -> Self {
        Self {
            order: hello.order,
            // RTS has never worked between sides of different byte order.
            has_rts: version > 0 && hello.order == ByteOrder::Native,
            incarnation: hello.extension.map(|it| it.incarnation),
            pid: rdm_data.map_or(0, |rdm_data| rdm_data.pid),
        }
    }

    /// Whether the peer supports the extension frames.
    pub(crate) const fn has_extensions(&self) -> bool {
        self.incarnation.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request of libfabric 2.7, recorded on the wire.
    const RECORDED_REQUEST: [u8; 40] = [
        3, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0,
        0, 0, 1, 0, 0xa0, 0xf5, 0, 0, 0x0a, 0x63,
    ];

    #[test]
    #[cfg(target_endian = "little")]
    fn hellos_match_libfabric_byte_for_byte() {
        let (hello, len) = Hello::parse(&RECORDED_REQUEST).unwrap().unwrap();
        assert_eq!(
            (hello.kind, hello.order, len),
            (Kind::Request, ByteOrder::Native, 40)
        );
        assert_eq!(hello.extension, None);
        assert_eq!(hello.encode(), RECORDED_REQUEST);
        let rdm_data = RdmData::parse(&hello.data).unwrap();
        assert_eq!(
            (rdm_data.version, rdm_data.port, rdm_data.pid),
            (1, 41205, 0x0a63)
        );
        assert_eq!(rdm_data.encode(), RECORDED_REQUEST[32..]);
        assert_eq!(rdm_data.response().encode()[..4], [0x81, 0, 0xa0, 0xf5]);
        let rejection = Hello::new(Kind::Reject, None, &hello.data).encode();
        assert_eq!(rejection[..2], [3, 6]);
        assert_eq!(rejection[24..32], [0; 8]);
    }

    #[test]
    fn versions_are_negotiated_as_in_every_release() {
        let rdm_data = |version| RdmData {
            version,
            ..RdmData::request(1)
        };
        // Requested version, version in the response.
        for (requested, response) in [(0, 0), (1, 0x81), (2, 0x81), (255, 0x81)] {
            assert_eq!(rdm_data(requested).response().version, response);
        }
        // Version in the response, version to use. An echo is not a response.
        for (response, version) in [(0, 0), (1, 0), (0x81, 1), (0x82, 0)] {
            assert_eq!(rdm_data(response).version_after_response(), version);
        }
    }

    #[test]
    fn an_extension_round_trips_and_a_stock_peer_has_none() {
        let extension = Extension {
            context: 3,
            ..Extension::new()
        };
        let bytes = Hello::new(Kind::Response, Some(extension), b"data").encode();
        let (hello, _) = Hello::parse(&bytes).unwrap().unwrap();
        assert_eq!(hello.extension, Some(extension));
        assert_eq!(hello.data, b"data");
    }

    /// The private data of a request of libfabric 1.17's `tcp;ofi_rxm`, recorded on the wire.
    const RECORDED_RXM_DATA: [u8; 24] = [
        1, 2, 4, 3, 0xa1, 0xaa, 2, 0, 0, 0x40, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x55, 0x14, 0, 0,
    ];

    #[test]
    fn a_request_of_another_layer_has_no_rdm_data() {
        let rdm_data = |data| RdmData::from_hello(&Hello::new(Kind::Request, None, data));
        assert_eq!(rdm_data(&RECORDED_REQUEST[32..]).unwrap().port, 41205);
        rdm_data(&RECORDED_RXM_DATA).unwrap_err();
        rdm_data(&[]).unwrap_err();
        let extended = Hello::new(Kind::Request, Some(Extension::new()), &RECORDED_RXM_DATA);
        RdmData::from_hello(&extended).unwrap();
    }

    #[test]
    fn the_byte_order_of_a_request_is_detected() {
        let mut bytes = RECORDED_REQUEST;
        bytes[24..32].reverse();
        let (hello, _) = Hello::parse(&bytes).unwrap().unwrap();
        assert_eq!(hello.order, ByteOrder::Network);
    }

    #[test]
    fn malformed_hellos_fail_at_the_first_wrong_byte() {
        for bytes in [&b"GET / HTTP/1.1"[..], &[3, 2], &[2], &[3, 7, 0, 0]] {
            Hello::parse(bytes).unwrap_err();
        }
        let mut long = RECORDED_REQUEST;
        long[2..4].copy_from_slice(&257_u16.to_be_bytes());
        Hello::parse(&long).unwrap_err();
        RdmData::parse(&RECORDED_REQUEST[..7]).unwrap_err();
    }

    proptest! {
        #[test]
        fn hellos_round_trip_in_any_fragments(
            data in prop::collection::vec(any::<u8>(), 0..=DATA_MAX),
            cut in any::<prop::sample::Index>(),
            trailing in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let hello = Hello::new(Kind::Request, Some(Extension::new()), &data);
            let mut bytes = hello.encode();
            let len = bytes.len();
            prop_assert_eq!(Hello::parse(&bytes[..cut.index(len)]), Ok(None));
            bytes.extend(trailing);
            prop_assert_eq!(Hello::parse(&bytes), Ok(Some((hello, len))));
        }

        #[test]
        fn any_bytes_parse_as_a_hello_or_fail(
            bytes in prop::collection::vec(any::<u8>(), 0..400)
        ) {
            if let Ok(Some((hello, len))) = Hello::parse(&bytes) {
                prop_assert!(len <= bytes.len());
                prop_assert_eq!(len, HEADER + hello.data.len());
            }
            let _ = RdmData::parse(&bytes);
        }
    }
}
