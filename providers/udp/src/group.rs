//! Multicast groups of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use selvedge::eq::Event;
use selvedge::{Address, AddressVector as _, Context, Errno, FiAddr, Membership, Result};

use selvedge_kit::shell::Core;

use crate::endpoint::Endpoint;
use crate::state::State;

/// The membership of a group. Dropping it leaves the group.
#[derive(Debug)]
struct Member {
    core: Weak<Core<State>>,
    number: u64,
    addr: FiAddr,
}

impl Membership for Member {
    fn addr(&self) -> FiAddr {
        self.addr
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade()
            && let Ok(mut state) = core.state.lock()
        {
            state.leave(self.number);
        }
    }
}

/// Makes an endpoint a member of a group.
///
/// # Errors
/// [`Errno::Inval`] for an address that is not a multicast address or has no port; system errors.
pub(crate) fn join(
    endpoint: &Endpoint,
    group: &Address,
    context: Context,
) -> Result<Arc<dyn Membership>> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Address::Ip(addr) = group else {
        return Err(Errno::Inval);
    };
    if !addr.ip().is_multicast() || addr.port() == 0 {
        log::warn!(target: "selvedge::udp::mc", "cannot join {addr}: it is not a multicast address with a port");
        return Err(Errno::Inval);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut state = endpoint.shell.lock()?;
    state
        .join(*addr, number, endpoint.buffer_size)
        .map_err(|cause| cause.raw_os_error().map_or(Errno::Io, Errno::from_raw))?;
    let addr = state.av.insert_one(group)?;
    let eq = state.eq.upgrade();
    drop(state);
    if let Some(eq) = eq {
        eq.push(Event::JoinComplete { context });
    }
    Ok(Arc::new(Member {
        core: Arc::downgrade(endpoint.shell.core()),
        number,
        addr,
    }))
}
