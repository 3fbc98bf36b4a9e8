//! Sixty-four processes that send requests to one server continuously.

use std::collections::HashMap;
use std::time::Duration;

use selvedge_bmi::{Addr, Bmi, Config, Post, Posted};

use crate::common::{SCHEMES, server_at, until};
use crate::process::Process;

const CLIENTS: usize = 64;
/// Outstanding requests of each client.
const WINDOW: i32 = 4;
/// Responses that every client must have received.
const ENOUGH: u64 = 20;

/// Sends requests until it is killed, and checks each response.
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
        let mut answered = 0;
        let idle = Duration::from_millis(100);
        let took = bmi.testcontext(64, idle, context, |done| {
            assert!(done.outcome.is_ok(), "{done:?}");
            if done.user > 0 {
                assert_eq!(done.buffers[0][..4], (done.user as i32 - 1).to_le_bytes());
                answered += 1;
            }
        });
        took.unwrap();
        (0..answered).for_each(|_| {
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
        until("enough for everybody", || {
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
            bmi.testcontext(64, Duration::ZERO, context, |done| {
                assert!(done.outcome.is_ok(), "{done:?}");
            })
            .unwrap();
            let enough = served.values().filter(|count| **count >= ENOUGH).count();
            (enough == CLIENTS).then_some(())
        });
        drop(clients);
    }
}
