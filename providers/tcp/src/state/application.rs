//! Connections of connected (`FI_EP_MSG`) endpoints: the application requests, accepts and shuts
//! them down, and events report them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use selvedge::eq::Event;
use selvedge::{Errno, FiAddr, Result};

use super::State;
use super::cm::CmState;
use crate::accept::ConnectionRequest;
use crate::connection::Stage;
use crate::connection::failure::Failure;
use crate::socket::Socket;
use crate::wire::hello::{DATA_MAX, Hello, Kind, Negotiated};

impl State {
    /// Requests a connection from the passive endpoint at an address.
    pub(crate) fn connect(&mut self, to: SocketAddr, data: &[u8]) -> Result {
        let cm = self.cm.as_mut().ok_or(Errno::NoSys)?;
        cm.check_request(data)?;
        let from = cm.from.map(|addr| addr.ip());
        let from = from.filter(|ip| ip.is_ipv4() == to.is_ipv4());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let socket = match &cm.bound {
            Some(socket) => socket.connect(to, &self.config.socket_options)?,
            None => Socket::connect(from.unwrap_or(any), to, &self.config.socket_options)?,
        };
        cm.bound = None;
        cm.stage = CmState::Connecting;
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let at = self.add_cm_connection(to, Stage::Connecting { until }, data.to_vec());
        self.connections.set_socket(at, socket);
        self.watch(at);
        // A parked thread does not know the new deadline.
        self.polling.wake(&self.ep);
        Ok(())
    }

    fn add_cm_connection(&mut self, to: SocketAddr, stage: Stage, request: Vec<u8>) -> usize {
        let peer = self.peers.find_or_insert(to, |_| true);
        let at = (self.connections).add(peer, stage, request, Instant::now());
        self.peers[peer].connection = Some(at);
        at
    }

    /// Handles the response of the passive endpoint.
    pub(super) fn on_passive_response(&mut self, at: usize, hello: Hello) {
        if hello.kind == Kind::Response {
            return self.on_connected(at, &hello);
        }
        let detail = format!("{} rejects the connection", self.peers[0]);
        let failure = Failure {
            data: hello.data,
            ..Failure::new(Errno::ConnRefused, detail)
        };
        self.drop_connection(at, &failure);
    }

    /// Establishes the connection after the handshake.
    fn on_connected(&mut self, at: usize, hello: &Hello) {
        if let Some(cm) = &mut self.cm {
            cm.stage = CmState::Up;
        }
        self.establish(at, Negotiated::new(hello, None, 0));
        if let Some(cm) = &self.cm {
            // The private data of a request was reported with the request.
            let data = match hello.kind {
                Kind::Response => hello.data.clone(),
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
        let ConnectionRequest {
            mut socket,
            from,
            hello,
            trailing,
        } = *cm.request.take().ok_or(Errno::Inval)?;
        let extension = hello.extension.map(|_| self.extension);
        socket.send_all(&Hello::new(Kind::Response, extension, data).encode())?;
        let at = self.add_cm_connection(from, Stage::Up, Vec::new());
        self.connections.set_socket(at, socket);
        self.connections[at].incoming.keep_trailing(&trailing);
        self.on_connected(at, &hello);
        Ok(())
    }

    /// Shuts the connection down. Each side gets one `Shutdown` event, whichever side began: when
    /// both do so at the same time, neither can know.
    pub(crate) fn shutdown(&mut self) -> Result {
        match self.cm.as_ref().map(|cm| cm.stage) {
            None | Some(CmState::Idle | CmState::Connecting) => return Err(Errno::NotConn),
            Some(CmState::Up) => {}
            Some(CmState::Closed) => return Ok(()),
        }
        self.flush_before_close();
        if let Some(at) = self.peers[0].connection {
            let detail = "the connection was shut down";
            self.drop_connection(at, &Failure::new(Errno::Canceled, detail));
        }
        // It was already done, unless messages of the connection still wait for receives.
        self.connection_closed(true);
        Ok(())
    }

    /// Cancels posted receives and reports the end of the connection.
    pub(super) fn connection_closed(&mut self, was_up: bool) {
        let Some(cm) = &mut self.cm else {
            return;
        };
        let before = std::mem::replace(&mut cm.stage, CmState::Closed);
        for posted in self.matching.take_posted(|it| it.drain_posted()) {
            let detail = "the connection is closed";
            self.ep
                .rx_failed(posted, Errno::Canceled, FiAddr::UNSPEC, detail);
        }
        if was_up && before == CmState::Up {
            cm.report(|ep| Event::Shutdown { ep });
        }
    }
}
