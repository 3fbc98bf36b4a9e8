//! Address vectors, fi_av(3).

use selvedge::{Address, Caps, Errno, FiAddr, av};

use crate::suite::context::check::{holds, same};
use crate::suite::context::{RAW, Result, Rx, Setup, Test, TestContext, Tx};
use crate::suite::defect::Defect;

tests! {
    indices(MSG) catches [WrongLookup, RemovesNothing, RemovesAnything] .apis(RAW).processes(3);
    invalid_addresses(MSG) catches [InsertsAnything] .apis(RAW).processes(1);
    reinserted(MSG) catches [RemovesNothing] .apis(RAW);
    late_insertion(DIRECTED) catches [IgnoresSource, WrongSource] .apis(RAW).processes(3);
    address_of_an_unknown_sender(UNKNOWN_SENDERS) catches [NoSource, HidesErrors] .apis(RAW);
    named(NAMED) catches [IgnoresVectorNames, WrongLookup] .apis(RAW);
    user_ids(USER_IDS) catches [IgnoresUserIds, NoSource] .apis(RAW);
}

const MSG: Caps = Caps::MSG;
const NAMED: Caps = MSG.union(Caps::SHARED_AV);
const UNKNOWN_SENDERS: Caps = MSG.union(Caps::SOURCE).union(Caps::SOURCE_ERR);
const USER_IDS: Caps = MSG.union(Caps::SOURCE).union(Caps::AV_USER_ID);
const DIRECTED: Caps = MSG.union(Caps::SOURCE).union(Caps::DIRECTED_RECV);

/// A lookup of an index returns its address; a lookup of a removed or unknown index fails.
fn indices(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let own = endpoint.address()?.to_string();
    let names: Vec<String> = ctx.exchange(&own)?;
    let av = endpoint.domain.av(&av::Attr::default())?;
    let addresses = names.iter().map(|name| name.parse::<Address>());
    let addresses: Vec<Address> = addresses.collect::<std::result::Result<_, _>>()?;
    let mut indices = vec![FiAddr::NOTAVAIL; addresses.len()];
    same(
        "inserted addresses",
        av.insert(&addresses, &mut indices),
        Ok(addresses.len()),
    )?;
    for (index, address) in indices.iter().zip(&addresses) {
        same(
            "the address of an index",
            av.lookup(*index).as_ref(),
            Ok(address),
        )?;
        let again = av.insert_one(address).map_err(Errno::from);
        same("the index of an inserted address", again, Ok(*index))?;
    }
    let unknown = FiAddr(indices.iter().map(|index| index.0).max().unwrap_or(0) + 1000);
    for index in [unknown, FiAddr::UNSPEC] {
        same(
            "the address of an unknown index",
            av.lookup(index),
            Err(Errno::Inval),
        )?;
        same(
            "removing an unknown index",
            av.remove(&[index]),
            Err(Errno::Inval),
        )?;
    }
    let mixed = [indices[0], unknown];
    same(
        "removing a known and an unknown index",
        av.remove(&mixed),
        Err(Errno::Inval),
    )?;
    holds(
        "the known one is not removed",
        av.lookup(indices[0]).is_ok(),
    )?;
    same("removing the second", av.remove(&[indices[1]]), Ok(()))?;
    same(
        "the address of a removed index",
        av.lookup(indices[1]),
        Err(Errno::Inval),
    )?;
    same(
        "removing it again",
        av.remove(&[indices[1]]),
        Err(Errno::Inval),
    )?;
    let reinserted = av.insert_one(&addresses[1]);
    holds("it can be inserted again", reinserted.is_ok())?;
    same(
        "its address",
        av.lookup(reinserted?).as_ref(),
        Ok(&addresses[1]),
    )
}

