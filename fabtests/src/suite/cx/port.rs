//! An endpoint of a test, with the account of its operations: each completes once, and nothing else
//! does.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use selvedge::trigger::Ticket;
use selvedge::{
    Address, AddressVector, CompletionQueue, Counter, Domain, Endpoint, EpOption, Errno,
    EventQueue, FiAddr, Info, PassiveEndpoint, SharedReceives,
};

use super::face::Face;
use super::patience::until;
use super::post::{Done, Post};
use super::raw::{Told, When};

/// An endpoint. It stays open until the test is over, whoever drops this.
#[derive(Clone)]
pub(crate) struct Port {
    state: Rc<RefCell<State>>,
    pub(crate) domain: Arc<dyn Domain>,
    pub(crate) info: Info,
    peers: Vec<FiAddr>,
    me: usize,
}

/// What changes.
struct State {
    face: Box<dyn Face>,
    /// Completions that were read and not asked for yet.
    ready: VecDeque<Done>,
    /// What has not completed, and whether it completes more than once.
    outstanding: BTreeMap<u64, bool>,
    next: u64,
    _connection: Option<Connection>,
}

/// What a connected endpoint comes from.
pub(super) struct Connection {
    pub(super) _eq: Arc<dyn EventQueue>,
    pub(super) _pep: Option<Arc<dyn PassiveEndpoint>>,
}

