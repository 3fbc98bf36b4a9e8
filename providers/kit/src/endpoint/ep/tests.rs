//! Tests of how an endpoint reports completions and errors at its queues and counters.

use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use selvedge::cntr::Events;
use selvedge::{
    Address, AddressVector, CompletionQueue, Counter, IovMut, Result, TagMatch, cntr, cq,
};

use super::*;
use crate::copy::RxBuf;
use crate::cq::{Progress, Sink};
use crate::eq::Queue;
use crate::lock::Mode;
use crate::srx::{Envelope, Kind, Posted, Source};
use crate::wait::PollPolicy;

/// An address vector without addresses.
#[derive(Debug)]
struct NoPeers;

impl AddressVector for NoPeers {
    fn insert(&self, _: &[Address], _: &mut [FiAddr]) -> Result<usize> {
        Ok(0)
    }

    fn remove(&self, _: &[FiAddr]) -> Result {
        Err(Errno::Inval)
    }

    fn lookup(&self, _: FiAddr) -> Result<Address> {
        Err(Errno::Inval)
    }
}

/// A completion queue of another provider.
#[derive(Debug)]
struct ForeignQueue;

impl CompletionQueue for ForeignQueue {
    fn read(&self, _: &mut [Entry]) -> Result<usize> {
        Ok(0)
    }

    fn read_from(&self, _: &mut [Entry], _: &mut [FiAddr]) -> Result<usize> {
        Ok(0)
    }

    fn read_err(&self) -> Result<ErrEntry> {
        Err(Errno::Again)
    }
}

/// A counter of another provider.
#[derive(Debug)]
struct ForeignCounter;

impl Counter for ForeignCounter {
    fn read(&self) -> u64 {
        0
    }

    fn read_err(&self) -> u64 {
        0
    }

    fn add(&self, _: u64) {}

    fn add_err(&self, _: u64) {}

    fn set(&self, _: u64) {}

    fn set_err(&self, _: u64) {}

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result {
        cntr::spin(self, threshold, timeout)
    }
}

/// The domain of all objects in these tests.
fn domain() -> &'static DomainId {
    static DOMAIN: OnceLock<DomainId> = OnceLock::new();
    DOMAIN.get_or_init(DomainId::unnamed)
}

#[expect(unsafe_code, reason = "calls an unsafe constructor")]
fn open_cntr(events: Events) -> Arc<Cntr> {
    let mut attr = cntr::Attr::default();
    attr.events = events;
    // SAFETY: the safe mode requires nothing.
    unsafe { Cntr::open_in_domain(&attr, domain(), Mode::Safe, PollPolicy::default()) }.unwrap()
}

fn open_cq() -> Arc<CqRing> {
    open_cq_of(domain(), Mode::Safe)
}

#[expect(unsafe_code, reason = "calls an unsafe constructor")]
fn open_cq_of(domain: &DomainId, mode: Mode) -> Arc<CqRing> {
    // SAFETY: only one thread uses a queue under `Mode::Asserted`, until the queue is made
    // thread-safe.
    unsafe { CqRing::open_in_domain(&cq::Attr::default(), domain, mode, PollPolicy::default()) }
        .unwrap()
}

fn bindings() -> Bindings {
    let mut bind = Bindings::new(open_cq(), Arc::new(NoPeers));
    bind.rx_cq = open_cq();
    bind
}

fn ep() -> Ep {
    Ep::resolve(&bindings(), &Info::default(), domain()).unwrap()
}

fn selective_ep() -> Ep {
    let mut bind = bindings();
    bind.tx_selective = true;
    bind.rx_selective = true;
    Ep::resolve(&bind, &Info::default(), domain()).unwrap()
}

#[expect(unsafe_code, reason = "a receive into leaked memory")]
fn receive(flags: OpFlags) -> Posted {
    let iov = IovMut::new(Box::leak(Box::new([0; 8])));
    Posted {
        // SAFETY: no other code uses these bytes, and they are never freed.
        buf: unsafe { RxBuf::new(&[iov]) },
        src: Source::ANY,
        tag: TagMatch::exact(5),
        context: Context(9),
        flags,
        kind: Kind::Tagged,
    }
}

const MESSAGE: Envelope = Envelope {
    src: Source(1),
    tag: 5,
    len: 8,
    data: 77,
    has_data: true,
};

