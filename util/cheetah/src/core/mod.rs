//! A context without its handlers: progresses operations, rings bells, and returns invocations to
//! the caller. [`crate::Controller`] runs Rust functions on top of a [`Core`], the C API C
//! functions.

mod finalize;
mod idle;
mod state;
mod state_cell;
mod thread;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::CompletionQueue;
use selvedge::owned::SharedRegion;
use selvedge_kit::wait::Spin;

use crate::bell::{Bell, BellName};
use crate::config::Config;
use crate::engine::parts::copies::Copies;
use crate::engine::{Bytes, Engine, Get, Invocation, InvokeTarget, Parcel, Put};
use crate::memory::local::Local;
use crate::net::Net;
use crate::net::recv::Payload;
use crate::net::wire::{Port, Source};
use crate::start::{self, fork::Children};
use crate::{Error, Result};
use state::State;
use state_cell::StateCell;
use thread::Thread;

/// A context with a pull interface: the caller takes messages with [`Self::next`] and runs their
/// functions.
///
/// A context is used by one thread. [`Config::with_thread`] adds one thread of the library, behind
/// a lock.
pub struct Core {
    // Dropped before the engine.
    thread: Option<Thread>,
    state: StateCell,
    rank: usize,
    size: usize,
    limit: Option<Duration>,
    children: Option<Children>,
    /// Policy for polling before parking.
    spin: Spin,
}

/// A received message. Its bytes are aligned to 16 and exclusively owned.
#[derive(Debug)]
pub struct Message {
    invocation: Invocation,
}

impl Message {
    /// The context that sent the message.
    pub fn from(&self) -> usize {
        self.invocation.from
    }

    /// The function or handler that the message is for.
    pub fn port(&self) -> Port {
        self.invocation.port
    }

    /// The payload.
    pub fn bytes(&self) -> &[u8] {
        self.invocation.payload.bytes()
    }

    /// The address of the payload, which the owner of the message may change.
    pub fn base(&mut self) -> *mut u8 {
        self.invocation.payload.base()
    }

    pub(crate) fn into_payload(self) -> Payload {
        self.invocation.payload
    }
}

/// Memory for one message to one context. The caller packs the message in place.
#[derive(Debug)]
pub struct Reservation {
    to: usize,
    parcel: Parcel,
}

impl Reservation {
    /// The destination context.
    pub fn to(&self) -> usize {
        self.to
    }

    /// The memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.parcel.bytes_mut()
    }

    /// Returns whether the memory is special memory.
    pub fn is_special(&self) -> bool {
        self.parcel.is_special()
    }
}

/// Pending events after progress.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PollStatus {
    /// Received messages that [`Core::next`] has not returned yet.
    pub has_messages: bool,
    /// Failures that [`Core::failure`] has not returned yet.
    pub has_failures: bool,
}

/// Number of calls that are not polls between two progress calls, for programs that never poll.
const PROGRESS_INTERVAL: u32 = 8;

impl Core {
    /// Starts the context, or the contexts.
    ///
    /// # Errors
    /// The configuration is invalid, a provider fails, or the contexts do not connect in time.
    pub fn open(config: &Config) -> Result<Self> {
        let started = start::start(config)?;
        let (rank, size) = (started.engine.rank(), started.engine.size());
        let state = State::new(started.engine);
        let cell = if config.has_thread {
            StateCell::shared(state)
        } else {
            StateCell::unshared(state)
        };
        let thread = match &cell {
            StateCell::Shared(shared) => Some(Thread::start(shared)?),
            StateCell::Unshared(_) => None,
        };
        Ok(Self {
            state: cell,
            thread,
            rank,
            size,
            limit: config.timeout,
            children: started.children,
            spin: Spin::new(idle::SPIN_TIME),
        })
    }

    /// Number of this context.
    pub fn mycontext(&self) -> usize {
        self.rank
    }

