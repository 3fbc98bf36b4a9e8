//! Two instances in one process, and the patience of tests.

use std::borrow::Borrow;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use selvedge_bmi::{
    Addr, Bmi, Completion, Config, ContextId, OpId, Post, Posted, Refused, Unexpected,
};

/// Longer than anything takes that works.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How long one look waits.
pub(crate) const IDLE: Duration = Duration::from_millis(5);

/// The methods that the fabric has, each of which has to do what BMI asks for.
pub(crate) const SCHEMES: [&str; 2] = ["shm", "tcp"];

/// Has a pair of each method try something.
pub(crate) fn over_each(test: impl Fn(&Pair)) {
    for scheme in SCHEMES {
        eprintln!("over {scheme}");
        test(&Pair::over(scheme));
    }
}

/// Looks until there is something.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: nothing came of it");
    }
}

/// Whether a thread of this process sleeps in the kernel.
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

/// A server and a client that know each other.
pub(crate) struct Pair {
    pub(crate) server: End,
    pub(crate) client: End,
}

/// One of them.
pub(crate) struct End<B = Bmi> {
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
        Self::acquaint(server, client, &url)
    }

    /// The client calls, so the server learns of it.
    pub(crate) fn acquaint(server: Bmi, client: Bmi, url: &str) -> Self {
        let context = client.open_context().unwrap();
        let peer = client.addr_lookup(url).unwrap();
        let client = End {
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
        client.end(sent).outcome.unwrap();
        let context = server.open_context().unwrap();
        let server = End {
            bmi: server,
            context,
            peer: hello.addr,
        };
        Self { server, client }
    }

    /// Has both ends move things until there is something.
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        until(what, || {
            self.server.drive();
            self.client.drive();
            look()
        })
    }

    /// Waits for an operation of one end while the other moves things, too.
    pub(crate) fn finish(
        &self,
        end: &End,
        posted: Result<Posted<Completion>, Refused>,
    ) -> Completion {
        match posted.unwrap() {
            Posted::Done(done) => done,
            Posted::Pending(id) => self.until("an operation", || end.test(id)),
        }
    }
}

impl<B: Borrow<Bmi>> End<B> {
    pub(crate) fn bmi(&self) -> &Bmi {
        self.bmi.borrow()
    }

    /// A post to the peer.
    pub(crate) fn post<P>(&self, pieces: P, tag: i32) -> Post<P> {
        Post::new(self.peer, pieces, tag, self.context)
    }

    pub(crate) fn send(&self, bytes: &[u8], tag: i32) -> Result<Posted<Completion>, Refused> {
        self.bmi().post_send(self.post(bytes.to_vec(), tag))
    }

    pub(crate) fn recv(&self, len: usize, tag: i32) -> Result<Posted<Completion>, Refused> {
        self.bmi().post_recv(self.post(vec![0; len], tag))
    }

    /// Moves what can move, and collects nothing.
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

    /// Waits for an operation by itself.
    pub(crate) fn end(&self, posted: Result<Posted<Completion>, Refused>) -> Completion {
        match posted.unwrap() {
            Posted::Done(done) => done,
            Posted::Pending(id) => until("an operation", || {
                self.bmi().test(id, IDLE, self.context).unwrap()
            }),
        }
    }

    /// Waits for an unexpected message.
    pub(crate) fn request(&self) -> Unexpected {
        until("an unexpected message", || unexpected(self.bmi(), 0))
    }
}

/// One unexpected message of a class, if there is one soon.
pub(crate) fn unexpected(bmi: &Bmi, class: u8) -> Option<Unexpected> {
    let mut found = None;
    bmi.testunexpected(1, class, IDLE, |message| found = Some(message))
        .unwrap();
    found
}

/// The id of an operation that goes on.
pub(crate) fn pending(posted: Result<Posted<Completion>, Refused>) -> OpId {
    match posted.unwrap() {
        Posted::Pending(id) => id,
        Posted::Done(done) => panic!("it is over: {done:?}"),
    }
}

/// Bytes that tell their place and a number.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// The message that a completion brought.
pub(crate) fn bytes(done: &Completion) -> Vec<u8> {
    let len = done.outcome.unwrap() as usize;
    let all: Vec<u8> = done
        .buffers
        .iter()
        .flat_map(|buffer| buffer.to_vec())
        .collect();
    all[..len].to_vec()
}

/// The processor time that this thread has taken.
pub(crate) fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    Duration::from(now)
}
