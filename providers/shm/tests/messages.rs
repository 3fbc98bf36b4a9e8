//! Messages between two endpoints of one process: every way, every size.

#![expect(unsafe_code, reason = "tests of the raw face")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::sync::Arc;

use selvedge::param::Params;
use selvedge::{
    AddressVector, Bindings, Caps, CompletionFlags, CompletionQueue, Context, Desc, Domain,
    Endpoint, Errno, FiAddr, Hints, Iov, IovMut, Registry, TagMatch, TaggedExt, av, cq,
};

/// An endpoint with all that it needs.
struct Side {
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    _domain: Arc<dyn Domain>,
}

impl Side {
    fn open(params: &[(&str, &str)]) -> Self {
        let params: Params = params.iter().copied().collect();
        let registry = Registry::new()
            .with(&selvedge_shm::PROVIDER)
            .with_params(params);
        let hints =
            Hints::new().caps(Caps::MSG | Caps::TAGGED | Caps::SOURCE | Caps::DIRECTED_RECV);
        let info = registry.infos(&hints).unwrap().remove(0);
        let domain = info.open().unwrap();
        let cq = domain.cq(&cq::Attr::default()).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain.endpoint(&info, bind).unwrap();
        Self {
            ep,
            cq,
            av,
            _domain: domain,
        }
    }

    fn knows(&self, other: &Self) -> FiAddr {
        self.av.insert_one(&other.ep.address().unwrap()).unwrap()
    }
}

/// Drives both sides until `side` has a completion.
fn next(side: &Side, other: &Side) -> Result<cq::Entry, cq::ErrEntry> {
    for _ in 0..100_000 {
        let mut out = [cq::Entry::default()];
        match side.cq.read(&mut out) {
            Ok(0) => drop(other.cq.read(&mut [])),
            Ok(_) => return Ok(out[0]),
            Err(Errno::Avail) => return Err(side.cq.read_err().unwrap()),
            Err(errno) => panic!("{errno}"),
        }
    }
    panic!("no completion");
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn exchange(params: &[(&str, &str)]) {
    let (a, b) = (Side::open(params), Side::open(params));
    let (to_b, from_a) = (a.knows(&b), b.knows(&a));
    for round in 0..3 {
        for len in [
            0, 1, 8, 40, 48, 49, 64, 1000, 4096, 4097, 16384, 100_000, 3_000_001,
        ] {
            let sent = pattern(len + round);
            let mut got = vec![0; len + round];
            // SAFETY: the buffers live until both completions have been read.
            unsafe {
                b.ep.trecv(
                    IovMut::new(&mut got),
                    Desc::NONE,
                    from_a,
                    TagMatch::exact(5),
                    Context(2),
                )
            }
            .unwrap();
            // SAFETY: as above.
            unsafe { a.ep.tsend(Iov::new(&sent), Desc::NONE, to_b, 5, Context(1)) }.unwrap();
            let entry = next(&b, &a).unwrap();
            assert_eq!(entry.context, Context(2));
            assert_eq!((entry.len, entry.tag), (len + round, 5));
            assert_eq!(entry.flags, CompletionFlags::RECV | CompletionFlags::TAGGED);
            assert_eq!(next(&a, &b).unwrap().context, Context(1));
            assert!(got == sent, "{len} bytes differ");
        }
    }
}

#[test]
fn every_size_arrives_the_way_that_is_learnt() {
    exchange(&[]);
}

#[test]
fn every_size_arrives_by_cross_memory_attach() {
    exchange(&[("FI_SHM_PROTOCOL", "cma")]);
}

#[test]
fn every_size_arrives_through_bounce_segments() {
    exchange(&[("FI_SHM_PROTOCOL", "bounce")]);
}
