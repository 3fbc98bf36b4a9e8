//! Opening and closing: in any order, repeatedly, and during transfers.

use std::sync::Arc;

use selvedge::{Bindings, Caps, Errno, av, cq};

use crate::suite::context::check::holds;
use crate::suite::context::fork;
use crate::suite::context::timeout::until;
use crate::suite::context::{RAW, Result, Rx, Setup, Test, TestContext, Tx};
use crate::suite::defect::Defect;

tests! {
    any_order(Caps::MSG) catches [NeverCloses] .apis(RAW).processes(1);
    repeatedly(Caps::MSG) catches [NeverCloses] .apis(RAW);
    during_transfers(Caps::MSG) catches [NeverCloses] .apis(RAW).processes(3);
    completed_sends_arrive_after_close(Caps::MSG) catches [DropsInjects, LosesCompletions] .apis(RAW);
    forked_children(Caps::MSG) catches [AcceptsForkedCalls] .apis(RAW);
}

/// The handles of a domain, a queue, an address vector and an endpoint are dropped in every order.
fn any_order(ctx: &mut TestContext) -> Result {
    let info = ctx.info_for(&ctx.hints())?;
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

/// Endpoints are opened, exchange a message and are closed, repeatedly.
fn repeatedly(ctx: &mut TestContext) -> Result {
    for number in 0..ctx.scale(25, 300) {
        let endpoint = ctx.open_endpoint()?;
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, number, 500)))?;
        } else {
            ctx.verify(
                0,
                number,
                &endpoint
                    .post_and_wait(Rx::msg(500))?
                    .expect_success()?
                    .bytes,
            )?;
        }
        ctx.barrier()?;
        ctx.close_endpoints()?;
    }
    Ok(())
}

/// Process 2 closes its endpoint with posted receives and outstanding sends: the other processes'
/// sends to it end, and their messages to each other arrive.
fn during_transfers(ctx: &mut TestContext) -> Result {
    for round in 0..ctx.scale(4, 40) {
        let endpoint = ctx.open_endpoint()?;
        for _ in 0..8 {
            endpoint.post(Rx::msg(50_000))?;
        }
        let to_closing_process = (0..6).map(|number| {
            let len = [64, 50_000][number % 2];
            endpoint.post(Tx::msg(endpoint.to(2), vec![7; len]))
        });
        let sends = to_closing_process.collect::<Result<Vec<_>>>()?;
        if ctx.me() == 2 {
            endpoint.forget_outstanding();
            drop(endpoint);
            ctx.close_ports_at_once();
            ctx.barrier()?;
            continue;
        }
        // Each send ends with success or an error.
        for context in sends {
            endpoint.wait_for(context)?;
        }
        let other = 1 - ctx.me();
        endpoint.run(Tx::msg(endpoint.to(other), ctx.payload(other, round, 900)))?;
        until("the message of the remaining process", || {
            let done = endpoint.next()?;
            Ok(
                (done.bytes.len() == 900 && ctx.verify(other, round, &done.bytes).is_ok())
                    .then_some(()),
            )
        })?;
        endpoint.forget_outstanding();
        ctx.barrier()?;
        ctx.close_ports_at_once();
    }
    Ok(())
}

/// A forked child gets errors from its parent's endpoint, and affects it neither while it runs nor
/// when it exits.
fn forked_children(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let other = 1 - ctx.me();
    for round in 0..ctx.scale(4, 40) {
        let len = [700, 60_000][round % 2];
        let receive = endpoint.post(Rx::msg(len))?;
        let child = fork::fork_child(|| {
            let refused = endpoint.try_post(Tx::msg(endpoint.peer(), vec![1; 64]));
            refused == Err(Errno::BadF)
        })?;
        endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(other, round, len)))?;
        ctx.verify(
            other,
            round,
            &endpoint.wait_for(receive)?.expect_success()?.bytes,
        )?;
        let is_refused = child.stop()?;
        holds("a forked child gets an error", is_refused)?;
        ctx.barrier()?;
    }
    Ok(())
}

/// Completed sends arrive, although the sender closes immediately.
fn completed_sends_arrive_after_close(ctx: &mut TestContext) -> Result {
    let receiver = ctx.open_endpoint()?;
    let count = ctx.scale(20, 200);
    let names: Vec<String> = ctx.exchange(&receiver.address()?.to_string())?;
    for round in 0..5 {
        if ctx.me() == 0 {
            let sender = ctx.open_unannounced_endpoint(&Setup::default())?;
            let to = sender.insert(&names[1].parse()?)?;
            for number in 0..count {
                let tx = Tx::msg(to, ctx.payload(1, round * count + number, 64));
                sender.run(if number % 2 == 0 { tx } else { tx.injected() })?;
            }
            ctx.close_last_endpoint()?;
        } else {
            for number in 0..count {
                let done = receiver.post_and_wait(Rx::msg(64))?.expect_success()?;
                ctx.verify(0, round * count + number, &done.bytes)?;
            }
        }
        ctx.barrier()?;
    }
    Ok(())
}