/// An invalid address is not inserted; the valid addresses of the same call are.
fn invalid_addresses(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let good = endpoint.address()?;
    let bad: Address = match &good {
        Address::Str(_) => "10.1.2.3:4".parse()?,
        _ => "no address at all".parse()?,
    };
    let av = endpoint.domain.av(&av::Attr::default())?;
    let mut indices = [FiAddr(7); 3];
    let inserted = av.insert(&[bad.clone(), good.clone(), bad.clone()], &mut indices);
    same("of three addresses one is good", inserted, Ok(1))?;
    same("the first slot", indices[0], FiAddr::NOTAVAIL)?;
    same("the third slot", indices[2], FiAddr::NOTAVAIL)?;
    same("the second", av.lookup(indices[1]), Ok(good))?;
    same(
        "one bad address alone",
        av.insert_one(&bad).map_err(Errno::from),
        Err(Errno::Inval),
    )?;
    let too_short = av.insert(&[bad.clone(), bad], &mut indices[..1]);
    same(
        "room for fewer indices than addresses",
        too_short,
        Err(Errno::Inval),
    )
}

/// A removed peer cannot be addressed; after it is inserted again, it can.
fn reinserted(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let address = endpoint.av().lookup(endpoint.peer())?;
    for number in 0..ctx.scale(5, 50) {
        if ctx.me() == 0 {
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(1, 2 * number, 64)))?;
            same(
                "removing the peer",
                endpoint.av().remove(&[endpoint.peer()]),
                Ok(()),
            )?;
            let refused = endpoint.try_post(Tx::msg(endpoint.peer(), vec![0; 64]));
            holds("a send to a removed peer is refused", refused.is_err())?;
            let reinserted = endpoint.insert(&address)?;
            endpoint.run(Tx::msg(reinserted, ctx.payload(1, 2 * number + 1, 64)))?;
            same(
                "removing it under its new index",
                endpoint.av().remove(&[reinserted]),
                Ok(()),
            )?;
            same(
                "its index in the end",
                endpoint.insert(&address)?,
                endpoint.peer(),
            )?;
        } else {
            for number in [2 * number, 2 * number + 1] {
                let done = endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
                ctx.verify(0, number, &done.bytes)?;
            }
        }
        ctx.barrier()?;
    }
    Ok(())
}

/// A message of an unknown sender is received without a source. After the sender is inserted,
/// directed receives match its waiting messages.
fn late_insertion(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_unannounced_endpoint(&Setup::default())?;
    let names: Vec<String> = ctx.exchange(&endpoint.address()?.to_string())?;
    if ctx.me() > 0 {
        let to = endpoint.insert(&names[0].parse()?)?;
        endpoint.run(Tx::msg(to, ctx.payload(0, 0, 64)))?;
        for _ in ["both are sent", "both are received"] {
            ctx.barrier()?;
        }
        // Process 1's second message has arrived before process 2's is sent.
        for process in [1, 2] {
            if ctx.me() == process {
                endpoint.run(Tx::msg(to, ctx.payload(0, 1, 64)))?;
            }
            for _ in ["it is sent", "it is there"] {
                ctx.barrier()?;
            }
        }
        return ctx.barrier();
    }
    ctx.barrier()?;
    let mut senders = Vec::new();
    for _ in 0..2 {
        let done = endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
        same(
            "the source of an unknown sender's message",
            done.src,
            FiAddr::UNSPEC,
        )?;
        let (from, number) = ctx.read(&done.bytes)?;
        same("its number", number, 0)?;
        senders.push(from);
    }
    senders.sort_unstable();
    same("the senders", senders, vec![1, 2])?;
    ctx.barrier()?;
    for _ in [1, 2] {
        ctx.barrier()?;
        endpoint.settle()?;
        ctx.barrier()?;
    }
    for process in [2, 1] {
        let index = endpoint.insert(&names[process].parse()?)?;
        let done = endpoint
            .post_and_wait(Rx::msg(64).from(index))?
            .expect_success()?;
        same("the source", done.src, index)?;
        ctx.verify(process, 1, &done.bytes)?;
    }
    ctx.barrier()
}

