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
    pub(crate) fn connect(&mut self, dest_addr: SocketAddr, data: &[u8]) -> Result {
        let cm = self.cm.as_mut().ok_or(Errno::NoSys)?;
        cm.check_request(data)?;
        let src_ip = cm.src_addr.map(|addr| addr.ip());
        let src_ip = src_ip.filter(|ip| ip.is_ipv4() == dest_addr.is_ipv4());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let socket = match &cm.bound {
            Some(socket) => socket.connect(dest_addr, &self.config.socket_options)?,
            None => Socket::connect(
                src_ip.unwrap_or(any),
                dest_addr,
                &self.config.socket_options,
            )?,
        };
        cm.bound = None;
        cm.stage = CmState::Connecting;
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let index = self.add_cm_connection(dest_addr, Stage::Connecting { until }, data.to_vec());
        self.connections.set_socket(index, socket);
        self.watch(index);
        // The new deadline may be earlier than the timeout of a parked thread.
        self.polling.wake(&self.ep);
        Ok(())
    }

    fn add_cm_connection(
        &mut self,
        peer_addr: SocketAddr,
        stage: Stage,
        request: Vec<u8>,
    ) -> usize {
        let peer = self.peers.find_or_insert(peer_addr, |_| true);
        let index = (self.connections).add(peer, stage, request, Instant::now());
        self.peers[peer].connection = Some(index);
        index
    }

    /// Handles the response of the passive endpoint.
    pub(super) fn on_passive_response(&mut self, index: usize, hello: Hello) {
        if hello.kind == Kind::Response {
            return self.on_connected(index, &hello);
        }
        let detail = format!("{} rejects the connection", self.peers[0]);
        let failure = Failure {
            data: hello.data,
            ..Failure::new(Errno::ConnRefused, detail)
        };
        self.drop_connection(index, &failure);
    }

    /// Establishes the connection after the handshake.
    fn on_connected(&mut self, index: usize, hello: &Hello) {
        if let Some(cm) = &mut self.cm {
            cm.stage = CmState::Up;
        }
        self.establish(index, Negotiated::new(hello, None, 0));
        if let Some(cm) = &self.cm {
            // The private data of a request was reported with the request.
            let data = match hello.kind {
                Kind::Response => hello.data.clone(),
                _ => Vec::new(),
            };
            cm.report(|ep| Event::Connected { ep, data });
        }
    }

    /// Accepts the request with which the endpoint was opened.
    pub(crate) fn accept_request(&mut self, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let cm = self.cm.as_mut().ok_or(Errno::NoSys)?;
        let ConnectionRequest {
            mut socket,
            peer_addr,
            hello,
            trailing,
        } = *cm.request.take().ok_or(Errno::Inval)?;
        let extension = hello.extension.map(|_| self.extension);
        socket.send_all(&Hello::new(Kind::Response, extension, data).encode())?;
        let index = self.add_cm_connection(peer_addr, Stage::Up, Vec::new());
        self.connections.set_socket(index, socket);
        self.connections[index].incoming.keep_trailing(&trailing);
        self.on_connected(index, &hello);
        Ok(())
    }

    /// Shuts the connection down. Each side gets one `Shutdown` event, also the side that shuts
    /// down first: when both sides shut down at the same time, neither can tell which was first.
    pub(crate) fn shutdown(&mut self) -> Result {
        match self.cm.as_ref().map(|cm| cm.stage) {
            None | Some(CmState::Idle | CmState::Connecting) => return Err(Errno::NotConn),
            Some(CmState::Up) => {}
            Some(CmState::Closed) => return Ok(()),
        }
        self.flush_before_close();
        if let Some(index) = self.peers[0].connection {
            let detail = "the connection was shut down";
            self.drop_connection(index, &Failure::new(Errno::Canceled, detail));
        }
        // `drop_connection` has already done this, unless messages of the connection wait for
        // receives.
        self.connection_closed(true);
        Ok(())
    }

    /// Cancels posted receives and reports the end of the connection.
    pub(super) fn connection_closed(&mut self, was_up: bool) {
        let Some(cm) = &mut self.cm else {
            return;
        };
        let previous = std::mem::replace(&mut cm.stage, CmState::Closed);
        for posted in self.matching.take_posted(|it| it.drain_posted()) {
            let detail = "the connection is closed";
            self.ep
                .rx_failed(posted, Errno::Canceled, FiAddr::UNSPEC, detail);
        }
        if was_up && previous == CmState::Up {
            cm.report(|ep| Event::Shutdown { ep });
        }
    }
}
