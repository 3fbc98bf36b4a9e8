//! `State`: the state that an endpoint's lock protects. `State` owns the components of the endpoint
//! and connects them; a component depends only on lower-level components.

mod application;
pub(crate) mod cm;
mod connect;
mod failure;
mod polling;
mod post;
mod progress;
mod telemetry;

use std::sync::Arc;

use nix::sys::epoll::Epoll;
use selvedge::{Errno, FiAddr, PeerCredentials, Result};
use selvedge_kit::Ep;
use selvedge_kit::ip::Av;
use selvedge_kit::mr::Keys;
use selvedge_kit::srx::ReceivePolicy;

use crate::accept::Acceptor;
use crate::config::Config;
use crate::connection::delivery::Delivery;
use crate::connection::receive::SCRATCH;
use crate::connection::table::Connections;
use crate::matching::Matching;
use crate::peers::Peers;
use crate::state::cm::Cm;
use crate::state::polling::Polling;
use crate::wire::hello::Extension;

/// The state of an endpoint.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    keys: Arc<Keys>,
    pub(crate) extension: Extension,
    /// The listener; `None` for a connected (`FI_EP_MSG`) endpoint.
    acceptor: Option<Acceptor>,
    /// The connection management of a connected endpoint.
    pub(crate) cm: Option<Cm>,
    pub(crate) peers: Peers,
    pub(crate) connections: Connections,
    pub(crate) matching: Matching,
    polling: Polling,
    scratch: Box<[u8]>,
}

/// The arguments of [`State::new`].
pub(crate) struct StateArgs {
    pub(crate) config: Config,
    pub(crate) ep: Ep,
    pub(crate) av: Option<Arc<Av>>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) policy: ReceivePolicy,
    pub(crate) epoll: Arc<Epoll>,
    pub(crate) acceptor: Option<Acceptor>,
    pub(crate) cm: Option<Cm>,
    /// The number of the scalable endpoint's context.
    pub(crate) context: u16,
}

impl State {
    pub(crate) fn new(args: StateArgs) -> Self {
        let StateArgs {
            config,
            ep,
            av,
            keys,
            policy,
            epoll,
            acceptor,
            cm,
            context,
        } = args;
        Self {
            matching: Matching::new(policy, config.unexpected_size),
            config,
            ep,
            keys,
            extension: Extension {
                context,
                ..Extension::new()
            },
            acceptor,
            cm,
            peers: Peers::new(av),
            connections: Connections::new(epoll),
            polling: Polling::new(),
            scratch: vec![0; SCRATCH].into(),
        }
    }

    /// Returns the index of the peer that an operation names.
    #[inline]
    pub(crate) fn peer_at(&mut self, addr: FiAddr) -> Result<usize> {
        match &self.cm {
            None => self
                .peers
                .index_of(addr, |peer| self.matching.needs_peer(peer)),
            Some(cm) => cm.peer(),
        }
    }

    /// Returns the certificate of a peer, over whose connection operations go.
    ///
    /// # Errors
    /// [`Errno::NotConn`] without an established connection; [`Errno::NoSys`] without TLS.
    pub(crate) fn peer_credentials(&mut self, addr: FiAddr) -> Result<PeerCredentials> {
        let peer = self.peer_at(addr)?;
        let index = self.peers[peer].connection.ok_or(Errno::NotConn)?;
        let connection = &self.connections[index];
        let socket = connection.socket.as_ref().filter(|_| connection.is_up());
        let certificate = socket.ok_or(Errno::NotConn)?.peer_certificate();
        let (names, der) = certificate.ok_or(Errno::NoSys)?;
        Ok(PeerCredentials::Certificate { names, der })
    }

    /// Borrows the connections, and the state on which their frames act.
    #[inline]
    fn connections_and_delivery(&mut self) -> (&mut Connections, Delivery<'_>) {
        let delivery = Delivery {
            ep: &self.ep,
            config: &self.config,
            keys: &self.keys,
            peers: &mut self.peers,
            matching: &mut self.matching,
        };
        (&mut self.connections, delivery)
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.ep
    }
}
