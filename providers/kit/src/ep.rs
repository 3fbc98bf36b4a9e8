//! What every endpoint keeps: its queues, default flags and completion policy.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    Address, Bindings, Caps, CompletionFlags, CompletionQueue, Context, Counter, Counters, Errno,
    Error, FiAddr, Info, OpFlags, TagMatch,
};

use crate::cntr::Cntr;
use crate::copy::Part;
use crate::cq::{CqRing, Progress, Sink};
use crate::srx::{Envelope, Kind, Posted};

/// The resolved bindings of an endpoint, and how its operations report that they are done.
///
/// Under selective completion only operations with [`OpFlags::COMPLETION`] report success; errors
/// always do, and so does the last message of a multi-receive buffer, which gives the buffer back.
/// Counters count both.
#[derive(Debug)]
pub struct Ep {
    /// Where sends and other own operations complete.
    pub tx_cq: Arc<CqRing>,
    /// Where receives complete; may be the same queue.
    pub rx_cq: Arc<CqRing>,
    /// Report every operation on `tx_cq`.
    tx_all: bool,
    /// Report every operation on `rx_cq`.
    rx_all: bool,
    tx_default: OpFlags,
    rx_default: OpFlags,
    tagged_rx_default: OpFlags,
    /// Whether messages of unknown sources are reported as errors ([`Caps::SOURCE_ERR`]).
    source_err: bool,
    /// Bytes of provider data that an error entry has at most.
    max_err_data: usize,
    cntrs: Cntrs,
}

/// The counters of an endpoint, resolved.
#[derive(Debug)]
struct Cntrs {
    send: Option<Arc<Cntr>>,
    recv: Option<Arc<Cntr>>,
    read: Option<Arc<Cntr>>,
    write: Option<Arc<Cntr>>,
    remote_read: Option<Arc<Cntr>>,
    remote_write: Option<Arc<Cntr>>,
}

/// The queues and counters that drive an endpoint, apart from it: detaching waits for progress,
/// which takes the endpoint's own lock.
#[derive(Debug)]
pub struct Drivers {
    cqs: [Arc<CqRing>; 2],
    cntrs: Vec<Arc<Cntr>>,
}

impl Drivers {
    /// Has the queues and counters drive `progress`.
    ///
    /// # Errors
    /// The system's, when memory is too short to wait for it; it is attached nowhere then.
    pub fn attach(&self, progress: &Arc<dyn Progress>) -> Result<(), Error> {
        let attached = self
            .cqs
            .iter()
            .try_for_each(|cq| cq.attach(progress))
            .and_then(|()| self.cntrs.iter().try_for_each(|cntr| cntr.attach(progress)));
        attached.inspect_err(|_| self.detach(progress))
    }

    /// Ends what [`Self::attach`] began; no call of `progress` from there is running afterwards.
    pub fn detach(&self, progress: &Arc<dyn Progress>) {
        for cq in &self.cqs {
            cq.detach(progress);
        }
        for cntr in &self.cntrs {
            cntr.detach(progress);
        }
    }
}

impl Ep {
    /// Resolves what an endpoint was bound to.
    ///
    /// # Errors
    /// [`Errno::Inval`] for a completion queue or counter of another provider.
    pub fn resolve(bind: &Bindings, info: &Info) -> Result<Self, Error> {
        Ok(Self {
            tx_cq: own_cq(&bind.tx_cq, "tx_cq")?,
            rx_cq: own_cq(&bind.rx_cq, "rx_cq")?,
            tx_all: !bind.tx_selective,
            rx_all: !bind.rx_selective,
            tx_default: info.tx_attr.op_flags,
            rx_default: info.rx_attr.op_flags,
            tagged_rx_default: info.rx_attr.op_flags.difference(OpFlags::MULTI_RECV),
            source_err: (info.caps | info.rx_attr.caps).contains(Caps::SOURCE_ERR),
            max_err_data: info.domain_attr.max_err_data,
            cntrs: Cntrs::resolve(&bind.cntrs)?,
        })
    }

