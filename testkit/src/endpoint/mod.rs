//! `TestEndpoint`: an endpoint under test that tracks its outstanding operations. It checks that
//! each operation completes once, and that no other operation completes.

mod api;
mod owned;
mod post;
mod raw;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use selvedge::trigger::WorkId;
use selvedge::{
    Address, AddressVector, CompletionQueue, Counter, Domain, Endpoint, EpOption, Errno,
    EventQueue, FiAddr, Info, PassiveEndpoint, SharedReceives,
};

use crate::run::timeout::until;

pub use api::{EndpointApi, Notify, RawObjects, Trigger};
pub use owned::{AsyncTestEndpoint, OwnedEndpoint};
pub use post::{Atomic, Completion, Failure, Post, Read, RemoteAddr, Rx, RxKind, Tx, Write};
pub use raw::{BLANK, RawEndpoint, queue_count};

/// An endpoint under test. Clones share it, and the test framework keeps it open until the test
/// ends.
#[derive(Clone, Debug)]
pub struct TestEndpoint {
    state: Rc<RefCell<State>>,
    pub domain: Arc<dyn Domain>,
    pub info: Info,
    peers: Vec<FiAddr>,
    index: usize,
}

/// The mutable state.
#[derive(Debug)]
struct State {
    api: Box<dyn EndpointApi>,
    /// Completions that were read and not yet returned.
    ready: VecDeque<Completion>,
    /// Outstanding operations by context, and whether they complete more than once.
    outstanding: BTreeMap<u64, bool>,
    next_context: u64,
    _connection: Option<Connection>,
}

/// The event queue and the passive endpoint of a connected endpoint.
#[derive(Debug)]
pub struct Connection {
    pub eq: Arc<dyn EventQueue>,
    pub pep: Option<Arc<dyn PassiveEndpoint>>,
}

impl TestEndpoint {
    /// An endpoint of process `index` of a test, without peers.
    pub fn new(
        api: Box<dyn EndpointApi>,
        domain: Arc<dyn Domain>,
        info: Info,
        index: usize,
        connection: Option<Connection>,
    ) -> Self {
        let state = State {
            api,
            ready: VecDeque::new(),
            outstanding: BTreeMap::new(),
            next_context: 1,
            _connection: connection,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            domain,
            info,
            peers: Vec::new(),
            index,
        }
    }

    /// The address of the endpoint.
    ///
    /// # Errors
    /// When the endpoint has no address.
    pub fn address(&self) -> anyhow::Result<Address> {
        let address = self.state.borrow().api.address();
        address.map_err(|errno| anyhow!("the endpoint has no address: {errno}"))
    }

    /// Inserts a peer and returns its index.
    ///
    /// # Errors
    /// When the address is rejected.
    pub fn insert(&self, peer: &Address) -> anyhow::Result<FiAddr> {
        let index = self.state.borrow().api.insert(peer);
        index.map_err(|errno| anyhow!("cannot insert the address {peer}: {errno}"))
    }

    /// Sets the address indices of the processes of the test, by process.
    pub fn set_peers(&mut self, peers: Vec<FiAddr>) {
        self.peers = peers;
    }

    /// The address index of a process of the test.
    pub fn to(&self, process: usize) -> FiAddr {
        self.peers[process]
    }

    /// The address index of the next process; of two processes, the other one.
    pub fn peer(&self) -> FiAddr {
        self.to((self.index + 1) % self.peers.len())
    }

    /// The process with an address index.
    pub fn process(&self, index: FiAddr) -> Option<usize> {
        self.peers.iter().position(|&peer| peer == index)
    }

    /// Sets an option of the endpoint.
    ///
    /// # Errors
    /// When the endpoint rejects it.
    pub fn set(&self, option: EpOption) -> anyhow::Result<()> {
        let result = self.state.borrow().api.set(option);
        result.map_err(|errno| anyhow!("setting {option:?}: {errno:?}"))
    }

    /// Posts an operation once, and returns its context.
    pub fn try_post(&self, post: impl Into<Post>) -> Result<u64, Errno> {
        self.post_once(&mut post.into())
    }

    fn post_once(&self, post: &mut Post) -> Result<u64, Errno> {
        let mut state = self.state.borrow_mut();
        let context = state.next_context;
        state.api.post(context, post)?;
        state.next_context += 1;
        if !post.is_injected() {
            state.outstanding.insert(context, post.is_multi());
        }
        Ok(context)
    }

    /// Posts an operation, and retries while the queue is full. Returns its context.
    ///
    /// # Errors
    /// Other errors of the post; a timeout when the queue stays full.
    pub fn post(&self, post: impl Into<Post>) -> anyhow::Result<u64> {
        let mut post = post.into();
        until("room for a post", || match self.post_once(&mut post) {
            Ok(context) => Ok(Some(context)),
            Err(Errno::Again) => self.store_completions().map(|()| None),
            Err(errno) => Err(anyhow!("posting {post:.120?}: {errno:?}")),
        })
    }

