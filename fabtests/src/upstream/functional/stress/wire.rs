//! The requests that clients of the stress test send to the server, as bytes.

use anyhow::{Context as _, ensure};
use selvedge_testkit::domain::Remote;

/// The kind of a request: what the server does before it responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    /// Registers the client.
    Hello = 1,
    /// Forgets the client.
    Leave = 2,
    /// Responds with an untagged message of the requested size.
    Msg = 3,
    /// Responds with a tagged message of the requested size.
    Tag = 4,
    /// Reads the client's memory.
    Read = 5,
    /// Writes to the client's memory.
    Write = 6,
    /// Ends itself, if clients may stop it.
    Stop = 7,
}

/// A request, which is an untagged message. The response to [`Kind::Msg`] is an untagged message
/// too. All other responses are messages tagged with the number of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) client: u32,
    pub(super) number: u64,
    pub(super) size: usize,
    /// The memory of the client that a read or a write accesses.
    pub(super) remote: Remote,
    /// The client's address in its first request, and nothing in later ones.
    pub(super) name: Vec<u8>,
}

/// The length of a request without the name.
const HEADER: usize = 48;
/// The length of the longest request.
pub(super) const LONGEST: usize = 512;
/// The length of a response without data.
pub(super) const RESPONSE: usize = 8;

impl Request {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LONGEST);
        bytes.extend((self.kind as u32).to_le_bytes());
        bytes.extend(self.client.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend((self.size as u64).to_le_bytes());
        bytes.extend(self.remote.to_bytes());
        bytes.extend((self.name.len() as u64).to_le_bytes());
        bytes.extend(&self.name);
        bytes
    }

    /// Parses a request.
    ///
    /// # Errors
    /// When the bytes are not a request.
    pub(super) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        ensure!(
            bytes.len() >= HEADER,
            "the request has {} bytes, fewer than a request's header",
            bytes.len()
        );
        let u32_at = |at: usize| -> anyhow::Result<u32> {
            Ok(u32::from_le_bytes(bytes[at..at + 4].try_into()?))
        };
        let u64_at = |at: usize| -> anyhow::Result<u64> {
            Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
        };
        let kinds = [
            Kind::Hello,
            Kind::Leave,
            Kind::Msg,
            Kind::Tag,
            Kind::Read,
            Kind::Write,
            Kind::Stop,
        ];
        let kind_number = u32_at(0)?;
        let kind = kinds.into_iter().find(|kind| *kind as u32 == kind_number);
        let size = u64_at(16)? as usize;
        ensure!(
            size <= super::script::MAX_SIZE,
            "the request is for {size} bytes, more than the limit"
        );
        let len = u64_at(40)? as usize;
        let name = bytes[HEADER..]
            .get(..len)
            .context("the name in the request is truncated")?;
        Ok(Self {
            kind: kind
                .with_context(|| format!("the request has the unknown kind {kind_number}"))?,
            client: u32_at(4)?,
            number: u64_at(8)?,
            size,
            remote: Remote::from_bytes(&bytes[24..40])?,
            name: name.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_decode_and_invalid_bytes_are_refused() {
        let request = Request {
            kind: Kind::Write,
            client: 3,
            number: 9,
            size: 1000,
            remote: Remote { addr: 5, key: 6 },
            name: b"fi_shm://x\0".to_vec(),
        };
        let bytes = request.to_bytes();
        assert_eq!(Request::from_bytes(&bytes).unwrap(), request);
        for bad in [&bytes[..20], &bytes[..50], &[0xff; 60]] {
            Request::from_bytes(bad).unwrap_err();
        }
    }
}