    /// What drives the endpoint.
    pub fn drivers(&self) -> Drivers {
        Drivers {
            cqs: [Arc::clone(&self.tx_cq), Arc::clone(&self.rx_cq)],
            cntrs: self.cntrs.iter().map(Arc::clone).collect(),
        }
    }

    /// Has everybody who sleeps at a queue or counter of this endpoint ask again whether it may
    /// ([`Progress::rest`]).
    #[cold]
    pub fn wake(&self) {
        self.tx_cq.wake();
        self.rx_cq.wake();
        self.cntrs.iter().for_each(|cntr| cntr.wake());
    }

    /// The flags of a send or another own operation, with the endpoint's defaults where
    /// [`OpFlags::DEFAULT`] asks for them.
    #[inline]
    pub const fn tx_flags(&self, flags: OpFlags) -> OpFlags {
        resolved(flags, self.tx_default)
    }

    /// The flags of a receive, likewise. A default [`OpFlags::MULTI_RECV`] is for untagged receives;
    /// tagged ones have to say it.
    #[inline]
    pub const fn rx_flags(&self, kind: Kind, flags: OpFlags) -> OpFlags {
        match kind {
            Kind::Msg => resolved(flags, self.rx_default),
            Kind::Tagged => resolved(flags, self.tagged_rx_default),
        }
    }

    /// An own operation of `len` bytes with the resolved flags `op` is done. `what` says which, for
    /// instance [`crate::srx::Kind::sent`].
    #[inline(always)]
    pub fn tx_done(&self, context: Context, what: CompletionFlags, op: OpFlags, len: usize) {
        self.tx_counted(what, len);
        if self.tx_all || op.contains(OpFlags::COMPLETION) {
            let entry = Entry {
                context,
                flags: what,
                ..Entry::default()
            };
            self.tx_cq.push(entry, FiAddr::UNSPEC);
        }
    }

    /// An own operation of the kind that never completes (fi_inject(3)) is done: it only counts.
    #[inline]
    pub fn tx_counted(&self, what: CompletionFlags, len: usize) {
        if let Some(cntr) = self.tx_cntr(what) {
            cntr.count(len);
        }
    }

