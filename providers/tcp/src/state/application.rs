//! Connections that the application makes: asked for, accepted, ended, and told of by events.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use selvedge::eq::Event;
use selvedge::{Errno, FiAddr, Result};

use super::State;
use super::cm::Progress;
use crate::accept::Caller;
use crate::connection::Stage;
use crate::connection::failure::Failure;
use crate::socket::Socket;
use crate::wire::hello::{DATA_MAX, Hello, Kind, Terms};

impl State {
    /// Asks the passive endpoint at an address for a connection.
    pub(crate) fn connect(&mut self, to: SocketAddr, data: &[u8]) -> Result {
        let cm = self.cm.as_mut().ok_or(Errno::NoSys)?;
        cm.check_request(data)?;
        let from = cm.from.map(|addr| addr.ip());
        let from = from.filter(|ip| ip.is_ipv4() == to.is_ipv4());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let socket = match &cm.place {
            Some(place) => place.connect(to, &self.config.link)?,
            None => Socket::connect(from.unwrap_or(any), to, &self.config.link)?,
        };
        cm.place = None;
        cm.stage = Progress::Asked;
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let at = self.add_only(to, Stage::Connecting { until }, data.to_vec());
        self.connections.set_socket(at, socket);
        self.watch(at);
        // A thread that is parked has not seen that there is a time to keep.
        self.polling.wake(&self.ep);
        Ok(())
    }

    fn add_only(&mut self, to: SocketAddr, stage: Stage, request: Vec<u8>) -> usize {
        let peer = self.peers.named(to, |_| true);
        let at = (self.connections).add(peer, stage, request, Instant::now());
        self.peers[peer].connection = Some(at);
        at
    }

    /// The passive endpoint has answered.
    pub(super) fn take_answer_of_passive(&mut self, at: usize, hello: Hello) {
        if hello.kind == Kind::Answer {
            return self.connected(at, &hello);
        }
        let detail = format!("{} rejects the connection", self.peers[0]);
        let failure = Failure {
            data: hello.data,
            ..Failure::new(Errno::ConnRefused, detail)
        };
        self.lose(at, &failure);
    }

    /// The ends have greeted each other.
    fn connected(&mut self, at: usize, hello: &Hello) {
        if let Some(cm) = &mut self.cm {
            cm.stage = Progress::Up;
        }
        self.establish(at, Terms::new(hello, None, 0));
        if let Some(cm) = &self.cm {
            // What comes with a request of ours was told of with the request.
            let data = match hello.kind {
                Kind::Answer => hello.data.clone(),
                _ => Vec::new(),
            };
            cm.report(|ep| Event::Connected { ep, data });
        }
    }

    /// Accepts the request that the endpoint was opened with.
    pub(crate) fn accept_request(&mut self, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let cm = self.cm.as_mut().ok_or(Errno::NoSys)?;
        let Caller {
            mut socket,
            from,
            hello,
            rest,
        } = *cm.request.take().ok_or(Errno::Inval)?;
        let own = hello.introduction.map(|_| self.own);
        socket.send_whole(&Hello::new(Kind::Answer, own, data).encode())?;
        let at = self.add_only(from, Stage::Up, Vec::new());
        self.connections.set_socket(at, socket);
        self.connections[at].incoming.put_back(&rest);
        self.connected(at, &hello);
        Ok(())
    }

    /// Ends the connection. Each end is told once that it is over, no matter which has ended it: when
    /// both do so at once, neither can know that the other did.
    pub(crate) fn shut(&mut self) -> Result {
        match self.cm.as_ref().map(|cm| cm.stage) {
            None | Some(Progress::Fresh | Progress::Asked) => return Err(Errno::NotConn),
            Some(Progress::Up) => {}
            Some(Progress::Over) => return Ok(()),
        }
        self.flush_before_close();
        if let Some(at) = self.peers[0].connection {
            let detail = "the connection was shut down";
            self.lose(at, &Failure::new(Errno::Canceled, detail));
        }
        // Already done but for a connection whose last messages still wait for receives.
        self.connection_over(true);
        Ok(())
    }

    /// The connection is gone: nothing will be received any more.
    pub(super) fn connection_over(&mut self, was_up: bool) {
        let Some(cm) = &mut self.cm else {
            return;
        };
        let before = std::mem::replace(&mut cm.stage, Progress::Over);
        for posted in self.matching.take_posted(|it| it.drain_posted()) {
            let detail = "the connection is over";
            self.ep
                .rx_failed(posted, Errno::Canceled, FiAddr::UNSPEC, detail);
        }
        if was_up && before == Progress::Up {
            cm.report(|ep| Event::Shutdown { ep });
        }
    }
}
