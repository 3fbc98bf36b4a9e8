//! Groups, and collectives on words between canaries.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{anyhow, ensure};
use selvedge::atomic::{self, Datatype};
use selvedge::collective::{CollectiveMsg, Op};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::eq::{self, Event};
use selvedge::{
    Bindings, Collective, CompletionFlags, Context, Domain, Errno, EventQueue, FiAddr, Membership,
    OpFlags, av,
};

use super::contexts::RX_CTX_BITS;
use super::open::try_event;
use super::timeout::until;
use super::{Result, Setup, TestContext, TestEndpoint};

/// An endpoint of the raw API that joins groups. The completion queue is read directly, not through
/// [`TestEndpoint`].
pub(crate) struct Joiner {
    pub(crate) endpoint: TestEndpoint,
    /// The possible members of the endpoint's groups, this endpoint included. A member's number is
    /// its index.
    peers: Vec<FiAddr>,
    eq: Arc<dyn EventQueue>,
    next_context: Cell<u64>,
}

/// A group with an endpoint of this process as a member.
pub(crate) struct Group {
    membership: Arc<dyn Membership>,
    /// The members of the group, in the order of the set.
    pub(crate) members: Vec<usize>,
}

/// A posted collective. Its memory is never freed, because the process ends soon.
pub(crate) struct Posted {
    context: Context,
    /// The result between canaries.
    result: &'static [AtomicU64],
}

/// The arguments of a collective.
pub(crate) struct CollectiveCall {
    pub(crate) coll: Op,
    pub(crate) op: atomic::Op,
    /// The number of the root.
    pub(crate) root: usize,
    /// Number of elements of each member.
    pub(crate) count: usize,
    pub(crate) input: Vec<u64>,
    /// Number of words of the result.
    pub(crate) result_len: usize,
    pub(crate) flags: OpFlags,
}

impl CollectiveCall {
    /// Makes the arguments of a barrier, which needs no memory.
    pub(crate) fn barrier() -> Self {
        Self {
            coll: Op::Barrier,
            op: atomic::Op::Sum,
            root: 0,
            count: 0,
            input: Vec::new(),
            result_len: 0,
            flags: OpFlags::DEFAULT,
        }
    }
}

impl TestContext {
    /// Opens an endpoint that joins groups of processes.
    ///
    /// # Errors
    /// As [`Self::open_endpoint`].
    pub(crate) fn joiner(&mut self) -> Result<Joiner> {
        let fabric = self.info_for(&self.hints())?.fabric()?;
        let eq = fabric.eq(&eq::Attr::default())?;
        let bind = |_: &dyn Domain, bind: &mut Bindings| {
            bind.eq = Some(Arc::clone(&eq));
            Ok(())
        };
        let endpoint = self.open_endpoint_with(&Setup {
            bind: Some(&bind),
            ..Setup::default()
        })?;
        let peers = (0..self.count())
            .map(|process| endpoint.to(process))
            .collect();
        Ok(Joiner::new(endpoint, peers, eq))
    }

    /// Opens a scalable endpoint with `count` contexts, which join groups. Context `n` of
    /// process `p` has the number `count * p + n`.
    ///
    /// # Errors
    /// As [`Self::contexts`].
    pub(crate) fn joiners(&mut self, count: usize) -> Result<Vec<Joiner>> {
        let fabric = self.info_for(&self.hints())?.fabric()?;
        let eqs = (0..count).map(|_| fabric.eq(&eq::Attr::default()));
        let eqs: Vec<_> = eqs.collect::<std::result::Result<_, _>>()?;
        let (endpoints, peers) = self.contexts_with(count, |index, bind| {
            bind.eq = Some(Arc::clone(&eqs[index]));
        })?;
        let contexts = |peer: &FiAddr| {
            let peer = *peer;
            (0..count).map(move |index| peer.rx_addr(index, RX_CTX_BITS))
        };
        let peers: Vec<_> = peers.iter().flat_map(contexts).collect();
        let joiners = endpoints.into_iter().zip(eqs);
        Ok(joiners
            .map(|(endpoint, eq)| Joiner::new(endpoint, peers.clone(), eq))
            .collect())
    }
}

