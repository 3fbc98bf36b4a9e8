//! How client and server learn each other's addresses: over the fabric, where the client knows the
//! server's and says its own, or over the connection beside it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use selvedge::{Address, Errno};

use super::channel::{CONTROL, Channel};
use super::failure::{errno, failure};

/// How long a client tries to reach a server that has not opened its endpoint yet.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

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
        let (start, mark) = (Instant::now(), self.mark());
        let mut first = None;
        while let Err(error) = self.say(&own) {
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
        self.receive()?;
        self.forget();
        Ok(())
    }

    /// The server's part: it waits for whoever comes, and answers.
    fn listen(&mut self) -> anyhow::Result<()> {
        let rx = self.end.rx.in_manner(|manner| manner.endless());
        let rx = std::mem::replace(&mut self.end.rx, rx);
        let client = self.take(CONTROL);
        self.end.rx = rx;
        self.know(&client?)?;
        self.say(&[0])?;
        self.forget();
        Ok(())
    }
}
