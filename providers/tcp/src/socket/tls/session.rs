//! `Session`: the TLS state of one connection. It encrypts the bytes to send and decrypts the
//! received records.
//!
//! To keep buffers small, a session passes encrypted records to the kernel before it encrypts more
//! bytes, and passes decrypted bytes to their destination before it reads more. Plain bytes count
//! as sent when the kernel has taken all of their records. The caller provides the socket, and
//! closures that access memory that is not a slice.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use rustls::{Connection, Error};

/// Maximum number of plain bytes in one record.
const RECORD_LEN: usize = 16 << 10;
/// Plain bytes that are encrypted before they are sent: enough to be worth a system call.
const ENCRYPT_AHEAD: usize = 4 * RECORD_LEN;
/// Maximum number of bytes that one system call reads during the handshake. The number is small to
/// limit the memory of an unauthenticated connection.
const HANDSHAKE_INPUT: usize = 4 << 10;
/// The same after the handshake.
const INPUT: usize = 2 * RECORD_LEN;

/// One side of a TLS connection.
pub(crate) struct Session {
    connection: Connection,
    /// Bytes that were read from the socket; `start..end` are not decrypted yet.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read emptied the kernel's buffer.
    is_drained: bool,
    /// Number of decrypted bytes that the caller has not taken.
    decrypted: usize,
    /// The peer has sent close_notify.
    is_closed: bool,
    /// An error that occurred after bytes were delivered; the next [`Self::recv`] returns it.
    deferred_error: Option<io::Error>,
    /// Buffer for the plain bytes of one record.
    record: Vec<u8>,
    /// Number of plain bytes, at the front of the caller's data, that are encrypted but not sent.
    unflushed: usize,
}

impl Session {
    pub(super) fn new(mut connection: Connection) -> Self {
        // `send` encrypts at most `ENCRYPT_AHEAD` bytes before it sends them.
        connection.set_buffer_limit(None);
        Self {
            connection,
            input: Vec::new(),
            start: 0,
            end: 0,
            is_drained: false,
            decrypted: 0,
            is_closed: false,
            deferred_error: None,
            record: Vec::new(),
            unflushed: 0,
        }
    }

