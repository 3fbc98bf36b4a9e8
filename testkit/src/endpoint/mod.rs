//! An endpoint of a test, with the account of its operations: each completes once, and nothing else
//! does.

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

pub use api::EndpointApi;
pub use owned::{AsyncTestEndpoint, OwnedEndpoint};
pub use post::{Atomic, Completion, Failure, Post, Read, RemoteAddr, Rx, RxKind, Tx, Write};
pub use raw::{BLANK, Notify, RawEndpoint, Trigger, queue_count};

/// An endpoint. It stays open until the test is over, whoever drops this.
#[derive(Clone, Debug)]
pub struct TestEndpoint {
    state: Rc<RefCell<State>>,
    pub domain: Arc<dyn Domain>,
    pub info: Info,
    peers: Vec<FiAddr>,
    me: usize,
}

/// What changes.
#[derive(Debug)]
struct State {
    api: Box<dyn EndpointApi>,
    /// Completions that were read and not asked for yet.
    ready: VecDeque<Completion>,
    /// What has not completed, and whether it completes more than once.
    outstanding: BTreeMap<u64, bool>,
    next: u64,
    _connection: Option<Connection>,
}

/// What a connected endpoint comes from.
#[derive(Debug)]
pub struct Connection {
    pub eq: Arc<dyn EventQueue>,
    pub pep: Option<Arc<dyn PassiveEndpoint>>,
}

impl TestEndpoint {
    /// An endpoint of process `me` of a test, without peers.
    pub fn new(
        api: Box<dyn EndpointApi>,
        domain: Arc<dyn Domain>,
        info: Info,
        me: usize,
        connection: Option<Connection>,
    ) -> Self {
        let state = State {
            api,
            ready: VecDeque::new(),
            outstanding: BTreeMap::new(),
            next: 1,
            _connection: connection,
        };
        Self {
            state: Rc::new(RefCell::new(state)),
            domain,
            info,
            peers: Vec::new(),
            me,
        }
    }

    /// Its address.
    ///
    /// # Errors
    /// When it has none.
    pub fn address(&self) -> anyhow::Result<Address> {
        let address = self.state.borrow().api.address();
        address.map_err(|errno| anyhow!("the endpoint has no address: {errno}"))
    }

    /// The index of a peer.
    ///
    /// # Errors
    /// When its address is refused.
    pub fn insert(&self, peer: &Address) -> anyhow::Result<FiAddr> {
        let index = self.state.borrow().api.insert(peer);
        index.map_err(|errno| anyhow!("the address {peer} is refused: {errno}"))
    }

    pub fn set_peers(&mut self, peers: Vec<FiAddr>) {
        self.peers = peers;
    }

    /// The index of a process of the test.
    pub fn to(&self, process: usize) -> FiAddr {
        self.peers[process]
    }

    /// The index of the process behind this one: of two, the other one.
    pub fn peer(&self) -> FiAddr {
        self.to((self.me + 1) % self.peers.len())
    }

    /// Which process an index is of.
    pub fn process(&self, index: FiAddr) -> Option<usize> {
        self.peers.iter().position(|&peer| peer == index)
    }

    /// Sets an option of the endpoint.
    ///
    /// # Errors
    /// When it is refused.
    pub fn set(&self, option: EpOption) -> anyhow::Result<()> {
        let answer = self.state.borrow().api.set(option);
        answer.map_err(|errno| anyhow!("setting {option:?}: {errno:?}"))
    }

    /// Posts, if there is room: under which context.
    pub fn try_post(&self, post: impl Into<Post>) -> Result<u64, Errno> {
        self.post_once(&mut post.into())
    }

    fn post_once(&self, post: &mut Post) -> Result<u64, Errno> {
        let mut state = self.state.borrow_mut();
        let context = state.next;
        state.api.post(context, post)?;
        state.next += 1;
        if !post.is_injected() {
            state.outstanding.insert(context, post.is_multi());
        }
        Ok(context)
    }