    /// Number of contexts.
    pub fn ncontexts(&self) -> usize {
        self.size
    }

    /// Time limit of waits.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Progresses operations and rings bells. Returns the pending events.
    ///
    /// # Errors
    /// [`Error::Finalized`].
    #[inline]
    pub fn progress(&self) -> Result<PollStatus> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return Err(Error::Finalized("poll"));
        };
        let has_progressed = engine.progress();
        let status = PollStatus {
            has_messages: engine.has_messages(),
            has_failures: engine.has_failures(),
        };
        if has_progressed || status.has_messages {
            state.backoff.reset();
        } else {
            state.backoff.idle_poll();
        }
        if !status.has_messages && engine.owes_flush() {
            engine.progress();
        }
        Ok(status)
    }

    /// As [`Self::progress`], without yields of the processor, for a caller that parks when there
    /// are no events.
    ///
    /// # Errors
    /// As [`Self::progress`].
    #[inline]
    pub fn progress_without_backoff(&self) -> Result {
        self.with_engine("poll", |engine| {
            engine.progress();
            Ok(())
        })
    }

    /// The next message, in each sender's order. If there is none, queued sends are flushed,
    /// because the caller may not call again soon.
    #[inline]
    pub fn next(&self) -> Option<Message> {
        if self.state.is_known_idle() {
            return None;
        }
        let mut state = self.state.lock();
        let engine = state.engine.as_mut()?;
        let invocation = engine.next();
        if invocation.is_none() && engine.owes_flush() {
            engine.progress();
        }
        Some(Message {
            invocation: invocation?,
        })
    }

    /// Number of received messages that [`Self::next`] has not returned yet.
    pub fn message_count(&self) -> usize {
        self.engine(Engine::message_count)
    }

    /// Removes the oldest failure that no poll has returned.
    pub fn failure(&self) -> Option<Error> {
        if self.state.is_known_without_failures() {
            return None;
        }
        self.state.lock().engine.as_mut()?.failure()
    }

    /// Removes the oldest failure that neither a poll nor a wait has returned.
    pub fn unreported_failure(&self) -> Option<Error> {
        if self.state.is_known_without_failures() {
            return None;
        }
        self.state.lock().engine.as_mut()?.unreported_failure()
    }

    /// The error that prevents the end of a wait for this bell, or for a barrier; `None` if the
    /// wait can end.
    pub fn wait_error(&self, bell: Option<BellName>) -> Option<Error> {
        self.engine(|engine| engine.wait_error(bell).cloned())
    }

    /// Clears the error of a bell after a wait has returned it: the bell can be used again.
    pub fn clear_bell_error(&self, bell: BellName) {
        self.engine_mut(|engine| engine.clear_bell_error(bell));
    }

    /// Waits for events, for at most this time: polls for a while, then parks.
    pub fn wait_for_events(&self, max: Duration) {
        if let Some(thread) = &self.thread {
            return thread.wait(max);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return;
        };
        if std::mem::take(&mut state.has_unpolled_events) {
            return;
        }
        let start = Instant::now();
        let mut spinning = self.spin.begin(start);
        while self.spin.should_continue(&mut spinning) && start.elapsed() < max {
            if engine.progress() || engine.has_messages() {
                return self.spin.succeeded(&spinning);
            }
        }
        let parked_at = Instant::now();
        engine.park(max.min(engine.max_park_time()));
        self.spin.parked_for(parked_at.elapsed());
    }

    /// Allocates a bell with the value 0.
    ///
    /// # Errors
    /// [`Error::Finalized`]; [`Error::NoMemory`] when too many bells exist.
    pub fn bell(&self) -> Result<Bell> {
        self.with_engine("bell", |engine| engine.bells().bell(engine.rank()))
    }

    pub(crate) fn is_own(&self, bell: &Bell) -> bool {
        self.engine(|engine| bell.belongs_to(engine.bells()))
    }

    /// Registers a function under the next number. `name` is compared with the names in other
    /// contexts.
    ///
    /// # Errors
    /// [`Error::Finalized`].
    pub fn register(&self, name: &str) -> Result<u32> {
        self.with_engine("register", |engine| Ok(engine.add_function(name)))
    }

    /// Registers a matching handler under the next number.
    ///
    /// # Errors
    /// [`Error::Finalized`].
    pub fn channel(&self, name: &str) -> Result<u32> {
        self.with_engine("handler construction", |engine| engine.add_channel(name))
    }

    /// Puts bytes into another context's memory.
    ///
    /// # Safety
    /// `local` is valid for reads of `len` bytes, which stay unchanged until `local_bell` has been
    /// rung or carries an error. Only operations of the fabric use the bytes at `remote` of context
    /// `to`. The remote bell is an integer of that context, the local bell an integer of this
    /// context, and both are used as bells only.
    ///
    /// # Errors
    /// [`Error::NoContext`], [`Error::PeerFailed`], [`Error::Finalized`]. The local bell carries
    /// other errors.
    #[expect(unsafe_code, reason = "passes a promise on")]
    #[inline]
    pub unsafe fn put(
        &self,
        to: usize,
        remote: u64,
        (local, len): (*const u8, usize),
        local_bell: BellName,
        remote_bell: BellName,
    ) -> Result {
        let put = Put {
            to,
            remote,
            // SAFETY: passed on from the caller.
            local: unsafe { Local::new(local, len) },
            local_bell,
            remote_bell,
        };
        self.with_engine("put", |engine| engine.put(&put))
    }

    /// Gets bytes of another context's memory.
    ///
    /// # Safety
    /// `local` is valid for writes of `len` bytes, which no other code accesses until `local_bell`
    /// has been rung or carries an error. The bells are as for [`Self::put`].
    ///
    /// # Errors
    /// As [`Self::put`].
    #[expect(unsafe_code, reason = "passes a promise on")]
    pub unsafe fn get(
        &self,
        target: usize,
        remote: u64,
        (local, len): (*mut u8, usize),
        local_bell: BellName,
        remote_bell: BellName,
    ) -> Result {
        let get = Get {
            target,
            source: Source {
                addr: remote,
                key: 0,
                len: len as u64,
            },
            // SAFETY: passed on from the caller.
            destination: unsafe { Local::new(local, len) },
            local_bell,
            remote_bell,
            is_reading: false,
        };
        self.with_engine("get", |engine| engine.get(get))
    }

    /// Invokes `port` of context `to` with a copy of `bytes`.
    ///
    /// # Errors
    /// [`Error::NoContext`], [`Error::PeerFailed`], [`Error::Finalized`].
    #[inline]
    pub fn invoke(&self, to: usize, port: Port, bytes: &[u8]) -> Result {
        let bell = BellName::NONE;
        let target = InvokeTarget { to, port, bell };
        self.with_engine("ainvoke", |engine| engine.invoke(&target, bytes))
    }

    /// As [`Self::invoke`], without a copy: the bytes stay unchanged until `bell` has been rung or
    /// carries an error.
    ///
    /// # Safety
    /// `bytes` is valid for reads of `len` bytes, which stay unchanged until the bell has been rung
    /// or carries an error. The bell is an integer of this context.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    #[expect(unsafe_code, reason = "passes a promise on")]
    pub unsafe fn invoke_no_copy(
        &self,
        to: usize,
        port: Port,
        (bytes, len): (*const u8, usize),
        bell: BellName,
    ) -> Result {
        let target = InvokeTarget { to, port, bell };
        // SAFETY: passed on from the caller.
        let local = unsafe { Local::new(bytes, len) };
        self.with_engine("ainvoke", |engine| {
            if len <= engine.eager(to)? {
                engine.invoke(&target, local.bytes())
            } else {
                engine.invoke_bytes(&target, Bytes::Caller(local))
            }
        })
    }

    /// Reserves memory for a message to context `to`, in special memory if available.
    ///
    /// # Errors
    /// [`Error::NoContext`], [`Error::Finalized`].
    pub fn reserve(&self, to: usize, len: usize) -> Result<Reservation> {
        self.with_engine("reserve", |engine| {
            engine.check(to)?;
            let parcel = engine.reserve(to, len);
            Ok(Reservation { to, parcel })
        })
    }

    /// Invokes `port` with the packed message, in the context that the memory was reserved for.
    ///
    /// # Errors
    /// As [`Self::invoke`].
    pub fn commit(&self, port: Port, reservation: Reservation) -> Result {
        let bell = BellName::NONE;
        let target = InvokeTarget {
            to: reservation.to,
            port,
            bell,
        };
        self.with_engine("commit", |engine| {
            engine.invoke_bytes(&target, Bytes::Parcel(reservation.parcel))
        })
    }

    /// Releases a reservation without sending it.
    pub fn release(&self, reservation: Reservation) {
        self.engine_mut(|engine| engine.release(reservation.parcel));
    }

    /// Allocates special memory.
    ///
    /// # Errors
    /// When none is available, or after finalize.
    pub fn allocate(&self, len: usize) -> Result<Arc<SharedRegion>> {
        self.with_engine("special", |engine| engine.allocate(len))
    }

    /// Frees special memory.
    pub fn free(&self, region: Arc<SharedRegion>) {
        self.engine_mut(|engine| engine.free(region));
    }

    /// Reports that an invoked function is not registered.
    pub fn report_no_function(&self, caller: usize, id: u32) {
        self.engine_mut(|engine| engine.report_no_function(caller, id));
    }

    /// Records a failure for the next poll.
    pub(crate) fn report(&self, error: Error) {
        self.engine_mut(|engine| engine.fail(error));
    }

    /// Checks a context's number.
    pub(crate) fn check(&self, context: usize) -> Result {
        self.with_engine("request", |engine| engine.check(context))
    }

    /// Number of registered functions.
    pub fn functions(&self) -> u32 {
        self.engine(Engine::functions)
    }

    /// Number of handlers.
    pub fn channels(&self) -> u32 {
        self.engine(Engine::channels)
    }

    /// Enters a barrier.
    ///
    /// # Errors
    /// When a barrier is under way, or a context has failed.
    pub fn barrier_begin(&self) -> Result {
        self.with_engine("barrier", Engine::enter_barrier)
    }

    /// Returns whether the barrier is complete; the caller polls until it is.
    ///
    /// # Errors
    /// When a context has failed.
    pub fn barrier_done(&self) -> Result<bool> {
        self.with_engine("barrier", |engine| {
            if engine.barrier_is_complete() {
                Ok(true)
            } else {
                engine.wait_error(None).cloned().map_or(Ok(false), Err)
            }
        })
    }

    /// Counts of copies.
    pub fn copies(&self) -> Copies {
        self.engine(Engine::copies)
    }

    /// The names of the providers.
    pub fn fabrics(&self) -> Vec<String> {
        let name = |net: &Net| net.provider().to_owned();
        self.engine(|engine| engine.nets().iter().map(name).collect())
    }

    /// Makes the error of a wait that reached its time limit. The error names the contexts that do
    /// not respond, or that have not entered the barrier.
    pub fn timed_out(&self, operation: &str, since: Instant, is_barrier: bool) -> Error {
        let request = self.with_engine("status request", |engine| {
            let entered = if is_barrier { engine.entered() } else { 0 };
            Ok((engine.query_all(), entered))
        });
        let Ok((token, entered)) = request else {
            return Error::Finalized("wait");
        };
        let deadline = Instant::now() + RESPONSE_TIME;
        loop {
            let missing = self.with_engine("status request", |engine| {
                engine.progress();
                Ok(engine.missing(token, entered))
            });
            let missing = missing.unwrap_or_default();
            if missing.is_empty() || Instant::now() >= deadline {
                return Error::TimedOut {
                    operation: operation.to_owned(),
                    millis: since.elapsed().as_millis() as u64,
                    missing,
                };
            }
            self.wait_for_events(Duration::from_millis(1));
        }
    }

    /// Queries the engine. Returns the default value after finalize.
    fn engine<T: Default>(&self, query: impl FnOnce(&Engine) -> T) -> T {
        let state = self.state.lock();
        state.engine.as_ref().map(query).unwrap_or_default()
    }

    /// Changes the engine, unless it is finalized.
    fn engine_mut(&self, change: impl FnOnce(&mut Engine)) {
        if let Some(engine) = &mut self.state.lock().engine {
            change(engine);
        }
    }

    #[inline]
    fn with_engine<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&mut Engine) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(engine) = &mut state.engine else {
            return Err(Error::Finalized(operation));
        };
        let result = call(engine);
        if state.backoff.every(PROGRESS_INTERVAL) {
            state.has_unpolled_events |= engine.progress();
        }
        result
    }
}

