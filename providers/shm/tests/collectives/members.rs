//! Endpoints with each other's addresses, and collective groups of them.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{Entry, ErrEntry};
use selvedge::eq::{self, Event};
use selvedge::{
    AddressVector, Bindings, Caps, Collective, CompletionQueue, Context, Domain, Endpoint, Errno,
    Error, EventQueue, FiAddr, Hints, Info, Membership, OpFlags, av, collective::CollectiveMsg, cq,
    wait,
};

/// A member: an endpoint with its queues and address vector.
pub(crate) struct Member {
    pub(crate) ep: Arc<dyn Endpoint>,
    pub(crate) cq: Arc<dyn CompletionQueue>,
    pub(crate) eq: Arc<dyn EventQueue>,
    pub(crate) av: Arc<dyn AddressVector>,
    /// The addresses of all members, by rank.
    pub(crate) addrs: Vec<FiAddr>,
}

/// All members, by rank; `None` for a closed member.
pub(crate) struct Members {
    pub(crate) members: Vec<Option<Member>>,
}

/// A test that hangs fails after this time.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

impl Members {
    pub(crate) fn connect(ranks: usize) -> Self {
        Self::with_bindings(ranks, Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE, |_| {})
    }

    pub(crate) fn with_bindings(ranks: usize, caps: Caps, change: impl Fn(&mut Bindings)) -> Self {
        let mut members: Vec<_> = (0..ranks).map(|_| Member::open(caps, &change)).collect();
        let addresses: Vec<_> = members.iter().map(|it| it.ep.address().unwrap()).collect();
        for (rank, member) in members.iter_mut().enumerate() {
            // Each member has the others at other indices.
            for step in 0..ranks {
                member
                    .av
                    .insert_one(&addresses[(rank + step) % ranks])
                    .unwrap();
            }
            let addrs = addresses.iter().map(|it| member.av.insert_one(it).unwrap());
            member.addrs = addrs.collect();
        }
        Self {
            members: members.into_iter().map(Some).collect(),
        }
    }

    pub(crate) fn member(&self, rank: usize) -> &Member {
        self.members[rank].as_ref().unwrap()
    }

    fn open_members(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().flatten()
    }

    /// Joins the ranks, in this order, and waits until all have joined.
    pub(crate) fn join(&self, ranks: &[usize]) -> Vec<Arc<dyn Membership>> {
        let joins = ranks.iter().map(|&rank| {
            let member = self.member(rank);
            let set = member.open_set(ranks, &[]);
            member.coll().join(&set, Context(77)).unwrap()
        });
        let joined: Vec<_> = joins.collect();
        let mut missing: Vec<_> = ranks.to_vec();
        self.drive_until("the join", || {
            missing.retain(|&rank| match self.member(rank).eq.read() {
                Ok(Event::JoinComplete {
                    context: Context(77),
                }) => false,
                Ok(other) => panic!("{other:?}"),
                Err(Errno::Again) => true,
                Err(errno) => panic!(
                    "rank {rank}: {errno:?} {:?}",
                    self.member(rank).eq.read_err()
                ),
            });
            missing.is_empty()
        });
        joined
    }

    /// Progresses all members until `is_reached` returns true.
    pub(crate) fn drive_until(&self, event: &str, mut is_reached: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !is_reached() {
            assert!(begin.elapsed() < WATCHDOG, "timed out: {event}");
            for member in self.open_members() {
                let _ = member.cq.read(&mut []);
            }
        }
    }

    /// Waits for the outcome of the collective that each rank has posted with this context.
    pub(crate) fn outcomes(
        &self,
        ranks: &[usize],
        context: Context,
    ) -> Vec<Result<Entry, ErrEntry>> {
        let mut done: Vec<_> = ranks.iter().map(|_| None).collect();
        self.drive_until("a completion", || {
            for (&rank, done) in ranks
                .iter()
                .zip(&mut done)
                .filter(|(_, done)| done.is_none())
            {
                *done = self.member(rank).poll_outcome();
                if let Some(Ok(entry)) = done {
                    assert_eq!(entry.context, context);
                }
            }
            done.iter().all(Option::is_some)
        });
        done.into_iter().flatten().collect()
    }

