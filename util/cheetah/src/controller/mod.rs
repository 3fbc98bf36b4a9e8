//! Controllers: the contexts of a program, and the operations between them.

mod channel;
pub(crate) mod matching;
pub(crate) mod parcel;
pub(crate) mod special;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::bell::{Bell, BellName};
use crate::config::Config;
use crate::core::{Core, Message};
use crate::engine::parts::copies::Copies;
use crate::net::wire::Port;
use crate::{Error, Result};
use channel::{Channel, MatchedRequest};
use parcel::Parcel;
use special::Special;

/// A function that another context invokes.
type Handler = Box<dyn FnMut(&Controller, Call<'_>)>;

/// The callback of a request.
type Action = Box<dyn FnOnce(&Controller, &[u8])>;

/// A `Controller` is the handle of one context to all contexts of a program.
///
/// Clones are cheap and refer to the same controller. Dropping the last clone finalizes the
/// controller and only logs the errors ([`log::Level::Error`]); [`Self::finalize`] returns them. A
/// program may have several controllers, over different fabrics. One thread uses a controller; see
/// [`Config::with_thread`] for programs that cannot call it often.
///
/// # Examples
/// ```no_run
/// use selvedge_cheetah::{Config, Controller};
///
/// let mut args: Vec<String> = std::env::args().collect();
/// let controller = Controller::open(&Config::from_args(&mut args)?)?; // -shmem -np 4
/// let greeted = controller.bell()?;
/// let ring = greeted.clone();
/// let greet = controller.register("greet", move |_, call| {
///     println!("context {} says {}", call.from, String::from_utf8_lossy(call.bytes));
///     ring.set(ring.value() + 1);
/// })?;
/// let next = (controller.mycontext() + 1) % controller.ncontexts();
/// controller.ainvoke(next, greet, b"hello")?;
/// controller.wait(&greeted, 1)?;
/// controller.finalize()?;
/// # Ok::<(), selvedge_cheetah::Error>(())
/// ```
#[derive(Clone)]
pub struct Controller(Rc<Inner>);

struct Inner {
    core: Rc<Core>,
    functions: RefCell<Vec<Rc<RefCell<Handler>>>>,
    channels: RefCell<Vec<Option<Rc<Channel<Action>>>>>,
    /// Messages for handlers that are not built yet.
    undelivered: RefCell<Vec<Message>>,
    /// Requests that were matched outside of a poll.
    ready: RefCell<VecDeque<MatchedRequest<Action>>>,
    /// Whether a handler is running.
    in_handler: Cell<bool>,
    calls: Cell<u32>,
}

/// One invocation of a function, which receives it as an argument.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// The context that calls.
    pub from: usize,
    /// The function's number.
    pub id: u32,
    /// The caller's bytes, at an address that is a multiple of 16. They are valid until the
    /// function returns.
    pub bytes: &'a [u8],
}

/// The number of a registered function, which is the same in all contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FunctionId(pub u32);

/// The longest time that a wait parks before it looks for failures of other contexts.
const MAX_PARK: Duration = Duration::from_millis(500);
/// One in this many calls that are not polls dispatches handlers.
const DISPATCH_INTERVAL: u32 = 16;

impl Controller {
    /// Starts all contexts of a program ([`Config::fork`]), or the context of this process.
    ///
    /// With [`Config::fork`], the call returns in every context. Call it early, while the process
    /// has one thread.
    ///
    /// # Errors
    /// The configuration is invalid, a provider fails, or the contexts do not connect in time.
    pub fn open(config: &Config) -> Result<Self> {
        Ok(Self(Rc::new(Inner {
            core: Rc::new(Core::open(config)?),
            functions: RefCell::default(),
            channels: RefCell::default(),
            undelivered: RefCell::default(),
            ready: RefCell::default(),
            in_handler: Cell::new(false),
            calls: Cell::new(0),
        })))
    }

    /// Opens the controller that the program's arguments or the environment configure, and removes
    /// its options from `args`.
    ///
    /// # Errors
    /// As [`Config::from_args`] and [`Self::open`].
    pub fn from_args(args: &mut Vec<String>) -> Result<Self> {
        Self::open(&Config::from_args(args)?)
    }

    /// Number of this context, from 0 on.
    pub fn mycontext(&self) -> usize {
        self.core().mycontext()
    }

    /// Number of contexts.
    pub fn ncontexts(&self) -> usize {
        self.core().ncontexts()
    }

