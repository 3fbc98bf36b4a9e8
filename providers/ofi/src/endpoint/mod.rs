//! Endpoints: opening, closing, binding, options and addresses.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

mod cm;
mod post;

use std::any::Any;
use std::ffi::c_int;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selvedge::info::EpType;
use selvedge::{
    AddrFormat, Address, AddressVector, Bindings, CompletionFlags, CompletionQueue,
    ConnectionManagement, Context, Counters, EpOption, EpOptionName, Errno, Error, FiAddr, Info,
    LateBindings, Limits, Membership, OpFlags, Result,
};
use selvedge_abi::{Fid, FidEp, FidMc, addr, number};

use crate::domain::{Av, Cq, DomainState, bound_cntr};
use crate::fabric::bound_eq;
use crate::object::{Handle, call, read_address, to_result};
use crate::open_objects;

/// An endpoint of the library.
pub(crate) struct Endpoint {
    handle: Handle<FidEp>,
    pub(crate) domain: Arc<DomainState>,
    pub(crate) tx: Direction,
    pub(crate) rx: Direction,
    pub(crate) inject_size: usize,
    pub(crate) rma_iov_limit: usize,
    limits: Limits,
    addr_format: AddrFormat,
    is_connected: bool,
    /// The address vector of peers; `None` for a connected endpoint.
    av: Option<Arc<Av>>,
    /// The bindings, which are closed after the endpoint.
    _bound: Bindings,
    late_cntrs: Mutex<Vec<Counters>>,
}

/// The attributes of all operations of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direction {
    pub(crate) defaults: OpFlags,
    pub(crate) iov_limit: usize,
    pub(crate) is_selective: bool,
}

/// `FI_OPT_ENDPOINT`.
const LEVEL: c_int = 0;

impl Endpoint {
    pub(crate) fn open(
        domain: &Arc<DomainState>,
        info: &Info,
        bind: Bindings,
    ) -> Result<Arc<Self>, Error> {
        let is_connected = info.ep_attr.ep_type == EpType::Msg;
        let request = match info.handle {
            0 => None,
            name => Some(open_objects::take_request(name).ok_or_else(|| {
                Error::new(
                    Errno::Inval,
                    format!(
                        "there is no connection request {name:#x}: it was accepted or rejected"
                    ),
                )
            })?),
        };
        let request_fid = request.as_ref().map_or(ptr::null_mut(), |it| it.handle);
        let handle = open_handle(domain, info, request_fid)?;
        let av = bind.av.as_ref().map(|av| bound_av(domain, av));
        let av = av.transpose()?;
        if av.is_none() && !is_connected {
            return Err(Error::new(
                Errno::NoAv,
                domain.describe("an unconnected endpoint"),
            ));
        }
        let endpoint = Arc::new(Self {
            handle,
            domain: Arc::clone(domain),
            tx: Direction {
                defaults: info.tx_attr.op_flags,
                iov_limit: info.tx_attr.iov_limit,
                is_selective: bind.tx_selective,
            },
            rx: Direction {
                defaults: info.rx_attr.op_flags,
                iov_limit: info.rx_attr.iov_limit,
                is_selective: bind.rx_selective,
            },
            inject_size: info.tx_attr.inject_size,
            rma_iov_limit: info.tx_attr.rma_iov_limit,
            limits: Limits::of(info),
            addr_format: info.addr_format,
            is_connected,
            av: av.filter(|_| !is_connected),
            _bound: bind,
            late_cntrs: Mutex::default(),
        });
        endpoint.bind_all()?;
        endpoint.enable()?;
        // The safe layer must hold the only reference to an endpoint that it lends memory to. So
        // only endpoints with an event queue are registered.
        if endpoint._bound.eq.is_some() {
            let name = endpoint.handle.id();
            let weak = Arc::downgrade(&endpoint);
            open_objects::register_endpoint(name, weak);
        }
        Ok(endpoint)
    }

    fn lock_late_cntrs(&self) -> MutexGuard<'_, Vec<Counters>> {
        self.late_cntrs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn bind_cntrs(&self, cntrs: &Counters) -> Result<(), Error> {
        let each = [
            (&cntrs.send, CompletionFlags::SEND),
            (&cntrs.recv, CompletionFlags::RECV),
            (&cntrs.read, CompletionFlags::READ),
            (&cntrs.write, CompletionFlags::WRITE),
            (&cntrs.remote_read, CompletionFlags::REMOTE_READ),
            (&cntrs.remote_write, CompletionFlags::REMOTE_WRITE),
        ];
        for (cntr, flags) in each {
            if let Some(cntr) = cntr {
                let cntr = bound_cntr(&self.domain, "counter of an endpoint", cntr)?;
                self.bind("a counter", cntr.fid()?, flags.bits())?;
            }
        }
        Ok(())
    }

