//! Groups, and collectives on words between canaries.

#![expect(unsafe_code, reason = "tests of the raw face")]

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

use super::contexts::BITS;
use super::open::try_event;
use super::timeout::until;
use super::{Cx, Result, Setup, TestEndpoint};

/// An endpoint that joins groups, of the raw face. Its queue is read here, past the port.
pub(crate) struct Joiner {
    pub(crate) port: TestEndpoint,
    /// Whoever may be in a group with it, itself among them. Their numbers are places here.
    known: Vec<FiAddr>,
    eq: Arc<dyn EventQueue>,
    next: Cell<u64>,
}

/// A group with an endpoint of this process in it.
pub(crate) struct Group {
    membership: Arc<dyn Membership>,
    /// Who is in it, in the order of the set.
    pub(crate) members: Vec<usize>,
}

/// A collective that was posted. Its memory is never freed: a test lives for a moment.
pub(crate) struct Posted {
    context: Context,
    room: &'static [AtomicU64],
}

/// What is done together.
pub(crate) struct Work {
    pub(crate) coll: Op,
    pub(crate) op: atomic::Op,
    /// One of those whom the joiner knows.
    pub(crate) root: usize,
    /// Elements of each member.
    pub(crate) count: usize,
    pub(crate) input: Vec<u64>,
    /// Words of the result.
    pub(crate) room: usize,
    pub(crate) flags: OpFlags,
}

impl Work {
    /// One without memory.
    pub(crate) fn barrier() -> Self {
        Self {
            coll: Op::Barrier,
            op: atomic::Op::Sum,
            root: 0,
            count: 0,
            input: Vec::new(),
            room: 0,
            flags: OpFlags::DEFAULT,
        }
    }
}

impl Cx {
    /// A port whose endpoint joins groups of processes.
    ///
    /// # Errors
    /// As [`Self::port`].
    pub(crate) fn joiner(&mut self) -> Result<Joiner> {
        let fabric = self.info_for(&self.hints())?.fabric()?;
        let eq = fabric.eq(&eq::Attr::default())?;
        let bind = |_: &dyn Domain, bind: &mut Bindings| {
            bind.eq = Some(Arc::clone(&eq));
            Ok(())
        };
        let port = self.port_with(&Setup {
            bind: Some(&bind),
            ..Setup::default()
        })?;
        let known = (0..self.count()).map(|process| port.to(process)).collect();
        Ok(Joiner::new(port, known, eq))
    }

    /// The contexts of a scalable endpoint, so many of each process, which join groups. Context `n`
    /// of process `p` has the number `count * p + n`.
    ///
    /// # Errors
    /// As [`Self::contexts`].
    pub(crate) fn joiners(&mut self, count: usize) -> Result<Vec<Joiner>> {
        let fabric = self.info_for(&self.hints())?.fabric()?;
        let eqs = (0..count).map(|_| fabric.eq(&eq::Attr::default()));
        let eqs: Vec<_> = eqs.collect::<std::result::Result<_, _>>()?;
        let (ports, peers) = self.contexts_with(count, |index, bind| {
            bind.eq = Some(Arc::clone(&eqs[index]));
        })?;
        let contexts = |peer: &FiAddr| {
            let peer = *peer;
            (0..count).map(move |index| peer.rx_addr(index, BITS))
        };
        let known: Vec<_> = peers.iter().flat_map(contexts).collect();
        let joiners = ports.into_iter().zip(eqs);
        Ok(joiners
            .map(|(port, eq)| Joiner::new(port, known.clone(), eq))
            .collect())
    }
}

/// Tries for each joiner of this process until all have what they wait for, which may be the others
/// of this process.
///
/// # Errors
/// As [`until`].
pub(crate) fn for_each<'a, T>(
    what: &str,
    joiners: impl Iterator<Item = &'a Joiner>,
    mut attempt: impl FnMut(usize, &Joiner) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    let joiners: Vec<_> = joiners.collect();
    let mut found: Vec<Option<T>> = joiners.iter().map(|_| None).collect();
    until(what, || {
        for (at, joiner) in joiners.iter().enumerate() {
            match found[at] {
                None => found[at] = attempt(at, joiner)?,
                Some(_) => joiner.port.progress()?,
            }
        }
        Ok(found.iter().all(Option::is_some).then_some(()))
    })?;
    Ok(found.into_iter().flatten().collect())
}

impl Joiner {
    fn new(port: TestEndpoint, known: Vec<FiAddr>, eq: Arc<dyn EventQueue>) -> Self {
        Self {
            port,
            known,
            eq,
            next: Cell::new(1),
        }
    }

    /// Begins to join a group of these.
    ///
    /// # Errors
    /// What the endpoint answers.
    pub(crate) fn try_join(&self, members: &[usize], key: &[u8]) -> selvedge::Result<Group> {
        let mut attr = av::SetAttr::default();
        attr.comm_key = key.to_vec();
        let mut set = av::Set::open(&*self.port.av(), &attr)?;
        for &member in members {
            set.insert(self.known[member])?;
        }
        let ep = self.port.ep();
        let coll = ep.collective().ok_or(Errno::NoSys)?;
        let membership = coll.join(&set, JOINED)?;
        let members = members.to_vec();
        Ok(Group {
            membership,
            members,
        })
    }