/// Time for the contexts to respond to a status request.
const RESPONSE_TIME: Duration = Duration::from_millis(250);

impl Engine {
    /// Parks until an event on any fabric.
    fn park(&self, time: Duration) {
        match self.nets() {
            [net] => net.park(time),
            _ => idle::park_on_queues(&self.queues(), time),
        }
    }

    /// The completion queues of all fabrics.
    fn queues(&self) -> Vec<Arc<dyn CompletionQueue>> {
        self.nets()
            .iter()
            .map(|net| Arc::clone(net.queue()))
            .collect()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {} of {}", self.rank, self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rendezvous;

    /// Number of voluntary context switches of this thread.
    #[expect(unsafe_code, reason = "getrusage(2)")]
    fn voluntary_switches() -> i64 {
        // SAFETY: all-zero bytes are a valid `rusage`.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes `usage`.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        assert_eq!(result, 0);
        usage.ru_nvcsw
    }

    /// Two contexts after a common barrier.
    fn pair(name: &'static str, config: &Config) -> [Core; 2] {
        let file = std::env::temp_dir().join(format!("cheetah-{name}-{}", std::process::id()));
        let open = move |rank, config: Config| {
            let rendezvous = Rendezvous::File(file.display().to_string());
            Core::open(&config.launched(rank, 2, name, rendezvous)).unwrap()
        };
        let other = std::thread::spawn({
            let (open, config) = (open.clone(), config.clone());
            move || open(1, config)
        });
        let (first, other) = (open(0, config.clone()), other.join().unwrap());
        first.barrier_begin().unwrap();
        other.barrier_begin().unwrap();
        while !(first.barrier_done().unwrap() && other.barrier_done().unwrap()) {}
        [first, other]
    }

    #[test]
    fn the_library_thread_sends_the_backlog_as_soon_as_there_is_room() {
        const MESSAGES: usize = 300_000;
        let [first, other] = pair("backlog", &Config::new().with_thread());
        for _ in 0..MESSAGES {
            first.invoke(1, Port::Function(0), b"backlog").unwrap();
        }
        // From here on only the library's thread makes calls for the first context.
        let start = Instant::now();
        let mut received = 0;
        while received < MESSAGES {
            other.progress().unwrap();
            while other.next().is_some() {
                received += 1;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{received}");
        }
    }

    #[test]
    fn events_found_outside_of_a_poll_prevent_parking() {
        let [first, _other] = pair("fresh", &Config::new());
        let switches_before = voluntary_switches();
        first.wait_for_events(Duration::from_secs(1));
        assert_eq!(voluntary_switches(), switches_before);
    }

    #[test]
    fn a_single_context_finalizes_in_one_step() {
        let core = Core::open(&Config::new()).unwrap();
        assert!(core.finalize_step().unwrap());
    }
}