    /// Waits for `count` successful collectives of each rank. Returns their contexts, sorted.
    pub(crate) fn expect_many_successes(&self, ranks: &[usize], count: usize) -> Vec<Vec<u64>> {
        let mut all = vec![Vec::new(); ranks.len()];
        self.drive_until("completions", || {
            for (&rank, done) in ranks.iter().zip(&mut all) {
                let outcomes = std::iter::from_fn(|| self.member(rank).poll_outcome());
                done.extend(outcomes.map(|it| it.unwrap().context.0));
            }
            all.iter().all(|done: &Vec<u64>| done.len() >= count)
        });
        all.iter_mut().for_each(|done| done.sort_unstable());
        all
    }

    /// Waits for the outcomes of a collective that must succeed.
    pub(crate) fn expect_success(&self, ranks: &[usize], context: Context) {
        for outcome in self.outcomes(ranks, context) {
            let entry = outcome.unwrap();
            assert_eq!(entry.flags, selvedge::CompletionFlags::COLLECTIVE);
        }
    }

    /// Closes an endpoint.
    pub(crate) fn close(&mut self, rank: usize) {
        self.members[rank] = None;
    }
}

impl Member {
    /// Opens a member without the addresses of other members.
    pub(crate) fn open(caps: Caps, change: &dyn Fn(&mut Bindings)) -> Self {
        let hints = Hints::new().caps(caps);
        let info = crate::registry().infos(&hints).unwrap().remove(0);
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let opened = Self::with_endpoint(&info, &*domain, &av, |mut bind| {
            change(&mut bind);
            domain.endpoint(&info, bind)
        });
        opened.unwrap()
    }

    /// Opens a member with the endpoint that `open` opens, and with its own queues.
    pub(crate) fn with_endpoint(
        info: &Info,
        domain: &dyn Domain,
        av: &Arc<dyn AddressVector>,
        open: impl FnOnce(Bindings) -> Result<Arc<dyn Endpoint>, Error>,
    ) -> Result<Self, Error> {
        let mut attr = eq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let eq = info.fabric()?.eq(&attr)?;
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let cq = domain.cq(&attr)?;
        let mut bind = Bindings::new(Arc::clone(&cq), Arc::clone(av));
        bind.eq = Some(Arc::clone(&eq));
        Ok(Self {
            ep: open(bind)?,
            cq,
            eq,
            av: Arc::clone(av),
            addrs: Vec::new(),
        })
    }

    pub(crate) fn coll(&self) -> &dyn Collective {
        self.ep.collective().unwrap()
    }

    pub(crate) fn open_set(&self, ranks: &[usize], key: &[u8]) -> av::Set {
        let mut attr = av::SetAttr::default();
        attr.comm_key = key.to_vec();
        let mut set = av::Set::open(&*self.av, &attr).unwrap();
        for &rank in ranks {
            set.insert(self.addrs[rank]).unwrap();
        }
        set
    }

    pub(crate) fn poll_outcome(&self) -> Option<Result<Entry, ErrEntry>> {
        let mut entry = [Entry::default()];
        match self.cq.read(&mut entry) {
            Ok(0) => None,
            Ok(_) => Some(Ok(entry[0])),
            Err(Errno::Avail) => Some(Err(self.cq.read_err().unwrap())),
            Err(errno) => panic!("{errno:?}"),
        }
    }

    /// Posts a collective on memory that the test keeps alive.
    pub(crate) fn post(&self, msg: &CollectiveMsg) -> selvedge::Result {
        // SAFETY: tests keep the memory of a posted collective until it completes, or the endpoint
        // is closed.
        unsafe { self.coll().collective(msg, OpFlags::DEFAULT) }
    }
}
