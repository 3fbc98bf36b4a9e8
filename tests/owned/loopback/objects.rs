//! The domain and the objects that it opens. All objects are handles of the `Wire`.

#![expect(unsafe_code, reason = "a provider implements the raw API")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use selvedge::atomic::{AtomicMsg, Ioc, IocMut};
use selvedge::cq::{Entry, ErrEntry};
use selvedge::{
    Address, AddressVector, Atomic, Bindings, CompletionQueue, Context, Desc, Errno, Error, FiAddr,
    Info, IovMut, MemoryRegion, MrMode, Msg, OpFlags, Result, Rma, Tagged, av, cq, mr, msg, tagged,
};

use super::wire::{Bytes, EndpointState, Message, PostedRecv, Queue, Wire, lock};

type Shared = Arc<Mutex<Wire>>;

#[derive(Debug)]
pub(crate) struct Domain {
    wire: Shared,
    pub(crate) mr_mode: MrMode,
    kept_handles: Mutex<Vec<Arc<dyn selvedge::Endpoint>>>,
}

impl Domain {
    pub(super) fn new(wire: Shared) -> Self {
        Self {
            wire,
            mr_mode: MrMode::empty(),
            kept_handles: Mutex::default(),
        }
    }

    /// Returns the same domain with other memory-registration modes.
    pub(crate) fn with_mr_mode(&self, mr_mode: MrMode) -> Self {
        Self {
            mr_mode,
            ..Self::new(Arc::clone(&self.wire))
        }
    }
}

// SAFETY: the wire pushes an entry with an operation's context after the operation has left the
// outbox or the list of posted receives, and no longer accesses a region after the region is
// dropped. Entries that tests push have contexts of completed operations, or of no operation.
unsafe impl selvedge::Domain for Domain {
    fn cq(&self, attr: &cq::Attr) -> Result<Arc<dyn CompletionQueue>, Error> {
        let mut wire = lock(&self.wire);
        wire.queues.push(Queue {
            events: Default::default(),
            size: attr.size,
        });
        Ok(Arc::new(Cq {
            wire: Arc::clone(&self.wire),
            index: wire.queues.len() - 1,
        }))
    }

    fn av(&self, _: &av::Attr) -> Result<Arc<dyn AddressVector>, Error> {
        Ok(Arc::new(Av))
    }

    fn endpoint(&self, _: &Info, bind: Bindings) -> Result<Arc<dyn selvedge::Endpoint>, Error> {
        let cq: Arc<dyn std::any::Any + Send + Sync> = bind.tx_cq;
        let cq: Arc<Cq> = cq.downcast().unwrap();
        let mut wire = lock(&self.wire);
        // Every endpoint has its own queue, so this number is unique.
        let id = cq.index as u64;
        let endpoint = EndpointState {
            queue: cq.index,
            outbox: Default::default(),
            posted: Default::default(),
        };
        wire.endpoints.insert(id, endpoint);
        let ep = Arc::new(Endpoint {
            wire: Arc::clone(&self.wire),
            id,
        });
        if wire.settings.keeps_handles {
            self.kept_handles.lock().unwrap().push(ep.clone());
        }
        Ok(ep)
    }

    fn mr_mode(&self) -> MrMode {
        self.mr_mode
    }

    unsafe fn reg(
        &self,
        region: &[IovMut],
        attr: &mr::Attr,
    ) -> Result<Arc<dyn MemoryRegion>, Error> {
        let mut wire = lock(&self.wire);
        let key = attr.requested_key;
        if wire.regions.contains_key(&key) {
            return Err(Error::new(
                Errno::NoKey,
                format!("key {key} is already in use"),
            ));
        }
        wire.regions.insert(key, region[0]);
        Ok(Arc::new(Region {
            wire: Arc::clone(&self.wire),
            key,
        }))
    }
}

#[derive(Debug)]
struct Av;

impl AddressVector for Av {
    fn insert(&self, addrs: &[Address], out: &mut [FiAddr]) -> Result<usize> {
        for (addr, out) in addrs.iter().zip(out) {
            *out = FiAddr(addr.as_str().unwrap().parse().unwrap());
        }
        Ok(addrs.len())
    }

    fn remove(&self, _: &[FiAddr]) -> Result {
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        Ok(Address::Str(addr.0.to_string()))
    }
}

#[derive(Debug)]
struct Region {
    wire: Shared,
    key: u64,
}

impl MemoryRegion for Region {
    fn key(&self) -> u64 {
        self.key
    }

    fn desc(&self) -> Desc {
        Desc(1)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        lock(&self.wire).regions.remove(&self.key);
    }
}

#[derive(Debug)]
struct Cq {
    wire: Shared,
    index: usize,
}

