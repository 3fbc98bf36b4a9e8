//! The exchange of addresses between client and server: by messages over the fabric, if the
//! client knows the server's address and sends its own address, or over the out-of-band connection.
//!
//! Over datagrams, the client's message and the server's response may be lost. The client repeats
//! its message until a response arrives, and the server responds to a repeated message with the
//! same bytes. By these bytes, both sides distinguish late handshake messages from others.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::{Address, Errno};
use selvedge_testkit::failure::{errno, failure};

use super::{CONTROL, Channel};
use crate::upstream::setup::domain;

/// The time in which a client tries to reach a server that has not opened its endpoint yet.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// The time that a client waits for a response that may be lost.
const REPEAT: Duration = Duration::from_millis(100);

impl Channel {
    /// Exchanges addresses with the peer.
    ///
    /// # Errors
    /// The peer does not respond, or its address is invalid.
    pub(in crate::upstream) fn handshake(&mut self) -> anyhow::Result<()> {
        if let Some(oob) = &mut self.oob {
            let name = self.endpoint.name()?;
            let from_peer = oob.exchange(&name)?;
            return self.insert_peer(&from_peer);
        }
        if self.is_client() {
            self.handshake_as_client()
        } else {
            self.handshake_as_server()
        }
    }

    /// Inserts the peer's address into the address vector.
    ///
    /// # Errors
    /// The bytes are no address, or the provider refuses it.
    pub(in crate::upstream) fn insert_peer(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let zero = bytes.iter().position(|&byte| byte == 0);
        let text = zero.map(|zero| &bytes[..=zero]).unwrap_or(bytes);
        let address = Address::from_bytes(text)
            .with_context(|| format!("the peer's address is invalid: {bytes:?}"))?;
        self.insert_address(&address)
    }

    fn insert_address(&mut self, address: &Address) -> anyhow::Result<()> {
        let peer = self.endpoint.av.insert_one(address);
        self.peer = peer.with_context(|| format!("cannot insert the address {address}"))?;
        Ok(())
    }

    /// Runs the client's part: sends its address, and waits for the response.
    fn handshake_as_client(&mut self) -> anyhow::Result<()> {
        let server = self.domain().info().dest_addr.clone();
        self.insert_address(&server.context("fi_getinfo gives no address of the server")?)?;
        let name = self.endpoint.name()?;
        if self.may_lose() {
            self.send_until_response(&name)?
        } else {
            self.send_until_reachable(&name)?;
            self.receive()?;
        }
        self.clear_log();
        Ok(())
    }

    /// Sends bytes to a server that may not be reachable yet.
    fn send_until_reachable(&mut self, name: &[u8]) -> anyhow::Result<()> {
        let (start, sent_before) = (Instant::now(), self.sent_counts());
        let mut first_error = None;
        while let Err(error) = self.send_bytes(name) {
            let absent = [Errno::ConnRefused, Errno::HostUnreach, Errno::NotConn];
            let is_absent = absent.contains(&errno(&error));
            let error = first_error.get_or_insert(error);
            if !is_absent || start.elapsed() > CONNECT_TIMEOUT {
                return Err(failure(
                    errno(error),
                    format!("cannot reach the server: {error}"),
                ));
            }
            self.restore_sends(sent_before);
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Sends the address until a response arrives.
    fn send_until_response(&mut self, name: &[u8]) -> anyhow::Result<()> {
        let (start, timeout) = (Instant::now(), domain::timeout(&self.options));
        let with_short_limit = self
            .endpoint
            .rx
            .with_strategy(|strategy| strategy.at_most(REPEAT));
        let rx = std::mem::replace(&mut self.endpoint.rx, with_short_limit);
        let response = loop {
            let sent = self.sent;
            let response = self
                .send_until_reachable(name)
                .and_then(|()| self.receive());
            let has_timed_out = response
                .as_ref()
                .is_err_and(|error| errno(error) == Errno::TimedOut);
            if !has_timed_out || start.elapsed() > timeout {
                break response;
            }
            // The repetition has the same message number.
            self.sent = sent;
        };
        self.endpoint.rx = rx;
        self.handshake_message = Some(name.to_vec());
        response.context("the server does not respond")
    }

    /// Returns whether messages may be lost.
    fn may_lose(&self) -> bool {
        self.domain().info().ep_attr.ep_type == EpType::Dgram
    }

    /// Returns whether a received message repeats the handshake, as a repeated address or as a late
    /// response. Such a message is not counted.
    ///
    /// # Errors
    /// The response cannot be sent.
    pub(in crate::upstream) fn is_repeated_handshake(
        &mut self,
        entry: &Entry,
    ) -> anyhow::Result<bool> {
        let Some(handshake_message) = &self.handshake_message else {
            return Ok(false);
        };
        if entry.len != handshake_message.len() || self.preposted_bytes(entry) != *handshake_message
        {
            return Ok(false);
        }
        let handshake_message = handshake_message.clone();
        self.repost(entry.context.0)?;
        if !self.is_client() {
            let sent = self.sent;
            self.send_bytes(&handshake_message)?;
            self.sent = sent;
        }
        Ok(true)
    }

    /// Runs the server's part: waits for a client, and responds.
    fn handshake_as_server(&mut self) -> anyhow::Result<()> {
        let rx = self
            .endpoint
            .rx
            .with_strategy(|strategy| strategy.endless());
        let rx = std::mem::replace(&mut self.endpoint.rx, rx);
        let client = if self.may_lose() {
            self.receive_whole()
        } else {
            self.receive_bytes(CONTROL)
        };
        self.endpoint.rx = rx;
        let client = client?;
        self.insert_peer(&client)?;
        if self.may_lose() {
            self.handshake_message = Some(client);
        }
        self.send_bytes(&[0])?;
        self.clear_log();
        Ok(())
    }
}
