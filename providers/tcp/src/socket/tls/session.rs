//! The records of one connection: sealed on their way to the kernel, opened on their way from it.
//!
//! What is sealed goes to the kernel before anything else is sealed, so that little of it is ever
//! here; what is opened goes to its place before more is read, likewise. Plain bytes count as sent
//! when the kernel has all of their records. Sockets and memory that is no slice are the caller's.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use rustls::{Connection, Error};

/// Plain bytes of a record.
const RECORD: usize = 16 << 10;
/// Plain bytes that are sealed before the kernel is asked to take them: as many as are worth a
/// system call.
const AHEAD: usize = 4 * RECORD;
/// Bytes that are read in one system call, before and after the ends know each other: a stranger is
/// not worth as much memory.
const FIRST_INPUT: usize = 4 << 10;
const INPUT: usize = 2 * RECORD;

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
    opened: usize,
    /// The peer has said goodbye.
    is_over: bool,
    /// Why nothing comes any more, when something had come before it.
    why: Option<io::Error>,
    /// Memory in which a record is put together.
    stage: Vec<u8>,
    /// Plain bytes at the front of what is to be sent that are sealed, and not with the kernel.
    owed: usize,
}

impl Session {
    pub(super) fn new(mut connection: Connection) -> Self {
        // `send` seals no more than `AHEAD` bytes before they are gone.
        connection.set_buffer_limit(None);
        Self {
            connection,
            input: Vec::new(),
            start: 0,
            end: 0,
            is_drained: false,
            opened: 0,
            is_over: false,
            why: None,
            stage: Vec::new(),
            owed: 0,
        }
    }

    /// Moves the handshake on; whether it is over, as far as this end can know.
    ///
    /// # Errors
    /// `InvalidData`, with the reason, when there can be no connection with this peer; those of the
    /// socket.
    pub(crate) fn shake(&mut self, wire: &mut (impl Read + Write)) -> io::Result<bool> {
        self.is_drained = false;
        loop {
            self.push(wire)?;
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.pull(wire) {
                Ok(true) => {}
                Ok(false) => return Err(cut_short()),
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
        wire: &mut (impl Read + Write),
        len: usize,
        copy: impl Fn(usize, &mut [u8]),
    ) -> io::Result<usize> {
        let mut done = 0;
        loop {
            match self.push(wire) {
                Ok(true) => done += std::mem::take(&mut self.owed),
                _ if done > 0 => return Ok(done),
                Ok(false) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(cause) => return Err(cause),
            }
            if done >= len {
                return Ok(len);
            }
            self.seal(done, len, &copy)?;
        }
    }

    fn seal(
        &mut self,
        from: usize,
        len: usize,
        copy: &impl Fn(usize, &mut [u8]),
    ) -> io::Result<()> {
        self.stage.resize(RECORD, 0);
        let end = len.min(from + AHEAD);
        let mut at = from;
        while at < end {
            let record = &mut self.stage[..RECORD.min(end - at)];
            copy(at, record);
            self.connection.writer().write_all(record)?;
            at += record.len();
            self.owed = at - from;
        }
        Ok(())
    }

    /// Hands what has come to `place`, `most` bytes at most: how many; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` when there are none; `InvalidData` when the peer has sent what is no record;
    /// `UnexpectedEof` when it has gone without a goodbye; those of the socket.
    pub(crate) fn recv(
        &mut self,
        wire: &mut (impl Read + Write),
        most: usize,
        mut place: impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        self.is_drained = false;
        let mut done = 0;
        loop {
            done += self.hand_out(done, most, &mut place)?;
            if done == most {
                return Ok(done);
            }
            let pulled = match self.why.take() {
                Some(why) => Err(why),
                None => self.pull(wire),
            };
            match pulled {
                Ok(true) => {}
                Ok(false) => return Ok(done),
                Err(cause) if done == 0 => return Err(cause),
                Err(cause) => {
                    // It is not told of again, as the kernel's errors are.
                    self.why = Some(cause).filter(|it| it.kind() != io::ErrorKind::WouldBlock);
                    return Ok(done);
                }
            }
        }
    }

    /// Whether something is here, or known, that the socket is not going to tell of.
    pub(crate) fn is_loaded(&self) -> bool {
        self.start < self.end || self.opened > 0 || self.is_over || self.why.is_some()
    }

    /// Whether records wait for the kernel.
    pub(crate) fn is_behind(&self) -> bool {
        self.connection.wants_write()
    }

    /// Says goodbye, if there is room for that.
    pub(crate) fn part(&mut self, wire: &mut (impl Read + Write)) {
        self.connection.send_close_notify();
        // Whoever does not hear it takes the end for a loss.
        let _ = self.push(wire);
    }

    /// Gives the kernel the records that are here; whether it has taken all.
    pub(crate) fn push(&mut self, wire: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self
                .connection
                .write_tls(wire)
                .map_err(|it| (it.kind(), it))
            {
                Ok(_) | Err((io::ErrorKind::Interrupted, _)) => {}
                Err((io::ErrorKind::WouldBlock, _)) => return Ok(false),
                Err((_, cause)) => return Err(cause),
            }
        }
        Ok(true)
    }

    fn hand_out(
        &mut self,
        from: usize,
        most: usize,
        place: &mut impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        let mut done = from;
        while self.opened > 0 && done < most {
            let mut reader = self.connection.reader();
            let chunk = reader.fill_buf()?;
            let part = &chunk[..chunk.len().min(most - done)];
            let count = part.len();
            place(done, part);
            reader.consume(count);
            done += count;
            self.opened -= count;
        }
        Ok(done - from)
    }

    /// Opens more of what has come; `false` at the end.
    fn pull(&mut self, wire: &mut (impl Read + Write)) -> io::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        if self.start == self.end {
            if self.is_drained {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.fetch(wire)?;
        }
        let opened = self.open();
        if self.connection.wants_write() {
            // A reason for the peer, or an answer that nobody waits for.
            let _ = self.push(wire);
        }
        opened.map(|()| true)
    }

    fn fetch(&mut self, wire: &mut (impl Read + Write)) -> io::Result<()> {
        let most = match self.connection.is_handshaking() {
            true => FIRST_INPUT,
            false => INPUT,
        };
        self.input.resize(most, 0);
        (self.start, self.end) = (0, 0);
        let count = wire.read(&mut self.input)?;
        if count == 0 {
            return Err(cut_short());
        }
        self.end = count;
        self.is_drained = count < most;
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let mut rest = &self.input[self.start..self.end];
        self.start += self.connection.read_tls(&mut rest)?;
        let is_new = self.connection.is_handshaking();
        let state = self.connection.process_new_packets();
        let state = state.map_err(|cause| {
            // Nothing behind it is looked at.
            self.start = self.end;
            io::Error::new(io::ErrorKind::InvalidData, reason(&cause, is_new))
        })?;
        self.opened = state.plaintext_bytes_to_read();
        self.is_over = state.peer_has_closed();
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut session = f.debug_struct("Session");
        session
            .field("opened", &self.opened)
            .field("owed", &self.owed);
        session.finish_non_exhaustive()
    }
}

fn cut_short() -> io::Error {
    let what = "it ended in the middle of TLS, without a goodbye";
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

/// What is wrong with the peer.
fn reason(cause: &Error, is_new: bool) -> String {
    match cause {
        Error::InvalidMessage(what) if is_new => format!("it does not exchange_both_ways TLS ({what:?})"),
        Error::AlertReceived(alert) => format!("it ends TLS and says {alert:?}"),
        other => format!("TLS: {other}"),
    }
}
