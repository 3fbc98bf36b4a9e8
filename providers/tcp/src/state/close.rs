//! Closing: what was sent and is still here goes out, as far as peers take it in time, and then
//! everything ends without completions.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::State;
use crate::connection::Connection;

impl State {
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
