//! `Endpoint`: how it is opened, and its options.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use nix::sys::epoll::{Epoll, EpollCreateFlags};
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Context, EpOption, EpOptionName, Errno, Error, Info, LateBindings, Limits,
    Membership, Result,
};
use selvedge_kit::domain::Base;
use selvedge_kit::ip::{Av, canonical_addr, requested_address};
use selvedge_kit::shell::Shell;
use selvedge_kit::{Ep, RemoteCounters, bound_av, bound_eq};

use crate::config::{Config, LONGEST_QUEUE};
use crate::group;
use crate::socket::Socket;
use crate::state::{State, StateArgs};

/// An endpoint of the udp provider.
pub struct Endpoint {
    pub(crate) shell: Shell<State>,
    /// The address of its socket.
    addr: SocketAddr,
    buffer_size: usize,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    limits: Limits,
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        config: &Config,
        base: &Base,
    ) -> Result<Arc<Self>, Error> {
        if info.ep_attr.ep_type != EpType::Dgram {
            let other = info.ep_attr.ep_type;
            let text = format!("the udp provider has no endpoints of type {other}");
            return Err(Error::new(Errno::Inval, text));
        }
        let ep = Ep::resolve(bind, info, base.id())?;
        let av: Arc<Av> = bound_av(bind, base.id(), "an endpoint of type FI_EP_DGRAM")?;
        let eq = match &bind.eq {
            Some(eq) => Arc::downgrade(&bound_eq(eq, base.id().fabric(), base.id())?),
            None => Weak::new(),
        };
        let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let at = requested_address(info)?.unwrap_or(anywhere);
        let opened = open_socket(at, config.buffer_size).and_then(|(socket, addr)| {
            let epoll = Arc::new(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?);
            ep.stats.set_name(&addr.to_string());
            let state = State::new(StateArgs {
                ep,
                av,
                eq: Weak::clone(&eq),
                socket,
                epoll: Arc::clone(&epoll),
                max_sends: config.tx_size.max(info.tx_attr.size).min(LONGEST_QUEUE),
            })?;
            Ok((state, addr, epoll))
        });
        let (state, addr, epoll) = opened.map_err(|cause| {
            let errno = cause.raw_os_error().map_or(Errno::Io, Errno::from_raw);
            Error::new(errno, format!("opening an endpoint at {at}")).because(cause)
        })?;
        let endpoint = Arc::new(Self {
            shell: Shell::new(base, bind, &eq, state, epoll),
            addr,
            buffer_size: config.buffer_size,
            inject_size: info.tx_attr.inject_size,
            max_msg_size: info.ep_attr.max_msg_size,
            limits: Limits::of(info),
        });
        // If `attach` fails, dropping the shell detaches it again.
        endpoint.shell.attach()?;
        Ok(endpoint)
    }
}

fn open_socket(at: SocketAddr, buffer: usize) -> io::Result<(Socket, SocketAddr)> {
    let socket = Socket::open(at, buffer, false)?;
    let addr = canonical_addr(socket.local_addr()?);
    let ip: IpAddr = addr.ip();
    if !ip.is_unspecified() {
        socket.set_multicast_interface(ip)?;
    }
    Ok((socket, addr))
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the endpoint accesses the memory of a receive through the `RxBuf` of its `Posted`, which
// every call that completes the receive consumes. It accesses the memory of a send through the
// `TxBuf` of its `Datagram`, which is dropped before the completion is pushed. A system call does
// not access either after its return. On close, `Shell` detaches the endpoint from everything that
// drives it, and then drops all receives and sends.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        Ok(Address::Ip(self.addr))
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        self.shell.bind_late(late, RemoteCounters::Late)
    }

    fn cancel(&self, context: Context) -> Result {
        self.shell.lock()?.cancel(context)
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        self.limits.option(name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        group::join(&self.shell, self.buffer_size, group, context)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp endpoint {}", self.addr)
    }
}
