//! Tagged messages, fi_tagged(3): which receive matches which message.

use selvedge::{Caps, CompletionFlags as Flags, TagMatch};

use super::messages::{check_sent, received, sizes, truncate_data};
use crate::suite::context::check::same;
use crate::suite::context::{POLLED, Random, Result, Rx, Test, TestContext, TestEndpoint, Tx};
use crate::suite::defect::Defect;

tests! {
    every_size(TAGGED) catches [FlipsBitOfLarge, CutsOff];
    every_field(SOURCE) catches [NoKind, WrongTag, HalvesData, NoSource, CountsOneLess];
    every_bit_of_a_tag(TAGGED) catches [HalvesTags, IgnoresTags];
    ignored_bits(TAGGED) catches [IgnoresIgnoreBits, IgnoresTags];
    random_interleavings(TAGGED) catches [
        SwapsSends, IgnoresTags, IgnoresIgnoreBits, SendsTwice
    ] .apis(POLLED);
    unexpected_in_reverse(TAGGED) catches [IgnoresTags];
    beside_untagged(BOTH) catches [NoKind];
    directed(DIRECTED) catches [IgnoresSource] .processes(3);
    inject(TAGGED) catches [DropsInjects, HalvesTags];
}

const TAGGED: Caps = Caps::TAGGED;
const SOURCE: Caps = Caps::TAGGED.union(Caps::SOURCE);
const BOTH: Caps = Caps::TAGGED.union(Caps::MSG);
const DIRECTED: Caps = SOURCE.union(Caps::DIRECTED_RECV);

fn every_size(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let sizes = sizes(ctx, endpoint.info.tx_attr.inject_size);
    for (number, &len) in sizes.iter().enumerate() {
        let tag = number as u64;
        if ctx.me() == 0 {
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                tag,
                ctx.payload(1, number, len),
            ))?;
        } else {
            let completion = endpoint
                .post_and_wait(Rx::tagged(tag, len))?
                .expect_success()?;
            same("length", completion.len, len)?;
            ctx.verify(0, number, &completion.bytes)?;
        }
    }
    Ok(())
}

fn every_field(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let data = [None, Some(0), Some(u64::MAX), Some(0x0123_4567_89ab_cdef)];
    let width = 8 * endpoint.info.domain_attr.cq_data_size.min(8);
    for (number, &len) in [0, 1, 40, 300, 5000, 70_000].iter().enumerate() {
        for data in data.map(|data| data.map(|data| truncate_data(data, width))) {
            let tag = 0xfedc_ba98_7654_3210 ^ number as u64;
            if ctx.me() == 0 {
                let mut tx = Tx::tagged(endpoint.peer(), tag, ctx.payload(1, number, len));
                tx.data = data;
                let sent = endpoint.post_and_wait(tx)?.expect_success()?;
                check_sent(ctx, &sent, Flags::TAGGED)?;
            } else {
                let completion = endpoint
                    .post_and_wait(Rx::tagged(TagMatch::ANY, len + 16))?
                    .expect_success()?;
                same("length", completion.len, len)?;
                same("data", completion.data, data)?;
                same("tag", completion.tag, tag)?;
                same("source", completion.src, endpoint.peer())?;
                same("flags", completion.flags, received(Flags::TAGGED, data))?;
                ctx.verify(0, number, &completion.bytes)?;
            }
        }
    }
    Ok(())
}

/// Tags that differ in any one bit are different.
fn every_bit_of_a_tag(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let tags = || [0].into_iter().chain((0..64).map(|bit| 1_u64 << bit));
    if ctx.me() == 0 {
        for (number, tag) in tags().enumerate() {
            endpoint.run(Tx::tagged(endpoint.peer(), tag, ctx.payload(1, number, 24)))?;
        }
        return Ok(());
    }
    // The receives are in reverse order, so that no message matches by its position.
    let all: Vec<_> = tags().enumerate().collect();
    for &(number, tag) in all.iter().rev() {
        let completion = endpoint
            .post_and_wait(Rx::tagged(tag, 24))?
            .expect_success()?;
        same("tag", completion.tag, tag)?;
        ctx.verify(0, number, &completion.bytes)?;
    }
    Ok(())
}

