//! What peers' one-sided commands do here.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::rma::RmaIov;
use selvedge_kit::cq::Sink;
use selvedge_kit::rate_limit::warn_limited;

use super::cmd::{self, Answer, Body, Notice, OneSided, Outcome, Small, Write, parse, pool};
use super::read;
use super::write;
use crate::peers::ops::OpBody;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::smr::keys::Denied;
use crate::transfers::cmd::Nonsense;
use crate::transfers::into::{Arrival, Into};
use crate::transfers::{inline, sar, transfer};

/// Takes one command of a read or a write. `false` while there is no room for its answer.
///
/// # Errors
/// When it makes no sense.
#[inline(never)]
pub(crate) fn access(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    sink: &mut Sink<'_>,
) -> Result<bool, Nonsense> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(false);
    };
    if let Some(slot) = inbox.rx.peek() {
        if let Some(small) = Small::parse(&slot) {
            let result = write::put_inline(&slot, &small, &setup.shared);
            inbox.rx.release();
            let (data, len) = (small.data, small.place.len);
            let place = [small.place];
            written(peer, setup, &place, Arrival { data, len }, result, sink);
            return Ok(true);
        }
        if let Some(notice) = Notice::parse(&slot)? {
            inbox.rx.release();
            take_notice(peer, setup, notice, sink);
            return Ok(true);
        }
    }
    let walked = inbox.walk;
    let (Some(slot), mut passage) = pool(inbox) else {
        return Ok(false);
    };
    match parse(&slot, &mut passage)? {
        OneSided::Write(write) => take_write(peer, setup, schedule, &write)?,
        OneSided::Read(read) => {
            if !read::answer(peer, setup, schedule, &read) {
                if let Some(inbox) = &mut peer.inbox {
                    inbox.walk = walked;
                }
                return Ok(false);
            }
            release(peer);
        }
        OneSided::Result(answer) => take_result(peer, setup, schedule, &answer)?,
    }
    Ok(true)
}

/// Takes notices of writes with data, as many as there are one after the other: they need no place
/// and no answer.
#[inline(never)]
pub(crate) fn told(peer: &mut Peer, setup: &Setup, budget: usize, sink: &mut Sink<'_>) -> usize {
    let src = peer.fi_addr(&setup.av);
    let Some(inbox) = &mut peer.inbox else {
        return 0;
    };
    for taken in 0..budget {
        let told = inbox.rx.peek().and_then(|slot| cmd::told(&slot));
        let Some((data, len)) = told else {
            return taken;
        };
        inbox.rx.release();
        let data = Some(data);
        Arrival { data, len }.report(&setup.ep, src, sink);
    }
    budget
}

fn release(peer: &mut Peer) {
    if let Some(inbox) = &mut peer.inbox {
        inbox.rx.release();
    }
}

#[inline]
fn take_write(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    write: &Write,
) -> Result<(), Nonsense> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let (result, ack) = match write.body {
        Body::Iov {
            msg_id,
            eager,
            pieces,
        } => {
            inbox.rx.release();
            transfer::expect(peer, msg_id, eager, pieces)?;
            schedule.activate(peer, &setup.ep);
            write::start(peer, setup, write, msg_id);
            return Ok(());
        }
        Body::Inject { at, ack } => (write::put_injected(inbox, write, at, &setup.shared), ack),
    };
    inbox.rx.release();
    if let Some(msg_id) = ack {
        peer.answer(peer.life, msg_id, write::answer(result));
    }
    let arrival = Arrival {
        data: write.data,
        len: write.places.len(),
    };
    let places = write.places.all();
    written(peer, setup, places, arrival, result, &mut Sink::none());
    Ok(())
}

/// Tells of a write that was taken.
#[inline]
fn written(
    peer: &mut Peer,
    setup: &Setup,
    places: &[RmaIov],
    arrival: Arrival,
    result: Result<(), Denied>,
    sink: &mut Sink<'_>,
) {
    match result {
        Ok(()) => {
            setup.shared.keys.count_write(places);
            arrival.report(&setup.ep, peer.fi_addr(&setup.av), sink);
        }
        Err(denied) => refuse(peer.name.as_str(), denied),
    }
}

/// Bytes that we have asked for, or the news that they do not come.
fn take_result(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
    answer: &Answer,
) -> Result<(), Nonsense> {
    if peer.out.is_none() {
        // Whatever it waited for has failed already: the peer is gone.
        release(peer);
        return Ok(());
    }
    if !is_asked(peer, answer) {
        return Err(Nonsense("an answer to nothing"));
    }
    if let Outcome::Stream { stream, .. } = answer.outcome {
        // While the operation is still where it fails with the peer.
        transfer::expect_stream(peer, stream)?;
    }
    let op = peer.outbox().ops.remove(answer.msg_id);
    let (Some(mut op), Some(inbox)) = (op, &mut peer.inbox) else {
        return Ok(());
    };
    if let (Outcome::Inline { len, words }, OpBody::Asked { buf }) = (&answer.outcome, &mut op.body)
    {
        inline::receive_words(words, *len, buf);
    }
    inbox.rx.release();
    let (ep, src) = (&setup.ep, peer.fi_addr(&setup.av));
    match answer.outcome {
        Outcome::Inline { .. } => op.succeed(ep),
        Outcome::Stream { len, stream } => {
            transfer::take_stream(peer, stream, Into::Answer(Box::new(op)), len);
            schedule.activate(peer, ep);
            sar::absorb_kept(peer, ep, src, stream);
        }
        Outcome::Failed(errno) => {
            let detail = format!("{} refuses the access: {errno}", peer.name);
            op.fail(ep, errno, src, detail);
        }
    }
    Ok(())
}

/// A peer has used our memory by itself, and says so.
#[inline]
fn take_notice(peer: &mut Peer, setup: &Setup, notice: Notice, sink: &mut Sink<'_>) {
    let src = peer.fi_addr(&setup.av);
    let Notice { wrote, data, len } = notice;
    match wrote {
        true => Arrival { data, len }.report(&setup.ep, src, sink),
        false => setup.ep.peer_read(len),
    }
}

/// Whether this is what an operation waits for. One that waits for something else stays, to fail
/// with the peer.
fn is_asked(peer: &mut Peer, answer: &Answer) -> bool {
    let op = peer
        .out
        .as_mut()
        .and_then(|out| out.ops.get_mut(answer.msg_id));
    op.is_some_and(|op| match (&op.body, &answer.outcome) {
        (OpBody::Asked { .. }, Outcome::Inline { len, .. } | Outcome::Stream { len, .. }) => {
            *len == op.report.len
        }
        (OpBody::Asked { .. }, Outcome::Failed(_)) => true,
        _ => false,
    })
}

/// A write that the peer's own look at the table should have prevented.
#[cold]
fn refuse(name: &str, denied: Denied) {
    warn_limited(
        "selvedge::shm::ep_data",
        format_args!("{name}: a write was refused: {}", denied.text()),
    );
}