/// Calls `attempt` for each joiner of this process until all have a result. Joiners may wait for
/// each other.
///
/// # Errors
/// As [`until`].
pub(crate) fn for_each<'a, T>(
    name: &str,
    joiners: impl Iterator<Item = &'a Joiner>,
    mut attempt: impl FnMut(usize, &Joiner) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    let joiners: Vec<_> = joiners.collect();
    let mut found: Vec<Option<T>> = joiners.iter().map(|_| None).collect();
    until(name, || {
        for (index, joiner) in joiners.iter().enumerate() {
            match found[index] {
                None => found[index] = attempt(index, joiner)?,
                Some(_) => joiner.endpoint.progress()?,
            }
        }
        Ok(found.iter().all(Option::is_some).then_some(()))
    })?;
    Ok(found.into_iter().flatten().collect())
}

impl Joiner {
    fn new(endpoint: TestEndpoint, peers: Vec<FiAddr>, eq: Arc<dyn EventQueue>) -> Self {
        Self {
            endpoint,
            peers,
            eq,
            next_context: Cell::new(1),
        }
    }

    /// Starts joining a group.
    ///
    /// # Errors
    /// The error of the endpoint.
    pub(crate) fn try_join(&self, members: &[usize], key: &[u8]) -> selvedge::Result<Group> {
        let mut attr = av::SetAttr::default();
        attr.comm_key = key.to_vec();
        let mut set = av::Set::open(&*self.endpoint.av(), &attr)?;
        for &member in members {
            set.insert(self.peers[member])?;
        }
        let ep = self.endpoint.ep();
        let coll = ep.collective().ok_or(Errno::NoSys)?;
        let membership = coll.join(&set, JOIN_CONTEXT)?;
        let members = members.to_vec();
        Ok(Group {
            membership,
            members,
        })
    }

    /// Waits until a join is complete.
    ///
    /// # Errors
    /// The join does not complete.
    pub(crate) fn wait_for_join(&self) -> Result {
        until("the members of a group", || self.poll_join())
    }

    /// Polls for the end of a join. Returns `Some` when the join is complete.
    ///
    /// # Errors
    /// The join failed.
    pub(crate) fn poll_join(&self) -> Result<Option<()>> {
        match try_event(&*self.eq, "the members of a group")? {
            None => Ok(None),
            Some(Event::JoinComplete {
                context: JOIN_CONTEXT,
            }) => Ok(Some(())),
            Some(other) => Err(anyhow!("{other:?} instead of a group")),
        }
    }

    /// Joins a group.
    ///
    /// # Errors
    /// As [`Self::try_join`] and [`Self::wait_for_join`].
    pub(crate) fn join(&self, members: &[usize]) -> Result<Group> {
        let group = self.start_join(members)?;
        self.wait_for_join()?;
        Ok(group)
    }

    /// As [`Self::try_join`], where a refusal fails the test.
    ///
    /// # Errors
    /// The endpoint refuses the join.
    pub(crate) fn start_join(&self, members: &[usize]) -> Result<Group> {
        let group = self.try_join(members, &[]);
        group.map_err(|errno| anyhow!("joining {members:?}: {errno:?}"))
    }