    /// Defers an operation until `cntr` reaches `threshold`. Returns its context and the id of the
    /// work. Raw API only.
    ///
    /// # Errors
    /// Those of the domain.
    pub fn defer(
        &self,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        notify: Notify,
    ) -> Result<(u64, WorkId), Errno> {
        self.defer_in(&self.domain, post, cntr, threshold, notify)
    }

    /// As [`Self::defer`], in a domain other than the endpoint's.
    ///
    /// # Errors
    /// Those of that domain.
    pub fn defer_in(
        &self,
        domain: &Arc<dyn Domain>,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        notify: Notify,
    ) -> Result<(u64, WorkId), Errno> {
        let (mut post, mut state) = (post.into(), self.state.borrow_mut());
        let context = state.next_context;
        let trigger = Trigger {
            domain: Arc::clone(domain),
            cntr: Arc::clone(cntr),
            threshold,
            notify,
        };
        let work_id = state.api.defer(context, &mut post, trigger)?;
        state.next_context += 1;
        state.outstanding.insert(context, post.is_multi());
        Ok((context, work_id))
    }

    /// Removes an operation that will not complete from the outstanding ones.
    pub fn forget(&self, context: u64) {
        self.state.borrow_mut().outstanding.remove(&context);
    }

    /// Removes the completions that were read while posts waited for room. Returns their contexts.
    pub fn take_ready(&self) -> Vec<u64> {
        let mut state = self.state.borrow_mut();
        state.ready.drain(..).map(|done| done.context).collect()
    }

    /// Posts the receive of a claimed message, with the context of the completed claim.
    ///
    /// # Errors
    /// Those of the post.
    pub fn post_again(&self, context: u64, post: impl Into<Post>) -> anyhow::Result<()> {
        let (mut post, mut state) = (post.into(), self.state.borrow_mut());
        let posted = state.api.post(context, &mut post);
        posted.map_err(|errno| anyhow!("posting {post:.120?}: {errno:?}"))?;
        state.outstanding.insert(context, post.is_multi());
        Ok(())
    }