impl Port {
    pub(super) fn new(
        face: Box<dyn Face>,
        domain: Arc<dyn Domain>,
        info: Info,
        me: usize,
        connection: Option<Connection>,
    ) -> Self {
        let state = State {
            face,
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
    pub(crate) fn address(&self) -> anyhow::Result<Address> {
        let address = self.state.borrow().face.address();
        address.map_err(|errno| anyhow!("the endpoint has no address: {errno}"))
    }

    /// The index of a peer.
    ///
    /// # Errors
    /// When its address is refused.
    pub(crate) fn insert(&self, peer: &Address) -> anyhow::Result<FiAddr> {
        let index = self.state.borrow().face.insert(peer);
        index.map_err(|errno| anyhow!("the address {peer} is refused: {errno}"))
    }

    pub(super) fn set_peers(&mut self, peers: Vec<FiAddr>) {
        self.peers = peers;
    }

    /// The index of a process of the test.
    pub(crate) fn to(&self, process: usize) -> FiAddr {
        self.peers[process]
    }

    /// The index of the process behind this one: of two, the other one.
    pub(crate) fn peer(&self) -> FiAddr {
        self.to((self.me + 1) % self.peers.len())
    }

    /// Which process an index is of.
    pub(crate) fn process(&self, index: FiAddr) -> Option<usize> {
        self.peers.iter().position(|&peer| peer == index)
    }

    /// Sets an option of the endpoint.
    ///
    /// # Errors
    /// When it is refused.
    pub(crate) fn set(&self, option: EpOption) -> anyhow::Result<()> {
        let answer = self.state.borrow().face.set(option);
        answer.map_err(|errno| anyhow!("setting {option:?}: {errno:?}"))
    }

    /// Posts, if there is room: under which context.
    pub(crate) fn try_post(&self, post: impl Into<Post>) -> Result<u64, Errno> {
        let (post, mut state) = (post.into(), self.state.borrow_mut());
        let context = state.next;
        state.face.post(context, &post)?;
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
    pub(crate) fn post(&self, post: impl Into<Post>) -> anyhow::Result<u64> {
        let post = post.into();
        until("room for a post", || match self.try_post(post.clone()) {
            Ok(context) => Ok(Some(context)),
            Err(Errno::Again) => self.keep_what_comes().map(|()| None),
            Err(errno) => Err(anyhow!("posting {post:.120?}: {errno:?}")),
        })
    }

    /// Has something posted when a counter has reached a number: under which context, and how the
    /// work is called. Of the raw face.
    ///
    /// # Errors
    /// What the domain answers.
    pub(crate) fn defer(
        &self,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        told: Told,
    ) -> Result<(u64, Ticket), Errno> {
        self.defer_in(&self.domain, post, cntr, threshold, told)
    }

    /// The same by another domain than the port's.
    ///
    /// # Errors
    /// What that domain answers.
    pub(crate) fn defer_in(
        &self,
        domain: &Arc<dyn Domain>,
        post: impl Into<Post>,
        cntr: &Arc<dyn Counter>,
        threshold: u64,
        told: Told,
    ) -> Result<(u64, Ticket), Errno> {
        let (post, mut state) = (post.into(), self.state.borrow_mut());
        let context = state.next;
        let when = When {
            domain: Arc::clone(domain),
            cntr: Arc::clone(cntr),
            threshold,
            told,
        };
        let ticket = state.face.defer(context, &post, when)?;
        state.next += 1;
        state.outstanding.insert(context, post.is_multi());
        Ok((context, ticket))
    }

    /// An operation that has no completion, or has none any more.
    pub(crate) fn forget(&self, context: u64) {
        self.state.borrow_mut().outstanding.remove(&context);
    }

    /// Takes what was read while posts waited for room: the contexts.
    pub(crate) fn heard(&self) -> Vec<u64> {
        let mut state = self.state.borrow_mut();
        state.ready.drain(..).map(|done| done.context).collect()
    }

    /// Posts under the context of an operation that is over: the receive of what it has claimed.
    ///
    /// # Errors
    /// What the post answers.
    pub(crate) fn post_again(&self, context: u64, post: impl Into<Post>) -> anyhow::Result<()> {
        let (post, mut state) = (post.into(), self.state.borrow_mut());
        let posted = state.face.post(context, &post);
        posted.map_err(|errno| anyhow!("posting {post:.120?}: {errno:?}"))?;
        state.outstanding.insert(context, post.is_multi());
        Ok(())
    }

    /// Moves things on, and keeps completions for later.
    fn keep_what_comes(&self) -> anyhow::Result<()> {
        let mut state = self.state.borrow_mut();
        while let Some(done) = state.read()? {
            state.ready.push_back(done);
        }
        Ok(())
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// When something completes that must not.
    pub(crate) fn poll(&self) -> anyhow::Result<Option<Done>> {
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
    pub(crate) fn next(&self) -> anyhow::Result<Done> {
        until("a completion", || self.poll())
    }

    /// The completion of an operation; others are kept for later.
    ///
    /// # Errors
    /// When it does not come, or something that must not.
    pub(crate) fn of(&self, context: u64) -> anyhow::Result<Done> {
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

    /// What an entry says that was read past this port.
    ///
    /// # Errors
    /// When it completes something that must not.
    pub(crate) fn settle_entry(&self, entry: selvedge::cq::Entry) -> anyhow::Result<Done> {
        let mut state = self.state.borrow_mut();
        let done = state.face.taken(entry)?;
        state.check_off(&done)?;
        Ok(done)
    }

    /// Whether an operation has completed.
    ///
    /// # Errors
    /// When something completes that must not.
    pub(crate) fn is_done(&self, context: u64) -> anyhow::Result<bool> {
        self.keep_what_comes()?;
        let state = self.state.borrow();
        Ok(state.ready.iter().any(|done| done.context == context))
    }

    /// Posts, and waits until it is over.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::of`].
    pub(crate) fn call(&self, post: impl Into<Post>) -> anyhow::Result<Done> {
        let context = self.post(post)?;
        self.of(context)
    }

    /// Posts a send or a write that may be injected, and waits until it has succeeded; an inject has
    /// when it is posted.
    ///
    /// # Errors
    /// As [`Self::post`] and [`Self::of`]; that it failed.
    pub(crate) fn run(&self, post: impl Into<Post>) -> anyhow::Result<()> {
        let post = post.into();
        let is_over = post.is_injected();
        let context = self.post(post)?;
        if !is_over {
            self.of(context)?.well()?;
        }
        Ok(())
    }

    /// Moves things on.
    ///
    /// # Errors
    /// When that does not work.
    pub(crate) fn drive(&self) -> anyhow::Result<()> {
        self.state.borrow_mut().face.drive()
    }

    /// Moves things on for a while: whatever can happen has happened then, if the peers do so, too.
    ///
    /// # Errors
    /// As [`Self::drive`].
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        for _ in 0..YIELDS {
            for _ in 0..TURNS {
                self.drive()?;
            }
            // On a busy machine it takes milliseconds until this process runs again.
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Overwrites the bytes of a send that is outstanding and was injected.
    pub(crate) fn overwrite(&self, context: u64) {
        self.state.borrow_mut().face.overwrite(context);
    }

    /// Tries to take an operation back.
    pub(crate) fn cancel(&self, context: u64) -> Result<(), Errno> {
        self.state.borrow_mut().face.cancel(context)
    }

    /// Posts receives here from now on, or at the endpoint again. Of the raw face.
    pub(crate) fn share(&self, srx: Option<Arc<dyn SharedReceives>>) {
        self.state.borrow_mut().face.share(srx);
    }

    /// Makes sure that nothing is outstanding and no completion unread.
    ///
    /// # Errors
    /// What there is.
    pub(crate) fn assert_idle(&self) -> anyhow::Result<()> {
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
    pub(crate) fn forget_outstanding(&self) {
        let mut state = self.state.borrow_mut();
        state.outstanding.clear();
        state.ready.clear();
    }

    /// The endpoint, of the raw face.
    pub(crate) fn ep(&self) -> Arc<dyn Endpoint> {
        self.raw(|raw| Arc::clone(&raw.ep))
    }

    /// The completion queue, of the raw face.
    pub(crate) fn cq(&self) -> Arc<dyn CompletionQueue> {
        self.raw(|raw| Arc::clone(&raw.cq))
    }

    /// The address vector, of the raw face of an unconnected endpoint.
    pub(crate) fn av(&self) -> Arc<dyn AddressVector> {
        self.raw(|raw| raw.av.clone())
            .expect("unconnected endpoints have one")
    }

    fn raw<T>(&self, ask: impl FnOnce(&super::raw::Raw) -> T) -> T {
        let state = self.state.borrow();
        ask(state.face.raw().expect("a test of the raw face"))
    }
}

impl State {
    /// Reads a completion, and checks it off.
    fn read(&mut self) -> anyhow::Result<Option<Done>> {
        let Some(done) = self.face.poll()? else {
            return Ok(None);
        };
        self.check_off(&done)?;
        Ok(Some(done))
    }

    fn check_off(&mut self, done: &Done) -> anyhow::Result<()> {
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
