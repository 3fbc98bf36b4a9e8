//! Opening and closing: in any order, again and again, in the midst of things.

use std::sync::Arc;

use selvedge::{Bindings, Caps, Errno, av, cq};

use crate::suite::cx::check::holds;
use crate::suite::cx::fork;
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, RAW, Result, Rx, Setup, Test, Tx};
use crate::suite::flaw::Flaw;

tests! {
    any_order(Caps::MSG) catches [NeverCloses] .faces(RAW).processes(1);
    again_and_again(Caps::MSG) catches [NeverCloses] .faces(RAW);
    in_the_midst(Caps::MSG) catches [NeverCloses] .faces(RAW).processes(3);
    what_leaves_early(Caps::MSG) catches [ForgetsInjects, LosesCompletions] .faces(RAW);
    forked_children(Caps::MSG) catches [ServesChildren] .faces(RAW);
}

/// Handles of an endpoint's objects are dropped in every order.
fn any_order(cx: &mut Cx) -> Result {
    let info = cx.info_for(&cx.hints())?;
    for order in 0..24 {
        let domain = info.open()?;
        let cq = domain.cq(&cq::Attr::default())?;
        let av = domain.av(&av::Attr::default())?;
        let bind = Bindings::new(Arc::clone(&cq), Arc::clone(&av));
        let ep = domain.endpoint(&info, bind)?;
        holds("an endpoint has an address", ep.address().is_ok())?;
        let mut handles: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(domain), Box::new(cq), Box::new(av), Box::new(ep)];
        let mut order = order;
        for left in (1..=4).rev() {
            drop(handles.remove(order % left));
            order /= left;
        }
    }
    Ok(())
}

/// Endpoints that come, exchange a message and go.
fn again_and_again(cx: &mut Cx) -> Result {
    for number in 0..cx.scale(25, 300) {
        let port = cx.port()?;
        if cx.me() == 0 {
            port.run(Tx::msg(port.peer(), cx.payload(1, number, 500)))?;
        } else {
            cx.verify(
                0,
                number,
                &port.post_and_wait(Rx::msg(500))?.expect_success()?.bytes,
            )?;
        }
        cx.barrier()?;
        cx.close_ports()?;
    }
    Ok(())
}

/// An endpoint that is closed with receives posted and sends under way: what others have with it
/// ends, and what they have with each other goes on.
fn in_the_midst(cx: &mut Cx) -> Result {
    for round in 0..cx.scale(4, 40) {
        let port = cx.port()?;
        for _ in 0..8 {
            port.post(Rx::msg(50_000))?;
        }
        let to_the_one_that_goes = (0..6).map(|number| {
            let len = [64, 50_000][number % 2];
            port.post(Tx::msg(port.to(2), vec![7; len]))
        });
        let sends = to_the_one_that_goes.collect::<Result<Vec<_>>>()?;
        if cx.me() == 2 {
            port.forget_outstanding();
            drop(port);
            cx.close_ports_at_once();
            cx.barrier()?;
            continue;
        }
        // Success or error, but an end.
        for context in sends {
            port.wait_for(context)?;
        }
        let other = 1 - cx.me();
        port.run(Tx::msg(port.to(other), cx.payload(other, round, 900)))?;
        until("the message of the one that stays", || {
            let done = port.next()?;
            Ok(
                (done.bytes.len() == 900 && cx.verify(other, round, &done.bytes).is_ok())
                    .then_some(()),
            )
        })?;
        port.forget_outstanding();
        cx.barrier()?;
        cx.close_ports_at_once();
    }
    Ok(())
}

/// A child that is forked gets errors from its parent's endpoint, and changes nothing for it: not
/// while it lives, and not by its death.
fn forked_children(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let other = 1 - cx.me();
    for round in 0..cx.scale(4, 40) {
        let len = [700, 60_000][round % 2];
        let receive = port.post(Rx::msg(len))?;
        let child = fork::child(|| {
            let refused = port.try_post(Tx::msg(port.peer(), vec![1; 64]));
            refused == Err(Errno::BadF)
        })?;
        port.run(Tx::msg(port.peer(), cx.payload(other, round, len)))?;
        cx.verify(
            other,
            round,
            &port.wait_for(receive)?.expect_success()?.bytes,
        )?;
        let is_refused = child.end()?;
        holds("a forked child gets an error", is_refused)?;
        cx.barrier()?;
    }
    Ok(())
}

/// What a sender has completed arrives, although the sender closes at once.
fn what_leaves_early(cx: &mut Cx) -> Result {
    let receiver = cx.port()?;
    let count = cx.scale(20, 200);
    let names: Vec<String> = cx.tell(&receiver.address()?.to_string())?;
    for round in 0..5 {
        if cx.me() == 0 {
            let sender = cx.stranger(&Setup::default())?;
            let to = sender.insert(&names[1].parse()?)?;
            for number in 0..count {
                let tx = Tx::msg(to, cx.payload(1, round * count + number, 64));
                sender.run(if number % 2 == 0 { tx } else { tx.injected() })?;
            }
            cx.close_last_port()?;
        } else {
            for number in 0..count {
                let done = receiver.post_and_wait(Rx::msg(64))?.expect_success()?;
                cx.verify(0, round * count + number, &done.bytes)?;
            }
        }
        cx.barrier()?;
    }
    Ok(())
}
