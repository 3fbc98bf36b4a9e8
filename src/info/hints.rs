//! `Hints`: the requirements of the application in discovery.

#![expect(unsafe_code, reason = "the promise that removes locks")]

use super::{EpType, Info, Progress, ResourceMgmt, Threading};
use crate::{AddrFormat, Address, Caps, Mode, MrMode, MsgOrder, av};

/// The requirements of a query with [`crate::Registry::getinfo`]: an [`Info`] whose unset fields
/// mean "any".
///
/// Two fields are exceptions. `mode` and `domain_attr.mr_mode` list the modes that the application
/// supports, so an empty list means "none". [`Hints::anything`] supports all modes.
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

macro_rules! setters {
    ($($(#[$doc:meta])+ $name:ident($value:ident: $kind:ty) { $($field:ident).+ } $(and { $($other:ident).+ })?)+) => {
        /// Setters of one attribute each. A later call overwrites an earlier one.
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

setters! {
    /// Requires capabilities.
    caps(caps: Caps) { caps }
    /// Declares the modes that the application supports.
    mode(mode: Mode) { mode }
    /// Requires an endpoint type.
    ep_type(ep_type: EpType) { ep_attr.ep_type }
    /// Requires a provider by its name; the names of layered providers are joined by `;`.
    provider(name: &str) { fabric_attr.prov_name }
    /// Requires a fabric, by its name.
    fabric(name: &str) { fabric_attr.name }
    /// Requires a domain, by its name.
    domain(name: &str) { domain_attr.name }
    /// Requires an address format.
    addr_format(format: AddrFormat) { addr_format }
    /// Requires a local address.
    src_addr(addr: Address) { src_addr }
    /// Sets the address of the peer.
    dest_addr(addr: Address) { dest_addr }
    /// Requires room for this number of outstanding operations.
    tx_size(size: usize) { tx_attr.size }
    /// Requires room for this number of posted receives.
    rx_size(size: usize) { rx_attr.size }
    /// Requires injected messages of up to this size, in bytes.
    inject_size(size: usize) { tx_attr.inject_size }
    /// Requires lists of up to this number of segments, for transmits and receives.
    iov_limit(limit: usize) { tx_attr.iov_limit } and { rx_attr.iov_limit }
    /// Requires messages of up to this size, in bytes.
    max_msg_size(size: usize) { ep_attr.max_msg_size }
    /// Requires order guarantees for transmits and receives.
    msg_order(order: MsgOrder) { tx_attr.msg_order } and { rx_attr.msg_order }
    /// Declares the modes of memory registration that the application supports.
    mr_mode(mode: MrMode) { domain_attr.mr_mode }
    /// Requires a type of address vector.
    av_type(av_type: av::Type) { domain_attr.av_type }
    /// Requires remote completion data of this size, in bytes.
    cq_data_size(size: usize) { domain_attr.cq_data_size }
    /// Requires a progress model for data transfers.
    data_progress(progress: Progress) { domain_attr.data_progress }
    /// Requires a progress model for control operations.
    control_progress(progress: Progress) { domain_attr.control_progress }
    /// Requires queues with or without protection from overruns.
    resource_mgmt(resource_mgmt: ResourceMgmt) { domain_attr.resource_mgmt }
}

impl Hints {
    /// Returns hints that require nothing and support no mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns hints that require nothing and support every mode that is not deprecated, like
    /// `hints == NULL` in C.
    pub fn anything() -> Self {
        let modes = MrMode::all() - MrMode::BASIC - MrMode::SCALABLE;
        Self::new().mode(Mode::all()).mr_mode(modes)
    }

    /// Edits any field of the [`Info`]. The edit neither makes nor removes a threading promise.
    #[must_use]
    pub fn edit(mut self, edit: impl FnOnce(&mut Info)) -> Self {
        let origin = self.info.origin.clone();
        edit(&mut self.info);
        self.info.origin = origin;
        self
    }

    /// Promises how the application's threads use the objects that are opened from the results.
    /// Providers omit the locks that the promise makes unnecessary.
    ///
    /// # Safety
    /// The caller keeps the promise as long as an object exists that was opened from a result of
    /// these hints, or from a copy of a result:
    /// - [`Threading::Domain`]: no two threads use objects of one domain at the same time;
    /// - [`Threading::Completion`]: no two threads use objects of one group at the same time. An
    ///   endpoint belongs to one group with the completion queues and counters that it is bound to.
    ///   Endpoints with a common queue or counter belong to the same group;
    /// - [`Threading::Fid`] and [`Threading::Endpoint`]: no two threads use one object at the same
    ///   time.
    ///
    /// [`Threading::Safe`] and [`Threading::Unspec`] promise nothing. An endpoint of
    /// [`crate::owned`] counts as two objects: an endpoint and its completion queue.
    #[must_use]
    pub unsafe fn promise_threading(mut self, threading: Threading) -> Self {
        self.info.domain_attr.threading = threading;
        self.info.origin.threading = match threading {
            Threading::Unspec => Threading::Safe,
            promised => promised,
        };
        self
    }

    /// Returns the requirements.
    pub fn info(&self) -> &Info {
        &self.info
    }
}

/// Requires what the [`Info`] describes. Its threading promise is not copied, because that covers
/// only the objects of the hints that it was made for.
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
    fn setters_write_their_fields() {
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