/// Ignored bits are not compared, and all others are.
fn ignored_bits(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let masks = [
        0xff,
        0xffff_0000_0000_0000,
        0xf0f0_f0f0_f0f0_f0f0,
        1 << 63,
        u64::MAX,
    ];
    for (round, &ignore) in masks.iter().enumerate() {
        let tag = 0x1234_5678_9abc_def0_u64;
        // The first tag differs in a compared bit, the second in an ignored one.
        let mismatching = tag ^ (1_u64.checked_shl((!ignore).trailing_zeros()).unwrap_or(0));
        let matching = tag ^ (1 << ignore.trailing_zeros());
        let has_mismatch = ignore != u64::MAX;
        let number = round * 2;
        if ctx.me() == 0 {
            if has_mismatch {
                endpoint.run(Tx::tagged(
                    endpoint.peer(),
                    mismatching,
                    ctx.payload(1, number, 32),
                ))?;
            }
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                matching,
                ctx.payload(1, number + 1, 32),
            ))?;
        } else {
            let completion = endpoint
                .post_and_wait(Rx::tagged(TagMatch { tag, ignore }, 32))?
                .expect_success()?;
            same("the whole tag", completion.tag, matching)?;
            ctx.verify(0, number + 1, &completion.bytes)?;
            if has_mismatch {
                let completion = endpoint
                    .post_and_wait(Rx::tagged(mismatching, 32))?
                    .expect_success()?;
                ctx.verify(0, number, &completion.bytes)?;
            }
        }
    }
    Ok(())
}

/// The messages and receives of one round, and their matches. With one sender, the matches depend
/// only on the order of the sends and on the order of the receives.
struct Script {
    /// Tag and length of each message.
    messages: Vec<(u64, usize)>,
    receives: Vec<TagMatch>,
    /// The message of each receive.
    pairs: Vec<usize>,
}

impl Script {
    fn new(random: &mut Random, count: usize) -> Self {
        let mut messages: Vec<_> = (0..count).map(|_| random_message(random)).collect();
        let mut receives: Vec<_> = (0..count).map(|_| random_receive(random)).collect();
        // A message is added for each receive without a message, and a receive for each message
        // without a receive.
        let pairs = loop {
            let pairs = match_pairs(&messages, &receives);
            let remaining = (0..messages.len()).filter(|message| !pairs.contains(&Some(*message)));
            let remaining = remaining.count();
            let unmatched = pairs.iter().position(Option::is_none);
            match unmatched {
                Some(receive) => messages.push((receives[receive].tag, 64)),
                None if remaining > 0 => receives.push(TagMatch::ANY),
                None => break pairs.into_iter().flatten().collect(),
            }
        };
        Self {
            messages,
            receives,
            pairs,
        }
    }
}

fn random_message(random: &mut Random) -> (u64, usize) {
    let len = *random.pick(&[16, 48, 200, 3000, 9000]);
    (random.below(4), len)
}

fn random_receive(random: &mut Random) -> TagMatch {
    let ignore = *random.pick(&[0, 0, 1, 2, u64::MAX]);
    TagMatch {
        tag: random.below(4),
        ignore,
    }
}

/// Matches each receive, in order, with the first remaining message that the receive accepts.
/// Returns the message of each receive.
fn match_pairs(messages: &[(u64, usize)], receives: &[TagMatch]) -> Vec<Option<usize>> {
    let mut remaining: Vec<_> = (0..messages.len()).collect();
    let take_first = |receive: &TagMatch| {
        let accepts = |message: &usize| receive.accepts(messages[*message].0);
        let index = remaining.iter().position(accepts)?;
        Some(remaining.remove(index))
    };
    receives.iter().map(take_first).collect()
}

/// Messages with random tags, masks, lengths and delays match as in a model.
fn random_interleavings(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let mut common = ctx.common_random();
    let mut random = ctx.random();
    let mut base = 0;
    for _ in 0..ctx.scale(12, 300) {
        let script = Script::new(&mut common, 40);
        if ctx.me() == 0 {
            post_sends(ctx, &endpoint, &script, base, &mut random)?;
        } else {
            post_receives(ctx, &endpoint, &script, base, &mut random)?;
        }
        base += script.messages.len();
    }
    Ok(())
}

fn post_sends(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    script: &Script,
    base: usize,
    random: &mut Random,
) -> Result {
    let mut sends = Vec::new();
    for (number, &(tag, len)) in script.messages.iter().enumerate() {
        random_delay(endpoint, random)?;
        let bytes = ctx.payload(1, base + number, len);
        sends.push(endpoint.post(Tx::tagged(endpoint.peer(), tag, bytes))?);
    }
    for context in sends {
        endpoint.wait_for(context)?.expect_success()?;
    }
    Ok(())
}