    /// Drives progress and stores completions for later.
    ///
    /// # Errors
    /// When an unexpected operation completes.
    pub fn store_completions(&self) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        while let Some(done) = state.read()? {
            state.ready.push_back(done);
        }
        Ok(())
    }

    /// Removes the oldest stored completion.
    pub fn take_stored(&self) -> Option<Completion> {
        self.state.borrow_mut().ready.pop_front()
    }

    /// Stores completions that are older than the stored ones.
    pub fn put_back(&self, mut older: VecDeque<Completion>) {
        let ready = &mut self.state.borrow_mut().ready;
        older.append(ready);
        *ready = older;
    }

    /// Whether no operation is outstanding and no completion is stored.
    pub fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.outstanding.is_empty() && state.ready.is_empty()
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// When an unexpected operation completes.
    pub fn poll(&self) -> anyhow::Result<Option<Completion>> {
        let mut state = self.state.borrow_mut();
        match state.ready.pop_front() {
            Some(done) => Ok(Some(done)),
            None => state.read(),
        }
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// A timeout; when an unexpected operation completes.
    pub fn next(&self) -> anyhow::Result<Completion> {
        until("a completion", || self.poll())
    }

    /// Waits for the completion of an operation. Other completions are stored.
    ///
    /// # Errors
    /// A timeout; when an unexpected operation completes.
    pub fn wait_for(&self, context: u64) -> anyhow::Result<Completion> {
        let awaited = format!("the completion of operation {context}");
        until(&awaited, || {
            let mut state = self.state.borrow_mut();
            let index = state.ready.iter().position(|done| done.context == context);
            if let Some(index) = index {
                return Ok(state.ready.remove(index));
            }
            match state.read()? {
                Some(done) if done.context == context => Ok(Some(done)),
                Some(other) => {
                    state.ready.push_back(other);
                    Ok(None)
                }
                None => Ok(None),
            }
        })
    }

    /// Processes an entry that was read from the queue by other code.
    ///
    /// # Errors
    /// When it completes an unexpected operation.
    pub fn account_for(&self, entry: selvedge::cq::Entry) -> anyhow::Result<Completion> {
        let mut state = self.state.borrow_mut();
        let done = state.api.complete(entry)?;
        state.check_off(&done)?;
        Ok(done)
    }

    /// Whether an operation has completed.
    ///
    /// # Errors
    /// When an unexpected operation completes.
    pub fn is_done(&self, context: u64) -> anyhow::Result<bool> {
        self.store_completions()?;
        let state = self.state.borrow();
        Ok(state.ready.iter().any(|done| done.context == context))
    }

    /// Posts an operation and waits for its completion.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::wait_for`].
    pub fn post_and_wait(&self, post: impl Into<Post>) -> anyhow::Result<Completion> {
        let context = self.post(post)?;
        self.wait_for(context)
    }

    /// Posts a send or a write and waits until it succeeds. An inject succeeds when it is posted.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::wait_for`]; the error of the operation.
    pub fn run(&self, post: impl Into<Post>) -> anyhow::Result<()> {
        let post = post.into();
        let is_injected = post.is_injected();
        let context = self.post(post)?;
        if !is_injected {
            self.wait_for(context)?.expect_success()?;
        }
        Ok(())
    }

    /// Drives progress.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub fn progress(&self) -> anyhow::Result<()> {
        self.state.borrow_mut().api.progress()
    }

    /// Drives progress many times, so that all pending work is done if the peers drive progress,
    /// too.
    ///
    /// # Errors
    /// As [`Self::progress`].
    pub fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..YIELDS {
            for _ in 0..TURNS {
                self.progress()?;
            }
            // On a busy machine, this process runs again only after milliseconds.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Overwrites the bytes of an outstanding send with `INJECT`.
    pub fn overwrite(&self, context: u64) {
        self.state.borrow_mut().api.overwrite(context);
    }

    /// Tries to cancel an operation.
    pub fn cancel(&self, context: u64) -> Result<(), Errno> {
        self.state.borrow_mut().api.cancel(context)
    }

    /// Sets the shared receive context for later receives; `None` for the endpoint. Raw API only.
    pub fn post_receives_to(&self, srx: Option<Arc<dyn SharedReceives>>) {
        self.state.borrow_mut().api.post_receives_to(srx);
    }

    /// Checks that no operation is outstanding and no completion is unread.
    ///
    /// # Errors
    /// The outstanding operations, or the unread completion.
    pub fn assert_idle(&self) -> anyhow::Result<()> {
        if let Some(done) = self.poll()? {
            return Err(anyhow!("unexpected completion: {done:?}"));
        }
        let outstanding = self.state.borrow().outstanding.clone();
        let outstanding = Vec::from_iter(outstanding.into_keys());
        ensure!(
            outstanding.is_empty(),
            "operations {outstanding:?} have not completed"
        );
        Ok(())
    }

    /// Removes all outstanding operations and stored completions, which end with the endpoint.
    pub fn forget_outstanding(&self) {
        let mut state = self.state.borrow_mut();
        state.outstanding.clear();
        state.ready.clear();
    }

    /// The endpoint. Raw API only.
    pub fn ep(&self) -> Arc<dyn Endpoint> {
        self.raw(|raw| Arc::clone(&raw.ep))
    }

    /// The completion queue. Raw API only.
    pub fn cq(&self) -> Arc<dyn CompletionQueue> {
        self.raw(|raw| Arc::clone(&raw.cq))
    }

    /// The address vector of an unconnected endpoint. Raw API only.
    pub fn av(&self) -> Arc<dyn AddressVector> {
        self.raw(|raw| raw.av.clone())
            .expect("an unconnected endpoint has an address vector")
    }

    fn raw<T>(&self, access: impl FnOnce(&RawObjects) -> T) -> T {
        let state = self.state.borrow();
        access(state.api.raw_objects().expect("a test of the raw API"))
    }
}

impl State {
    /// Reads a completion and checks that its operation was outstanding.
    fn read(&mut self) -> anyhow::Result<Option<Completion>> {
        let Some(done) = self.api.poll()? else {
            return Ok(None);
        };
        self.check_off(&done)?;
        Ok(Some(done))
    }

    fn check_off(&mut self, done: &Completion) -> anyhow::Result<()> {
        use selvedge::CompletionFlags as Flags;
        if done
            .flags
            .intersects(Flags::REMOTE_READ | Flags::REMOTE_WRITE)
        {
            return Ok(());
        }
        match self.outstanding.get(&done.context) {
            Some(true) if !done.flags.contains(Flags::MULTI_RECV) && done.error.is_none() => {}
            Some(_) => drop(self.outstanding.remove(&done.context)),
            // An inject has no context; its failure is reported with context 0.
            None if done.error.is_some() && done.context == 0 => {}
            None => return Err(anyhow!("{done:?} completes no outstanding operation")),
        }
        Ok(())
    }
}

/// How often [`TestEndpoint::settle`] yields the processor.
const YIELDS: usize = 20;
/// The number of turns of progress before each yield.
const TURNS: usize = 20;
