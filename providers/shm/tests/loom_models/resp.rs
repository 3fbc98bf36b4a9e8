//! The response queue: a responder consumes commands, each with the number of a request, and
//! responds to them.

use loom::thread;
use selvedge_shm::smr::cmd_queue::Receiver;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::resp_queue::{Resp, RespReceiver};

use super::{attach_peer, catches, explore, region, wait};

/// The number of requests: one more than the response queue has slots.
const REQUESTS: u32 = 3;

fn response_to(request: u32) -> Resp {
    Resp {
        msg_id: request,
        status: request + 100,
    }
}

/// Consumes a command, and returns the number of the request in it.
fn request(rx: &mut Receiver) -> Option<u32> {
    let request = rx.peek()?.head();
    rx.release();
    Some(request)
}

/// At most two requests are unanswered at a time, as many as the response queue has slots.
fn responses_pass() {
    let (requester, responding) = (region(), region());
    let mut requests = attach_peer(&requester).cmd_receiver();
    let mut responses = attach_peer(&responding).resp_receiver();
    let requester_credit = attach_peer(&responding).credit();
    let responder = thread::spawn(move || {
        let (mut out, responder_credit) = (responding.resp_sender(), responding.credit());
        for _ in 0..REQUESTS {
            let request = wait(|| request(&mut requests));
            responder_credit.publish(requests.position());
            out.push(response_to(request));
        }
    });
    let mut tx = requester.cmd_sender();
    tx.claim().unwrap().commit(0);
    tx.claim().unwrap().commit(1);
    expect(&mut responses, 0);
    tx.refresh(requester_credit.read()).unwrap();
    tx.claim()
        .expect("an answered request was consumed")
        .commit(2);
    expect(&mut responses, 1);
    expect(&mut responses, 2);
    responder.join().unwrap();
    assert_eq!(responses.pop(), None);
}

/// Waits for a response, which must be the one to `request`.
fn expect(responses: &mut RespReceiver, request: u32) {
    assert_eq!(wait(|| responses.pop()), response_to(request));
}

#[test]
fn responses_arrive_once_whole_and_in_order() {
    explore(responses_pass);
}

#[test]
fn a_response_without_release_is_noticed() {
    assert!(catches(Fault::Commit, responses_pass));
}

/// A peer that dies between consuming a command and responding has responded only to earlier
/// commands.
fn responder_dies() {
    let (requester, responding) = (region(), region());
    let mut requests = attach_peer(&requester).cmd_receiver();
    let mut responses = attach_peer(&responding).resp_receiver();
    let responder = thread::spawn(move || {
        let mut out = responding.resp_sender();
        let first = wait(|| request(&mut requests));
        out.push(response_to(first));
        wait(|| request(&mut requests));
        std::mem::forget(responding);
    });
    let mut tx = requester.cmd_sender();
    tx.claim().unwrap().commit(5);
    tx.claim().unwrap().commit(6);
    expect(&mut responses, 5);
    responder.join().unwrap();
    assert_eq!(responses.pop(), None);
}

#[test]
fn a_peer_that_dies_before_responding_has_not_responded() {
    explore(responder_dies);
}
