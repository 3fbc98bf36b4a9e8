//! `Ep`: an endpoint or a half of a context, which only collects its bindings until it is enabled.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use selvedge::{
    AddrFormat, Domain, Endpoint, EpOption, Errno, Info, OpFlags, PassiveEndpoint, Result,
};

use super::bound::Bound;
use super::half::{Context, Half, State};
use crate::object::{Object, User, handles};
use crate::status::log_error;

/// The object behind the handle of an endpoint, and behind a transmit or receive context.
pub(crate) struct Ep {
    /// The endpoint, from the first call that needs it after this handle was enabled.
    live: OnceLock<Arc<dyn Endpoint>>,
    pub(super) shared: Arc<Shared>,
    /// The flags of posts by the short forms.
    pub(super) tx_flags: AtomicU64,
    pub(super) rx_flags: AtomicU64,
    /// The half of a context that this object represents; `None` for an endpoint.
    pub(super) half: Option<Half>,
}

/// The state that an endpoint shares with its aliases.
pub(super) struct Shared {
    draft: Mutex<Draft>,
    pub(super) live: OnceLock<Arc<dyn Endpoint>>,
    pub(super) domain: Arc<dyn Domain>,
    pub(super) format: AddrFormat,
    pub(super) default_flags: (OpFlags, OpFlags),
    /// The context of a scalable endpoint; `None` for an endpoint that is not scalable.
    pub(super) context: Option<Arc<Context>>,
    _domain: User,
}

/// The description of an endpoint that is not enabled yet.
pub(super) struct Draft {
    pub(super) info: Info,
    pub(super) bound: Bound,
    /// Options that were set before the endpoint was enabled.
    pub(super) options: Vec<EpOption>,
    /// The passive endpoint whose address the endpoint takes over.
    pub(super) passive_ep: Option<Arc<dyn PassiveEndpoint>>,
}

impl Draft {
    fn set_options(&self, opened: &dyn Endpoint) -> Result {
        self.options
            .iter()
            .try_for_each(|&option| opened.set(option))
    }
}

impl Shared {
    pub(super) fn new(domain: &Arc<dyn Domain>, user: User, info: Info) -> Self {
        Self {
            live: OnceLock::new(),
            domain: Arc::clone(domain),
            format: info.addr_format,
            default_flags: (info.tx_attr.op_flags, info.rx_attr.op_flags),
            draft: Mutex::new(Draft {
                info,
                bound: Bound::default(),
                options: Vec::new(),
                passive_ep: None,
            }),
            context: None,
            _domain: user,
        }
    }

    pub(super) fn draft(&self) -> MutexGuard<'_, Draft> {
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(live) = self.live.get() {
            handles::remove(live);
        }
    }
}

impl Ep {
    pub(super) fn new(shared: Arc<Shared>, half: Option<Half>) -> Self {
        Self {
            live: OnceLock::new(),
            shared,
            tx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            rx_flags: AtomicU64::new(OpFlags::DEFAULT.bits()),
            half,
        }
    }

    /// The object for a second handle of an endpoint, with the same flags.
    pub(super) fn with_same_flags(&self) -> Self {
        Self {
            tx_flags: AtomicU64::new(self.tx_flags().bits()),
            rx_flags: AtomicU64::new(self.rx_flags().bits()),
            ..Self::new(Arc::clone(&self.shared), None)
        }
    }

    /// The enabled endpoint.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] before this handle is enabled; the errors of opening a context, if the
    /// first use of an enabled half opens it.
    #[inline(always)]
    pub(crate) fn live(&self) -> Result<&dyn Endpoint> {
        match self.live.get() {
            Some(live) => Ok(&**live),
            None => self.first_use().map(|live| &**live),
        }
    }

    /// As [`Self::live`], on the first use of this handle.
    #[cold]
    pub(super) fn first_use(&self) -> Result<&Arc<dyn Endpoint>> {
        let live = match &self.half {
            Some(half) => self.use_half(half)?,
            None => self.shared.live.get().ok_or(Errno::OpBadState)?,
        };
        Ok(self.live.get_or_init(|| Arc::clone(live)))
    }

    /// The format of the endpoint's addresses.
    pub(crate) fn format(&self) -> AddrFormat {
        self.shared.format
    }

    #[inline(always)]
    pub(super) fn tx_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.tx_flags.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn rx_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.rx_flags.load(Ordering::Relaxed))
    }
}

impl Ep {
    /// Enables a half of a context, and opens the context if [`Half::opens_context`].
    ///
    /// # Errors
    /// [`Errno::OpBadState`] if the half is enabled already; [`Errno::NoCq`] without a queue or
    /// counter; the errors of [`Context::open`].
    pub(super) fn enable_half(&self, half: &Half) -> Result {
        if half.is_enabled() {
            return Err(Errno::OpBadState);
        }
        let draft = self.shared.draft();
        draft.bound.check_reports(&draft.info, half.side.caps())?;
        drop(draft);
        half.set(State::Enabled);
        if half.opens_context() {
            let opened = self.open_context(half).map(|_| ());
            return opened.inspect_err(|_| half.set(State::Open));
        }
        Ok(())
    }

    /// The endpoint of an enabled half.
    ///
    /// # Errors
    /// [`Errno::OpBadState`] before the half is enabled; the errors of [`Context::open`].
    fn use_half(&self, half: &Half) -> Result<&Arc<dyn Endpoint>> {
        if half.is_enabled() {
            self.open_context(half)
        } else {
            Err(Errno::OpBadState)
        }
    }

    fn open_context(&self, half: &Half) -> Result<&Arc<dyn Endpoint>> {
        let draft = &mut *self.shared.draft();
        if let Some(live) = self.shared.live.get() {
            return Ok(live);
        }
        let opened = half
            .context
            .open(&draft.info, &mut draft.bound, &*self.shared.domain)?;
        draft.set_options(&*opened)?;
        Ok(self.shared.live.get_or_init(|| opened))
    }
}

impl Object<Ep> {
    /// Opens the described endpoint with its bindings, unless it is open.
    ///
    /// # Errors
    /// [`Errno::NoCq`], [`Errno::NoAv`] or [`Errno::NoEq`] for a missing binding; the provider's.
    pub(super) fn enable(&self) -> Result<&dyn Endpoint> {
        let mut draft = self.shared.draft();
        if let Some(live) = self.shared.live.get() {
            return Ok(&**live);
        }
        let bindings = draft.bound.bindings(&draft.info, &*self.shared.domain)?;
        let opened = self.shared.domain.endpoint(&draft.info, bindings);
        let opened = opened.map_err(|error| log_error(&error))?;
        draft.set_options(&*opened)?;
        draft.passive_ep = None;
        handles::add(&opened, self.fid());
        Ok(&**self.shared.live.get_or_init(|| opened))
    }
}
