//! Two endpoints of the safe layer over shm, each with a domain of its own.

use std::sync::Arc;

use selvedge::owned::{Buf, Completion, Completions, Endpoint, Pool, View};
use selvedge::{AddressVector, Caps, Context, Domain, FiAddr, Hints, Info, alloc, av};
use selvedge_testkit::local;
use selvedge_testkit::timeout::until;

/// The lengths of tested messages: inline, inject, and large ones by ordinary sends.
pub(crate) const LENGTHS: [usize; 4] = [8, 64, 4096, 1 << 20];

/// The capacity of buffers of special memory.
pub(crate) const CAPACITY: usize = 1 << 20;

/// The attributes of endpoints with these parameters.
pub(crate) fn info(params: &[(&str, &str)]) -> Info {
    let caps = Caps::MSG | Caps::TAGGED | Caps::SOURCE;
    local::info(&selvedge_shm::PROVIDER, params, &Hints::new().caps(caps))
}

/// An endpoint with two pools: of special memory for sends, and of ordinary memory for receives.
pub(crate) struct Side {
    pub(crate) ep: Endpoint,
    pub(crate) av: Arc<dyn AddressVector>,
    pub(crate) special: Pool,
    pub(crate) small: Pool,
    pub(crate) domain: Arc<dyn Domain>,
}

impl Side {
    pub(crate) fn open() -> Self {
        Self::with_params(&[])
    }

    pub(crate) fn with_params(params: &[(&str, &str)]) -> Self {
        let info = info(params);
        let domain = info.open().unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        Self {
            ep: Endpoint::open(&*domain, &info, Arc::clone(&av)).unwrap(),
            av,
            special: Pool::special(&*domain, CAPACITY, 8, &alloc::Attr::default()).unwrap(),
            small: Pool::new(&*domain, 64, 256).unwrap(),
            domain,
        }
    }

    /// Inserts the address of another side.
    pub(crate) fn insert(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }

    /// A buffer of special memory with these bytes.
    pub(crate) fn message(&self, bytes: &[u8]) -> Buf {
        let mut buf = self.special.take().unwrap();
        buf.write(bytes).unwrap();
        buf
    }

    /// The short buffer of a receive.
    pub(crate) fn short(&self) -> Buf {
        self.small.take().unwrap()
    }

    /// The completions that are ready.
    pub(crate) fn poll(&self) -> Vec<Completion> {
        let mut done = Completions::with_capacity(16);
        self.ep.poll(&mut done).unwrap();
        done.drain().collect()
    }

    /// The next completion, while the other side makes progress, too.
    #[track_caller]
    pub(crate) fn next(&self, other: &Self) -> Completion {
        let mut next = until("a completion", || {
            assert!(other.poll().is_empty(), "a completion of the other side");
            Ok(Some(self.poll()).filter(|next| !next.is_empty()))
        })
        .unwrap();
        assert_eq!(next.len(), 1, "{next:?}");
        next.remove(0)
    }

    /// The message of the next completion, which is that of a lending receive.
    #[track_caller]
    pub(crate) fn view(&self, other: &Self) -> View {
        self.next(other).into_view().unwrap().0
    }
}

/// Two connected sides, and the address of the second one for the first.
pub(crate) fn pair() -> (Side, Side, FiAddr) {
    pair_with(&[])
}

pub(crate) fn pair_with(params: &[(&str, &str)]) -> (Side, Side, FiAddr) {
    let (a, b) = (Side::with_params(params), Side::with_params(params));
    let to = a.insert(&b);
    b.insert(&a);
    (a, b, to)
}

/// Polls both sides many times. Returns their completions.
pub(crate) fn settle(a: &Side, b: &Side) -> (Vec<Completion>, Vec<Completion>) {
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        of_a.extend(a.poll());
        of_b.extend(b.poll());
    }
    (of_a, of_b)
}

/// `len` bytes that differ from those of other seeds.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + seed * 13 + at / 251) as u8)
        .collect()
}

/// Lends a message and returns its view.
#[track_caller]
pub(crate) fn lend(a: &Side, b: &Side, to: FiAddr, bytes: &[u8]) -> View {
    b.ep.recv_lent(b.short(), FiAddr::UNSPEC, Context(1))
        .unwrap();
    a.ep.lend(a.message(bytes), to, Context(2)).unwrap();
    b.view(a)
}