    /// A peer has read `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_read(&self, len: usize) {
        if let Some(cntr) = &self.cntrs.remote_read {
            cntr.count(len);
        }
    }

    /// A peer has written `len` bytes of this endpoint's memory.
    #[inline]
    pub fn peer_wrote(&self, len: usize) {
        if let Some(cntr) = &self.cntrs.remote_write {
            cntr.count(len);
        }
    }

    /// Whether anybody counts what peers read or write.
    #[inline]
    pub fn counts_peers(&self) -> bool {
        self.cntrs.remote_read.is_some() || self.cntrs.remote_write.is_some()
    }

    /// An own operation to `peer` has failed; `detail` says which peer and what happened.
    #[cold]
    pub fn tx_failed(
        &self,
        context: Context,
        what: CompletionFlags,
        errno: Errno,
        peer: FiAddr,
        detail: impl Into<String>,
    ) {
        if let Some(cntr) = self.tx_cntr(what) {
            cntr.add_err(1);
        }
        let entry = Entry {
            context,
            flags: what,
            ..Entry::default()
        };
        let mut error = ErrEntry::new(entry, errno, detail);
        error.src = peer;
        self.tx_cq.push_err(error);
    }

    /// A receive is done: `len` bytes of the message are in its buffer, which is the caller's again
    /// from here on. A message that was longer is reported as truncated.
    #[inline(always)]
    pub fn rx_done(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        if len < env.len {
            return self.rx_trunc(posted, env, len, src);
        }
        let (entry, flags) = received(posted, env, len);
        self.rx_report(entry, flags, src, &mut Sink::none());
    }

    /// Whether a message of this source is to be reported with [`Self::rx_unknown`]: its sender is
    /// not in the address vector, and the application wants to know who that is.
    #[inline(always)]
    pub fn is_unknown(&self, src: FiAddr) -> bool {
        src == FiAddr::UNSPEC && self.source_err
    }

    /// As [`Self::rx_done`], for a message whose sender is not in the address vector: an error that
    /// carries its address, in the form that address vectors take.
    #[cold]
    pub fn rx_unknown(&self, posted: Posted, env: &Envelope, len: usize, address: &Address) {
        let mut error = match len < env.len {
            true => truncated(posted, env, len),
            false => {
                let (entry, _) = received(posted, env, len);
                let detail = format!("{address}, which sent it, is not in the address vector");
                ErrEntry::new(entry, Errno::AddrNotAvail, detail)
            }
        };
        error.err_data = address.to_bytes();
        error.err_data.truncate(self.max_err_data);
        self.rx_error(error, FiAddr::UNSPEC);
    }

    /// Reports a whole message whose receive, posted with the resolved flags `op`, is no more.
    #[inline(always)]
    pub fn rx_report(&self, entry: Entry, op: OpFlags, src: FiAddr, sink: &mut Sink<'_>) {
        if let Some(cntr) = &self.cntrs.recv {
            cntr.count(entry.len);
        }
        if self.rx_all || op.contains(OpFlags::COMPLETION) {
            sink.push(&self.rx_cq, entry, src);
        }
    }

    /// A receive took the `len` bytes of a longer message that fitted.
    #[cold]
    pub fn rx_trunc(&self, posted: Posted, env: &Envelope, len: usize, src: FiAddr) {
        self.rx_error(truncated(posted, env, len), src);
    }

    /// A receive has failed before or in the middle of a message; `detail` says which peer and what
    /// happened.
    #[cold]
    pub fn rx_failed(&self, posted: Posted, errno: Errno, src: FiAddr, detail: impl Into<String>) {
        let entry = Entry {
            context: posted.context,
            flags: posted.kind.received() | released(posted.buf.end()),
            tag: posted.tag.tag,
            ..Entry::default()
        };
        self.rx_error(ErrEntry::new(entry, errno, detail), src);
    }

    /// A look for a message, claim or discard is done: this is the message. It always reports, and
    /// counts nothing.
    #[cold]
    pub fn rx_peeked(
        &self,
        context: Context,
        kind: Kind,
        env: &Envelope,
        more: CompletionFlags,
        src: FiAddr,
    ) {
        let entry = Entry {
            context,
            flags: kind.received() | data_flag(env) | more,
            len: env.len,
            buf: 0,
            data: env.data,
            tag: env.tag,
        };
        self.rx_cq.push(entry, src);
    }

    /// A look for a message has found none.
    #[cold]
    pub fn rx_no_message(&self, context: Context, kind: Kind, tag: TagMatch) {
        let entry = Entry {
            context,
            flags: kind.received(),
            tag: tag.tag,
            ..Entry::default()
        };
        let detail = "no message waits for such a receive";
        self.rx_cq
            .push_err(ErrEntry::new(entry, Errno::NoMsg, detail));
    }

    fn rx_error(&self, mut error: ErrEntry, src: FiAddr) {
        error.src = src;
        if let Some(cntr) = &self.cntrs.recv {
            cntr.add_err(1);
        }
        self.rx_cq.push_err(error);
    }

    #[inline]
    fn tx_cntr(&self, what: CompletionFlags) -> Option<&Arc<Cntr>> {
        let cntrs = &self.cntrs;
        if what.contains(CompletionFlags::SEND) {
            cntrs.send.as_ref()
        } else if what.contains(CompletionFlags::READ) {
            cntrs.read.as_ref()
        } else {
            cntrs.write.as_ref()
        }
    }
}

