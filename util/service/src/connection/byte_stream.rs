//! `ByteStream`: a stream of bytes in each direction of a connection.

use std::io::{self, Read, Write};
use std::task::Waker;

use super::client::Connection;
use super::messages::Messages;
use super::peer::Peer;
use crate::executor::wait_operation;
use crate::hub::Access;
use crate::{End, Error, Message};

/// The longest message of a stream, in bytes: long enough for the full rate, short enough for
/// several messages in the window.
const CHUNK: usize = 256 << 10;

/// A stream of bytes in each direction of a connection. It is `Read` and `Write` for threads, and
/// `AsyncRead` and `AsyncWrite` of tokio with the feature `tokio`.
///
/// A write waits while the peer's window is full. [`Self::finish`], or a shutdown, ends the stream of
/// this side: the peer then reads 0 bytes. A peer that is lost, or closes the connection without
/// that, is an error of the reader: a part of a stream is not taken for the whole. Dropping the value
/// closes the connection, and bytes that were not flushed may be lost.
///
/// Both sides of the connection must be byte streams: [`Connection::into_stream`],
/// [`Peer::into_stream`].
#[derive(Debug)]
pub struct ByteStream {
    messages: Messages,
    /// The message that is read, and the number of bytes that were read.
    current: Option<(Message, usize)>,
    chunk: usize,
    has_read_end: bool,
    has_written_end: bool,
}

impl Connection {
    /// This connection as a stream of bytes.
    pub fn into_stream(self) -> ByteStream {
        ByteStream::new(self.into_messages())
    }
}

impl Peer {
    /// The client's connection as a stream of bytes, as [`Self::into_messages`].
    pub fn into_stream(self) -> ByteStream {
        ByteStream::new(self.into_messages())
    }
}

impl ByteStream {
    fn new(messages: Messages) -> Self {
        Self {
            chunk: messages.peer().max_message().min(CHUNK),
            messages,
            current: None,
            has_read_end: false,
            has_written_end: false,
        }
    }

    /// The peer.
    pub fn peer(&self) -> &Peer {
        self.messages.peer()
    }

    /// Ends the stream of this side, and blocks until everything is sent, or until a peer that has
    /// ended its stream closes the connection.
    ///
    /// # Errors
    /// As a write.
    pub fn finish(&mut self) -> io::Result<()> {
        let hub = std::sync::Arc::clone(self.messages.hub());
        wait_operation(&hub, |access| self.finish_step(access, None)).map_err(write_error)
    }

    fn read_step(
        &mut self,
        access: &mut Access<'_>,
        to: &mut [u8],
        waker: Option<&Waker>,
    ) -> Option<Result<usize, Error>> {
        while !self.has_read_end && !to.is_empty() {
            if let Some((message, read)) = &mut self.current {
                let rest = message.get(*read..).unwrap_or_default();
                let len = rest.len().min(to.len());
                to[..len].copy_from_slice(&rest[..len]);
                *read += len;
                if *read >= message.len() {
                    self.current = None;
                }
                return Some(Ok(len));
            }
            match self.messages.receive(access, waker)? {
                Ok(message) if message.is_empty() => self.has_read_end = true,
                Ok(message) => self.current = Some((message, 0)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(0))
    }

    fn write_step(
        &mut self,
        access: &mut Access<'_>,
        from: &[u8],
        waker: Option<&Waker>,
    ) -> Option<Result<usize, Error>> {
        if self.has_written_end {
            return Some(Err(Error::Ended(End::Local)));
        }
        if from.is_empty() {
            return Some(Ok(0));
        }
        if let Err(error) = self.messages.room(access, waker)? {
            return Some(Err(error));
        }
        let chunk = &from[..from.len().min(self.chunk.max(1))];
        let queued = self.peer().message_from(chunk);
        let queued = queued.and_then(|message| self.messages.queue(access, message));
        Some(queued.map(|()| chunk.len()))
    }

    fn finish_step(
        &mut self,
        access: &mut Access<'_>,
        waker: Option<&Waker>,
    ) -> Option<Result<(), Error>> {
        if !self.has_written_end {
            let end = self.peer().message(0);
            if let Err(error) = end.and_then(|end| self.messages.queue(access, end)) {
                return Some(Err(error));
            }
            self.has_written_end = true;
        }
        match self.messages.sent(access, waker)? {
            // A peer that has the end of this stream may close before this side learns that the
            // end was sent.
            Err(Error::Ended(End::Remote)) if self.has_read_end => Some(Ok(())),
            sent => Some(sent),
        }
    }
}

impl Read for ByteStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let hub = std::sync::Arc::clone(self.messages.hub());
        wait_operation(&hub, |access| self.read_step(access, to, None)).map_err(read_error)
    }
}

impl Write for ByteStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let hub = std::sync::Arc::clone(self.messages.hub());
        wait_operation(&hub, |access| self.write_step(access, from, None)).map_err(write_error)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.messages.wait_flushed().map_err(write_error)
    }
}

fn read_error(error: Error) -> io::Error {
    let kind = match error {
        Error::Ended(End::Remote) => io::ErrorKind::UnexpectedEof,
        Error::Ended(End::Local) => io::ErrorKind::NotConnected,
        Error::Ended(_) => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

fn write_error(error: Error) -> io::Error {
    let kind = match error {
        Error::Ended(End::Remote | End::Local) => io::ErrorKind::BrokenPipe,
        Error::Ended(_) => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

#[cfg(feature = "tokio")]
mod tokio_io {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use super::{ByteStream, read_error, write_error};
    use crate::executor::poll_operation;

    impl AsyncRead for ByteStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let hub = Arc::clone(self.messages.hub());
            let unfilled = to.initialize_unfilled();
            let read = poll_operation(&hub, cx, |access, waker| {
                self.read_step(access, unfilled, Some(waker))
            });
            read.map(|read| {
                to.advance(read.map_err(read_error)?);
                Ok(())
            })
        }
    }

    impl AsyncWrite for ByteStream {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            from: &[u8],
        ) -> Poll<io::Result<usize>> {
            let hub = Arc::clone(self.messages.hub());
            let written = poll_operation(&hub, cx, |access, waker| {
                self.write_step(access, from, Some(waker))
            });
            written.map_err(write_error)
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let hub = Arc::clone(self.messages.hub());
            let sent = poll_operation(&hub, cx, |access, waker| {
                self.messages.sent(access, Some(waker))
            });
            sent.map_err(write_error)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let hub = Arc::clone(self.messages.hub());
            let finished = poll_operation(&hub, cx, |access, waker| {
                self.finish_step(access, Some(waker))
            });
            finished.map_err(write_error)
        }
    }
}
