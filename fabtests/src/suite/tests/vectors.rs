//! Address vectors, fi_av(3).

use selvedge::{Address, Caps, Errno, FiAddr, av};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::{Cx, RAW, Result, Rx, Setup, Test, Tx};
use crate::suite::flaw::Flaw;

tests! {
    indices(MSG) catches [WrongLookup, RemovesNothing, RemovesAnything] .faces(RAW).processes(3);
    no_addresses(MSG) catches [InsertsAnything] .faces(RAW).processes(1);
    removed_and_back(MSG) catches [RemovesNothing] .faces(RAW);
    late_acquaintance(DIRECTED) catches [IgnoresSource, WrongSource] .faces(RAW).processes(3);
    address_of_a_stranger(STRANGERS) catches [NoSource, HidesErrors] .faces(RAW);
    common(NAMED) catches [ForgetsNames, WrongLookup] .faces(RAW);
    numbers_of_the_application(NUMBERED) catches [ForgetsUserIds, NoSource] .faces(RAW);
}

const MSG: Caps = Caps::MSG;
const NAMED: Caps = MSG.union(Caps::SHARED_AV);
const STRANGERS: Caps = MSG.union(Caps::SOURCE).union(Caps::SOURCE_ERR);
const NUMBERED: Caps = MSG.union(Caps::SOURCE).union(Caps::AV_USER_ID);
const DIRECTED: Caps = MSG.union(Caps::SOURCE).union(Caps::DIRECTED_RECV);

/// Every index leads to the address that it is of, and none of those removed to any.
fn indices(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let own = port.address()?.to_string();
    let names: Vec<String> = cx.tell(&own)?;
    let av = port.domain.av(&av::Attr::default())?;
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
        same("the index of an address that is there", again, Ok(*index))?;
    }
    let unknown = FiAddr(indices.iter().map(|index| index.0).max().unwrap_or(0) + 1000);
    for index in [unknown, FiAddr::UNSPEC] {
        same(
            "the address of no index",
            av.lookup(index),
            Err(Errno::Inval),
        )?;
        same("removing no index", av.remove(&[index]), Err(Errno::Inval))?;
    }
    let mixed = [indices[0], unknown];
    same(
        "removing one that is there and one that is not",
        av.remove(&mixed),
        Err(Errno::Inval),
    )?;
    holds(
        "the first one is still there",
        av.lookup(indices[0]).is_ok(),
    )?;
    same("removing the second", av.remove(&[indices[1]]), Ok(()))?;
    same(
        "the address of what is removed",
        av.lookup(indices[1]),
        Err(Errno::Inval),
    )?;
    same(
        "removing it again",
        av.remove(&[indices[1]]),
        Err(Errno::Inval),
    )?;
    let back = av.insert_one(&addresses[1]);
    holds("it can be inserted again", back.is_ok())?;
    same("its address", av.lookup(back?).as_ref(), Ok(&addresses[1]))
}

/// What is no address of this kind only fails its own slot.
fn no_addresses(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let good = port.address()?;
    let bad: Address = match &good {
        Address::Str(_) => "10.1.2.3:4".parse()?,
        _ => "no address at all".parse()?,
    };
    let av = port.domain.av(&av::Attr::default())?;
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

/// A peer that is removed cannot be addressed; once it is back, it can.
fn removed_and_back(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let address = port.av().lookup(port.peer())?;
    for number in 0..cx.scale(5, 50) {
        if cx.me() == 0 {
            port.run(Tx::msg(port.peer(), cx.payload(1, 2 * number, 64)))?;
            same(
                "removing the peer",
                port.av().remove(&[port.peer()]),
                Ok(()),
            )?;
            let refused = port.try_post(Tx::msg(port.peer(), vec![0; 64]));
            holds("a send to nobody is refused", refused.is_err())?;
            let back = port.insert(&address)?;
            port.run(Tx::msg(back, cx.payload(1, 2 * number + 1, 64)))?;
            same(
                "removing it under its new index",
                port.av().remove(&[back]),
                Ok(()),
            )?;
            same("its index in the end", port.insert(&address)?, port.peer())?;
        } else {
            for number in [2 * number, 2 * number + 1] {
                let done = port.post_and_wait(Rx::msg(64))?.expect_success()?;
                cx.verify(0, number, &done.bytes)?;
            }
        }
        cx.barrier()?;
    }
    Ok(())
}

/// A message of a stranger is received without a source; once the sender is inserted, those that
/// wait are found by directed receives.
fn late_acquaintance(cx: &mut Cx) -> Result {
    let port = cx.stranger(&Setup::default())?;
    let names: Vec<String> = cx.tell(&port.address()?.to_string())?;
    if cx.me() > 0 {
        let to = port.insert(&names[0].parse()?)?;
        port.run(Tx::msg(to, cx.payload(0, 0, 64)))?;
        for _ in ["both are sent", "both are received"] {
            cx.barrier()?;
        }
        // The first one's second message has been heard before the second one's is sent.
        for process in [1, 2] {
            if cx.me() == process {
                port.run(Tx::msg(to, cx.payload(0, 1, 64)))?;
            }
            for _ in ["it is sent", "it is there"] {
                cx.barrier()?;
            }
        }
        return cx.barrier();
    }
    cx.barrier()?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let done = port.post_and_wait(Rx::msg(64))?.expect_success()?;
        same(
            "the source of a stranger's message",
            done.src,
            FiAddr::UNSPEC,
        )?;
        let (from, number) = cx.read(&done.bytes)?;
        same("its number", number, 0)?;
        seen.push(from);
    }
    seen.sort_unstable();
    same("the senders", seen, vec![1, 2])?;
    cx.barrier()?;
    for _ in [1, 2] {
        cx.barrier()?;
        port.settle()?;
        cx.barrier()?;
    }
    for process in [2, 1] {
        let index = port.insert(&names[process].parse()?)?;
        let done = port
            .post_and_wait(Rx::msg(64).from(index))?
            .expect_success()?;
        same("the source", done.src, index)?;
        cx.verify(process, 1, &done.bytes)?;
    }
    cx.barrier()
}

