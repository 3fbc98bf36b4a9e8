//! The response queue.

use loom::thread;
use selvedge_shm::smr::cmd_queue::Receiver;
use selvedge_shm::smr::model::Fault;
use selvedge_shm::smr::resp_queue::{Resp, RespReceiver};

use super::{catches, explore, region, seen, wait};

/// One question more than there is room for answers.
const QUESTIONS: u32 = 3;

fn answer_to(question: u32) -> Resp {
    Resp {
        msg_id: question,
        status: question + 100,
    }
}

fn question(rx: &mut Receiver) -> Option<u32> {
    let question = rx.peek()?.head();
    rx.release();
    Some(question)
}

/// Two questions are open at most: as many as there is room for answers.
fn answers_pass() {
    let (asking, answering) = (region(), region());
    let mut questions = seen(&asking).cmd_receiver();
    let mut answers = seen(&answering).resp_receiver();
    let taken = seen(&answering).credit();
    let answerer = thread::spawn(move || {
        let (mut out, given) = (answering.resp_sender(), answering.credit());
        for _ in 0..QUESTIONS {
            let question = wait(|| question(&mut questions));
            given.publish(questions.position());
            out.push(answer_to(question));
        }
    });
    let mut tx = asking.cmd_sender();
    tx.claim().unwrap().commit(0);
    tx.claim().unwrap().commit(1);
    expect(&mut answers, 0);
    tx.refresh(taken.read()).unwrap();
    tx.claim()
        .expect("what was answered was consumed")
        .commit(2);
    expect(&mut answers, 1);
    expect(&mut answers, 2);
    answerer.join().unwrap();
    assert_eq!(answers.pop(), None);
}

fn expect(answers: &mut RespReceiver, question: u32) {
    assert_eq!(wait(|| answers.pop()), answer_to(question));
}

#[test]
fn responses_arrive_once_whole_and_in_order() {
    explore(answers_pass);
}

#[test]
fn a_response_without_release_is_noticed() {
    assert!(catches(Fault::Commit, answers_pass));
}

/// Whoever dies between consuming a command and answering it has answered what came before.
fn answerer_dies() {
    let (asking, answering) = (region(), region());
    let mut questions = seen(&asking).cmd_receiver();
    let mut answers = seen(&answering).resp_receiver();
    let answerer = thread::spawn(move || {
        let mut out = answering.resp_sender();
        let first = wait(|| question(&mut questions));
        out.push(answer_to(first));
        wait(|| question(&mut questions));
        std::mem::forget(answering);
    });
    let mut tx = asking.cmd_sender();
    tx.claim().unwrap().commit(5);
    tx.claim().unwrap().commit(6);
    expect(&mut answers, 5);
    answerer.join().unwrap();
    assert_eq!(answers.pop(), None);
}

#[test]
fn a_peer_that_dies_before_responding_has_not_responded() {
    explore(answerer_dies);
}
