//! Endpoints with each other's addresses, and collective groups of them.

#![expect(unsafe_code, reason = "tests of the raw API")]

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::eq::{self, Event};
use selvedge::{
    Caps, Collective, Context, Errno, Error, EventQueue, FiAddr, Hints, Membership, OpFlags, av,
    collective::CollectiveMsg, cq, wait,
};
use selvedge_testkit::domain::{DomainContext, EndpointConfig};
use selvedge_testkit::local::{LocalEndpoint, first_info, open_domain};
use selvedge_testkit::timeout::Timeout;

/// A member: an endpoint with its queues and address vector.
pub(crate) struct Member {
    local: LocalEndpoint,
    pub(crate) eq: Arc<dyn EventQueue>,
    /// The addresses of all members, by rank.
    pub(crate) addrs: Vec<FiAddr>,
}

impl Deref for Member {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

/// All members, by rank; `None` for a closed member.
pub(crate) struct Members {
    pub(crate) members: Vec<Option<Member>>,
}

/// A test that hangs fails after this time.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(60);

impl Members {
    pub(crate) fn connect(ranks: usize) -> Self {
        Self::connect_with(ranks, Caps::MSG | Caps::TAGGED | Caps::COLLECTIVE, |_| {})
    }

    pub(crate) fn connect_with(
        ranks: usize,
        caps: Caps,
        change: impl Fn(&mut EndpointConfig),
    ) -> Self {
        let mut members: Vec<_> = (0..ranks).map(|_| Member::open(caps, &change)).collect();
        let addresses: Vec<_> = members.iter().map(|it| it.address()).collect();
        for (rank, member) in members.iter_mut().enumerate() {
            // Each member has the others at other indices.
            for step in 0..ranks {
                member.insert(&addresses[(rank + step) % ranks]);
            }
            let addrs = addresses.iter().map(|it| member.insert(it));
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
    pub(crate) fn drive_until(&self, event: &'static str, mut is_reached: impl FnMut() -> bool) {
        let mut timeout = Timeout::new(event);
        while !is_reached() {
            timeout.check().unwrap();
            self.open_members().for_each(|member| member.progress());
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
                *done = self.member(rank).poll();
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
                let outcomes = std::iter::from_fn(|| self.member(rank).poll());
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
    pub(crate) fn open(caps: Caps, change: &dyn Fn(&mut EndpointConfig)) -> Self {
        let info = first_info(&crate::registry(), &Hints::new().caps(caps));
        Self::open_in(&open_domain(&info).unwrap(), change).unwrap()
    }

    /// Opens a member in a domain, with its own queues.
    pub(crate) fn open_in(
        domain: &Arc<DomainContext>,
        change: impl FnOnce(&mut EndpointConfig),
    ) -> Result<Self, Error> {
        let mut attr = eq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let eq = domain.info().fabric()?.eq(&attr)?;
        let local = LocalEndpoint::try_open(domain, |domain, config| {
            let mut attr = cq::Attr::default();
            attr.wait_obj = wait::Object::Unspec;
            config.rx = Some(domain.queue_with(&attr).unwrap());
            config.eq = Some(Arc::clone(&eq));
            change(config);
        })?;
        Ok(Self {
            local,
            eq,
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

    /// Posts a collective on memory that the test keeps alive.
    pub(crate) fn post(&self, msg: &CollectiveMsg) -> selvedge::Result {
        // SAFETY: tests keep the memory of a posted collective until it completes, or the endpoint
        // is closed.
        unsafe { self.coll().collective(msg, OpFlags::DEFAULT) }
    }
}
