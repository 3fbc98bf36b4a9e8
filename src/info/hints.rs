//! What the application asks for.

#![expect(unsafe_code, reason = "the promise that removes locks")]

use super::{EpType, Info, Progress, ResourceMgmt, Threading};
use crate::{AddrFormat, Address, Caps, Mode, MrMode, MsgOrder, av};

/// What the application asks of [`crate::Registry::getinfo`]: an [`Info`] whose unset fields mean
/// "any".
///
/// Two fields are no wishes but concessions, and empty means "none": `mode` and
/// `domain_attr.mr_mode` list the duties that the application takes on. [`Hints::anything`] takes
/// on all.
///
/// # Examples
/// ```
/// use selvedge::{Caps, Hints, info::EpType};
///
/// let hints = Hints::new()
///     .caps(Caps::TAGGED | Caps::DIRECTED_RECV)
///     .ep_type(EpType::Rdm)
///     .tx_size(64)
///     .edit(|info| info.rx_attr.iov_limit = 2);
/// assert_eq!(hints.info().tx_attr.size, 64);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    info: Info,
}

macro_rules! wishes {
    ($($(#[$doc:meta])+ $name:ident($value:ident: $kind:ty) { $($field:ident).+ } $(and { $($other:ident).+ })?)+) => {
        /// Wishes, one attribute each; the last one counts.
        impl Hints {
            $($(#[$doc])+
            #[must_use]
            pub fn $name(mut self, $value: $kind) -> Self {
                $(self.info.$($other).+ = $value.clone().into();)?
                self.info.$($field).+ = $value.into();
                self
            })+
        }
    };
}

wishes! {
    /// Asks for capabilities.
    caps(caps: Caps) { caps }
    /// Takes on duties.
    mode(mode: Mode) { mode }
    /// Asks for a kind of endpoint.
    ep_type(ep_type: EpType) { ep_attr.ep_type }
    /// Asks for a provider, or layers joined by `;`.
    provider(name: &str) { fabric_attr.prov_name }
    /// Asks for a fabric.
    fabric(name: &str) { fabric_attr.name }
    /// Asks for a domain.
    domain(name: &str) { domain_attr.name }
    /// Asks for a format of addresses.
    addr_format(format: AddrFormat) { addr_format }
    /// Asks for a local address.
    src_addr(addr: Address) { src_addr }
    /// Names the peer.
    dest_addr(addr: Address) { dest_addr }
    /// Asks for this many outstanding operations.
    tx_size(size: usize) { tx_attr.size }
    /// Asks for this many posted receives.
    rx_size(size: usize) { rx_attr.size }
    /// Asks to inject messages of this many bytes.
    inject_size(size: usize) { tx_attr.inject_size }
    /// Asks for lists of this many pieces, in both directions.
    iov_limit(limit: usize) { tx_attr.iov_limit } and { rx_attr.iov_limit }
    /// Asks for messages of this many bytes.
    max_msg_size(size: usize) { ep_attr.max_msg_size }
    /// Asks for order, in both directions.
    msg_order(order: MsgOrder) { tx_attr.msg_order } and { rx_attr.msg_order }
    /// Takes on duties of memory registration.
    mr_mode(mode: MrMode) { domain_attr.mr_mode }
    /// Asks for a kind of address vector.
    av_type(av_type: av::Type) { domain_attr.av_type }
    /// Asks for remote completion data of this many bytes.
    cq_data_size(size: usize) { domain_attr.cq_data_size }
    /// Asks who drives data.
    data_progress(progress: Progress) { domain_attr.data_progress }
    /// Asks who drives connections and the like.
    control_progress(progress: Progress) { domain_attr.control_progress }
    /// Asks for queues that are protected from overruns, or for others.
    resource_mgmt(resource_mgmt: ResourceMgmt) { domain_attr.resource_mgmt }
}

impl Hints {
    /// Asks for nothing and takes on no duty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for nothing and takes on every duty: what C's `hints == NULL` means.
    pub fn anything() -> Self {
        let duties = MrMode::all() - MrMode::BASIC - MrMode::SCALABLE;
        Self::new().mode(Mode::all()).mr_mode(duties)
    }

    /// Asks for whatever else an [`Info`] holds.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut Info)) -> Self {
        let origin = self.info.origin.clone();
        edit(&mut self.info);
        self.info.origin = origin;
        self
    }

    /// Promises how the application's threads use what is opened from the results; providers
    /// leave out the locks that the promise makes needless.
    ///
    /// # Safety
    /// For as long as an object lives that was opened from a result of these hints or from a copy of it:
    /// - [`Threading::Domain`]: no two threads use objects of one domain at the same time;
    /// - [`Threading::Completion`]: no two threads at the same time use objects of one group, where
    ///   endpoints and the completion queues and counters that they are bound to are of one group,
    ///   directly or through one another;
    /// - [`Threading::Fid`] and [`Threading::Endpoint`]: no two threads use one object at the same
    ///   time.
    ///
    /// [`Threading::Safe`] and [`Threading::Unspec`] promise nothing. Endpoints of [`crate::owned`] are
    /// such objects, too: one stands for the endpoint and the queue that it has opened.
    #[must_use]
    pub unsafe fn promise_threading(mut self, threading: Threading) -> Self {
        self.info.domain_attr.threading = threading;
        self.info.origin.threading = match threading {
            Threading::Unspec => Threading::Safe,
            promised => promised,
        };
        self
    }

    /// What is asked for.
    pub fn info(&self) -> &Info {
        &self.info
    }
}

/// Asks for a way to communicate like this one. A promise about threads does not come along: it
/// was made for the objects of other hints.
impl From<Info> for Hints {
    fn from(mut info: Info) -> Self {
        info.origin = super::origin::Origin::default();
        Self { info }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised() -> Hints {
        // SAFETY: nothing is opened from these hints.
        unsafe { Hints::new().promise_threading(Threading::Domain) }
    }

    #[test]
    fn wishes_reach_their_fields() {
        let hints = Hints::new()
            .provider("shm")
            .iov_limit(3)
            .msg_order(MsgOrder::SAS)
            .dest_addr(Address::Str("fi_shm://1".into()));
        let info = hints.info();
        assert_eq!(info.fabric_attr.prov_name, "shm");
        assert_eq!((info.tx_attr.iov_limit, info.rx_attr.iov_limit), (3, 3));
        assert_eq!(info.rx_attr.msg_order, MsgOrder::SAS);
        assert_eq!(info.dest_addr, Some(Address::Str("fi_shm://1".into())));
    }

    #[test]
    fn without_a_promise_threads_are_safe() {
        let hints = Hints::new().edit(|info| info.domain_attr.threading = Threading::Domain);
        assert_eq!(hints.info().threading_promise(), Threading::Safe);
    }

    #[test]
    fn safe_code_cannot_move_a_promise() {
        let info = promised().info().clone();
        assert_eq!(info.threading_promise(), Threading::Domain);
        let edited = Hints::new().edit(|own| *own = info.clone());
        assert_eq!(edited.info().threading_promise(), Threading::Safe);
        assert_eq!(
            Hints::from(info).info().threading_promise(),
            Threading::Safe
        );
    }

    #[test]
    fn an_edit_keeps_the_promise() {
        let edited = promised().edit(|own| *own = Info::default());
        assert_eq!(edited.info().threading_promise(), Threading::Domain);
    }
}