/// With FI_SOURCE_ERR, the message of an unknown sender completes with an error that carries the
/// sender's address. After the address is inserted, the sender's messages complete successfully.
fn address_of_an_unknown_sender(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_unannounced_endpoint(&Setup::default())?;
    let own = endpoint.address()?.to_string();
    let names: Vec<String> = ctx.exchange(&own)?;
    if ctx.me() == 1 {
        let to = endpoint.insert(&names[0].parse()?)?;
        for number in 0..2 {
            endpoint.run(Tx::msg(to, ctx.payload(0, number, 64)))?;
            ctx.barrier()?;
        }
        return Ok(());
    }
    let done = endpoint.post_and_wait(Rx::msg(64))?;
    let failure = done.expect_failure("the message of an unknown sender", Errno::AddrNotAvail)?;
    let sender = failure.sender.as_ref().map(ToString::to_string);
    same(
        "the address of the unknown sender",
        sender.as_ref(),
        Some(&names[1]),
    )?;
    let index = endpoint.insert(&names[1].parse()?)?;
    ctx.barrier()?;
    let done = endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
    same("the source of an inserted sender", done.src, index)?;
    ctx.verify(1, 1, &done.bytes)?;
    ctx.barrier()
}

/// A process finds the addresses that another one has inserted into a named vector at the same
/// indices.
fn named(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let names: Vec<String> = ctx.exchange(&format!("suite {}", std::process::id()))?;
    let addresses: Vec<String> = ctx.exchange(&endpoint.address()?.to_string())?;
    let open_named = |name| {
        let mut attr = av::Attr::default();
        attr.name = Some(name);
        endpoint.domain.av(&attr)
    };
    let name = names[0].clone();
    if ctx.me() == 0 {
        let own = open_named(av::SharedName::Create(name))?;
        for (index, address) in addresses.iter().enumerate() {
            let index = FiAddr(index as u64);
            same("the index", own.insert_one(&address.parse()?)?, index)?;
        }
        ctx.barrier()?;
        ctx.barrier()?;
        drop(own);
        return ctx.barrier();
    }
    ctx.barrier()?;
    let read = open_named(av::SharedName::Open(name.clone()))?;
    for (index, address) in addresses.iter().enumerate() {
        let found = read.lookup(FiAddr(index as u64));
        same("the address of an index", found, Ok(address.parse()?))?;
        let refused = read.insert_one(&address.parse()?).map_err(Errno::from);
        same(
            "an insertion by a reading process",
            refused,
            Err(Errno::Acces),
        )?;
    }
    ctx.barrier()?;
    ctx.barrier()?;
    let closed = open_named(av::SharedName::Open(name)).map_err(|error| error.errno());
    same("a vector that was closed", closed.err(), Some(Errno::NoEnt))
}

/// Until a peer is removed, completions name it by its user identifier. Posts always name it by its
/// index.
fn user_ids(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    if ctx.me() == 1 {
        for number in 0..SIZES.len() + 2 {
            ctx.barrier()?;
            let len = SIZES[number % SIZES.len()];
            endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(0, number, len)))?;
        }
        let done = endpoint.post_and_wait(Rx::msg(64))?.expect_success()?;
        return ctx.verify(0, 0, &done.bytes);
    }
    let (index, number) = (endpoint.peer(), FiAddr(0xdead_beef_0000_0001));
    let mut count = 0;
    let mut source = |ctx: &mut TestContext| -> Result<FiAddr> {
        ctx.barrier()?;
        let len = SIZES[count % SIZES.len()];
        let done = endpoint.post_and_wait(Rx::msg(len))?.expect_success()?;
        ctx.verify(1, count, &done.bytes)?;
        count += 1;
        Ok(done.src)
    };
    same("a peer without a user identifier", source(ctx)?, index)?;
    let av = endpoint.av();
    let set = av.set_user_id(index, number);
    same("setting its user identifier", set, Ok(()))?;
    for _ in SIZES {
        same("a peer with a user identifier", source(ctx)?, number)?;
    }
    let unknown_peer = av.set_user_id(FiAddr(77), number);
    same(
        "a user identifier of an unknown peer",
        unknown_peer,
        Err(Errno::Inval),
    )?;
    let invalid_id = av.set_user_id(index, FiAddr::UNSPEC);
    same("an invalid user identifier", invalid_id, Err(Errno::Inval))?;
    let address = av.lookup(index)?;
    same("removing it", av.remove(&[index]), Ok(()))?;
    same(
        "its index when it is inserted again",
        endpoint.insert(&address)?,
        index,
    )?;
    same("a peer that is inserted again", source(ctx)?, index)?;
    endpoint.run(Tx::msg(index, ctx.payload(1, 0, 64)))
}

const SIZES: [usize; 3] = [8, 300, 70_000];