    /// Posts a collective to the group with the address `group`.
    ///
    /// # Errors
    /// The error of the endpoint.
    pub(crate) fn try_post(
        &self,
        group: FiAddr,
        call: &CollectiveCall,
    ) -> selvedge::Result<Posted> {
        let words = |words: Vec<u64>| -> &'static [AtomicU64] {
            let words = words.into_iter().map(AtomicU64::new);
            words.collect::<Vec<_>>().leak()
        };
        let (input, result) = (
            words(call.input.clone()),
            words(vec![BLANK; call.result_len + 2 * CANARY_WORDS]),
        );
        let context = Context(self.next_context.replace(self.next_context.get() + 1));
        let mut msg = CollectiveMsg::new(call.coll, group, Datatype::Uint64, context);
        (msg.op, msg.count) = (call.op, call.count);
        msg.root = self.peers[call.root];
        msg.buf = input.as_ptr().cast();
        msg.result = result[CANARY_WORDS..].as_ptr().cast_mut().cast();
        if call.coll == Op::Broadcast {
            for (slot, word) in result[CANARY_WORDS..].iter().zip(&call.input) {
                slot.store(*word, Ordering::Relaxed);
            }
        }
        let ep = self.endpoint.ep();
        let coll: &dyn Collective = ep.collective().ok_or(Errno::NoSys)?;
        // SAFETY: the input and the result are never freed, and all references to them are to
        // atomics, which permit changes.
        unsafe { coll.collective(&msg, call.flags) }?;
        Ok(Posted { context, result })
    }

    /// Posts a collective of a group, and makes progress while there is no room.
    ///
    /// # Errors
    /// The error of the endpoint.
    pub(crate) fn post(&self, group: &Group, call: &CollectiveCall) -> Result<Posted> {
        until("a collective that is accepted", || {
            match self.try_post(group.addr(), call) {
                Ok(posted) => Ok(Some(posted)),
                Err(Errno::Again) => self.endpoint.progress().map(|()| None),
                Err(errno) => Err(anyhow!("{:?}: {errno:?}", call.coll)),
            }
        })
    }

    /// Reads the next completion or error, if there is one.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub(crate) fn next_completion(&self) -> Result<Option<std::result::Result<Entry, ErrEntry>>> {
        let mut entry = [Entry::default()];
        match self.endpoint.cq().read(&mut entry) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(Ok(entry[0]))),
            Err(Errno::Avail) => Ok(Some(Err(self.endpoint.cq().read_err()?))),
            Err(errno) => Err(anyhow!("reading the completion queue: {errno}")),
        }
    }

    /// Waits for the completion of a collective, which must be the next one, and returns its
    /// result.
    ///
    /// # Errors
    /// The collective failed, or another operation completed.
    pub(crate) fn wait_for(&self, posted: &Posted) -> Result<Vec<u64>> {
        until("the end of a collective", || self.try_wait_for(posted))
    }

    /// As [`Self::wait_for`]; `None` if there is no completion yet.
    ///
    /// # Errors
    /// As [`Self::wait_for`].
    pub(crate) fn try_wait_for(&self, posted: &Posted) -> Result<Option<Vec<u64>>> {
        let Some(entry) = self.next_completion()? else {
            return Ok(None);
        };
        let entry = entry.map_err(|error| anyhow!("a collective failed: {error:?}"))?;
        ensure!(
            entry.context == posted.context && entry.flags == CompletionFlags::COLLECTIVE,
            "{entry:?} is not the completion of collective {:?}",
            posted.context
        );
        posted.words().map(Some)
    }
}

impl Posted {
    /// Returns the result of a completed collective.
    ///
    /// # Errors
    /// Words outside the result were written.
    pub(crate) fn words(&self) -> Result<Vec<u64>> {
        let words = self.result.iter().map(|word| word.load(Ordering::Relaxed));
        let words: Vec<_> = words.collect();
        let (head, rest) = words.split_at(CANARY_WORDS);
        let (result, tail) = rest.split_at(rest.len() - CANARY_WORDS);
        let is_blank = head.iter().chain(tail).all(|&word| word == BLANK);
        ensure!(
            is_blank,
            "words outside the result of {:?} were written",
            self.context
        );
        Ok(result.to_vec())
    }
}

impl Group {
    /// Returns the address of the group in posts.
    pub(crate) fn addr(&self) -> FiAddr {
        self.membership.addr()
    }
}

/// The context of a join.
const JOIN_CONTEXT: Context = Context(u64::MAX);
/// Words before and after each result.
const CANARY_WORDS: usize = 8;
/// The content of result buffers before a collective.
pub(crate) const BLANK: u64 = 0xeeee_eeee_eeee_eeee;