    /// Posts, and moves things on while there is no room.
    ///
    /// # Errors
    /// Whatever else the post answers; that no room comes.
    pub fn post(&self, post: impl Into<Post>) -> anyhow::Result<u64> {
        let mut post = post.into();
        until("room for a post", || match self.post_once(&mut post) {
            Ok(context) => Ok(Some(context)),
            Err(Errno::Again) => self.store_completions().map(|()| None),
            Err(errno) => Err(anyhow!("posting {post:.120?}: {errno:?}")),
        })
    }

    /// Has something posted when a counter has reached a number: under which context, and how the
    /// work is called. Of the raw API.
    ///
    /// # Errors
    /// What the domain answers.
    pub fn defer(
        &self,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        notify: Notify,
    ) -> Result<(u64, WorkId), Errno> {
        self.defer_in(&self.domain, post, cntr, threshold, notify)
    }

    /// The same by another domain than the endpoint's.
    ///
    /// # Errors
    /// What that domain answers.
    pub fn defer_in(
        &self,
        domain: &Arc<dyn Domain>,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        notify: Notify,
    ) -> Result<(u64, WorkId), Errno> {
        let (mut post, mut state) = (post.into(), self.state.borrow_mut());
        let context = state.next;
        let when = Trigger {
            domain: Arc::clone(domain),
            cntr: Arc::clone(cntr),
            threshold,
            notify,
        };
        let ticket = state.api.defer(context, &mut post, when)?;
        state.next += 1;
        state.outstanding.insert(context, post.is_multi());
        Ok((context, ticket))
    }

    /// An operation that has no completion, or has none any more.
    pub fn forget(&self, context: u64) {
        self.state.borrow_mut().outstanding.remove(&context);
    }

    /// Takes what was read while posts waited for room: the contexts.
    pub fn take_ready(&self) -> Vec<u64> {
        let mut state = self.state.borrow_mut();
        state.ready.drain(..).map(|done| done.context).collect()
    }

    /// Posts under the context of an operation that is over: the receive of what it has claimed.
    ///
    /// # Errors
    /// What the post answers.
    pub fn post_again(&self, context: u64, post: impl Into<Post>) -> anyhow::Result<()> {
        let (mut post, mut state) = (post.into(), self.state.borrow_mut());
        let posted = state.api.post(context, &mut post);
        posted.map_err(|errno| anyhow!("posting {post:.120?}: {errno:?}"))?;
        state.outstanding.insert(context, post.is_multi());
        Ok(())
    }

