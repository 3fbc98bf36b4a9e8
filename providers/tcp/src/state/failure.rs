//! The end of a connection, however it comes: what had a part in it fails. And the end of all, when the
//! endpoint is closed: what was sent and is still here goes out before, as far as peers take it in time.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::Errno;
use selvedge_kit::cq::Sink;
use selvedge_kit::srx::Source;
use selvedge_kit::telemetry::EventKind;

use super::State;
use crate::connection::Connection;
use crate::connection::failure::Failure;
use crate::connection::receive::End;
use crate::connection::tx::Broken;
use crate::wire::Nonsense;

impl State {
    /// A connection has come to its end, or has to.
    #[cold]
    pub(super) fn end(&mut self, at: usize, how: End) {
        let connection = &mut self.connections[at];
        let peer = &self.peers[connection.peer];
        let failure = match how {
            // The system tells once why a connection is lost, and then that it is over.
            End::Closed(Ok(())) => Failure::ended(peer, connection.why.take().map_or(Ok(()), Err)),
            End::Closed(how) => Failure::ended(peer, how),
            End::Nonsense(Nonsense(what)) => Failure::cut_off(peer, what),
        };
        self.lose(at, &failure);
    }

    /// Nothing can be sent any more. What the peer had sent is taken first.
    #[cold]
    pub(super) fn cannot_send(&mut self, at: usize, broken: Broken) {
        let cause = match broken {
            Broken::Withdrawn => {
                let what = Nonsense("a wish for memory that is no longer registered");
                return self.end(at, End::Nonsense(what));
            }
            Broken::Io(cause) => cause,
        };
        let connection = &mut self.connections[at];
        let id = connection.id;
        if !is_hang_up(&cause) {
            connection.why = cause.raw_os_error().map(io::Error::from_raw_os_error);
        }
        while self.connections.has(id) && self.read(at, usize::MAX, &mut Sink::none()) > 0 {}
        if self.connections.has(id) && !self.drain_before_end(at) {
            self.end(at, End::Closed(Err(cause)));
        }
    }

    /// If a peer is gone whose last messages have no place yet, what is posted to it fails, and they
    /// are kept. Whether it is so.
    pub(super) fn drain_before_end(&mut self, at: usize) -> bool {
        let connection = &mut self.connections[at];
        if !connection.incoming.is_stalled() {
            return false;
        }
        connection.is_parting = true;
        let peer = connection.peer;
        self.connections.unwatch(at);
        let detail = format!("{} is gone", self.peers[peer]);
        self.fail_posts(at, Errno::ConnReset, &detail);
        if self.peers[peer].connection == Some(at) {
            // What is posted from now on makes another connection.
            self.peers[peer].connection = None;
        }
        true
    }

    /// Ends a connection, and everything that it had a part in.
    pub(super) fn lose(&mut self, at: usize, failure: &Failure) {
        let Failure {
            errno, ref detail, ..
        } = *failure;
        self.ep
            .stats
            .record_event(EventKind::Disconnected, detail, errno.as_raw() as u64);
        if let Some(cm) = self.cm.as_ref().filter(|_| !self.connections[at].is_up()) {
            cm.report_failure(failure);
        }
        self.fail_posts(at, errno, detail);
        let (connections, mut delivery) = self.parts();
        let mut connection = connections.remove(at);
        delivery.fail(&mut connection, errno, detail);
        self.matching.lose(connection.id);
        let peer = connection.peer;
        // The end of a second connection, or of one that was given up, is no news.
        if self.peers[peer].connection.is_none_or(|main| main == at) {
            self.peers[peer].connection = None;
            self.peers[peer].is_lost = true;
            let source = Source(peer as u32);
            let src = self.peers.fi_addr(peer);
            for posted in self.matching.take_posted(|it| it.fail_source(source)) {
                self.ep.rx_failed(posted, errno, src, detail);
            }
        }
        if self.cm.is_some() {
            self.connection_over(connection.is_up());
        }
    }

    /// Fails what was posted to a connection.
    fn fail_posts(&mut self, at: usize, errno: Errno, detail: &str) {
        let connection = &mut self.connections[at];
        let src = self.peers.fi_addr(connection.peer);
        // The memory of the operations is not used any more when their completions come.
        for report in connection.outgoing.fail() {
            report.failed(&self.ep, errno, src, detail);
        }
    }

    /// Gets rid of what was sent and is still here, as far as peers take it in time.
    pub(super) fn flush_before_close(&mut self) {
        let end = Instant::now() + self.config.close_timeout;
        let is_full = |it: &Connection| it.is_up() && !it.outgoing.tx.is_idle();
        loop {
            let full = self.connections.iter().filter(|it| is_full(it));
            let full: Vec<_> = full.map(|it| it.id.at).collect();
            full.iter().for_each(|&at| self.flush(at));
            let mut still = full.iter().filter_map(|&at| self.connections.get(at));
            let Some(connection) = still.find(|it| is_full(it)) else {
                return;
            };
            let left = end.saturating_duration_since(Instant::now());
            let Some(socket) = connection.socket.as_ref().filter(|_| !left.is_zero()) else {
                return;
            };
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
            let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            // Every way in which the call returns is a reason to look again.
            let _ = poll(&mut fds, left);
        }
    }

    /// Ends everything, without completions.
    pub(super) fn end_all(&mut self) {
        self.flush_before_close();
        self.connections.part();
        self.acceptor = None;
        self.matching.take_posted(|it| it.drain_posted());
    }
}

/// Whether the peer itself has ended the connection.
fn is_hang_up(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
