//! Sixty-four processes that send requests to one server continuously.

use std::collections::HashMap;
use std::time::Duration;

use selvedge_bmi::{Addr, Bmi, Config, Post, Posted};

use crate::common::{SCHEMES, server_at, until};
use crate::process::Process;

const CLIENTS: usize = 64;
/// Outstanding requests of each client.
const WINDOW: i32 = 4;
/// Responses that the server must have sent to every client.
const MIN_RESPONSES: u64 = 20;

/// Runs a client: sends requests until the process is killed, and checks each response.
pub(crate) fn client(url: &str) {
    let bmi = Bmi::initialize(Config::client()).unwrap();
    let context = bmi.open_context().unwrap();
    let peer = bmi.addr_lookup(url).unwrap();
    let send_request = |tag: i32| {
        let post = |bytes| Post::new(peer, bytes, tag, context);
        let response = bmi.post_recv(post(vec![0; 8]).with_user(tag as u64 + 1));
        assert!(matches!(response, Ok(Posted::Pending(_))));
        let request = post(tag.to_le_bytes().to_vec());
        bmi.post_sendunexpected(request, 0).unwrap();
    };
    let mut next = 0;
    (0..WINDOW).for_each(|_| {
        send_request(next);
        next += 1;
    });
    loop {
        let mut responses = 0;
        let idle = Duration::from_millis(100);
        let collected = bmi.testcontext(64, idle, context, |completion| {
            assert!(completion.outcome.is_ok(), "{completion:?}");
            if completion.user > 0 {
                assert_eq!(
                    completion.buffers[0][..4],
                    (completion.user as i32 - 1).to_le_bytes()
                );
                responses += 1;
            }
        });
        collected.unwrap();
        (0..responses).for_each(|_| {
            send_request(next);
            next += 1;
        });
    }
}

#[test]
fn sixty_four_processes_that_send_requests_continuously_are_all_served() {
    for scheme in SCHEMES {
        let (bmi, url) = server_at(scheme);
        let context = bmi.open_context().unwrap();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| Process::start("requester", &url))
            .collect();
        let mut served: HashMap<Addr, u64> = HashMap::new();
        until("enough requests of every client", || {
            let mut requests = Vec::new();
            let idle = Duration::from_millis(10);
            bmi.testunexpected(64, 0, idle, |request| requests.push(request))
                .unwrap();
            for request in requests {
                *served.entry(request.addr).or_default() += 1;
                let response =
                    Post::new(request.addr, request.buffer.to_vec(), request.tag, context);
                bmi.post_send(response).unwrap();
            }
            bmi.testcontext(64, Duration::ZERO, context, |completion| {
                assert!(completion.outcome.is_ok(), "{completion:?}");
            })
            .unwrap();
            let satisfied_clients = served
                .values()
                .filter(|count| **count >= MIN_RESPONSES)
                .count();
            (satisfied_clients == CLIENTS).then_some(())
        });
        drop(clients);
    }
}
