//! `Greeting`: the payload of `Hello` and `Welcome`, and `Refusal`: the payload of `Refuse`.

use super::Malformed;

/// The version of the wire format. Its place in a greeting, and that of the magic number, are the
/// same in every version.
pub(crate) const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"selv-svc";

/// The limits of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The number of messages that the receiver keeps for its application.
    pub(crate) messages: u16,
    /// The memory of announced messages that the receiver keeps for its application, in blocks of
    /// 4096 bytes.
    pub(crate) blocks: u32,
    /// The length of the longest message, in bytes.
    pub(crate) message_len: u64,
}

/// The first payload of each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting<'a> {
    /// The version of the sender.
    pub(crate) version: u32,
    /// `None` if the sender has another version: only the version is then known.
    pub(crate) limits: Option<Limits>,
    /// The sender's address, as the sender states it; empty where the transport reports it.
    pub(crate) address: &'a [u8],
}

impl<'a> Greeting<'a> {
    /// Parses a greeting. A greeting of another version has no limits.
    ///
    /// # Errors
    /// [`Malformed`] for any other bytes.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<Self, Malformed> {
        let short = Malformed::Greeting(payload.len());
        let (magic, rest) = payload.split_first_chunk::<8>().ok_or(short)?;
        if *magic != MAGIC {
            return Err(Malformed::Magic);
        }
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Ok(Self {
                version,
                limits: None,
                address: &[],
            });
        }
        let (&[m0, m1, _, _], rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let (blocks, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let (_, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
        let (message_len, address) = rest.split_first_chunk::<8>().ok_or(short)?;
        let limits = Limits {
            messages: u16::from_le_bytes([m0, m1]),
            blocks: u32::from_le_bytes(*blocks),
            message_len: u64::from_le_bytes(*message_len),
        };
        if limits.messages == 0 {
            return Err(Malformed::Window);
        }
        Ok(Self {
            version,
            limits: Some(limits),
            address,
        })
    }

    /// The bytes of the greeting of a receiver with these limits, and with its address where the
    /// transport does not report it.
    pub(crate) fn encode(limits: Limits, version: u32, address: &[u8]) -> Vec<u8> {
        [
            &MAGIC[..],
            &version.to_le_bytes(),
            &limits.messages.to_le_bytes(),
            &[0; 2],
            &limits.blocks.to_le_bytes(),
            &[0; 4],
            &limits.message_len.to_le_bytes(),
            address,
        ]
        .concat()
    }
}

/// The payload of `Refuse`: the reason why a server does not accept a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server has another version, this one.
    Version(u32),
    /// Any other reason.
    Other(String),
}

impl Refusal {
    /// Parses a refusal, with the header's id as its code.
    pub(crate) fn parse(code: u64, text: &[u8]) -> Self {
        match u32::try_from(code) {
            Ok(version) if version > 0 => Self::Version(version),
            _ => Self::Other(String::from_utf8_lossy(text).into_owned()),
        }
    }

    /// The code: the header's id.
    pub(crate) fn code(&self) -> u64 {
        match self {
            Self::Version(version) => u64::from(*version),
            Self::Other(_) => 0,
        }
    }

    /// The payload.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Version(_) => "",
            Self::Other(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        messages: 64,
        blocks: 2048,
        message_len: 1 << 26,
    };

    #[test]
    fn a_greeting_is_parsed_as_it_was_encoded() {
        for address in [&b""[..], b"192.0.2.7:7000"] {
            let bytes = Greeting::encode(LIMITS, VERSION, address);
            let greeting = Greeting::parse(&bytes).unwrap();
            assert_eq!((greeting.version, greeting.limits), (VERSION, Some(LIMITS)));
            assert_eq!(greeting.address, address);
        }
    }

    #[test]
    fn a_greeting_of_another_version_is_recognized_by_its_first_bytes() {
        let bytes = [&MAGIC[..], &77_u32.to_le_bytes()].concat();
        let greeting = Greeting::parse(&bytes).unwrap();
        assert_eq!((greeting.version, greeting.limits), (77, None));
    }

    #[test]
    fn greetings_of_any_bytes_are_parsed_or_refused() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..100_000 {
            let mut bytes = Greeting::encode(LIMITS, VERSION, b"192.0.2.7:1");
            bytes.truncate(random.usize(..=bytes.len()));
            for _ in 0..random.usize(..4) {
                let index = random.usize(..bytes.len().max(1));
                if let Some(byte) = bytes.get_mut(index) {
                    *byte = random.u8(..);
                }
            }
            if let Ok(greeting) = Greeting::parse(&bytes) {
                assert_eq!(greeting.version == VERSION, greeting.limits.is_some());
            }
        }
    }

    #[test]
    fn a_refusal_keeps_its_version_or_its_text() {
        for refusal in [Refusal::Version(3), Refusal::Other("full".into())] {
            let parsed = Refusal::parse(refusal.code(), refusal.text().as_bytes());
            assert_eq!(parsed, refusal);
        }
    }
}