impl Cntrs {
    fn resolve(bound: &Counters) -> Result<Self, Error> {
        Ok(Self {
            send: own_cntr(bound.send.as_ref(), "send")?,
            recv: own_cntr(bound.recv.as_ref(), "recv")?,
            read: own_cntr(bound.read.as_ref(), "read")?,
            write: own_cntr(bound.write.as_ref(), "write")?,
            remote_read: own_cntr(bound.remote_read.as_ref(), "remote_read")?,
            remote_write: own_cntr(bound.remote_write.as_ref(), "remote_write")?,
        })
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Cntr>> {
        let all = [
            &self.send,
            &self.recv,
            &self.read,
            &self.write,
            &self.remote_read,
            &self.remote_write,
        ];
        all.into_iter().flatten()
    }
}

/// The entry of a message that was received, and the flags that decide whether it is reported; takes
/// the receive, so that nothing touches its buffer once the entry can be read.
#[inline(always)]
fn received(posted: Posted, env: &Envelope, len: usize) -> (Entry, OpFlags) {
    let Posted {
        buf,
        context,
        kind,
        flags,
        ..
    } = posted;
    let entry = Entry {
        context,
        flags: kind.received() | data_flag(env),
        len,
        buf: 0,
        data: env.data,
        tag: env.tag,
    };
    match buf.end() {
        None => (entry, flags),
        Some(part) => in_multi(entry, flags, part),
    }
}

#[inline(always)]
fn data_flag(env: &Envelope) -> CompletionFlags {
    if env.has_data {
        CompletionFlags::REMOTE_CQ_DATA
    } else {
        CompletionFlags::empty()
    }
}

/// The same for a message in a multi-receive buffer.
#[cold]
fn in_multi(mut entry: Entry, mut flags: OpFlags, part: Part) -> (Entry, OpFlags) {
    entry.buf = part.start;
    entry.flags |= released(Some(part));
    if part.is_last {
        flags |= OpFlags::COMPLETION;
    }
    (entry, flags)
}

/// What the last entry of a multi-receive buffer says.
fn released(part: Option<Part>) -> CompletionFlags {
    match part {
        Some(Part { is_last: true, .. }) => CompletionFlags::MULTI_RECV,
        _ => CompletionFlags::empty(),
    }
}

fn truncated(posted: Posted, env: &Envelope, len: usize) -> ErrEntry {
    let olen = env.len - len;
    let detail = format!(
        "message of {} bytes, receive of {len}: {olen} lost",
        env.len
    );
    let (entry, _) = received(posted, env, len);
    let mut error = ErrEntry::new(entry, Errno::Trunc, detail);
    error.olen = olen;
    error
}

#[inline]
const fn resolved(flags: OpFlags, default: OpFlags) -> OpFlags {
    if flags.contains(OpFlags::DEFAULT) {
        flags.difference(OpFlags::DEFAULT).union(default)
    } else {
        flags
    }
}

fn own_cq(cq: &Arc<dyn CompletionQueue>, name: &str) -> Result<Arc<CqRing>, Error> {
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn CompletionQueue>::clone(cq);
    any.downcast().map_err(|_| foreign(name, cq))
}

fn own_cntr(bound: Option<&Arc<dyn Counter>>, name: &str) -> Result<Option<Arc<Cntr>>, Error> {
    let Some(cntr) = bound else {
        return Ok(None);
    };
    let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Counter>::clone(cntr);
    let own = any.downcast();
    own.map(Some).map_err(|_| foreign(name, cntr))
}

fn foreign(name: &str, cq: &dyn fmt::Debug) -> Error {
    let what = format!("endpoint: {name} {cq:?} was opened from another provider's domain");
    Error::new(Errno::Inval, what)
}

#[cfg(test)]
mod tests {
    use selvedge::cntr::Events;
    use selvedge::{Address, AddressVector, IovMut, Result, TagMatch, cntr, cq};

    use super::*;
    use crate::copy::RxBuf;
    use crate::lock::Mode;
    use crate::srx::{Kind, Source};

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

    #[derive(Debug)]
    struct Foreign;

    impl CompletionQueue for Foreign {
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
    }

    #[expect(unsafe_code, reason = "opens with the real locks")]
    fn open_cntr(events: Events) -> Arc<Cntr> {
        let mut attr = cntr::Attr::default();
        attr.events = events;
        // SAFETY: the safe mode asks for nothing.
        unsafe { Cntr::open(&attr, Mode::Safe) }.unwrap()
    }

    #[expect(unsafe_code, reason = "opens with the real locks")]
    fn open_cq() -> Arc<CqRing> {
        // SAFETY: the safe mode asks for nothing.
        unsafe { CqRing::open(&cq::Attr::default(), Mode::Safe) }.unwrap()
    }

