//! How client and server learn each other's addresses: over the fabric, where the client knows the
//! server's and says its own, or over the connection beside it.
//!
//! Over datagrams either word may be lost. The client repeats its own until it is answered, and a
//! server that hears it once more answers with the same bytes: late answers are told from messages by
//! them.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::{Address, Errno};
use selvedge_testkit::failure::{errno, failure};

use super::channel::{CONTROL, Channel};
use super::ground;

/// How long a client tries to reach a server that has not opened its endpoint yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a client waits for an answer that may be lost.
const REPEAT: Duration = Duration::from_millis(100);

impl Channel {
    /// Learns who the peer is.
    ///
    /// # Errors
    /// When it does not answer, or its address is none.
    pub(super) fn meet(&mut self) -> anyhow::Result<()> {
        if let Some(oob) = &mut self.oob {
            let own = self.end.name()?;
            let theirs = oob.exchange(&own)?;
            return self.know(&theirs);
        }
        match self.is_client() {
            true => self.call(),
            false => self.listen(),
        }
    }

    /// Inserts the peer's address.
    ///
    /// # Errors
    /// When it is none.
    pub(super) fn know(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let end = bytes.iter().position(|&byte| byte == 0);
        let text = end.map(|end| &bytes[..=end]).unwrap_or(bytes);
        let address = Address::from_bytes(text)
            .with_context(|| format!("the peer's address is none: {bytes:?}"))?;
        self.know_address(&address)
    }

    fn know_address(&mut self, address: &Address) -> anyhow::Result<()> {
        let peer = self.end.av.insert_one(address);
        self.peer = peer.with_context(|| format!("address {address} is refused"))?;
        Ok(())
    }

    /// The client's part: it says its address, and waits for an answer.
    fn call(&mut self) -> anyhow::Result<()> {
        let server = self.ground().info().dest_addr.clone();
        self.know_address(&server.context("the server's address is not known")?)?;
        let own = self.end.name()?;
        match self.may_lose() {
            true => self.repeat(&own)?,
            false => {
                self.reach(&own)?;
                self.receive()?;
            }
        }
        self.forget();
        Ok(())
    }

    /// Says something to a server that may not be there yet.
    fn reach(&mut self, own: &[u8]) -> anyhow::Result<()> {
        let (start, mark) = (Instant::now(), self.mark());
        let mut first = None;
        while let Err(error) = self.say(own) {
            let absent = [Errno::ConnRefused, Errno::HostUnreach, Errno::NotConn];
            let is_absent = absent.contains(&errno(&error));
            let error = first.get_or_insert(error);
            if !is_absent || start.elapsed() > PATIENCE {
                return Err(failure(
                    errno(error),
                    format!("cannot reach the server: {error}"),
                ));
            }
            self.go_back_to(mark);
            sleep(PAUSE);
        }
        Ok(())
    }

    /// Says it until there is an answer.
    fn repeat(&mut self, own: &[u8]) -> anyhow::Result<()> {
        let (start, patience) = (Instant::now(), ground::timeout(&self.options));
        let brief = self.end.rx.with_strategy(|manner| manner.at_most(REPEAT));
        let rx = std::mem::replace(&mut self.end.rx, brief);
        let answered = loop {
            let sent = self.sent;
            let answered = self.reach(own).and_then(|()| self.receive());
            let is_silent = answered
                .as_ref()
                .is_err_and(|error| errno(error) == Errno::TimedOut);
            if !is_silent || start.elapsed() > patience {
                break answered;
            }
            // The next one has the same number.
            self.sent = sent;
        };
        self.end.rx = rx;
        self.greeting = Some(own.to_vec());
        answered.context("the server does not answer")
    }

    /// Whether messages may be lost.
    fn may_lose(&self) -> bool {
        self.ground().info().ep_attr.ep_type == EpType::Dgram
    }

    /// Whether what has arrived is a greeting that was heard before, or a late answer to one. It
    /// counts as no message.
    ///
    /// # Errors
    /// When it cannot be answered.
    pub(super) fn heard_before(&mut self, entry: &Entry) -> anyhow::Result<bool> {
        let Some(greeting) = &self.greeting else {
            return Ok(false);
        };
        if entry.len != greeting.len() || self.bytes_at_rest(entry) != *greeting {
            return Ok(false);
        }
        let greeting = greeting.clone();
        self.post_rest_again(entry.context.0)?;
        if !self.is_client() {
            let sent = self.sent;
            self.say(&greeting)?;
            self.sent = sent;
        }
        Ok(true)
    }

    /// The server's part: it waits for whoever comes, and answers.
    fn listen(&mut self) -> anyhow::Result<()> {
        let rx = self.end.rx.with_strategy(|manner| manner.endless());
        let rx = std::mem::replace(&mut self.end.rx, rx);
        let client = match self.may_lose() {
            true => self.take_whole(),
            false => self.take(CONTROL),
        };
        self.end.rx = rx;
        let client = client?;
        self.know(&client)?;
        if self.may_lose() {
            self.greeting = Some(client);
        }
        self.say(&[0])?;
        self.forget();
        Ok(())
    }
}
