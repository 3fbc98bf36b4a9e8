//! Loss: what happens when a connection ends, however it does.

use std::io;
use std::net::Shutdown;

use selvedge::Errno;
use selvedge_kit::complaint::complain;
use selvedge_kit::cq::Sink;
use selvedge_kit::sight::What;
use selvedge_kit::srx::{Kind, Source};

use crate::config::CONTROL;
use crate::lane::{Fetch, Lane};
use crate::rx::Goal;
use crate::state::State;
use crate::tls::is_insecure;
use crate::tx::Broken;

impl State {
    /// A connection has come to its end.
    pub(crate) fn lane_ended(&mut self, at: usize, how: io::Result<()>) {
        let lane = &mut self.lanes[at];
        // The system tells why a connection is lost once, and then that it is over.
        let how = how.and_then(|()| lane.why.take().map_or(Ok(()), Err));
        let peer = &self.peers[lane.peer];
        let (errno, detail) = match how {
            Ok(()) => (
                Errno::ConnReset,
                format!("{peer} has closed the connection"),
            ),
            Err(cause) => {
                let errno = match cause.kind() {
                    io::ErrorKind::TimedOut => Errno::TimedOut,
                    io::ErrorKind::HostUnreachable => Errno::HostUnreach,
                    io::ErrorKind::NetworkUnreachable => Errno::NetUnreach,
                    _ => Errno::ConnReset,
                };
                let detail = format!("the connection with {peer} is lost: {cause}");
                if is_insecure(&cause) {
                    complain(CONTROL, format_args!("{detail}"));
                }
                (errno, detail)
            }
        };
        self.lose(at, errno, &detail);
    }

    /// A peer has sent what no peer sends.
    pub(crate) fn cut_off(&mut self, at: usize, what: &str) {
        let peer = &self.peers[self.lanes[at].peer];
        let detail = format!("{peer} is cut off: it has sent {what}");
        complain(CONTROL, format_args!("{detail}"));
        self.lose(at, Errno::ConnReset, &detail);
    }

    /// Nothing can be sent any more. What the peer had sent is taken first.
    pub(crate) fn cannot_send(&mut self, at: usize, broken: Broken) {
        let cause = match broken {
            Broken::Withdrawn => {
                return self.cut_off(at, "a wish for memory that is no longer registered");
            }
            Broken::Io(cause) => cause,
        };
        if !is_hang_up(&cause) {
            self.lanes[at].why = cause.raw_os_error().map(io::Error::from_raw_os_error);
        }
        let serial = self.lanes[at].serial;
        while self.is_same(at, serial) && self.read(at, usize::MAX, &mut Sink::none()) > 0 {}
        if self.is_same(at, serial) && !self.last_words(at) {
            self.lane_ended(at, Err(cause));
        }
    }

    /// A peer is gone whose last messages have no place yet: what is posted to it fails, and they
    /// are kept. Whether it is so.
    pub(crate) fn last_words(&mut self, at: usize) -> bool {
        let lane = &mut self.lanes[at];
        if !lane.rx.is_stalled() {
            return false;
        }
        if let Some(socket) = &lane.socket {
            let _ = self.epoll.delete(socket);
        }
        lane.is_parting = true;
        let peer = lane.peer;
        let detail = format!("{} is gone", self.peers[peer]);
        self.fail_posts(at, Errno::ConnReset, &detail);
        if self.peers[peer].lane == Some(at) {
            // Whatever is posted from now on makes another connection.
            self.peers[peer].lane = None;
        }
        true
    }

    /// Ends a lane, and everything that it had a part in.
    pub(crate) fn lose(&mut self, at: usize, errno: Errno, detail: &str) {
        self.ep
            .sight
            .note(What::Lost, detail, errno.as_raw() as u64);
        self.fail_posts(at, errno, detail);
        let mut lane = self.lanes.remove(at);
        if let Some(socket) = &mut lane.socket {
            let _ = self.epoll.delete(&*socket);
            // A forked child may hold it, too.
            socket.shut(Shutdown::Both);
        }
        let peer = lane.peer;
        // The end of a second connection, or of one that was given up, is no news.
        let is_main = self.peers[peer].lane.is_none_or(|main| main == at);
        self.fail_arrivals(&mut lane, errno, detail);
        self.lose_messages(at, lane.serial);
        if is_main {
            self.peers[peer].lane = None;
            self.peers[peer].is_lost = true;
            self.fail_directed(peer, errno, detail);
        }
        if self.door.is_none() {
            self.connection_over(lane.is_up());
        }
    }

    /// Fails what was posted to a lane.
    fn fail_posts(&mut self, at: usize, errno: Errno, detail: &str) {
        let src = self.lane_addr(at);
        let lane = &mut self.lanes[at];
        let mut failed = lane.tx.fail();
        failed.extend(lane.asks.take());
        let fetches = lane.reads.drain(..).chain(lane.atomics.drain(..));
        failed.extend(fetches.map(|Fetch { report, .. }| report));
        failed.extend(lane.unchecked.take());
        let offers = std::mem::take(&mut lane.offers).into_values();
        let waiting = std::mem::take(&mut lane.waiting);
        // Their memory goes here, before anybody reads of them.
        failed.extend(offers.chain(waiting).map(|posting| posting.report));
        for report in failed {
            report.failed(&self.ep, errno, src, detail);
        }
    }
}

impl State {
    /// Fails the receives and reads whose bytes were coming.
    fn fail_arrivals(&mut self, lane: &mut Lane, errno: Errno, detail: &str) {
        let src = self.peer_addr(lane.peer);
        let coming = lane.coming.drain().filter_map(|(_, (posted, _))| posted);
        for posted in coming.collect::<Vec<_>>() {
            self.ep.rx_failed(posted, errno, src, detail);
        }
        match lane.rx.body.take().map(|arrival| arrival.goal) {
            Some(Goal::Receive(posted, ..)) => self.ep.rx_failed(posted, errno, src, detail),
            Some(Goal::Read(fetch, _) | Goal::Outcome(fetch, _)) => {
                drop(fetch.buf);
                fetch.report.failed(&self.ep, errno, src, detail);
            }
            _ => {}
        }
    }

    /// Fails the receives that wait for this peer alone.
    fn fail_directed(&mut self, peer: usize, errno: Errno, detail: &str) {
        let src = self.peer_addr(peer);
        for kind in [Kind::Msg, Kind::Tagged] {
            let matcher = self.inbound.matcher(kind);
            for posted in matcher.fail_source(Source(peer as u32)) {
                self.ep.rx_failed(posted, errno, src, detail);
            }
        }
    }
}

/// Whether the peer itself has ended the connection.
fn is_hang_up(cause: &io::Error) -> bool {
    matches!(
        cause.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}