    /// Whether the controller is not finalized.
    pub fn is_valid(&self) -> bool {
        !self.core().is_finalized()
    }

    /// Returns the names of the controller's providers.
    pub fn fabrics(&self) -> Vec<String> {
        self.core().fabrics()
    }

    /// Returns a new bell of this context, whose value is 0.
    ///
    /// # Errors
    /// [`Error::Finalized`]; [`Error::NoMemory`] when too many bells exist.
    pub fn bell(&self) -> Result<Bell> {
        self.core().bell()
    }

    /// Registers a function under the next number. All contexts must register the same functions in
    /// the same order; the first barrier compares the names.
    ///
    /// # Errors
    /// [`Error::Finalized`].
    pub fn register(
        &self,
        name: &str,
        function: impl FnMut(&Self, Call<'_>) + 'static,
    ) -> Result<FunctionId> {
        let id = self.core().register(name)?;
        let handler: Handler = Box::new(function);
        let functions = &self.0.functions;
        functions.borrow_mut().push(Rc::new(RefCell::new(handler)));
        Ok(FunctionId(id))
    }

    /// Invokes a function with a copy of `bytes` in context `to`, which may be this one.
    /// Invocations from one context to another run in order.
    ///
    /// # Errors
    /// When there is no such context or function, when the context has failed, or after finalize.
    #[inline]
    pub fn ainvoke(&self, to: usize, function: FunctionId, bytes: &[u8]) -> Result {
        self.check_function(to, function)?;
        self.core().invoke(to, Port::Function(function.0), bytes)?;
        self.dispatch_periodically()
    }

    /// As [`Self::ainvoke`], without a copy of the bytes.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until `bell` has been rung or carries an error.
    ///
    /// # Errors
    /// As [`Self::ainvoke`].
    #[expect(unsafe_code, reason = "passes a promise on")]
    pub unsafe fn ainvoke_no_copy(
        &self,
        to: usize,
        function: FunctionId,
        bytes: (*const u8, usize),
        bell: &Bell,
    ) -> Result {
        self.check_function(to, function)?;
        self.check_bell(bell)?;
        let port = Port::Function(function.0);
        // SAFETY: passed on from the caller; the check above shows that the bell belongs to this
        // context.
        unsafe { self.core().invoke_no_copy(to, port, bytes, bell.name()) }?;
        self.dispatch_periodically()
    }

    /// Reserves memory for a message to context `to`, in special memory if available. The caller
    /// packs the message in place.
    ///
    /// # Errors
    /// When there is no such context, or after finalize.
    pub fn reserve(&self, to: usize, len: usize) -> Result<Parcel> {
        let reservation = self.core().reserve(to, len)?;
        Ok(Parcel::new(Rc::clone(&self.0.core), reservation))
    }

    /// Invokes a function with the packed parcel, in the context that the parcel was reserved for.
    ///
    /// # Errors
    /// As [`Self::ainvoke`]; also for a parcel of another controller.
    pub fn commit(&self, function: FunctionId, parcel: Parcel) -> Result {
        self.check_function(parcel.to(), function)?;
        self.commit_to(Port::Function(function.0), parcel)
    }

    pub(crate) fn commit_to(&self, port: Port, parcel: Parcel) -> Result {
        let reservation = parcel.into_reservation(&self.0.core)?;
        self.core().commit(port, reservation)?;
        self.dispatch_periodically()
    }

    /// Allocates special memory: other contexts write and read it by loads and stores.
    ///
    /// # Errors
    /// When none is available, or after finalize.
    pub fn special(&self, len: usize) -> Result<Special> {
        let region = self.core().allocate(len)?;
        Ok(Special::new(Rc::clone(&self.0.core), region))
    }

    /// Copies bytes of this context to `remote`, an address in context `to`.
    ///
    /// The local bell rings when the bytes may be changed, the remote bell when they have been
    /// written. The two rings have no order, and neither have several puts.
    ///
    /// # Safety
    /// The bytes stay valid and unchanged until the local bell has been rung or carries an error;
    /// without a bell, until [`Self::finalize`]. Either `remote` is not mapped, or the bytes there
    /// may be overwritten. The remote bell belongs to context `to` and is not dropped.
    ///
    /// # Errors
    /// When there is no such context, when it has failed, or after finalize. If `remote` is not
    /// mapped, the local bell carries the error, and the next poll returns it.
    #[expect(unsafe_code, reason = "passes a promise on")]
    #[inline]
    pub unsafe fn put(
        &self,
        to: usize,
        remote: u64,
        bytes: (*const u8, usize),
        local_bell: Option<&Bell>,
        remote_bell: BellName,
    ) -> Result {
        let local_bell = self.name_of(local_bell)?;
        // SAFETY: passed on from the caller.
        unsafe { self.core().put(to, remote, bytes, local_bell, remote_bell) }?;
        self.dispatch_periodically()
    }

    /// Copies bytes at `remote`, an address in context `of`, into memory of this context.
    ///
    /// The local bell rings when the bytes have been written, the remote bell when they may be
    /// changed.
    ///
    /// # Safety
    /// The memory stays valid, and no other code accesses it, until the local bell has been rung or
    /// carries an error; without a bell, until [`Self::finalize`]. The remote bell belongs to
    /// context `of` and is not dropped.
    ///
    /// # Errors
    /// As [`Self::put`].
    #[expect(unsafe_code, reason = "passes a promise on")]
    pub unsafe fn get(
        &self,
        target: usize,
        remote: u64,
        buffer: (*mut u8, usize),
        local_bell: Option<&Bell>,
        remote_bell: BellName,
    ) -> Result {
        let local_bell = self.name_of(local_bell)?;
        // SAFETY: passed on from the caller.
        unsafe {
            self.core()
                .get(target, remote, buffer, local_bell, remote_bell)
        }?;
        self.dispatch_periodically()
    }

    /// Progresses operations, rings bells and runs invoked functions. Returns the number of
    /// functions run. Within a handler it runs none.
    ///
    /// # Errors
    /// The oldest unreported failure, one for each call; [`Error::Finalized`].
    #[inline]
    pub fn poll(&self) -> Result<usize> {
        let status = self.core().progress()?;
        if !status.has_messages && !status.has_failures && self.0.ready.borrow().is_empty() {
            return Ok(0);
        }
        let ran = self.dispatch();
        match self.core().failure() {
            None => Ok(ran),
            Some(error) => Err(error),
        }
    }

    /// Polls until the bell's value is `value` or more.
    ///
    /// # Errors
    /// The error that the bell carries; the failure of a context, if the bell's value is still less
    /// than `value`; [`Error::InHandler`], [`Error::Finalized`]; [`Error::TimedOut`] if the
    /// configuration has a limit.
    #[inline]
    pub fn wait(&self, bell: &Bell, value: i32) -> Result {
        if bell.value() >= value {
            Ok(())
        } else {
            self.wait_until(bell, value, self.core().limit())
        }
    }

    /// As [`Self::wait`], with a time limit.
    ///
    /// # Errors
    /// As [`Self::wait`]; [`Error::TimedOut`] after the time, with the contexts that do not
    /// respond.
    pub fn wait_for(&self, bell: &Bell, value: i32, time: Duration) -> Result {
        self.wait_until(bell, value, Some(time))
    }

    fn wait_until(&self, bell: &Bell, value: i32, limit: Option<Duration>) -> Result {
        let name = bell.name();
        let operation = || format!("wait for {value} rings of a bell at {}", bell.value());
        self.poll_until("wait", limit, &operation, false, || {
            if bell.value() >= value {
                return Ok(true);
            }
            match self.core().wait_error(Some(name)) {
                None => Ok(false),
                Some(error) => {
                    self.core().clear_bell_error(name);
                    Err(error)
                }
            }
        })
    }

    /// Waits until all contexts have entered the barrier; handlers run meanwhile.
    ///
    /// # Errors
    /// When a context has failed or has registered other functions; [`Error::InHandler`],
    /// [`Error::Finalized`]; [`Error::TimedOut`] if the configuration has a limit. After a complete
    /// barrier: the oldest failure of an earlier operation that no wait or poll has returned. Later
    /// failures are returned by the next barrier or by [`Self::finalize`].
    pub fn barrier(&self) -> Result {
        self.check_outside("barrier")?;
        self.core().barrier_begin()?;
        self.end_barrier(self.core().limit())
    }

    /// As [`Self::barrier`], with a time limit. After a timeout, [`Self::barrier_done`] waits for
    /// the same barrier again.
    ///
    /// # Errors
    /// As [`Self::barrier`]; [`Error::TimedOut`] after the time, with the contexts that have not
    /// entered.
    pub fn barrier_for(&self, time: Duration) -> Result {
        self.check_outside("barrier")?;
        self.core().barrier_begin()?;
        self.end_barrier(Some(time))
    }

    /// Enters a barrier without waiting.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn barrier_begin(&self) -> Result {
        self.check_outside("barrier")?;
        self.core().barrier_begin()
    }

