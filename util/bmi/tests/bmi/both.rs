//! Two methods at once: one server at two addresses, and clients at either and at both.

use std::time::Duration;

use selvedge_bmi::{Addr, Bmi, Completion, Config, ContextId, Post, Posted, Refused};

use crate::common::{End, SCHEMES, bytes, pattern, until};
use crate::process::Process;
use crate::request::{DATA, ask_through};

/// Asks the servers at all of these URLs at the same time, with one instance.
pub(crate) fn ask(urls: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    std::thread::scope(|scope| {
        for url in urls.split(',') {
            let end = End {
                bmi: &bmi,
                context: bmi.open_context().unwrap(),
                peer: bmi.addr_lookup(url).unwrap(),
            };
            scope.spawn(move || ask_through(&end));
        }
    });
}

/// What [`crate::request::serve`] does, for any number of clients and in one thread.
struct Server {
    bmi: Bmi,
    context: ContextId,
    /// Whoever has asked, and with which tag.
    clients: Vec<(Addr, i32)>,
    served: usize,
    /// Operations that go on.
    going: usize,
}

impl Server {
    fn turn(&mut self) {
        let mut requests = Vec::new();
        let take = |request| requests.push(request);
        self.bmi.testunexpected(4, 0, Duration::ZERO, take).unwrap();
        for request in requests {
            assert_eq!(&*request.buffer, b"data, please");
            self.clients.push((request.addr, request.tag));
            let number = self.clients.len();
            self.send(number, b"here it comes");
            self.send(number, &pattern(DATA, 1));
            let room = vec![vec![0; DATA / 2], vec![0; DATA]];
            let post = self.post(number, room).with_user(number as u64);
            self.note(self.bmi.post_recv(post));
        }
        let mut done = Vec::new();
        let idle = Duration::from_millis(10);
        let tell = |one| done.push(one);
        self.bmi.testcontext(4, idle, self.context, tell).unwrap();
        self.going -= done.len();
        done.into_iter().for_each(|one| self.over(&one));
    }

    /// A post to a client, by its number.
    fn post(&self, number: usize, pieces: Vec<Vec<u8>>) -> Post<Vec<Vec<u8>>> {
        let (addr, tag) = self.clients[number - 1];
        Post::new(addr, pieces, tag, self.context)
    }

    fn send(&mut self, number: usize, bytes: &[u8]) {
        let posted = self.bmi.post_send(self.post(number, vec![bytes.to_vec()]));
        self.note(posted);
    }

    fn note(&mut self, posted: Result<Posted<Completion>, Refused>) {
        match posted.unwrap() {
            Posted::Done(done) => self.over(&done),
            Posted::Pending(_) => self.going += 1,
        }
    }

    /// What was received is the client's last word but for a goodbye.
    fn over(&mut self, done: &Completion) {
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
        going: 0,
    };
    let single = [&urls[0], &urls[1], &urls[0], &urls[1]].map(|url| Process::start("client", url));
    let double = [(); 2].map(|()| Process::start("both", &urls.join(",")));
    until("all of them to be served", || {
        server.turn();
        (server.served == 8 && server.going == 0).then_some(())
    });
    for client in single.into_iter().chain(double) {
        client.ends_well_while(|| server.turn());
    }
    assert_eq!(server.clients.len(), 8);
}