    /// Moves things on, and keeps completions for later.
    ///
    /// # Errors
    /// When something completes that must not.
    pub fn store_completions(&self) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        while let Some(done) = state.read()? {
            state.ready.push_back(done);
        }
        Ok(())
    }

    /// The next completion of those that were kept.
    pub fn take_stored(&self) -> Option<Completion> {
        self.state.borrow_mut().ready.pop_front()
    }

    /// Keeps completions again, before those that came later.
    pub fn put_back(&self, mut older: VecDeque<Completion>) {
        let ready = &mut self.state.borrow_mut().ready;
        older.append(ready);
        *ready = older;
    }

    /// Whether no operation is outstanding and no completion is kept.
    pub fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.outstanding.is_empty() && state.ready.is_empty()
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// When something completes that must not.
    pub fn poll(&self) -> anyhow::Result<Option<Completion>> {
        let mut state = self.state.borrow_mut();
        match state.ready.pop_front() {
            Some(done) => Ok(Some(done)),
            None => state.read(),
        }
    }

    /// The next completion.
    ///
    /// # Errors
    /// When none comes, or one that must not.
    pub fn next(&self) -> anyhow::Result<Completion> {
        until("a completion", || self.poll())
    }

    /// The completion of an operation; others are kept for later.
    ///
    /// # Errors
    /// When it does not come, or something that must not.
    pub fn wait_for(&self, context: u64) -> anyhow::Result<Completion> {
        let what = format!("the completion of operation {context}");
        until(&what, || {
            let mut state = self.state.borrow_mut();
            let place = state.ready.iter().position(|done| done.context == context);
            if let Some(place) = place {
                return Ok(state.ready.remove(place));
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

    /// What an entry says that was read past this endpoint.
    ///
    /// # Errors
    /// When it completes something that must not.
    pub fn account_for(&self, entry: selvedge::cq::Entry) -> anyhow::Result<Completion> {
        let mut state = self.state.borrow_mut();
        let done = state.api.complete(entry)?;
        state.check_off(&done)?;
        Ok(done)
    }

    /// Whether an operation has completed.
    ///
    /// # Errors
    /// When something completes that must not.
    pub fn is_done(&self, context: u64) -> anyhow::Result<bool> {
        self.store_completions()?;
        let state = self.state.borrow();
        Ok(state.ready.iter().any(|done| done.context == context))
    }

    /// Posts, and waits until it is over.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::wait_for`].
    pub fn post_and_wait(&self, post: impl Into<Post>) -> anyhow::Result<Completion> {
        let context = self.post(post)?;
        self.wait_for(context)
    }

    /// Posts a send or a write that may be injected, and waits until it has succeeded; an inject has
    /// when it is posted.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::wait_for`]; that it failed.
    pub fn run(&self, post: impl Into<Post>) -> anyhow::Result<()> {
        let post = post.into();
        let is_over = post.is_injected();
        let context = self.post(post)?;
        if !is_over {
            self.wait_for(context)?.expect_success()?;
        }
        Ok(())
    }

    /// Moves things on.
    ///
    /// # Errors
    /// When that does not work.
    pub fn progress(&self) -> anyhow::Result<()> {
        self.state.borrow_mut().api.progress()
    }

    /// Moves things on for a while: whatever can happen has happened then, if the peers do so, too.
    ///
    /// # Errors
    /// As [`Self::progress`].
    pub fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..YIELDS {
            for _ in 0..TURNS {
                self.progress()?;
            }
            // On a busy machine it takes milliseconds until this process runs again.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Overwrites the bytes of a send that is outstanding and was injected.
    pub fn overwrite(&self, context: u64) {
        self.state.borrow_mut().api.overwrite(context);
    }

    /// Tries to take an operation back.
    pub fn cancel(&self, context: u64) -> Result<(), Errno> {
        self.state.borrow_mut().api.cancel(context)
    }

    /// Posts receives here from now on, or at the endpoint again. Of the raw API.
    pub fn post_receives_to(&self, srx: Option<Arc<dyn SharedReceives>>) {
        self.state.borrow_mut().api.post_receives_to(srx);
    }

    /// Makes sure that nothing is outstanding and no completion unread.
    ///
    /// # Errors
    /// What there is.
    pub fn assert_idle(&self) -> anyhow::Result<()> {
        if let Some(done) = self.poll()? {
            return Err(anyhow!("{done:?} was not asked for"));
        }
        let outstanding = self.state.borrow().outstanding.clone();
        let outstanding = Vec::from_iter(outstanding.into_keys());
        ensure!(
            outstanding.is_empty(),
            "operations {outstanding:?} have not completed"
        );
        Ok(())
    }

    /// What is outstanding ends with the endpoint.
    pub fn forget_outstanding(&self) {
        let mut state = self.state.borrow_mut();
        state.outstanding.clear();
        state.ready.clear();
    }

    /// The endpoint, of the raw API.
    pub fn ep(&self) -> Arc<dyn Endpoint> {
        self.raw(|raw| Arc::clone(&raw.ep))
    }

    /// The completion queue, of the raw API.
    pub fn cq(&self) -> Arc<dyn CompletionQueue> {
        self.raw(|raw| Arc::clone(&raw.cq))
    }

    /// The address vector, of the raw API of an unconnected endpoint.
    pub fn av(&self) -> Arc<dyn AddressVector> {
        self.raw(|raw| raw.av.clone())
            .expect("unconnected endpoints have one")
    }

    fn raw<T>(&self, ask: impl FnOnce(&RawEndpoint) -> T) -> T {
        let state = self.state.borrow();
        ask(state.api.raw().expect("a test of the raw API"))
    }
}

impl State {
    /// Reads a completion, and checks it off.
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
            // An inject has no context; that its peer is gone is reported all the same.
            None if done.error.is_some() && done.context == 0 => {}
            None => return Err(anyhow!("{done:?} completes nothing that is outstanding")),
        }
        Ok(())
    }
}

const YIELDS: usize = 20;
const TURNS: usize = 20;
