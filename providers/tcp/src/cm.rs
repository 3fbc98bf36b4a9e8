//! Connections that the application makes: asked for, accepted, ended, and told of by events.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Instant;

use selvedge::eq::{ErrEntry, Event};
use selvedge::{Address, ConnectionManagement, Context, Errno, Result};
use selvedge_kit::eq::Queue;
use selvedge_kit::ip::resolve;
use selvedge_kit::srx::Kind;

use crate::connect::terms;
use crate::endpoint::Endpoint;
use crate::greet::Caller;
use crate::lane::Stage;
use crate::socket::{Bound, Socket};
use crate::state::State;
use crate::wire::hello::{DATA_MAX, Hello, Kind as Greeting};

/// The connection of an endpoint that has one.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Where events go. The queue may hold the endpoint, and so must not be held by it.
    pub(crate) eq: Weak<Queue>,
    pub(crate) me: Weak<Endpoint>,
    /// Where it connects from.
    pub(crate) from: Option<SocketAddr>,
    /// The request that the endpoint was opened with.
    pub(crate) request: Option<Box<Caller>>,
    /// The place of a passive endpoint that it has taken, until it connects from there.
    pub(crate) place: Option<Bound>,
    /// What goes with the request of our own.
    data: Vec<u8>,
    stage: Progress,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Fresh,
    Asked,
    Up,
    Over,
}

impl Connection {
    /// The only peer.
    pub(crate) fn peer(&self) -> Result<usize> {
        match self.stage {
            Progress::Up => Ok(0),
            _ => Err(Errno::NotConn),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    fn tell(&self, event: impl FnOnce(Arc<dyn selvedge::Endpoint>) -> Event) {
        if let (Some(eq), Some(ep)) = (self.eq.upgrade(), self.me.upgrade()) {
            eq.push(event(ep));
        }
    }

    fn tell_err(&self, errno: Errno, data: &[u8], detail: String) {
        if let Some(eq) = self.eq.upgrade() {
            let mut error = ErrEntry::new(Context::default(), errno, detail);
            error.data = data.to_vec();
            error.ep = self
                .me
                .upgrade()
                .map(|own| own as Arc<dyn selvedge::Endpoint>);
            eq.push_err(error);
        }
    }
}

impl State {
    /// Asks the passive endpoint at an address for a connection.
    fn connect(&mut self, to: SocketAddr, data: &[u8]) -> Result {
        match self.connection.stage {
            _ if data.len() > DATA_MAX => return Err(Errno::Inval),
            _ if self.connection.request.is_some() => return Err(Errno::OpBadState),
            Progress::Fresh => {}
            Progress::Asked => return Err(Errno::Already),
            Progress::Up => return Err(Errno::IsConn),
            Progress::Over => return Err(Errno::OpBadState),
        }
        let from = self.connection.from.map(|addr| addr.ip());
        let from = from.filter(|ip| ip.is_ipv4() == to.is_ipv4());
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let socket = match &self.connection.place {
            Some(place) => place.connect(to, &self.config.link)?,
            None => Socket::connect(from.unwrap_or(any), to, &self.config.link)?,
        };
        self.connection.place = None;
        self.connection.data = data.to_vec();
        self.connection.stage = Progress::Asked;
        let now = Instant::now();
        let until = now + self.config.connect_timeout;
        let at = self.only_lane(to, Stage::Connecting { until }, now);
        self.connecting(at, socket, now);
        Ok(())
    }

    fn only_lane(&mut self, to: SocketAddr, stage: Stage, now: Instant) -> usize {
        let peer = self.peer_named(to);
        let at = self.add_lane(peer, stage, now);
        self.peers[peer].lane = Some(at);
        at
    }

    /// The passive endpoint has answered.
    pub(crate) fn take_connection_answer(&mut self, at: usize, hello: &Hello) {
        match hello.kind {
            Greeting::Answer => {
                self.connection.stage = Progress::Up;
                self.rise(at, terms(hello, None, 0));
                let data = hello.data.clone();
                self.connection.tell(|ep| Event::Connected { ep, data });
            }
            _ => {
                let detail = format!("{} rejects the connection", self.peers[0]);
                self.connection
                    .tell_err(Errno::ConnRefused, &hello.data, detail);
                self.lose(at, Errno::ConnRefused, "the connection was rejected");
            }
        }
    }

    /// There will be no connection.
    pub(crate) fn connection_failed(&mut self, at: usize, cause: &io::Error) {
        let errno = match cause.kind() {
            io::ErrorKind::TimedOut => Errno::TimedOut,
            _ => cause
                .raw_os_error()
                .map_or(Errno::ConnRefused, Errno::from_raw),
        };
        let detail = format!("no connection with {}: {cause}", self.peers[0]);
        self.connection.tell_err(errno, &[], detail.clone());
        self.lose(at, errno, &detail);
    }

    /// Accepts the request that the endpoint was opened with.
    fn accept_request(&mut self, data: &[u8]) -> Result {
        if data.len() > DATA_MAX {
            return Err(Errno::Inval);
        }
        let caller = self.connection.request.take().ok_or(Errno::Inval)?;
        let Caller {
            mut socket,
            from,
            hello,
            rest,
        } = *caller;
        let own = hello.introduction.map(|_| self.own);
        socket.send_whole(&Hello::new(Greeting::Answer, own, data).encode())?;
        let at = self.only_lane(from, Stage::Up, Instant::now());
        let lane = &mut self.lanes[at];
        lane.socket = Some(socket);
        lane.rx.put_back(&rest);
        self.connection.stage = Progress::Up;
        self.rise(at, terms(&hello, None, 0));
        let data = Vec::new();
        self.connection.tell(|ep| Event::Connected { ep, data });
        Ok(())
    }

    /// Ends the connection. Each end is told once that it is over, whoever has ended it: when both do
    /// so at once, neither can know that the other did.
    fn shut(&mut self) -> Result {
        match self.connection.stage {
            Progress::Fresh | Progress::Asked => return Err(Errno::NotConn),
            Progress::Up => {}
            Progress::Over => return Ok(()),
        }
        self.send_off();
        if let Some(at) = self.peers.first().and_then(|peer| peer.lane) {
            self.lose(at, Errno::Canceled, "the connection was shut down");
        }
        // Already done but for a connection whose last messages still wait for receives.
        self.connection_over(true);
        Ok(())
    }

    /// The connection is gone: nothing will be received any more.
    pub(crate) fn connection_over(&mut self, was_up: bool) {
        let before = std::mem::replace(&mut self.connection.stage, Progress::Over);
        for kind in [Kind::Msg, Kind::Tagged] {
            for posted in self.inbound.matcher(kind).drain_posted() {
                let detail = "the connection is over";
                let src = selvedge::FiAddr::UNSPEC;
                self.ep.rx_failed(posted, Errno::Canceled, src, detail);
            }
        }
        if was_up && before == Progress::Up {
            self.connection.tell(|ep| Event::Shutdown { ep });
        }
    }
}

impl ConnectionManagement for Endpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        let to = match addr {
            Address::Ip(ip) => *ip,
            other => resolve::written(&other.to_string()).ok_or(Errno::Inval)?,
        };
        self.inner.state.lock()?.connect(to, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.inner.state.lock()?.accept_request(data)
    }

    fn shutdown(&self) -> Result {
        self.inner.state.lock()?.shut()
    }

    fn peer(&self) -> Result<Address> {
        let state = self.inner.state.lock()?;
        let peer = state.connection.peer()?;
        Ok(state.peers[peer].to_address())
    }
}