fn entries(cq: &CqRing) -> Vec<(Entry, FiAddr)> {
    let mut out = [Entry::default(); 8];
    let mut src = [FiAddr::UNSPEC; 8];
    let count = cq.read_from(&mut out, &mut src).unwrap();
    out.into_iter().zip(src).take(count).collect()
}

fn error(cq: &CqRing) -> ErrEntry {
    assert_eq!(cq.read(&mut [Entry::default()]), Err(Errno::Avail));
    cq.read_err().unwrap()
}

#[test]
fn the_refusal_of_another_providers_queue_names_the_queue() {
    for name in ["tx_cq", "rx_cq"] {
        let mut bind = bindings();
        match name {
            "tx_cq" => bind.tx_cq = Arc::new(ForeignQueue),
            _ => bind.rx_cq = Arc::new(ForeignQueue),
        }
        let error = Ep::resolve(&bind, &Info::default(), domain()).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.message().contains(name), "{error}");
    }
}

#[test]
fn queues_and_counters_of_another_domain_are_refused() {
    let mut bind = bindings();
    bind.cntrs.send = Some(open_cntr(Events::Comp));
    let elsewhere = DomainId::unnamed();
    let error = Ep::resolve(&bind, &Info::default(), &elsewhere).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    (bind.tx_cq, bind.rx_cq) = [(); 2].map(|()| open_cq_of(&elsewhere, Mode::Safe)).into();
    let error = Ep::resolve(&bind, &Info::default(), &elsewhere).unwrap_err();
    assert!(error.message().contains("send counter"), "{error}");
}

#[test]
fn an_event_queue_that_drives_an_endpoint_makes_its_completion_queues_thread_safe() {
    let mut bind = bindings();
    bind.tx_cq = open_cq_of(domain(), Mode::Asserted);
    let ep = Ep::resolve(&bind, &Info::default(), domain()).unwrap();
    assert_eq!(ep.tx_cq.mode(), Mode::Asserted);
    let eq = Queue::open(&selvedge::eq::Attr::default(), domain().fabric()).unwrap();
    drop(ep.drivers().with_eq(&Weak::new()));
    assert_eq!(ep.tx_cq.mode(), Mode::Asserted);
    drop(ep.drivers().with_eq(&Arc::downgrade(&eq)));
    assert_eq!(ep.tx_cq.mode(), Mode::Safe);
}

#[test]
fn a_send_completes_without_a_length() {
    let ep = ep();
    ep.tx_done(Context(3), Kind::Tagged.sent(), OpFlags::empty(), 8);
    let expected = Entry {
        context: Context(3),
        flags: CompletionFlags::SEND | CompletionFlags::TAGGED,
        ..Entry::default()
    };
    assert_eq!(entries(&ep.tx_cq), [(expected, FiAddr::UNSPEC)]);
    assert!(entries(&ep.rx_cq).is_empty());
}

#[test]
fn a_receive_completes_with_the_metadata_of_the_sender() {
    let ep = ep();
    ep.rx_done(
        receive(OpFlags::empty()),
        &MESSAGE,
        8,
        FiAddr(4),
        &mut Sink::none(),
    );
    let expected = Entry {
        context: Context(9),
        flags: CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA,
        len: 8,
        buf: 0,
        data: 77,
        tag: 5,
    };
    assert_eq!(entries(&ep.rx_cq), [(expected, FiAddr(4))]);
    assert!(entries(&ep.tx_cq).is_empty());
}

#[test]
fn a_truncated_message_is_reported_with_the_number_of_missing_bytes() {
    let ep = ep();
    let long = Envelope { len: 20, ..MESSAGE };
    ep.rx_done(
        receive(OpFlags::empty()),
        &long,
        8,
        FiAddr(4),
        &mut Sink::none(),
    );
    let error = error(&ep.rx_cq);
    assert_eq!((error.errno, error.olen), (Errno::Trunc, 12));
    assert_eq!((error.entry.len, error.src), (8, FiAddr(4)));
}