    fn bind_all(&self) -> Result<(), Error> {
        let bound = &self._bound;
        if let Some(eq) = &bound.eq {
            self.bind(
                "an event queue",
                bound_eq(eq, &self.domain.fabric, &self.domain.id)?.fid()?,
                0,
            )?;
        }
        if let Some(av) = &self.av {
            self.bind("an address vector", av.fid()?, 0)?;
        }
        let (send, recv) = (CompletionFlags::SEND.bits(), CompletionFlags::RECV.bits());
        // If contexts are slots, the library reports every operation, and the queue drops the
        // completions that were not requested.
        let selective = |requested: bool| {
            if requested && !self.domain.contexts.are_slots() {
                number::bind::SELECTIVE_COMPLETION
            } else {
                0
            }
        };
        let tx = bound_cq(&self.domain, "tx_cq of an endpoint", &bound.tx_cq)?;
        let rx = bound_cq(&self.domain, "rx_cq of an endpoint", &bound.rx_cq)?;
        let (tx_selective, rx_selective) =
            (selective(bound.tx_selective), selective(bound.rx_selective));
        if Arc::ptr_eq(&tx, &rx) && tx_selective == rx_selective {
            self.bind("a completion queue", tx.fid()?, send | recv | tx_selective)?
        } else {
            self.bind("a completion queue", tx.fid()?, send | tx_selective)?;
            self.bind("a completion queue", rx.fid()?, recv | rx_selective)?;
        }
        self.bind_cntrs(&bound.cntrs)
    }

    fn bind(&self, object: &str, other: *mut Fid, flags: u64) -> Result<(), Error> {
        let fid = self.fid()?;
        // SAFETY: both objects are open.
        let code = unsafe { call!(fid, (*fid).ops, bind, other, flags) };
        self.check(format_args!("binding {object}"), code)
    }

    fn enable(&self) -> Result<(), Error> {
        let fid = self.fid()?;
        let (command, none) = (number::control::ENABLE, ptr::null_mut());
        // SAFETY: the endpoint is open, and the command has no argument.
        let code = unsafe { call!(fid, (*fid).ops, control, command, none) };
        self.check("enabling an endpoint", code)
    }

    fn check(&self, action: impl fmt::Display, code: c_int) -> Result<(), Error> {
        match code {
            0.. => Ok(()),
            negative => Err(self.domain.library().call_error(action, negative)),
        }
    }

    #[inline]
    pub(crate) fn ptr(&self) -> Result<*mut FidEp> {
        self.handle.ptr()
    }

    pub(crate) fn fid(&self) -> Result<*mut Fid, Error> {
        self.handle.fid_or_error()
    }

    pub(crate) fn addr_format(&self) -> AddrFormat {
        self.addr_format
    }

    /// Checks the address index of a send: libraries do not check it.
    ///
    /// # Errors
    /// [`Errno::Inval`] for an index that the address vector does not have.
    #[inline]
    pub(crate) fn check_peer(&self, addr: FiAddr) -> Result {
        self.av.as_ref().map_or(Ok(()), |av| av.check(addr))
    }

    /// Checks the address index of a receive; unspecified means any source.
    ///
    /// # Errors
    /// As [`Self::check_peer`].
    #[inline]
    pub(crate) fn check_source(&self, addr: FiAddr) -> Result {
        match addr {
            FiAddr::UNSPEC => Ok(()),
            addr => self.check_peer(addr),
        }
    }
}

/// Downcasts a completion queue to one of this domain.
fn bound_cq(
    domain: &DomainState,
    name: &str,
    cq: &Arc<dyn CompletionQueue>,
) -> Result<Arc<Cq>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    domain.id.downcast(name, any, cq)
}

/// Downcasts an address vector to one of this domain.
fn bound_av(domain: &DomainState, av: &Arc<dyn AddressVector>) -> Result<Arc<Av>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn AddressVector>::clone(av);
    domain.id.downcast("address vector of an endpoint", any, av)
}

