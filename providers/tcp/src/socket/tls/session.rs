//! The records of one connection: sealed on their way to the kernel, opened on their way from it.
//!
//! What is sealed goes to the kernel before anything else is sealed, so that little of it is ever
//! here; what is opened goes to its place before more is read, likewise. Plain bytes count as sent
//! when the kernel has all of their records. Sockets and memory that is no slice are the caller's.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use rustls::{Connection, Error};

/// Plain bytes of a record.
const RECORD_LEN: usize = 16 << 10;
/// Plain bytes that are sealed before the kernel is asked to take them: as many as are worth a
/// system call.
const ENCRYPT_AHEAD: usize = 4 * RECORD_LEN;
/// Bytes that are read in one system call, before and after the ends know each other: a stranger is
/// not worth as much memory.
const HANDSHAKE_INPUT: usize = 4 << 10;
const INPUT: usize = 2 * RECORD_LEN;

/// One end of a connection in TLS.
pub(crate) struct Session {
    connection: Connection,
    /// Read, and in `start..end` not opened yet.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// The kernel had no more when it was asked last.
    is_drained: bool,
    /// Opened bytes that wait for room.
    decrypted: usize,
    /// The peer has said goodbye.
    is_closed: bool,
    /// Why nothing comes any more, when something had come before it.
    deferred_error: Option<io::Error>,
    /// Memory in which a record is put together.
    record: Vec<u8>,
    /// Plain bytes at the front of what is to be sent that are sealed, and not with the kernel.
    unflushed: usize,
}

impl Session {
    pub(super) fn new(mut connection: Connection) -> Self {
        // `send` seals no more than `ENCRYPT_AHEAD` bytes before they are gone.
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

    /// Moves the handshake on; whether it is over, as far as this end can know.
    ///
    /// # Errors
    /// `InvalidData`, with the reason, when there can be no connection with this peer; those of the
    /// socket.
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

    /// Sends plain bytes, `len` in all, of which `copy` takes those from a place on: how many are
    /// with the kernel. When those are not all, the next call begins with the ones that are not.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; those of the socket and of the session.
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

    /// Hands what has come to `store`, `max` bytes at most: how many; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; `InvalidData` when the peer has sent what is no record;
    /// `UnexpectedEof` when it has gone without a goodbye; those of the socket.
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
                    // It is not told of again, as the kernel's errors are.
                    self.deferred_error =
                        Some(cause).filter(|it| it.kind() != io::ErrorKind::WouldBlock);
                    return Ok(done);
                }
            }
        }
    }

    /// Whether something is here, or known, that the socket is not going to tell of.
    pub(crate) fn has_input(&self) -> bool {
        self.start < self.end
            || self.decrypted > 0
            || self.is_closed
            || self.deferred_error.is_some()
    }

    /// Whether records wait for the kernel.
    pub(crate) fn has_output(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says goodbye, if there is room for that.
    pub(crate) fn send_close_notify(&mut self, stream: &mut (impl Read + Write)) {
        self.connection.send_close_notify();
        // Whoever does not hear it takes the end for a loss.
        let _ = self.flush(stream);
    }

    /// Gives the kernel the records that are here; whether it has taken all.
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

    /// Opens more of what has come; `false` at the end.
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
            // A reason for the peer, or an answer that nobody waits for.
            let _ = self.flush(stream);
        }
        decrypted.map(|()| true)
    }

    fn read_input(&mut self, stream: &mut (impl Read + Write)) -> io::Result<()> {
        let max = match self.connection.is_handshaking() {
            true => HANDSHAKE_INPUT,
            false => INPUT,
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
            // Nothing behind it is looked at.
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
            .field("opened", &self.decrypted)
            .field("owed", &self.unflushed);
        session.finish_non_exhaustive()
    }
}

fn truncated() -> io::Error {
    let text = "it ended in the middle of TLS, without a goodbye";
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// What is wrong with the peer.
fn reason(cause: &Error, is_handshaking: bool) -> String {
    match cause {
        Error::InvalidMessage(text) if is_handshaking => {
            format!("it does not speak TLS ({text:?})")
        }
        Error::AlertReceived(alert) => format!("it ends TLS and says {alert:?}"),
        other => format!("TLS: {other}"),
    }
}