    /// Polls, and returns whether all contexts have entered the current barrier.
    ///
    /// # Errors
    /// As [`Self::barrier`].
    pub fn barrier_done(&self) -> Result<bool> {
        self.check_outside("barrier")?;
        if !self.core().barrier_done()? {
            self.core().progress()?;
            self.dispatch();
            if !self.core().barrier_done()? {
                return Ok(false);
            }
        }
        self.take_failure().map(|()| true)
    }

    fn end_barrier(&self, limit: Option<Duration>) -> Result {
        let operation = || "barrier".to_owned();
        self.poll_until("barrier", limit, &operation, true, || {
            self.core().barrier_done()
        })?;
        self.take_failure()
    }

    /// Returns the oldest failure that no wait or poll has returned.
    fn take_failure(&self) -> Result {
        self.core().unreported_failure().map_or(Ok(()), Err)
    }

    /// Completes pending operations, enters a last barrier with all contexts, and closes the
    /// controller. The process that forked waits for its children. Handlers run meanwhile. The
    /// program should end soon afterwards.
    ///
    /// # Errors
    /// The oldest failure that no wait, poll or barrier has returned; the children that have
    /// failed; [`Error::InHandler`], [`Error::Finalized`].
    pub fn finalize(&self) -> Result {
        self.check_outside("finalize")?;
        let operation = || "finalize".to_owned();
        let mut first = None;
        let ended = self.poll_until("finalize", self.core().limit(), &operation, true, || {
            if first.is_none() {
                first = self.core().unreported_failure();
            }
            self.core().finalize_step()
        });
        self.0.functions.take();
        self.0.channels.take();
        if ended.is_err() {
            self.core().abort();
        }
        let children = self.core().wait_for_children();
        match first {
            Some(error) if ended.is_ok() => Err(error),
            _ => ended.and(children),
        }
    }