#[test]
fn under_selective_completion_success_is_reported_only_on_request() {
    let ep = selective_ep();
    ep.tx_done(Context(1), Kind::Msg.sent(), OpFlags::empty(), 8);
    ep.tx_done(Context(2), Kind::Msg.sent(), OpFlags::COMPLETION, 8);
    ep.rx_done(
        receive(OpFlags::empty()),
        &MESSAGE,
        8,
        FiAddr(4),
        &mut Sink::none(),
    );
    ep.rx_done(
        receive(OpFlags::COMPLETION),
        &MESSAGE,
        8,
        FiAddr(4),
        &mut Sink::none(),
    );
    let sent = entries(&ep.tx_cq);
    assert_eq!((sent.len(), sent[0].0.context), (1, Context(2)));
    assert_eq!(entries(&ep.rx_cq).len(), 1);
}

#[test]
fn under_selective_completion_errors_are_always_reported() {
    let ep = selective_ep();
    let detail = "peer 4 has failed";
    ep.tx_failed(
        Context(1),
        Kind::Msg.sent(),
        Errno::HostDown,
        FiAddr(4),
        detail,
    );
    ep.rx_failed(
        receive(OpFlags::empty()),
        Errno::Canceled,
        FiAddr::UNSPEC,
        "",
    );
    let sent = error(&ep.tx_cq);
    assert_eq!((sent.errno, sent.src), (Errno::HostDown, FiAddr(4)));
    assert_eq!(sent.detail, detail);
    assert_eq!(error(&ep.rx_cq).errno, Errno::Canceled);
}

#[test]
fn default_flags_are_added_only_to_calls_without_a_flags_argument() {
    let mut info = Info::default();
    info.tx_attr.op_flags = OpFlags::COMPLETION;
    let ep = Ep::resolve(&bindings(), &info, domain()).unwrap();
    let without_argument = OpFlags::DEFAULT | OpFlags::REMOTE_CQ_DATA;
    let with_defaults = OpFlags::COMPLETION | OpFlags::REMOTE_CQ_DATA;
    assert_eq!(ep.tx_flags(without_argument), with_defaults);
    assert_eq!(ep.tx_flags(OpFlags::INJECT), OpFlags::INJECT);
    let rx_flags = ep.rx_flags(Kind::Msg, without_argument);
    assert_eq!(rx_flags, OpFlags::REMOTE_CQ_DATA);
}

#[test]
fn counters_count_operations_that_queues_do_not_report() {
    let mut bind = bindings();
    bind.tx_selective = true;
    let (send, recv) = (open_cntr(Events::Comp), open_cntr(Events::Bytes));
    bind.cntrs.send = Some(Arc::<Cntr>::clone(&send));
    bind.cntrs.recv = Some(Arc::<Cntr>::clone(&recv));
    let ep = Ep::resolve(&bind, &Info::default(), domain()).unwrap();
    ep.tx_done(Context(1), Kind::Msg.sent(), OpFlags::empty(), 8);
    ep.tx_counted(Kind::Msg.sent(), 8);
    ep.tx_failed(Context(1), Kind::Msg.sent(), Errno::Io, FiAddr(0), "");
    ep.rx_done(
        receive(OpFlags::empty()),
        &MESSAGE,
        8,
        FiAddr(4),
        &mut Sink::none(),
    );
    ep.rx_failed(receive(OpFlags::empty()), Errno::Io, FiAddr(0), "");
    assert_eq!((send.read(), send.read_err()), (2, 1));
    assert_eq!((recv.read(), recv.read_err()), (8, 1));
    assert_eq!(ep.tx_cq.room(), 1023, "only the failed send is reported");
}

#[test]
fn each_class_of_operations_has_its_counter() {
    let all: Vec<_> = (0..6).map(|_| open_cntr(Events::Bytes)).collect();
    let mut bind = bindings();
    let cntrs = &mut bind.cntrs;
    let slots = [
        &mut cntrs.send,
        &mut cntrs.recv,
        &mut cntrs.read,
        &mut cntrs.write,
        &mut cntrs.remote_read,
        &mut cntrs.remote_write,
    ];
    for (slot, cntr) in slots.into_iter().zip(&all) {
        *slot = Some(Arc::<Cntr>::clone(cntr));
    }
    let ep = Ep::resolve(&bind, &Info::default(), domain()).unwrap();
    let none = OpFlags::empty();
    ep.tx_done(Context(1), Kind::Msg.sent(), none, 1);
    ep.rx_done(receive(none), &MESSAGE, 8, FiAddr(4), &mut Sink::none());
    let (rma, atomic) = (CompletionFlags::RMA, CompletionFlags::ATOMIC);
    ep.tx_done(Context(1), rma | CompletionFlags::READ, none, 3);
    ep.tx_done(Context(1), atomic | CompletionFlags::WRITE, none, 4);
    ep.peer_read(5);
    ep.peer_wrote(6);
    let counted: Vec<_> = all.iter().map(|cntr| cntr.read()).collect();
    assert_eq!(counted, [1, 8, 3, 4, 5, 6]);
}

