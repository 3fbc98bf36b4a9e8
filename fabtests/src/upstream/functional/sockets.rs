//! `fi_msg_sockets`: connected endpoints as sockets are used. An address is taken by a passive endpoint
//! that was opened without one; the server listens there, and the client connects from there, by an
//! endpoint that takes the other one's place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::info::EpType;
use selvedge::{Address, Caps, Errno, FiAddr, Info, PassiveEndpoint, eq};
use selvedge_testkit::domain::DomainContext;
use selvedge_testkit::failure::{unsupported, wrong};

use crate::upstream::channel::{Channel, Manners};
use crate::upstream::connect::Door;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::options::Options;

/// The program.
pub(in crate::upstream) fn msg_sockets(options: &Options) -> anyhow::Result<()> {
    let mut options = options.clone();
    if options.source.is_none() {
        // An address can be taken only on an interface that is known.
        options.source = Some(match &options.server {
            Some(server) => toward(server)?,
            None => "127.0.0.1".into(),
        });
    }
    match options.is_client() {
        true => visit(&options),
        false => serve(&options),
    }
}

/// The own address by which packets to a host leave.
fn toward(server: &str) -> anyhow::Result<String> {
    let what = || format!("no way to {server}");
    let there = (server, 9).to_socket_addrs();
    let mut there = there.map_err(|error| unsupported(format!("{}: {error}", what())))?;
    let there = there.next().with_context(what)?;
    let own: IpAddr = match there.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent: a socket of this kind has its address when it knows where it will go.
    let socket = UdpSocket::bind((own, 0))?;
    socket.connect(there).with_context(what)?;
    Ok(socket.local_addr()?.ip().to_string())
}

/// A passive endpoint that was given its address, and which it is.
struct Place {
    pep: Arc<dyn PassiveEndpoint>,
    at: Address,
}

impl Place {
    /// At the local address of `info`; with `any`, at whatever port there is.
    fn take(info: &Info, eq: &Arc<dyn selvedge::EventQueue>, any: bool) -> anyhow::Result<Self> {
        let mut nowhere = info.clone();
        let selection = nowhere.src_addr.take();
        let selection = selection.context("discovery gives no local address")?;
        let selection = match (selection, any) {
            (Address::Ip(mut ip), true) => {
                ip.set_port(0);
                Address::Ip(ip)
            }
            (selection, _) => selection,
        };
        let pep = info.fabric()?.passive_endpoint(&nowhere, Arc::clone(eq))?;
        match pep.set_address(&selection) {
            Err(error) if error.errno() == Errno::NoSys => {
                return Err(unsupported(error.to_string()));
            }
            other => other.with_context(|| format!("fi_setname {selection}"))?,
        }
        let at = pep.address().context("fi_getname")?;
        let has_port = matches!(at, Address::Ip(ip) if ip.port() != 0);
        if !has_port {
            return Err(wrong(format!(
                "{at} has no port after fi_setname {selection}"
            )));
        }
        Ok(Self { pep, at })
    }
}

/// Makes sure that something has the address that it should.
fn is_at(place: &Address, what: &str, at: selvedge::Result<Address>) -> anyhow::Result<()> {
    let at = at.with_context(|| format!("fi_getname after {what}"))?;
    match at == *place {
        true => Ok(()),
        false => Err(wrong(format!("{at} after {what}, not {place}"))),
    }
}

fn serve(options: &Options) -> anyhow::Result<()> {
    let info = discover(options, &hints(options, Caps::MSG, EpType::Msg)?)?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let place = Place::take(&info, &eq, false)?;
    place.pep.listen().context("fi_listen")?;
    is_at(&place.at, "fi_listen", place.pep.address())?;
    let door = Door::at(options, info, eq, Some(Arc::clone(&place.pep)));
    let ground = door.ground()?;
    let mut channel = channel(options, &door, &ground)?;
    door.connect(&channel.end, &[])?;
    door.connected(&channel.end)?;
    is_at(&place.at, "fi_accept", channel.end.ep.address())?;
    super::greeting::greet(&mut channel)?;
    super::greeting::part(&channel)
}

fn visit(options: &Options) -> anyhow::Result<()> {
    let hints = hints(options, Caps::MSG, EpType::Msg)?;
    let info = discover(options, &hints)?;
    let eq = info.fabric()?.eq(&eq::Attr::default())?;
    let door = Door::at(options, info.clone(), Arc::clone(&eq), None);
    let mut channel = door.patiently(|| {
        let place = Place::take(&info, &eq, true)?;
        let handle = place.pep.handle().context("the handle")?;
        let with_it = hints.clone().edit(|info| info.handle = handle);
        let found = discover(options, &with_it)?;
        ensure!(
            found.handle == handle,
            "fi_getinfo gives handle {} for {handle}",
            found.handle
        );
        let ground = ground::open(options, found)?;
        let channel = channel(options, &door, &ground)?;
        is_at(&place.at, "fi_endpoint", channel.end.ep.address())?;
        // It is over: its place is the other one's.
        let listens = place.pep.listen();
        ensure!(
            listens == Err(Errno::OpBadState),
            "whoever has given way listens: {listens:?}"
        );
        let at = place.at;
        drop(place.pep);
        door.connect(&channel.end, &[])?;
        is_at(&at, "fi_connect", channel.end.ep.address())?;
        door.connected(&channel.end)?;
        is_at(&at, "the connection", channel.end.ep.address())?;
        Ok(channel)
    })?;
    super::greeting::greet(&mut channel)?;
    super::greeting::part(&channel)
}

/// A channel whose endpoint is not connected yet.
fn channel(options: &Options, door: &Door, ground: &Arc<DomainContext>) -> anyhow::Result<Channel> {
    let eq = Some(Arc::clone(&door.eq));
    let mut channel = Channel::deaf(options, ground, Manners::default(), None, eq)?;
    channel.peer = FiAddr(0);
    channel.post_rest()?;
    Ok(channel)
}