    /// Counts of the copies that this context has made.
    pub fn copies(&self) -> Copies {
        self.core().copies()
    }

    /// Polls until `done` returns true; parks while there are no events.
    fn poll_until(
        &self,
        call: &'static str,
        limit: Option<Duration>,
        operation: &dyn Fn() -> String,
        is_barrier: bool,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result {
        self.check_outside(call)?;
        let mut started = None;
        loop {
            self.core().progress_without_backoff()?;
            self.dispatch();
            if done()? {
                return Ok(());
            }
            let started = *started.get_or_insert_with(Instant::now);
            let left = limit.map(|limit| limit.saturating_sub(started.elapsed()));
            if left == Some(Duration::ZERO) {
                return Err(self.core().timed_out(&operation(), started, is_barrier));
            }
            self.core()
                .wait_for_events(left.unwrap_or(MAX_PARK).min(MAX_PARK));
        }
    }

    /// Runs invoked functions, unless a handler is running.
    fn dispatch(&self) -> usize {
        if self.0.in_handler.get() {
            return 0;
        }
        let mut ran = 0;
        while ran < DISPATCH_MAX {
            if let Some(ready) = self.next_ready() {
                self.run_request(ready);
            } else if let Some(message) = self.core().next() {
                self.deliver(message);
            } else {
                break;
            }
            ran += 1;
        }
        ran
    }

    #[inline]
    fn next_ready(&self) -> Option<MatchedRequest<Action>> {
        let mut ready = self.0.ready.borrow_mut();
        if ready.is_empty() {
            None
        } else {
            ready.pop_front()
        }
    }

    #[inline]
    fn deliver(&self, message: Message) {
        match message.port() {
            Port::Function(id) => self.run(id, &message),
            Port::Channel { channel, tag } => {
                let channel = self.0.channels.borrow().get(channel as usize).cloned();
                match channel {
                    Some(Some(channel)) => {
                        let from = message.from();
                        let ready = channel.receive(from, tag, message.into_payload());
                        if let Some(ready) = ready {
                            self.run_request(ready);
                        }
                    }
                    // The handler of this context was dropped.
                    Some(None) => log::debug!("{:?}: a message for a dropped handler", self.core()),
                    None => self.0.undelivered.borrow_mut().push(message),
                }
            }
        }
    }

    fn run(&self, id: u32, message: &Message) {
        let function = self.0.functions.borrow().get(id as usize).cloned();
        let Some(function) = function else {
            return self.core().report_no_function(message.from(), id);
        };
        let call = Call {
            from: message.from(),
            id,
            bytes: message.bytes(),
        };
        // Handlers do not nest, so the function is not borrowed yet.
        let mut function = function.borrow_mut();
        self.run_in_handler(|| function(self, call));
    }

    fn run_request(&self, MatchedRequest { payload, action }: MatchedRequest<Action>) {
        self.run_in_handler(|| action(self, payload.bytes()));
    }

    fn run_in_handler(&self, run: impl FnOnce()) {
        struct LeaveHandler<'a>(&'a Cell<bool>);
        impl Drop for LeaveHandler<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.0.in_handler.set(true);
        let _leave = LeaveHandler(&self.0.in_handler);
        run();
    }