/// With FI_SOURCE_ERR the message of a stranger comes with its address; once that is inserted, its
/// messages come as all others.
fn address_of_a_stranger(cx: &mut Cx) -> Result {
    let port = cx.stranger(&Setup::default())?;
    let own = port.address()?.to_string();
    let names: Vec<String> = cx.tell(&own)?;
    if cx.me() == 1 {
        let to = port.insert(&names[0].parse()?)?;
        for number in 0..2 {
            port.run(Tx::msg(to, cx.payload(0, number, 64)))?;
            cx.barrier()?;
        }
        return Ok(());
    }
    let done = port.post_and_wait(Rx::msg(64))?;
    let failure = done.expect_failure("the message of a stranger", Errno::AddrNotAvail)?;
    let sender = failure.sender.as_ref().map(ToString::to_string);
    same(
        "the address of the stranger",
        sender.as_ref(),
        Some(&names[1]),
    )?;
    let index = port.insert(&names[1].parse()?)?;
    cx.barrier()?;
    let done = port.post_and_wait(Rx::msg(64))?.expect_success()?;
    same("the source of one who is known", done.src, index)?;
    cx.verify(1, 1, &done.bytes)?;
    cx.barrier()
}

/// What one process inserts into a vector with a name, another finds there at the same index.
fn common(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let names: Vec<String> = cx.tell(&format!("suite {}", std::process::id()))?;
    let addresses: Vec<String> = cx.tell(&port.address()?.to_string())?;
    let named = |name| {
        let mut attr = av::Attr::default();
        attr.name = Some(name);
        port.domain.av(&attr)
    };
    let name = names[0].clone();
    if cx.me() == 0 {
        let own = named(av::SharedName::Create(name))?;
        for (index, address) in addresses.iter().enumerate() {
            let index = FiAddr(index as u64);
            same("the index", own.insert_one(&address.parse()?)?, index)?;
        }
        cx.barrier()?;
        cx.barrier()?;
        drop(own);
        return cx.barrier();
    }
    cx.barrier()?;
    let read = named(av::SharedName::Open(name.clone()))?;
    for (index, address) in addresses.iter().enumerate() {
        let found = read.lookup(FiAddr(index as u64));
        same("the address of an index", found, Ok(address.parse()?))?;
        let refused = read.insert_one(&address.parse()?).map_err(Errno::from);
        same("an insertion by who reads", refused, Err(Errno::Acces))?;
    }
    cx.barrier()?;
    cx.barrier()?;
    let gone = named(av::SharedName::Open(name)).map_err(|error| error.errno());
    same("a vector that was closed", gone.err(), Some(Errno::NoEnt))
}

/// Completions name a peer by the number that the application gave it, and posts by its index, until
/// it is removed.
fn numbers_of_the_application(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    if cx.me() == 1 {
        for number in 0..SIZES.len() + 2 {
            cx.barrier()?;
            let len = SIZES[number % SIZES.len()];
            port.run(Tx::msg(port.peer(), cx.payload(0, number, len)))?;
        }
        let done = port.post_and_wait(Rx::msg(64))?.expect_success()?;
        return cx.verify(0, 0, &done.bytes);
    }
    let (index, number) = (port.peer(), FiAddr(0xdead_beef_0000_0001));
    let mut count = 0;
    let mut source = |cx: &mut Cx| -> Result<FiAddr> {
        cx.barrier()?;
        let len = SIZES[count % SIZES.len()];
        let done = port.post_and_wait(Rx::msg(len))?.expect_success()?;
        cx.verify(1, count, &done.bytes)?;
        count += 1;
        Ok(done.src)
    };
    same("a peer without a number", source(cx)?, index)?;
    let av = port.av();
    let given = av.set_user_id(index, number);
    same("giving it a number", given, Ok(()))?;
    for _ in SIZES {
        same("a peer with a number", source(cx)?, number)?;
    }
    let nobody = av.set_user_id(FiAddr(77), number);
    same("a number for nobody", nobody, Err(Errno::Inval))?;
    let none = av.set_user_id(index, FiAddr::UNSPEC);
    same("no number", none, Err(Errno::Inval))?;
    let address = av.lookup(index)?;
    same("removing it", av.remove(&[index]), Ok(()))?;
    same("its index when it is back", port.insert(&address)?, index)?;
    same("a peer that is back", source(cx)?, index)?;
    port.run(Tx::msg(index, cx.payload(1, 0, 64)))
}

const SIZES: [usize; 3] = [8, 300, 70_000];
