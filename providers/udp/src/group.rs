//! Multicast groups of an endpoint.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use selvedge::eq::Event;
use selvedge::{Address, AddressVector as _, Context, Errno, FiAddr, Membership, Result};
use selvedge_kit::shell::{Core, Shell};

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

/// Makes the endpoint in `shell` a member of a group, whose socket gets a kernel buffer of
/// `buffer_size` bytes.
///
/// # Errors
/// [`Errno::Inval`] for an address that is not a multicast address or has no port; system errors.
pub(crate) fn join(
    shell: &Shell<State>,
    buffer_size: usize,
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
    let mut state = shell.lock()?;
    state
        .join(*addr, number, buffer_size)
        .map_err(|cause| cause.raw_os_error().map_or(Errno::Io, Errno::from_raw))?;
    let addr = state.av.insert_one(group)?;
    let eq = state.eq.upgrade();
    drop(state);
    if let Some(eq) = eq {
        eq.push(Event::JoinComplete { context });
    }
    Ok(Arc::new(Member {
        core: Arc::downgrade(shell.core()),
        number,
        addr,
    }))
}
