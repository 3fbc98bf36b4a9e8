//! Work that waits at a counter, for which there is no room when it is due: a thread that is parked for
//! the domain carries it out when there is, also if another thread was the first to try.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]
#![expect(
    unsafe_code,
    reason = "receives into memory that is never freed, and work"
)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use selvedge::cq::Entry;
use selvedge::info::EpType;
use selvedge::trigger::{Action, Done, Work};
use selvedge::{
    AddressVector, Bindings, Caps, CompletionQueue, Context, Counter, Desc, Domain, Endpoint,
    Errno, FiAddr, Hints, Iov, IovMut, MsgExt, Op, OpFlags, av, cntr, cq, msg, wait,
};

/// Far above what anything here takes.
const LIMIT: Duration = Duration::from_secs(10);
/// For how long a thread polls beside the parked one, which looks for room now and then.
const BESIDE: Duration = Duration::from_millis(50);

struct Side {
    // Closed before its queues.
    ep: Arc<dyn Endpoint>,
    tx_cq: Arc<dyn CompletionQueue>,
    rx_cq: Arc<dyn CompletionQueue>,
    received: Arc<dyn Counter>,
    av: Arc<dyn AddressVector>,
    domain: Arc<dyn Domain>,
}

impl Side {
    fn open() -> Self {
        let hints = Hints::new().provider("shm").ep_type(EpType::Rdm);
        let hints = hints.caps(Caps::MSG | Caps::TRIGGER);
        let info = selvedge_providers::builtin()
            .infos(&hints)
            .unwrap()
            .remove(0);
        let domain = info.open().unwrap();
        let mut attr = cq::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let [tx_cq, rx_cq] = [(); 2].map(|()| domain.cq(&attr).unwrap());
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let received = domain.cntr(&attr).unwrap();
        let av = domain.av(&av::Attr::default()).unwrap();
        let mut bindings = Bindings::new(Arc::clone(&rx_cq), Arc::clone(&av));
        bindings.tx_cq = Arc::clone(&tx_cq);
        bindings.cntrs.recv = Some(Arc::clone(&received));
        let ep = domain.endpoint(&info, bindings).unwrap();
        Self {
            ep,
            tx_cq,
            rx_cq,
            received,
            av,
            domain,
        }
    }

    fn insert(&self, other: &Self) -> FiAddr {
        let addr = other.ep.address().unwrap();
        self.av.insert_one(&addr).unwrap()
    }

    fn post_receive(&self) {
        let room = IovMut::new(Box::leak(vec![0; 64].into_boxed_slice()));
        // SAFETY: the memory is never freed, and nothing else uses it.
        unsafe { self.ep.recv(room, Desc::NONE, FiAddr::UNSPEC, Context(0)) }.unwrap();
    }

    /// Drives the endpoint, as every read of a queue does.
    fn poll(&self) {
        self.tx_cq.read(&mut []).unwrap();
    }

    /// Polls both until so many messages have come.
    fn receive(&self, mut messages: usize, other: Option<&Self>) {
        let start = Instant::now();
        while messages > 0 {
            assert!(
                start.elapsed() < LIMIT,
                "messages that do not come: {messages}"
            );
            messages -= self.rx_cq.read(&mut [Entry::default()]).unwrap();
            other.into_iter().for_each(Self::poll);
        }
    }
}

#[test]
fn a_parked_thread_carries_out_work_that_another_one_has_tried() {
    let (shared, peer) = (Side::open(), Side::open());
    let (to_peer, to_shared) = (shared.insert(&peer), peer.insert(&shared));
    (0..2).for_each(|_| shared.post_receive());
    peer.ep.inject(b"parked", to_shared, None).unwrap();
    shared.receive(1, Some(&peer));
    let mut messages = 1;
    while shared.ep.inject(b"parked", to_peer, None) != Err(Errno::Again) {
        messages += 1;
    }
    // It drives the domain's work alone.
    let no_endpoint = shared.domain.cq(&cq::Attr::default()).unwrap();
    let trigger = shared.domain.cntr(&cntr::Attr::default()).unwrap();
    let send = Op::Send(msg::SendMsg {
        iov: &[Iov::new(b"parked")],
        desc: &[Desc::NONE],
        dest: to_peer,
        context: Context(0),
        data: 0,
    });
    let work = Work {
        cntr: &trigger,
        threshold: 1,
        action: Action::Post {
            ep: &shared.ep,
            op: send,
            flags: OpFlags::DEFAULT,
            done: Done::Endpoint,
        },
    };
    // SAFETY: the memory is never freed nor written.
    unsafe { shared.domain.queue_work(&work) }.unwrap();
    thread::scope(|scope| {
        let parked = scope.spawn(|| shared.received.wait(2, Some(2 * LIMIT)));
        thread::sleep(BESIDE);
        trigger.add(1);
        let start = Instant::now();
        while start.elapsed() < BESIDE {
            no_endpoint.read(&mut []).unwrap();
        }
        // From here on the parked thread alone carries work out.
        (0..messages).for_each(|_| peer.post_receive());
        peer.receive(messages, None);
        peer.ep.inject(b"parked", to_shared, None).unwrap();
        assert_eq!(parked.join().unwrap(), Ok(()));
    });
}
