//! Two BMI instances in one process, and helpers that wait with a timeout.

use std::borrow::Borrow;
use std::fs;
use std::thread;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use selvedge_bmi::{
    Addr, Bmi, Completion, Config, ContextId, OpId, Post, PostError, Posted, Unexpected,
};
pub(crate) use selvedge_testkit::local::await_event as until;

/// The time after which a test gives up; every operation that works takes less.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Wait time of one poll.
pub(crate) const IDLE: Duration = Duration::from_millis(5);

/// The URL schemes of the methods that use Selvedge. Every test runs with each of them.
pub(crate) const SCHEMES: [&str; 2] = ["shm", "tcp"];

/// Runs `test` with a pair of instances for each scheme.
pub(crate) fn for_each_scheme(test: impl Fn(&Pair)) {
    for scheme in SCHEMES {
        eprintln!("over {scheme}");
        test(&Pair::over(scheme));
    }
}

/// Whether a thread of this process is blocked in the kernel.
pub(crate) fn is_parked(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let (_, state) = stat.rsplit_once(") ").unwrap();
    state.starts_with('S')
}

/// A server at a free port of a scheme, and its URL.
pub(crate) fn server_at(scheme: &str) -> (Bmi, String) {
    let bmi = Bmi::initialize(Config::server(&format!("{scheme}://localhost"))).unwrap();
    let url = format!("{scheme}://localhost:{}", bmi.listen_port().unwrap());
    (bmi, url)
}

/// A connected server and client.
pub(crate) struct Pair {
    pub(crate) server: Side,
    pub(crate) client: Side,
}

/// One instance with its context and its peer.
pub(crate) struct Side<B = Bmi> {
    pub(crate) bmi: B,
    pub(crate) context: ContextId,
    pub(crate) peer: Addr,
}

impl Pair {
    pub(crate) fn open() -> Self {
        Self::over("shm")
    }

    pub(crate) fn over(scheme: &str) -> Self {
        let (server, url) = server_at(scheme);
        let client = Bmi::initialize(Config::client()).unwrap();
        Self::connect(server, client, &url)
    }

    /// Connects the client to the server with an empty unexpected message.
    pub(crate) fn connect(server: Bmi, client: Bmi, url: &str) -> Self {
        let context = client.open_context().unwrap();
        let peer = client.addr_lookup(url).unwrap();
        let client = Side {
            bmi: client,
            context,
            peer,
        };
        let sent = client
            .bmi
            .post_sendunexpected(client.post(Vec::<u8>::new(), 0), 0);
        let hello = until("a hello", || {
            client.drive();
            unexpected(&server, 0)
        });
        client.wait(sent).outcome.unwrap();
        let context = server.open_context().unwrap();
        let server = Side {
            bmi: server,
            context,
            peer: hello.addr,
        };
        Self { server, client }
    }

    /// Progresses both instances until there is a result.
    pub(crate) fn until<T>(&self, text: &'static str, mut poll: impl FnMut() -> Option<T>) -> T {
        until(text, || {
            self.server.drive();
            self.client.drive();
            poll()
        })
    }

    /// Waits for an operation of one side while both sides make progress.
    pub(crate) fn finish(
        &self,
        side: &Side,
        posted: Result<Posted<Completion>, PostError>,
    ) -> Completion {
        match posted.unwrap() {
            Posted::Done(done) => done,
            Posted::Pending(id) => self.until("an operation", || side.test(id)),
        }
    }
}

impl<B: Borrow<Bmi>> Side<B> {
    pub(crate) fn bmi(&self) -> &Bmi {
        self.bmi.borrow()
    }

    /// A post to the peer.
    pub(crate) fn post<P>(&self, segments: P, tag: i32) -> Post<P> {
        Post::new(self.peer, segments, tag, self.context)
    }

    pub(crate) fn send(&self, bytes: &[u8], tag: i32) -> Result<Posted<Completion>, PostError> {
        self.bmi().post_send(self.post(bytes.to_vec(), tag))
    }

    pub(crate) fn recv(&self, len: usize, tag: i32) -> Result<Posted<Completion>, PostError> {
        self.bmi().post_recv(self.post(vec![0; len], tag))
    }

    /// Makes progress and collects nothing.
    pub(crate) fn drive(&self) {
        let nothing = self
            .bmi()
            .testcontext(0, Duration::ZERO, self.context, |_| ());
        assert_eq!(nothing, Ok(0));
        thread::yield_now();
    }

    pub(crate) fn test(&self, id: OpId) -> Option<Completion> {
        self.bmi().test(id, Duration::ZERO, self.context).unwrap()
    }

    pub(crate) fn unpost(&self, id: OpId) -> selvedge_bmi::Result<Option<Completion>> {
        self.bmi().unpost(id, self.context)
    }

    /// Waits for an operation. Only this side makes progress.
    pub(crate) fn wait(&self, posted: Result<Posted<Completion>, PostError>) -> Completion {
        match posted.unwrap() {
            Posted::Done(done) => done,
            Posted::Pending(id) => until("an operation", || {
                self.bmi().test(id, IDLE, self.context).unwrap()
            }),
        }
    }

    /// Waits for an unexpected message of class 0.
    pub(crate) fn request(&self) -> Unexpected {
        until("an unexpected message", || unexpected(self.bmi(), 0))
    }
}

/// Waits up to [`IDLE`] for an unexpected message of a class.
pub(crate) fn unexpected(bmi: &Bmi, class: u8) -> Option<Unexpected> {
    let mut found = None;
    bmi.testunexpected(1, class, IDLE, |message| found = Some(message))
        .unwrap();
    found
}

/// The id of a pending operation.
pub(crate) fn pending(posted: Result<Posted<Completion>, PostError>) -> OpId {
    match posted.unwrap() {
        Posted::Pending(id) => id,
        Posted::Done(done) => panic!("it is over: {done:?}"),
    }
}

/// Bytes that depend on their index and on `seed`.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// The message of a completed receive.
pub(crate) fn bytes(done: &Completion) -> Vec<u8> {
    let len = done.outcome.unwrap() as usize;
    let all: Vec<u8> = done
        .buffers
        .iter()
        .flat_map(|buffer| buffer.to_vec())
        .collect();
    all[..len].to_vec()
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::from(now)
}
