//! Endpoints: opening, closing, options and names.

mod one_sided;
mod post;

pub(crate) use one_sided::common_attr;

use std::fmt;
use std::sync::{Arc, Weak};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use selvedge::{
    Address, Bindings, Context, EpOption, EpOptionName, Errno, Error, Info, LateBindings, Limits,
    Result,
};
use selvedge_kit::domain::Base;
use selvedge_kit::shell::Shell;
use selvedge_kit::srx::{ReceivePolicy, Receiver};
use selvedge_kit::{Ep, RemoteCounters, bound_av};

use crate::av::Av;
use crate::config::Config;
use crate::link::Link;
use crate::link::selection::LinkDomain;
use crate::name::Name;
use crate::state::State;
use crate::wire::EAGER;

/// An endpoint of the lnx provider.
pub struct Endpoint {
    pub(crate) shell: Shell<State>,
    name: Name,
    pub(crate) inject_size: usize,
    pub(crate) max_msg_size: usize,
    /// The largest number of segments of a local iovec.
    pub(crate) iov_limit: usize,
    limits: Limits,
}

impl Endpoint {
    pub(crate) fn open(
        info: &Info,
        bind: &Bindings,
        config: &Config,
        base: &Base,
        links: &[LinkDomain; 2],
        host: u64,
    ) -> Result<Arc<Self>, Error> {
        let ep = Ep::resolve(bind, info, base.id())?;
        let av: Arc<Av> = bound_av(bind, base.id(), "an endpoint of type FI_EP_RDM")?;
        let src = info.src_addr.as_ref().map(requested_name).transpose()?;
        let [near, far] = links;
        let links = [
            open_link(near, src.as_ref().map(|it| &it.near), info, &ep)?,
            open_link(far, src.as_ref().map(|it| &it.far), info, &ep)?,
        ];
        let open_error = |errno: Errno| Error::new(errno, "opening an endpoint over two links");
        let name = Name {
            host,
            near: links[0].address().map_err(open_error)?,
            far: links[1].address().map_err(open_error)?,
        };
        let epoll =
            open_epoll(&links).map_err(|cause| open_error(Errno::from_raw(cause as i32)))?;
        ep.stats.set_name(&name.to_string());
        let policy = ReceivePolicy::new(info, EAGER);
        let mut state = State::new(links, ep, av, policy, name.clone(), config.timeouts);
        state.unexpected_limit = config.unexpected_size;
        state.post_receives().map_err(open_error)?;
        let endpoint = Arc::new(Self {
            shell: Shell::new(base, bind, &Weak::new(), state, Arc::new(epoll)),
            name,
            // A longer message stays in the caller's memory, which an inject must not use after the
            // call.
            inject_size: info.tx_attr.inject_size.min(EAGER),
            max_msg_size: info.ep_attr.max_msg_size,
            iov_limit: info.tx_attr.iov_limit.min(info.rx_attr.iov_limit),
            limits: Limits::of(info),
        });
        // Dropping the shell detaches the endpoint.
        endpoint.shell.attach()?;
        Ok(endpoint)
    }
}

/// The requested name of an endpoint.
fn requested_name(addr: &Address) -> Result<Name, Error> {
    Name::from_address(addr).ok_or_else(|| {
        let message = format!(
            "address {addr} is not the name of an lnx endpoint: expected lnx://HOST|NEAR|FAR"
        );
        Error::new(Errno::Inval, message)
    })
}

fn open_link(
    link: &LinkDomain,
    src: Option<&Address>,
    ep_info: &Info,
    ep: &Ep,
) -> Result<Link, Error> {
    let mut info = link.info.clone();
    if link.is_watched {
        info.tx_attr.size = info.tx_attr.size.max(ep_info.tx_attr.size);
        info.rx_attr.size = info.rx_attr.size.max(ep_info.rx_attr.size);
    }
    info.src_addr = src.cloned().or(info.src_addr);
    let counts = ep.remote_cntrs().map(|cntr| cntr.map(|cntr| cntr.events()));
    Link::open(&info, link, counts)
}

fn open_epoll(links: &[Link; 2]) -> nix::Result<Epoll> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for fd in links.iter().filter_map(Link::wait_fd) {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    }
    Ok(epoll)
}

#[expect(unsafe_code, reason = "the promise of the endpoint trait")]
// SAFETY: the memory of a receive is accessed through the `RxBuf` inside its `Posted`, which every
// completing call consumes, and by a link between the post of `Link::recv_body` and the completion
// of `Op::ReceiveBody`. The memory of a send is accessed through its `TxBuf`, and by a link between
// the post of `Link::send_body` and the completion of `Op::SendBody`. The memory of a one-sided
// operation is accessed by the link alone, and the completion of `Op::OneSided` follows the link's.
// `Shell` detaches the endpoint from everything that drives it, and drops the links before the
// operations that keep the memory.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        Ok(self.name.to_address())
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        self.shell.bind_late(late, RemoteCounters::BeforeOpen)
    }

    fn cancel(&self, context: Context) -> Result {
        self.shell.lock()?.cancel(context)
    }

    fn set(&self, option: EpOption) -> Result {
        match option {
            EpOption::MinMultiRecv(min_left) => self.shell.lock()?.policy.min_multi_recv = min_left,
            _ => return Err(Errno::NoProtoOpt),
        }
        Ok(())
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        Ok(match name {
            EpOptionName::MinMultiRecv => {
                EpOption::MinMultiRecv(self.shell.lock()?.policy.min_multi_recv)
            }
            _ => return self.limits.option(name),
        })
    }
}

impl AsMut<Ep> for State {
    fn as_mut(&mut self) -> &mut Ep {
        &mut self.ep
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lnx endpoint {}", self.name)
    }
}