    /// Continues the handshake. Returns true when this side has completed it.
    ///
    /// # Errors
    /// `InvalidData`, with the reason, when no connection with this peer is possible;
    /// `UnexpectedEof` when the peer has closed the connection; errors of the socket.
    pub(crate) fn continue_handshake(
        &mut self,
        stream: &mut (impl Read + Write),
    ) -> io::Result<bool> {
        self.is_drained = false;
        loop {
            self.flush(stream)?;
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.decrypt_more(stream) {
                Ok(true) => {}
                Ok(false) => return Err(truncated()),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Returns the DNS names and the bytes of the peer's certificate, if the handshake, which
    /// verifies it, is complete.
    pub(crate) fn peer_certificate(&self) -> Option<(Vec<String>, Vec<u8>)> {
        if self.connection.is_handshaking() {
            return None;
        }
        let certificate = self.connection.peer_certificates()?.first()?;
        let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
        let names = parsed.valid_dns_names().map(str::to_owned).collect();
        Some((names, certificate.to_vec()))
    }

    /// Sends `len` plain bytes and returns how many the kernel has taken. `copy(offset, buffer)`
    /// fills the buffer with the bytes from the offset on. If the kernel takes fewer than `len`
    /// bytes, the next call must start with the first byte that it did not take.
    ///
    /// # Errors
    /// `WouldBlock` when the kernel takes none; errors of the socket and of TLS.
    pub(crate) fn send(
        &mut self,
        stream: &mut (impl Read + Write),
        len: usize,
        copy: impl Fn(usize, &mut [u8]),
    ) -> io::Result<usize> {
        let mut done = 0;
        loop {
            match self.flush(stream) {
                Ok(true) => done += std::mem::take(&mut self.unflushed),
                _ if done > 0 => return Ok(done),
                Ok(false) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(cause) => return Err(cause),
            }
            if done >= len {
                return Ok(len);
            }
            self.encrypt(done, len, &copy)?;
        }
    }

    fn encrypt(
        &mut self,
        from: usize,
        len: usize,
        copy: &impl Fn(usize, &mut [u8]),
    ) -> io::Result<()> {
        self.record.resize(RECORD_LEN, 0);
        let end = len.min(from + ENCRYPT_AHEAD);
        let mut at = from;
        while at < end {
            let chunk = &mut self.record[..RECORD_LEN.min(end - at)];
            copy(at, chunk);
            self.connection.writer().write_all(chunk)?;
            at += chunk.len();
            self.unflushed = at - from;
        }
        Ok(())
    }

    /// Passes at most `max` received bytes to `store(offset, bytes)`. Returns their number, or 0
    /// when the peer has sent close_notify.
    ///
    /// # Errors
    /// `WouldBlock` when no bytes have arrived; `InvalidData` when the peer has sent an invalid
    /// record; `UnexpectedEof` when it closed without close_notify; errors of the socket.
    pub(crate) fn recv(
        &mut self,
        stream: &mut (impl Read + Write),
        max: usize,
        mut store: impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        self.is_drained = false;
        let mut done = 0;
        loop {
            done += self.copy_out(done, max, &mut store)?;
            if done == max {
                return Ok(done);
            }
            let decrypted_more = match self.deferred_error.take() {
                Some(error) => Err(error),
                None => self.decrypt_more(stream),
            };
            match decrypted_more {
                Ok(true) => {}
                Ok(false) => return Ok(done),
                Err(cause) if done == 0 => return Err(cause),
                Err(cause) => {
                    // Kept for the next call: the kernel reports an error only once.
                    self.deferred_error =
                        Some(cause).filter(|it| it.kind() != io::ErrorKind::WouldBlock);
                    return Ok(done);
                }
            }
        }
    }

    /// Whether the session holds input, a close_notify or an error. The socket reports no event for
    /// these.
    pub(crate) fn has_input(&self) -> bool {
        self.start < self.end
            || self.decrypted > 0
            || self.is_closed
            || self.deferred_error.is_some()
    }

    /// Whether records wait to be sent.
    pub(crate) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends close_notify, if the socket has room.
    pub(crate) fn send_close_notify(&mut self, stream: &mut (impl Read + Write)) {
        self.connection.send_close_notify();
        // If this fails, the peer treats the close as an error.
        let _ = self.flush(stream);
    }

    /// Sends the waiting records. Returns true when none is left.
    pub(crate) fn flush(&mut self, stream: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self
                .connection
                .write_tls(stream)
                .map_err(|it| (it.kind(), it))
            {
                Ok(_) | Err((io::ErrorKind::Interrupted, _)) => {}
                Err((io::ErrorKind::WouldBlock, _)) => return Ok(false),
                Err((_, cause)) => return Err(cause),
            }
        }
        Ok(true)
    }

    fn copy_out(
        &mut self,
        from: usize,
        max: usize,
        store: &mut impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        let mut done = from;
        while self.decrypted > 0 && done < max {
            let mut reader = self.connection.reader();
            let chunk = reader.fill_buf()?;
            let part = &chunk[..chunk.len().min(max - done)];
            let count = part.len();
            store(done, part);
            reader.consume(count);
            done += count;
            self.decrypted -= count;
        }
        Ok(done - from)
    }

    /// Reads and decrypts more input. Returns false if the peer had already sent close_notify.
    fn decrypt_more(&mut self, stream: &mut (impl Read + Write)) -> io::Result<bool> {
        if self.is_closed {
            return Ok(false);
        }
        if self.start == self.end {
            if self.is_drained {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.read_input(stream)?;
        }
        let decrypted = self.decrypt();
        if self.connection.wants_write() {
            // The output is an alert, or a response that no caller waits for.
            let _ = self.flush(stream);
        }
        decrypted.map(|()| true)
    }

    fn read_input(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let max = if self.connection.is_handshaking() {
            HANDSHAKE_INPUT
        } else {
            INPUT
        };
        self.input.resize(max, 0);
        (self.start, self.end) = (0, 0);
        let count = stream.read(&mut self.input)?;
        if count == 0 {
            return Err(truncated());
        }
        self.end = count;
        self.is_drained = count < max;
        Ok(())
    }

    fn decrypt(&mut self) -> io::Result<()> {
        let mut input = &self.input[self.start..self.end];
        self.start += self.connection.read_tls(&mut input)?;
        let is_handshaking = self.connection.is_handshaking();
        let state = self.connection.process_new_packets();
        let state = state.map_err(|cause| {
            // Later input is ignored.
            self.start = self.end;
            io::Error::new(io::ErrorKind::InvalidData, reason(&cause, is_handshaking))
        })?;
        self.decrypted = state.plaintext_bytes_to_read();
        self.is_closed = state.peer_has_closed();
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = f.debug_struct("Session");
        session
            .field("decrypted", &self.decrypted)
            .field("unflushed", &self.unflushed);
        session.finish_non_exhaustive()
    }
}

fn truncated() -> io::Error {
    let text = "the peer closed the TLS connection without close_notify";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Describes a TLS error of the peer.
fn reason(cause: &Error, is_handshaking: bool) -> String {
    match cause {
        Error::InvalidMessage(text) if is_handshaking => {
            format!("the peer does not speak TLS ({text:?})")
        }
        Error::AlertReceived(alert) => format!("the peer ended TLS with alert {alert:?}"),
        other => format!("TLS: {other}"),
    }
}