    fn bindings() -> Bindings {
        let mut bind = Bindings::new(open_cq(), Arc::new(NoPeers));
        bind.rx_cq = open_cq();
        bind
    }

    fn ep() -> Ep {
        Ep::resolve(&bindings(), &Info::default()).unwrap()
    }

    fn selective_ep() -> Ep {
        let mut bind = bindings();
        bind.tx_selective = true;
        bind.rx_selective = true;
        Ep::resolve(&bind, &Info::default()).unwrap()
    }

    #[expect(unsafe_code, reason = "a receive into leaked memory")]
    fn receive(flags: OpFlags) -> Posted {
        let iov = IovMut::new(Box::leak(Box::new([0; 8])));
        Posted {
            // SAFETY: nobody else knows these bytes, and they are never freed.
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
    fn a_queue_of_another_provider_is_refused_by_name() {
        for name in ["tx_cq", "rx_cq"] {
            let mut bind = bindings();
            match name {
                "tx_cq" => bind.tx_cq = Arc::new(Foreign),
                _ => bind.rx_cq = Arc::new(Foreign),
            }
            let error = Ep::resolve(&bind, &Info::default()).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            assert!(error.what().contains(name), "{error}");
        }
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
    fn a_receive_completes_with_what_the_sender_said() {
        let ep = ep();
        ep.rx_done(receive(OpFlags::empty()), &MESSAGE, 8, FiAddr(4));
        let expected = Entry {
            context: Context(9),
            flags: CompletionFlags::RECV
                | CompletionFlags::TAGGED
                | CompletionFlags::REMOTE_CQ_DATA,
            len: 8,
            buf: 0,
            data: 77,
            tag: 5,
        };
        assert_eq!(entries(&ep.rx_cq), [(expected, FiAddr(4))]);
        assert!(entries(&ep.tx_cq).is_empty());
    }

    #[test]
    fn a_longer_message_is_truncated_and_the_loss_is_counted() {
        let ep = ep();
        let long = Envelope { len: 20, ..MESSAGE };
        ep.rx_done(receive(OpFlags::empty()), &long, 8, FiAddr(4));
        let error = error(&ep.rx_cq);
        assert_eq!((error.errno, error.olen), (Errno::Trunc, 12));
        assert_eq!((error.entry.len, error.src), (8, FiAddr(4)));
    }

    #[test]
    fn under_selective_completion_success_is_reported_on_request_alone() {
        let ep = selective_ep();
        ep.tx_done(Context(1), Kind::Msg.sent(), OpFlags::empty(), 8);
        ep.tx_done(Context(2), Kind::Msg.sent(), OpFlags::COMPLETION, 8);
        ep.rx_done(receive(OpFlags::empty()), &MESSAGE, 8, FiAddr(4));
        ep.rx_done(receive(OpFlags::COMPLETION), &MESSAGE, 8, FiAddr(4));
        let sent = entries(&ep.tx_cq);
        assert_eq!((sent.len(), sent[0].0.context), (1, Context(2)));
        assert_eq!(entries(&ep.rx_cq).len(), 1);
    }

    #[test]
    fn under_selective_completion_errors_are_always_reported() {
        let ep = selective_ep();
        let detail = "peer 4 is gone";
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
    fn default_flags_are_added_for_the_short_forms_alone() {
        let mut info = Info::default();
        info.tx_attr.op_flags = OpFlags::COMPLETION;
        let ep = Ep::resolve(&bindings(), &info).unwrap();
        let short = OpFlags::DEFAULT | OpFlags::REMOTE_CQ_DATA;
        let full = OpFlags::COMPLETION | OpFlags::REMOTE_CQ_DATA;
        assert_eq!(ep.tx_flags(short), full);
        assert_eq!(ep.tx_flags(OpFlags::INJECT), OpFlags::INJECT);
        assert_eq!(ep.rx_flags(Kind::Msg, short), OpFlags::REMOTE_CQ_DATA);
    }

    #[test]
    fn counters_count_what_queues_do_not_report() {
        let mut bind = bindings();
        bind.tx_selective = true;
        let (send, recv) = (open_cntr(Events::Comp), open_cntr(Events::Bytes));
        bind.cntrs.send = Some(Arc::<Cntr>::clone(&send));
        bind.cntrs.recv = Some(Arc::<Cntr>::clone(&recv));
        let ep = Ep::resolve(&bind, &Info::default()).unwrap();
        ep.tx_done(Context(1), Kind::Msg.sent(), OpFlags::empty(), 8);
        ep.tx_counted(Kind::Msg.sent(), 8);
        ep.tx_failed(Context(1), Kind::Msg.sent(), Errno::Io, FiAddr(0), "");
        ep.rx_done(receive(OpFlags::empty()), &MESSAGE, 8, FiAddr(4));
        ep.rx_failed(receive(OpFlags::empty()), Errno::Io, FiAddr(0), "");
        assert_eq!((send.read(), send.read_err()), (2, 1));
        assert_eq!((recv.read(), recv.read_err()), (8, 1));
        assert_eq!(ep.tx_cq.room(), 1023);
    }
    #[test]
    fn each_class_of_operations_has_its_counter() {
        let all: Vec<_> = (0..6).map(|_| open_cntr(Events::Bytes)).collect();
        let mut bind = bindings();
        let cntrs = &mut bind.cntrs;
        let places = [
            &mut cntrs.send,
            &mut cntrs.recv,
            &mut cntrs.read,
            &mut cntrs.write,
            &mut cntrs.remote_read,
            &mut cntrs.remote_write,
        ];
        for (place, cntr) in places.into_iter().zip(&all) {
            *place = Some(Arc::<Cntr>::clone(cntr));
        }
        let ep = Ep::resolve(&bind, &Info::default()).unwrap();
        let none = OpFlags::empty();
        ep.tx_done(Context(1), Kind::Msg.sent(), none, 1);
        ep.rx_done(receive(none), &MESSAGE, 8, FiAddr(4));
        let (rma, atomic) = (CompletionFlags::RMA, CompletionFlags::ATOMIC);
        ep.tx_done(Context(1), rma | CompletionFlags::READ, none, 3);
        ep.tx_done(Context(1), atomic | CompletionFlags::WRITE, none, 4);
        ep.peer_read(5);
        ep.peer_wrote(6);
        let counted: Vec<_> = all.iter().map(|cntr| cntr.read()).collect();
        assert_eq!(counted, [1, 8, 3, 4, 5, 6]);
    }

    #[test]
    fn a_counter_of_another_provider_is_refused_by_name() {
        let mut bind = bindings();
        bind.cntrs.remote_write = Some(Arc::new(ForeignCounter));
        let error = Ep::resolve(&bind, &Info::default()).unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.what().contains("remote_write"), "{error}");
    }

    #[test]
    fn a_stranger_is_told_of_in_so_many_bytes() {
        let mut info = Info::default();
        info.domain_attr.max_err_data = 6;
        assert!(!ep().is_unknown(FiAddr::UNSPEC));
        info.caps = Caps::SOURCE_ERR;
        let ep = Ep::resolve(&bindings(), &info).unwrap();
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
    fn a_look_that_finds_nothing_is_an_error_and_counts_nothing() {
        let mut bind = bindings();
        let recv = open_cntr(Events::default());
        bind.cntrs.recv = Some(Arc::<Cntr>::clone(&recv));
        let ep = Ep::resolve(&bind, &Info::default()).unwrap();
        ep.rx_no_message(Context(4), Kind::Tagged, TagMatch::exact(5));
        let error = error(&ep.rx_cq);
        assert_eq!((error.errno, error.entry.tag), (Errno::NoMsg, 5));
        let none = CompletionFlags::empty();
        ep.rx_peeked(Context(4), Kind::Tagged, &MESSAGE, none, FiAddr(4));
        assert_eq!(entries(&ep.rx_cq)[0].0.len, 8);
        assert_eq!((recv.read(), recv.read_err()), (0, 0));
    }
}