    /// Waits until one of the groups has all its members.
    ///
    /// # Errors
    /// When that does not come.
    pub(crate) fn joined(&self) -> Result {
        until("the members of a group", || self.has_joined())
    }

    /// Something when one of the groups has all its members.
    ///
    /// # Errors
    /// When it has not got them.
    pub(crate) fn has_joined(&self) -> Result<Option<()>> {
        match try_event(&*self.eq, "the members of a group")? {
            None => Ok(None),
            Some(Event::JoinComplete { context: JOINED }) => Ok(Some(())),
            Some(other) => Err(anyhow!("{other:?} instead of a group")),
        }
    }

    /// Joins a group.
    ///
    /// # Errors
    /// As [`Self::try_join`] and [`Self::joined`].
    pub(crate) fn join(&self, members: &[usize]) -> Result<Group> {
        let group = self.begin(members)?;
        self.joined()?;
        Ok(group)
    }

    /// As [`Self::try_join`], where nothing is to be refused.
    ///
    /// # Errors
    /// When it is.
    pub(crate) fn begin(&self, members: &[usize]) -> Result<Group> {
        let group = self.try_join(members, &[]);
        group.map_err(|errno| anyhow!("joining {members:?}: {errno:?}"))
    }

    /// Posts a collective, to the group of this address or another one.
    ///
    /// # Errors
    /// What the endpoint answers.
    pub(crate) fn try_post(&self, group: FiAddr, work: &Work) -> selvedge::Result<Posted> {
        let words = |words: Vec<u64>| -> &'static [AtomicU64] {
            let words = words.into_iter().map(AtomicU64::new);
            words.collect::<Vec<_>>().leak()
        };
        let (input, room) = (
            words(work.input.clone()),
            words(vec![BLANK; work.room + 2 * CANARY]),
        );
        let context = Context(self.next.replace(self.next.get() + 1));
        let mut msg = CollectiveMsg::new(work.coll, group, Datatype::Uint64, context);
        (msg.op, msg.count) = (work.op, work.count);
        msg.root = self.known[work.root];
        msg.buf = input.as_ptr().cast();
        msg.result = room[CANARY..].as_ptr().cast_mut().cast();
        if work.coll == Op::Broadcast {
            for (place, word) in room[CANARY..].iter().zip(&work.input) {
                place.store(*word, Ordering::Relaxed);
            }
        }
        let ep = self.port.ep();
        let coll: &dyn Collective = ep.collective().ok_or(Errno::NoSys)?;
        // SAFETY: neither is freed, and nobody has a reference that forbids changes.
        unsafe { coll.collective(&msg, work.flags) }?;
        Ok(Posted { context, room })
    }

    /// Posts a collective of a group, when there is room.
    ///
    /// # Errors
    /// What the endpoint answers.
    pub(crate) fn post(&self, group: &Group, work: &Work) -> Result<Posted> {
        until("room for a collective", || {
            match self.try_post(group.addr(), work) {
                Ok(posted) => Ok(Some(posted)),
                Err(Errno::Again) => self.port.progress().map(|()| None),
                Err(errno) => Err(anyhow!("{:?}: {errno:?}", work.coll)),
            }
        })
    }

    /// What the next completion says, if there is one.
    ///
    /// # Errors
    /// The queue's.
    pub(crate) fn outcome(&self) -> Result<Option<std::result::Result<Entry, ErrEntry>>> {
        let mut entry = [Entry::default()];
        match self.port.cq().read(&mut entry) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(Ok(entry[0]))),
            Err(Errno::Avail) => Ok(Some(Err(self.port.cq().read_err()?))),
            Err(errno) => Err(anyhow!("reading the completion queue: {errno}")),
        }
    }

    /// Waits for the end of a collective, which must be the next: the words of its result.
    ///
    /// # Errors
    /// That it failed, or something else has completed.
    pub(crate) fn done(&self, posted: &Posted) -> Result<Vec<u64>> {
        until("the end of a collective", || self.try_done(posted))
    }

    /// As [`Self::done`]; nothing when it is not over.
    ///
    /// # Errors
    /// As [`Self::done`].
    pub(crate) fn try_done(&self, posted: &Posted) -> Result<Option<Vec<u64>>> {
        let Some(entry) = self.outcome()? else {
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
    /// The words of the result of a collective that is over.
    ///
    /// # Errors
    /// When others were written, too.
    pub(crate) fn words(&self) -> Result<Vec<u64>> {
        let words = self.room.iter().map(|word| word.load(Ordering::Relaxed));
        let words: Vec<_> = words.collect();
        let (head, rest) = words.split_at(CANARY);
        let (result, tail) = rest.split_at(rest.len() - CANARY);
        let is_blank = head.iter().chain(tail).all(|&word| word == BLANK);
        ensure!(
            is_blank,
            "words beside the result of {:?} were written",
            self.context
        );
        Ok(result.to_vec())
    }
}

impl Group {
    /// What stands for it in posts.
    pub(crate) fn addr(&self) -> FiAddr {
        self.membership.addr()
    }
}

/// What members hear of a join by.
const JOINED: Context = Context(u64::MAX);
/// Words before and behind each result.
const CANARY: usize = 8;
/// What rooms are filled with.
pub(crate) const BLANK: u64 = 0xeeee_eeee_eeee_eeee;
