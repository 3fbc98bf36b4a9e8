//! Two methods at once: one server at two addresses, and clients of one or both.

use std::time::Duration;

use selvedge_bmi::{Addr, Bmi, Completion, Config, ContextId, Post, PostError, Posted};

use crate::common::{SCHEMES, Side, bytes, pattern, until};
use crate::process::Process;
use crate::request_pattern::{DATA, run_client};

/// Sends requests to the servers at all URLs concurrently, with one instance.
pub(crate) fn client(urls: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    std::thread::scope(|scope| {
        for url in urls.split(',') {
            let side = Side {
                bmi: &bmi,
                context: bmi.open_context().unwrap(),
                peer: bmi.addr_lookup(url).unwrap(),
            };
            scope.spawn(move || run_client(&side));
        }
    });
}

/// Serves any number of clients in one thread, each as [`crate::request_pattern::serve`] does.
struct Server {
    bmi: Bmi,
    context: ContextId,
    /// The address of each client and the tag of its request. The first client has the number 1.
    /// The receive of a client's data has the client's number as its user value, and all other
    /// operations have 0.
    clients: Vec<(Addr, i32)>,
    /// Number of clients whose data has arrived.
    served: usize,
    /// Number of pending operations.
    pending: usize,
}

impl Server {
    fn step(&mut self) {
        let mut requests = Vec::new();
        let collect = |request| requests.push(request);
        self.bmi
            .testunexpected(4, 0, Duration::ZERO, collect)
            .unwrap();
        for request in requests {
            assert_eq!(&*request.buffer, b"data, please");
            self.clients.push((request.addr, request.tag));
            let number = self.clients.len();
            self.send(number, b"here it comes");
            self.send(number, &pattern(DATA, 1));
            let buffers = vec![vec![0; DATA / 2], vec![0; DATA]];
            let post = self.post(number, buffers).with_user(number as u64);
            self.track(self.bmi.post_recv(post));
        }
        let mut done = Vec::new();
        let timeout = Duration::from_millis(10);
        let collect = |completion| done.push(completion);
        self.bmi
            .testcontext(4, timeout, self.context, collect)
            .unwrap();
        self.pending -= done.len();
        done.iter()
            .for_each(|completion| self.completed(completion));
    }

    /// An operation of `segments` with the client that has this number.
    fn post(&self, number: usize, segments: Vec<Vec<u8>>) -> Post<Vec<Vec<u8>>> {
        let (addr, tag) = self.clients[number - 1];
        Post::new(addr, segments, tag, self.context)
    }

    fn send(&mut self, number: usize, bytes: &[u8]) {
        let posted = self.bmi.post_send(self.post(number, vec![bytes.to_vec()]));
        self.track(posted);
    }

    fn track(&mut self, posted: Result<Posted<Completion>, PostError>) {
        match posted.unwrap() {
            Posted::Done(done) => self.completed(&done),
            Posted::Pending(_) => self.pending += 1,
        }
    }

    /// Handles a completion. When a client's data has arrived, the server sends the closing
    /// message.
    fn completed(&mut self, done: &Completion) {
        assert!(done.outcome.is_ok(), "{done:?}");
        if done.user > 0 {
            assert!(bytes(done) == pattern(DATA, 2));
            self.send(done.user as usize, b"");
            self.served += 1;
        }
    }
}

#[test]
fn one_server_serves_processes_over_shm_and_tcp_at_once() {
    let listen = SCHEMES.map(|scheme| format!("{scheme}://localhost"));
    let bmi = Bmi::initialize(Config::server(&listen.join(","))).unwrap();
    let urls = bmi.urls();
    assert_eq!(urls.len(), SCHEMES.len());
    let mut server = Server {
        context: bmi.open_context().unwrap(),
        bmi,
        clients: Vec::new(),
        served: 0,
        pending: 0,
    };
    let clients_of_one =
        [&urls[0], &urls[1], &urls[0], &urls[1]].map(|url| Process::start("client", url));
    let clients_of_both = [(); 2].map(|()| Process::start("both", &urls.join(",")));
    until("all clients to be served", || {
        server.step();
        // A process that uses both URLs is two clients.
        (server.served == 8 && server.pending == 0).then_some(())
    });
    for client in clients_of_one.into_iter().chain(clients_of_both) {
        client.expect_success_while(|| server.step());
    }
    assert_eq!(server.clients.len(), 8);
}
