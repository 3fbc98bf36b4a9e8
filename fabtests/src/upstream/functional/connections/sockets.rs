//! `fi_msg_sockets`: connects endpoints in the way that programs connect sockets. Each side opens a
//! passive endpoint without an address, and then binds it to one. The server listens on its passive
//! endpoint. The client replaces its own by an endpoint at the same address, and connects that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, Errno, FiAddr, Info, PassiveEndpoint, eq};
use selvedge_testkit::domain::DomainContext;
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::channel::{Channel, ChannelConfig};
use crate::upstream::options::Options;
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;

/// Runs the program.
pub(in crate::upstream) fn msg_sockets(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    if options.source.is_none() {
        // Binding needs a known interface.
        options.source = Some(match &options.server {
            Some(server) => local_ip_toward(server)?,
            None => "127.0.0.1".into(),
        });
    }
    if options.is_client() {
        connect_to_server(&options)
    } else {
        accept_client(&options)
    }
}

/// The local IP address from which packets to a host are sent.
fn local_ip_toward(server: &str) -> anyhow::Result<String> {
    let no_route = || format!("no route to {server}");
    let address = (server, 9).to_socket_addrs();
    let mut address = address.map_err(|error| unsupported(format!("{}: {error}", no_route())))?;
    let address = address.next().with_context(no_route)?;
    let unspecified: IpAddr = if address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    // No packet is sent: connecting a UDP socket selects its local address.
    let socket = UdpSocket::bind((unspecified, 0))?;
    socket.connect(address).with_context(no_route)?;
    Ok(socket.local_addr()?.ip().to_string())
}

/// A passive endpoint that was bound after it was opened, and its address.
struct BoundAddress {
    pep: Arc<dyn PassiveEndpoint>,
    at: Address,
}

impl BoundAddress {
    /// Binds a passive endpoint to the local address of `info`; with `any`, to any free port.
    fn bind(info: &Info, eq: &Arc<dyn selvedge::EventQueue>, any: bool) -> anyhow::Result<Self> {
        let mut without_address = info.clone();
        let address = without_address.src_addr.take();
        let address = address.context("fi_getinfo gives no source address")?;
        let address = match (address, any) {
            (Address::Ip(mut ip), true) => {
                ip.set_port(0);
                Address::Ip(ip)
            }
            (address, _) => address,
        };
        let pep = info
            .fabric()?
            .passive_endpoint(&without_address, Arc::clone(eq))?;
        match pep.set_address(&address) {
            Err(error) if error.errno() == Errno::NoSys => {
                return Err(unsupported(error.to_string()));
            }
            other => other.with_context(|| format!("fi_setname {address}"))?,
        }
        let at = pep.address().context("fi_getname")?;
        let has_port = matches!(at, Address::Ip(ip) if ip.port() != 0);
        if !has_port {
            return Err(wrong(format!(
                "fi_getname gives {at}, without a port, after fi_setname {address}"
            )));
        }
        Ok(Self { pep, at })
    }
}

/// Checks that an object has the expected address.
fn check_address(bound: &Address, step: &str, at: selvedge::Result<Address>) -> anyhow::Result<()> {
    let at = at.with_context(|| format!("fi_getname fails after {step}"))?;
    if at == *bound {
        Ok(())
    } else {
        Err(wrong(format!(
            "fi_getname gives {at} after {step}, expected {bound}"
        )))
    }
}

fn accept_client(options: &Options) -> anyhow::Result<()> {
    let info = discover(options, &hints(options, Caps::MSG, EpType::Msg)?)?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let bound = BoundAddress::bind(&info, &eq, false)?;
    bound.pep.listen().context("fi_listen")?;
    check_address(&bound.at, "fi_listen", bound.pep.address())?;
    let connector = Connector::from_objects(options, info, eq, Some(Arc::clone(&bound.pep)));
    let domain = connector.open_domain()?;
    let mut channel = channel(options, &connector, &domain)?;
    connector.connect(&channel.endpoint, &[])?;
    connector.wait_for_connection(&channel.endpoint)?;
    check_address(&bound.at, "fi_accept", channel.endpoint.ep.address())?;
    crate::upstream::functional::messages::greeting::exchange_greeting(&mut channel)?;
    crate::upstream::functional::messages::greeting::shut_down(&channel)
}

fn connect_to_server(options: &Options) -> anyhow::Result<()> {
    let hints = hints(options, Caps::MSG, EpType::Msg)?;
    let info = discover(options, &hints)?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let connector = Connector::from_objects(options, info.clone(), Arc::clone(&eq), None);
    let mut channel = connector.retry_until_listening(|| {
        let bound = BoundAddress::bind(&info, &eq, true)?;
        let handle = bound.pep.handle().context("the passive endpoint has no handle")?;
        let with_handle = hints.clone().edit(|info| info.handle = handle);
        let found = discover(options, &with_handle)?;
        ensure!(
            found.handle == handle,
            "fi_getinfo gives handle {} for {handle}",
            found.handle
        );
        let domain = domain::open(options, found)?;
        let channel = channel(options, &connector, &domain)?;
        check_address(&bound.at, "fi_endpoint", channel.endpoint.ep.address())?;
        // The endpoint has replaced the passive endpoint, which must therefore refuse to listen.
        let listening = bound.pep.listen();
        ensure!(
            listening == Err(Errno::OpBadState),
            "fi_listen on the replaced passive endpoint returns {listening:?}, expected FI_EOPBADSTATE"
        );
        let at = bound.at;
        drop(bound.pep);
        connector.connect(&channel.endpoint, &[])?;
        check_address(&at, "fi_connect", channel.endpoint.ep.address())?;
        connector.wait_for_connection(&channel.endpoint)?;
        check_address(&at, "the connection is established", channel.endpoint.ep.address())?;
        Ok(channel)
    })?;
    crate::upstream::functional::messages::greeting::exchange_greeting(&mut channel)?;
    crate::upstream::functional::messages::greeting::shut_down(&channel)
}

/// Opens a channel whose endpoint is not connected yet.
fn channel(
    options: &Options,
    connector: &Connector,
    domain: &Arc<DomainContext>,
) -> anyhow::Result<Channel> {
    let eq = Some(Arc::clone(&connector.eq));
    let mut channel =
        Channel::without_receive(options, domain, ChannelConfig::default(), None, eq)?;
    channel.peer = FiAddr(0);
    channel.prepost()?;
    Ok(channel)
}