fn post_receives(
    ctx: &TestContext,
    endpoint: &TestEndpoint,
    script: &Script,
    base: usize,
    random: &mut Random,
) -> Result {
    let mut receives = Vec::new();
    for &tag in &script.receives {
        random_delay(endpoint, random)?;
        receives.push(endpoint.post(Rx::tagged(tag, 9000))?);
    }
    for (receive, context) in receives.into_iter().enumerate() {
        let message = script.pairs[receive];
        let completion = endpoint.wait_for(context)?.expect_success()?;
        same("tag", completion.tag, script.messages[message].0)?;
        same("length", completion.len, script.messages[message].1)?;
        ctx.verify(0, base + message, &completion.bytes)?;
    }
    Ok(())
}

/// Makes progress or yields, or does neither, at random.
fn random_delay(endpoint: &TestEndpoint, random: &mut Random) -> Result {
    match random.below(8) {
        0 => endpoint.progress(),
        1 => {
            std::thread::yield_now();
            Ok(())
        }
        2 if random.once_in(8) => endpoint.settle(),
        _ => Ok(()),
    }
}

/// Messages that arrive before their receives are posted can be received in reverse order.
fn unexpected_in_reverse(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let lens = [0, 8, 60, 2000, 30_000];
    for round in 0..ctx.scale(5, 50) {
        let count = 24;
        let len = |number: usize| lens[(number + round) % lens.len()];
        if ctx.me() == 0 {
            let sends = (0..count).map(|number| {
                let bytes = ctx.payload(1, number, len(number));
                endpoint.post(Tx::tagged(endpoint.peer(), number as u64, bytes))
            });
            let sends = sends.collect::<Result<Vec<_>>>()?;
            ctx.barrier()?;
            for context in sends {
                endpoint.wait_for(context)?.expect_success()?;
            }
        } else {
            ctx.barrier()?;
            endpoint.settle()?;
            for number in (0..count).rev() {
                let completion = endpoint
                    .post_and_wait(Rx::tagged(number as u64, 30_000))?
                    .expect_success()?;
                same("length", completion.len, len(number))?;
                ctx.verify(0, number, &completion.bytes)?;
            }
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// Tagged receives match no untagged messages, and vice versa.
fn beside_untagged(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    for number in 0..20 {
        let len = 16 + number * 200;
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, 2 * number, len)))?;
            endpoint.run(Tx::tagged(
                endpoint.peer(),
                0,
                ctx.payload(1, 2 * number + 1, len),
            ))?;
        } else {
            let tagged = endpoint.post(Rx::tagged(TagMatch::ANY, len))?;
            let untagged = endpoint.post(Rx::msg(len))?;
            for (context, number, kind) in [
                (tagged, 2 * number + 1, Flags::TAGGED),
                (untagged, 2 * number, Flags::MSG),
            ] {
                let completion = endpoint.wait_for(context)?.expect_success()?;
                same("flags", completion.flags, received(kind, None))?;
                ctx.verify(0, number, &completion.bytes)?;
            }
        }
    }
    Ok(())
}

fn directed(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let count = ctx.scale(30, 300);
    // The messages of process 1 arrive first, so that a receive that ignores its source is
    // detected.
    for process in [1, 2] {
        if ctx.me() == process {
            for number in 0..count {
                endpoint.run(Tx::tagged(endpoint.to(0), 5, ctx.payload(0, number, 64)))?;
            }
        }
        if process == 1 {
            ctx.barrier()?;
            if ctx.me() == 0 {
                endpoint.settle()?;
            }
            ctx.barrier()?;
        }
    }
    if ctx.me() > 0 {
        return Ok(());
    }
    for from in [2, 1] {
        for number in 0..count {
            let completion = endpoint
                .post_and_wait(Rx::tagged(5, 64).from(endpoint.to(from)))?
                .expect_success()?;
            same("source", endpoint.process(completion.src), Some(from))?;
            ctx.verify(from, number, &completion.bytes)?;
        }
    }
    Ok(())
}

fn inject(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let inject_size = endpoint.info.tx_attr.inject_size;
    for (number, len) in [0, 1, inject_size / 2, inject_size].into_iter().enumerate() {
        let tag = u64::MAX - number as u64;
        if ctx.me() == 0 {
            endpoint
                .run(Tx::tagged(endpoint.peer(), tag, ctx.payload(1, number, len)).injected())?;
        } else {
            let completion = endpoint
                .post_and_wait(Rx::tagged(tag, inject_size))?
                .expect_success()?;
            same("length", completion.len, len)?;
            ctx.verify(0, number, &completion.bytes)?;
        }
    }
    Ok(())
}