#[test]
fn the_refusal_of_another_providers_counter_names_the_counter() {
    let mut bind = bindings();
    bind.cntrs.remote_write = Some(Arc::new(ForeignCounter));
    let error = Ep::resolve(&bind, &Info::default(), domain()).unwrap_err();
    assert_eq!(error.errno(), Errno::Inval);
    assert!(error.message().contains("remote_write"), "{error}");
}

#[test]
fn the_address_of_an_unknown_sender_is_truncated_to_max_err_data() {
    let mut info = Info::default();
    info.domain_attr.max_err_data = 6;
    assert!(!ep().is_unknown(FiAddr::UNSPEC));
    info.caps = Caps::SOURCE_ERR;
    let ep = Ep::resolve(&bindings(), &info, domain()).unwrap();
    assert!(ep.is_unknown(FiAddr::UNSPEC) && !ep.is_unknown(FiAddr(0)));
    for (name, sender) in [("abcde", Some("abcde")), ("abcdef", None)] {
        let address = Address::Str(name.into());
        ep.rx_unknown(receive(OpFlags::empty()), &MESSAGE, 8, &address);
        let error = error(&ep.rx_cq);
        assert_eq!(error.errno, Errno::AddrNotAvail);
        assert_eq!(error.err_data.len(), 6);
        let expected = sender.map(|name| Address::Str(name.into()));
        assert_eq!(error.sender(), expected);
        assert!(error.detail.contains(name));
    }
}

#[test]
fn a_peek_without_a_message_is_an_error_and_no_peek_is_counted() {
    let mut bind = bindings();
    let recv = open_cntr(Events::default());
    bind.cntrs.recv = Some(Arc::<Cntr>::clone(&recv));
    let ep = Ep::resolve(&bind, &Info::default(), domain()).unwrap();
    let peek = receive(OpFlags::PEEK);
    ep.rx_no_message(&peek);
    let error = error(&ep.rx_cq);
    assert_eq!((error.errno, error.entry.tag), (Errno::NoMsg, 5));
    let none = CompletionFlags::empty();
    ep.rx_peeked(&peek, &MESSAGE, none, FiAddr(4));
    assert_eq!(entries(&ep.rx_cq)[0].0.len, 8);
    assert_eq!((recv.read(), recv.read_err()), (0, 0));
}

/// An endpoint whose progress call waits until the test lets it continue, and then wakes the
/// threads that are parked for the endpoint.
#[derive(Debug)]
struct Busy {
    ep: Ep,
    has_entered: Barrier,
    may_continue: Barrier,
}

impl Progress for Busy {
    fn progress(&self, _: usize, _: &mut Sink<'_>) -> usize {
        self.has_entered.wait();
        self.may_continue.wait();
        self.ep.wake();
        0
    }
}

#[test]
fn a_counter_of_deferred_operations_is_attached_while_its_endpoint_wakes_parked_threads() {
    let busy = Arc::new(Busy {
        ep: ep(),
        has_entered: Barrier::new(2),
        may_continue: Barrier::new(2),
    });
    let cntr = open_cntr(Events::Comp);
    let progress: Arc<dyn Progress> = Arc::clone(&busy) as Arc<dyn Progress>;
    cntr.attach(&progress).unwrap();
    busy.ep.deferred_ops().set_progress(&progress);
    let (finished, all_finished) = mpsc::channel();
    let read_cntr = Arc::clone(&cntr);
    let reader_finished = finished.clone();
    thread::spawn(move || {
        read_cntr.read();
        reader_finished.send(())
    });
    busy.has_entered.wait();
    let attached_to = Arc::clone(&busy);
    thread::spawn(move || {
        // The counter drives only this endpoint, whose progress is running in the other thread.
        attached_to.ep.deferred_ops().add_driver(&cntr).unwrap();
        finished.send(())
    });
    // Usually, the attaching thread now waits for the progress call to end. The test must pass
    // wherever it is.
    thread::sleep(Duration::from_millis(50));
    busy.may_continue.wait();
    for _ in 0..2 {
        all_finished.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