    /// Dispatches handlers in every [`DISPATCH_INTERVAL`]th call that is not a poll.
    #[inline]
    pub(crate) fn dispatch_periodically(&self) -> Result {
        let calls = self.0.calls.get().wrapping_add(1);
        self.0.calls.set(calls);
        if calls.is_multiple_of(DISPATCH_INTERVAL) {
            self.dispatch();
        }
        Ok(())
    }

    /// Attaches a new handler and delivers the messages that were kept for it.
    pub(crate) fn attach(&self, number: u32, channel: Rc<Channel<Action>>) {
        let mut channels = self.0.channels.borrow_mut();
        debug_assert_eq!(channels.len(), number as usize);
        channels.push(Some(channel));
        drop(channels);
        let undelivered = std::mem::take(&mut *self.0.undelivered.borrow_mut());
        for message in undelivered {
            self.deliver(message);
        }
    }

    pub(crate) fn detach(&self, number: u32) {
        if let Some(channel) = self.0.channels.borrow_mut().get_mut(number as usize) {
            *channel = None;
        }
    }

    /// Runs a matched request as soon as no handler is running.
    pub(crate) fn ready(&self, ready: MatchedRequest<Action>) {
        self.0.ready.borrow_mut().push_back(ready);
        self.dispatch();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    fn check_outside(&self, operation: &'static str) -> Result {
        if self.0.in_handler.get() {
            Err(Error::InHandler(operation))
        } else {
            Ok(())
        }
    }

    fn check_function(&self, target: usize, function: FunctionId) -> Result {
        let registered = self.0.functions.borrow().len();
        if (function.0 as usize) < registered || !self.is_valid() {
            return Ok(());
        }
        Err(Error::NoFunction {
            caller: self.mycontext(),
            target,
            id: function.0,
            registered: registered as u32,
        })
    }

    fn check_bell(&self, bell: &Bell) -> Result {
        if self.core().is_own(bell) || !self.is_valid() {
            Ok(())
        } else {
            Err(Error::Garbled(
                "a bell of another controller cannot be rung here".to_owned(),
            ))
        }
    }

    fn name_of(&self, bell: Option<&Bell>) -> Result<BellName> {
        let Some(bell) = bell else {
            return Ok(BellName::NONE);
        };
        self.check_bell(bell)?;
        Ok(bell.name())
    }
}

/// Maximum number of handlers run by one poll, so that a flood does not block the caller.
const DISPATCH_MAX: usize = 1024;

impl Drop for Inner {
    fn drop(&mut self) {
        if self.core.is_finalized() {
            return;
        }
        if std::thread::panicking() {
            return self.core.abort();
        }
        let ended = self.finalize();
        if let Err(error) = ended.and_then(|()| self.core.wait_for_children()) {
            log::error!("{:?}: {error}", self.core);
        }
    }
}

impl Inner {
    /// Finalizes without handlers, which were dropped with the last handle. Failures that no call
    /// has returned are logged.
    fn finalize(&self) -> Result {
        loop {
            while let Some(error) = self.core.unreported_failure() {
                log::error!("{:?}: {error}", self.core);
            }
            if self.core.finalize_step()? {
                return Ok(());
            }
            while self.core.next().is_some() {}
            self.core.wait_for_events(Duration::from_millis(10));
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core().fmt(f)
    }
}