impl CompletionQueue for Cq {
    fn read(&self, out: &mut [Entry]) -> Result<usize> {
        let mut src = vec![FiAddr::UNSPEC; out.len()];
        self.read_from(out, &mut src)
    }

    fn read_from(&self, out: &mut [Entry], src: &mut [FiAddr]) -> Result<usize> {
        let mut wire = lock(&self.wire);
        if let Some(errno) = wire.settings.read_error {
            return Err(errno);
        }
        wire.progress();
        let events = &mut wire.queues[self.index].events;
        if matches!(events.front(), Some(Err(_))) {
            return Err(Errno::Avail);
        }
        let ready = events.iter().take_while(|event| event.is_ok()).count();
        let count = ready.min(out.len());
        for (index, event) in events.drain(..count).enumerate() {
            (out[index], src[index]) = event.unwrap();
        }
        Ok(count)
    }

    fn wait(&self, _: &mut [Entry], _: Option<Duration>) -> Result<usize> {
        let mut wire = lock(&self.wire);
        let event = wire.settings.waits.pop_front().ok_or(Errno::NoSys)?;
        event(&mut wire);
        wire.progress();
        match wire.queues[self.index].events.front() {
            Some(Ok(_)) => Ok(0),
            Some(Err(_)) => Err(Errno::Avail),
            None => Err(Errno::Again),
        }
    }

    fn read_err(&self) -> Result<ErrEntry> {
        let events = &mut lock(&self.wire).queues[self.index].events;
        match events.pop_front() {
            Some(Err(error)) => Ok(error),
            Some(entry) => {
                events.push_front(entry);
                Err(Errno::Again)
            }
            None => Err(Errno::Again),
        }
    }
}

#[derive(Debug)]
struct Endpoint {
    wire: Shared,
    id: u64,
}

impl Endpoint {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        lock(&self.wire)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let mut wire = self.wire();
        if let Some(on_close) = wire.settings.on_close.take() {
            on_close();
        }
        wire.endpoints.remove(&self.id);
    }
}

// SAFETY: the wire accesses a buffer only while its operation is in an outbox or a list of posted
// receives. The operation is removed before its completion is pushed. Dropping this handle removes
// the endpoint's state with all its operations.
unsafe impl selvedge::Endpoint for Endpoint {
    fn address(&self) -> Result<Address> {
        Ok(Address::Str(self.id.to_string()))
    }

    fn cancel(&self, context: Context) -> Result {
        self.wire().cancel(self.id, context)
    }
}

impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let message = Message {
            dest: msg.dest.0,
            tag: None,
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data),
            bytes: Bytes::Borrowed(msg.iov[0], msg.context),
        };
        self.wire().send(self.id, message)
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, _: OpFlags) -> Result {
        let posted = PostedRecv {
            src: msg.src,
            tag: None,
            buf: msg.iov[0],
            context: msg.context,
        };
        self.wire().recv(self.id, posted)
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        let message = Message {
            dest: dest.0,
            tag: None,
            data,
            bytes: Bytes::Copied(buf.to_vec()),
        };
        self.wire().send(self.id, message)
    }
}

impl Tagged for Endpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let message = Message {
            dest: msg.dest.0,
            tag: Some(msg.tag),
            data: flags.contains(OpFlags::REMOTE_CQ_DATA).then_some(msg.data),
            bytes: Bytes::Borrowed(msg.iov[0], msg.context),
        };
        self.wire().send(self.id, message)
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, _: OpFlags) -> Result {
        let posted = PostedRecv {
            src: msg.src,
            tag: Some(msg.tag),
            buf: msg.iov[0],
            context: msg.context,
        };
        self.wire().recv(self.id, posted)
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        let message = Message {
            dest: dest.0,
            tag: Some(tag),
            data,
            bytes: Bytes::Copied(buf.to_vec()),
        };
        self.wire().send(self.id, message)
    }
}

impl Rma for Endpoint {}

impl Atomic for Endpoint {
    unsafe fn atomicmsg(&self, msg: &AtomicMsg<'_>, _: OpFlags) -> Result {
        self.wire().atomic(self.id, msg, None, None)
    }

    unsafe fn fetch_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        result: &[IocMut],
        _: &[Desc],
        flags: OpFlags,
    ) -> Result {
        assert!(
            flags.contains(OpFlags::INJECT),
            "operands are valid only during the call"
        );
        self.wire().atomic(self.id, msg, None, Some(result[0]))
    }

    unsafe fn compare_atomicmsg(
        &self,
        msg: &AtomicMsg<'_>,
        compare: &[Ioc],
        _: &[Desc],
        result: &[IocMut],
        _: &[Desc],
        flags: OpFlags,
    ) -> Result {
        assert!(
            flags.contains(OpFlags::INJECT),
            "operands are valid only during the call"
        );
        self.wire()
            .atomic(self.id, msg, Some(compare[0]), Some(result[0]))
    }
}