// SAFETY: libfabric promises what the trait requires: after a completion, and after `fi_close`, it
// does not access an operation's buffers. The user who named the library by `FI_OFI_LIBRARY`
// vouches that it keeps this promise.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        let ep = self.ptr()?;
        read_address(self.addr_format, |out_ptr, len| {
            // SAFETY: the endpoint is open, and there is room for as many bytes.
            unsafe { call!(ep, (*ep).cm, getname, out_ptr, len) }
        })
    }

    fn bind_late(&self, late: &LateBindings) -> Result<(), Error> {
        if late.tx_cq.is_some() || late.rx_cq.is_some() {
            let message = "cannot bind a completion queue: the ofi provider binds queues only when it \
                        opens an endpoint";
            return Err(Error::new(Errno::OpBadState, message));
        }
        // The counters are kept even if binding fails, because the library may have bound some of
        // them.
        self.lock_late_cntrs().push(late.cntrs.clone());
        self.bind_cntrs(&late.cntrs)
    }

    fn cancel(&self, context: Context) -> Result {
        let ep = self.ptr()?;
        let raw_context = self.domain.contexts.find(context)?;
        // SAFETY: the endpoint is open; the library finds no operation for an unknown context.
        to_result(unsafe { call!(ep, (*ep).ops, cancel, raw_context) })
    }

    fn set(&self, option: EpOption) -> Result {
        let (name, value) = ((option.name() as u32).cast_signed(), option.value());
        let ep = self.ptr()?;
        let (value_ptr, len) = ((&raw const value).cast(), value_len(option.name()));
        // SAFETY: the endpoint is open, and the value lives during the call. Its low bytes come
        // first on the processors for which this crate is built.
        to_result(unsafe { call!(ep, (*ep).ops, setopt, LEVEL, name, value_ptr, len) })
    }

    fn option(&self, name: EpOptionName) -> Result<EpOption> {
        read_option(&self.handle, &self.limits, name)
    }

    fn join(&self, group: &Address, context: Context) -> Result<Arc<dyn Membership>> {
        let ep = self.ptr()?;
        let bytes = addr::encode(group);
        let addr_ptr = bytes.as_ptr().cast();
        let word = usize::try_from(context.0).map_err(|_| Errno::Inval)?;
        let context = ptr::without_provenance_mut(word);
        let mut errno = Errno::Other;
        let handle = Handle::<FidMc>::open(self.domain.library(), "a membership", |out| {
            // SAFETY: the endpoint is open, and the address lives during the call.
            let code = unsafe { call!(ep, (*ep).cm, join, addr_ptr, 0, out, context) };
            errno = to_result(code).err().unwrap_or(errno);
            code
        });
        let handle = handle.map_err(|_| errno)?;
        let mc = handle.ptr()?;
        // SAFETY: the membership is open, and this field is public.
        let addr = FiAddr(unsafe { (*mc).fi_addr });
        let av = self.av.clone().ok_or(Errno::NoAv)?;
        av.add_index(addr);
        Ok(Arc::new(Member {
            _handle: handle,
            addr,
            av,
        }))
    }

    fn cm(&self) -> Option<&dyn ConnectionManagement> {
        self.is_connected.then_some(self)
    }
}

/// A membership of the library.
#[derive(Debug)]
struct Member {
    _handle: Handle<FidMc>,
    addr: FiAddr,
    av: Arc<Av>,
}

impl Membership for Member {
    fn addr(&self) -> FiAddr {
        self.addr
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.av.remove_index(self.addr);
    }
}

/// The length of the value of an option in C.
fn value_len(name: EpOptionName) -> usize {
    match name {
        EpOptionName::FiHmemP2p => size_of::<c_int>(),
        _ => size_of::<usize>(),
    }
}

/// An option of an open endpoint. Most of libfabric's providers do not implement the options that
/// repeat sizes of the info.
fn read_option(handle: &Handle<FidEp>, limits: &Limits, name: EpOptionName) -> Result<EpOption> {
    let ep = handle.ptr()?;
    let (mut value, mut len) = (0_usize, value_len(name));
    let out_ptr = (&raw mut value).cast();
    let number = (name as u32).cast_signed();
    // SAFETY: the endpoint is open, and there is room for a value of this length.
    let code =
        to_result(unsafe { call!(ep, (*ep).ops, getopt, LEVEL, number, out_ptr, &raw mut len) });
    match code {
        Ok(()) => Ok(EpOption::new(name, value)),
        Err(errno) => limits.option(name).map_err(|_| match errno {
            Errno::NoSys => Errno::NoProtoOpt,
            errno => errno,
        }),
    }
}

/// An option of an endpoint that is not open yet, read from an endpoint that is opened for the
/// query.
pub(crate) fn query_option(
    domain: &DomainState,
    info: &Info,
    name: EpOptionName,
) -> Result<EpOption> {
    let handle = open_handle(domain, info, ptr::null_mut()).map_err(|error| error.errno())?;
    read_option(&handle, &Limits::of(info), name)
}

fn open_handle(
    domain: &DomainState,
    info: &Info,
    request: *mut Fid,
) -> Result<Handle<FidEp>, Error> {
    let library = domain.library();
    domain.check_info(info)?;
    let info_for_library = library.library_info(info, request)?;
    let fid = domain.ptr_or_error()?;
    Handle::<FidEp>::open(library, domain.describe("an endpoint"), |out| {
        let none = ptr::null_mut();
        // SAFETY: the domain is open, the description is the library's.
        unsafe {
            call!(
                fid,
                (*fid).ops,
                endpoint,
                info_for_library.first(),
                out,
                none
            )
        }
    })
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        open_objects::unregister_endpoint(self.handle.id());
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.domain.describe("endpoint"))
    }
}
