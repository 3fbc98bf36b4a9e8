//! The same transfers over the raw fabric, between two processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use selvedge::cq::{self, Entry};
use selvedge::info::{EpType, Threading};
use selvedge::{
    Address, AddressVector, Bindings, Caps, CompletionFlags, CompletionQueue, Context, Desc,
    Domain, Endpoint, Errno, FiAddr, Hints, Iov, IovMut, MemoryRegion, MrAccess, MsgExt, RmaExt,
    av, mr, owned::SharedRegion,
};

/// An endpoint, its peer, and memory for the peer.
pub(crate) struct Raw {
    ep: Arc<dyn Endpoint>,
    cq: Arc<dyn CompletionQueue>,
    av: Arc<dyn AddressVector>,
    region: Arc<dyn MemoryRegion>,
    shared: SharedRegion,
    _domain: Arc<dyn Domain>,
    peer: FiAddr,
    /// Address and key of the peer's plain memory, address and key of the peer's shared region.
    remote_memory: [u64; 4],
    /// As `remote_memory`, of this process.
    local_memory: [u64; 4],
    is_first: bool,
    inbox: Box<[u64; 1]>,
    source: Vec<u8>,
}

impl Raw {
    pub(crate) fn open(fabric: &str, buffer: &mut [u8]) -> Self {
        let caps = Caps::MSG | Caps::RMA;
        let hints = Hints::new()
            .ep_type(EpType::Rdm)
            .caps(caps)
            .provider(fabric);
        // SAFETY: one thread uses all objects.
        let hints = unsafe { hints.promise_threading(Threading::Domain) };
        let infos = selvedge_providers::builtin().infos(&hints);
        let info = infos.expect("the provider is available").remove(0);
        let domain = info.open().expect("a domain");
        let cq = domain.cq(&cq::Attr::with_size(1024)).expect("a queue");
        let av = domain.av(&av::Attr::default()).expect("an address vector");
        let bindings = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain.endpoint(&info, bindings).expect("an endpoint");
        let mut attr = mr::Attr::default();
        attr.access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        attr.requested_key = 1;
        // SAFETY: the buffer lives to the end.
        let region = unsafe { domain.reg(&[IovMut::new(buffer)], &attr) }.expect("a region");
        let shared = SharedRegion::new(&*domain, 4096, attr.access, 2).expect("a shared region");
        let local_memory = [0, region.key(), shared.addr(0), shared.key()];
        Self {
            ep,
            cq,
            av,
            region,
            shared,
            _domain: domain,
            peer: FiAddr::UNSPEC,
            remote_memory: [0; 4],
            local_memory,
            is_first: false,
            inbox: Box::new([0]),
            source: vec![2; 1 << 20],
        }
    }

    pub(crate) fn address_line(&self) -> String {
        let address = self.ep.address().expect("an address");
        let [plain_addr, plain_key, shared_addr, shared_key] = self.local_memory;
        let _ = (&self.region, &self.shared);
        format!("{address} {plain_addr} {plain_key} {shared_addr} {shared_key}")
    }

    pub(crate) fn connect(mut self, line: &str) -> Self {
        let mut words = line.split(' ');
        let address: Address = words
            .next()
            .expect("an address")
            .parse()
            .expect("an address");
        self.peer = self.av.insert_one(&address).expect("a peer");
        for (slot, word) in self.remote_memory.iter_mut().zip(words) {
            *slot = word.parse().expect("a number");
        }
        self
    }

    /// Exchanges messages and writes, so that the endpoints are connected.
    pub(crate) fn warm_up(mut self, context: usize) -> Self {
        self.is_first = context == 0;
        self.receive();
        self.messages(10);
        self.writes(10);
        self
    }

    fn receive(&self) {
        let buffer = IovMut::from_raw(self.inbox.as_ptr().cast_mut().cast(), 8);
        // SAFETY: the inbox lives as long as the endpoint, and is not read.
        let posted = unsafe { self.ep.recv(buffer, Desc::NONE, FiAddr::UNSPEC, Context(1)) };
        posted.expect("a receive");
    }

    /// Polls until a completion with this flag arrives.
    fn poll_until(&self, flag: CompletionFlags) {
        let mut entries = [Entry::default(); 8];
        loop {
            let count = self.cq.read(&mut entries).expect("no errors");
            if entries[..count]
                .iter()
                .any(|entry| entry.flags.contains(flag))
            {
                return;
            }
        }
    }

    fn retry(&self, mut post: impl FnMut() -> selvedge::Result) {
        while post() == Err(Errno::Again) {
            self.cq.read(&mut []).expect("no errors");
        }
    }

    pub(crate) fn messages(&self, times: usize) -> Duration {
        let ping = || self.retry(|| self.ep.inject(&[0; 8], self.peer, None));
        let start = Instant::now();
        for _ in 0..times {
            // The next receive is posted while the response is in flight.
            if self.is_first {
                ping();
                self.receive();
                self.poll_until(CompletionFlags::RECV);
            } else {
                self.poll_until(CompletionFlags::RECV);
                ping();
                self.receive();
            }
        }
        start.elapsed() / times as u32
    }

    pub(crate) fn writes(&self, times: usize) -> Duration {
        let [_, _, addr, key] = self.remote_memory;
        let ping = || {
            self.retry(|| self.ep.inject_writedata(&[0; 8], 7, self.peer, addr, key));
        };
        let start = Instant::now();
        for _ in 0..times {
            if self.is_first {
                ping();
            }
            self.poll_until(CompletionFlags::REMOTE_WRITE);
            if !self.is_first {
                ping();
            }
        }
        start.elapsed() / times as u32
    }

    pub(crate) fn write_large(&self, times: usize) -> Duration {
        let [addr, key, ..] = self.remote_memory;
        self.transfer_large(times, CompletionFlags::WRITE, || {
            let bytes = Iov::new(&self.source);
            // SAFETY: the source lives to the end and is not written meanwhile.
            unsafe {
                self.ep
                    .write(bytes, Desc::NONE, self.peer, addr, key, Context(2))
            }
        })
    }

    pub(crate) fn read_large(&self, times: usize) -> Duration {
        let [addr, key, ..] = self.remote_memory;
        self.transfer_large(times, CompletionFlags::READ, || {
            let buffer =
                IovMut::from_raw(self.source.as_ptr().cast_mut().cast(), self.source.len());
            // SAFETY: the source lives to the end and is not used otherwise meanwhile.
            unsafe {
                self.ep
                    .read(buffer, Desc::NONE, self.peer, addr, key, Context(3))
            }
        })
    }

    /// In the first context, posts transfers and waits for each. In the other one, polls until the
    /// first context reports the end by a message.
    fn transfer_large(
        &self,
        times: usize,
        flag: CompletionFlags,
        post: impl Fn() -> selvedge::Result,
    ) -> Duration {
        if !self.is_first {
            self.poll_until(CompletionFlags::RECV);
            self.receive();
            return Duration::ZERO;
        }
        let start = Instant::now();
        for _ in 0..times {
            self.retry(&post);
            self.poll_until(flag);
        }
        let time = start.elapsed() / times as u32;
        self.retry(|| self.ep.inject(&[0; 8], self.peer, None));
        time
    }
}
