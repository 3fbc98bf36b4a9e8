//! What clients ask a server for.

use anyhow::{Context as _, ensure};
use selvedge_testkit::domain::Remote;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Hello = 1,
    Goodbye = 2,
    Msg = 3,
    Tag = 4,
    Read = 5,
    Write = 6,
    Stop = 7,
}

/// A request. Requests are untagged messages; what answers them, but messages, is tagged with their
/// number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) client: u32,
    pub(super) number: u64,
    pub(super) size: usize,
    /// The client's memory.
    pub(super) remote: Remote,
    /// The client's address, in the first request.
    pub(super) name: Vec<u8>,
}

const HEAD: usize = 48;
/// The longest request.
pub(super) const LONGEST: usize = 512;
/// Bytes of an answer that has no others.
pub(super) const ANSWER: usize = 8;

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

    /// # Errors
    /// When the bytes are no request.
    pub(super) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        ensure!(bytes.len() >= HEAD, "a request of {} bytes", bytes.len());
        let half = |at: usize| -> anyhow::Result<u32> {
            Ok(u32::from_le_bytes(bytes[at..at + 4].try_into()?))
        };
        let word = |at: usize| -> anyhow::Result<u64> {
            Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
        };
        let kinds = [
            Kind::Hello,
            Kind::Goodbye,
            Kind::Msg,
            Kind::Tag,
            Kind::Read,
            Kind::Write,
            Kind::Stop,
        ];
        let number = half(0)?;
        let kind = kinds.into_iter().find(|kind| *kind as u32 == number);
        let size = word(16)? as usize;
        ensure!(size <= super::script::MOST, "a request for {size} bytes");
        let len = word(40)? as usize;
        let name = bytes[HEAD..]
            .get(..len)
            .context("a name that is cut short")?;
        Ok(Self {
            kind: kind.with_context(|| format!("a request of kind {number}"))?,
            client: half(4)?,
            number: word(8)?,
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
    fn requests_are_what_they_were_and_others_are_refused() {
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
