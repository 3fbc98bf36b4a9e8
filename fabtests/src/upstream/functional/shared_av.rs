//! `fi_rdm_shared_av`: the client makes an address vector with a name, and another process of it
//! sends to the server by an index that it finds there.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::av::SharedName;
use selvedge::info::EpType;
use selvedge::{Address, AddressVector, Caps, Errno, FiAddr, OpFlags};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Recv, Send};
use selvedge_testkit::failure::wrong;

use super::greeting::GREETING;
use crate::suite::control::RUNNER;
use crate::upstream::discover::{discover, hints};
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::{Letters, Options};

/// Its letters; `--reader` makes it the client's other process.
pub(in crate::upstream) const SHARED_AV: Letters = Letters {
    long: &["reader="],
    ..super::letters("")
};

/// The program.
pub(in crate::upstream) fn rdm_shared_av(options: &Options) -> anyhow::Result<()> {
    let mut hints = hints(options, Caps::MSG | Caps::SHARED_AV, EpType::Rdm)?;
    if options.has("reader") {
        // It has no address that anybody knows beforehand.
        hints = hints.edit(|info| info.src_addr = None);
    }
    let ground = ground::open(options, discover(options, &hints)?)?;
    if let Some(name) = options.text("reader") {
        return greet(&ground, name);
    }
    let options = super::beside(options, false);
    let mut oob = OutOfBandChannel::meet(&options)?;
    match options.is_client() {
        true => lead(&options, &ground, &mut oob)?,
        false => listen(&ground, &mut oob)?,
    }
    oob.barrier()
}

/// The server.
fn listen(ground: &Arc<DomainContext>, oob: &mut OutOfBandChannel) -> anyhow::Result<()> {
    let end = ground.endpoint(EndpointConfig::default())?;
    let room = ground.buffers(GREETING.len())?;
    let recv = Recv::new(1).flags(OpFlags::COMPLETION);
    end.recv(&[room.whole()], &recv)
        .context("posting a receive")?;
    oob.exchange(&end.name()?)?;
    super::gather(&[&end.rx], [1])?;
    let greeting = room.memory.get(0, GREETING.len());
    match greeting == GREETING {
        true => Ok(()),
        false => Err(wrong(format!("the greeting is {greeting:?}"))),
    }
}

/// The client: it has made the vector before the other process looks, and closes it afterwards.
fn lead(
    options: &Options,
    ground: &Arc<DomainContext>,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let name = format!("fi_rdm_shared_av {}", std::process::id());
    let own = ground.av_with(|attr| attr.name = Some(SharedName::Create(name.clone())))?;
    let server = oob.exchange(&Address::Str("nobody".into()).to_bytes())?;
    let server = Address::from_bytes(&server).context("the server's address is none")?;
    let index = own.insert_one(&server)?;
    ensure!(index == FiAddr(0), "the first index is {index:?}");
    let program = std::env::current_exe().context("this program's path")?;
    let status = Command::new(program)
        .args([options.program, "--reader", &name])
        .args(&options.command_line[1..])
        .env(RUNNER, std::process::id().to_string())
        .stdin(Stdio::null())
        .status()
        .context("starting the other process")?;
    ensure!(status.success(), "the other process: {status}");
    drop(own);
    let gone = ground.av_with(|attr| attr.name = Some(SharedName::Open(name)));
    ensure!(gone.is_err(), "the vector has outlived its maker");
    Ok(())
}

/// The client's other process.
fn greet(ground: &Arc<DomainContext>, name: &str) -> anyhow::Result<()> {
    let av = ground.av_with(|attr| attr.name = Some(SharedName::Open(name.to_owned())))?;
    let server = av.lookup(FiAddr(0)).context("who has the first index")?;
    let refused = av.insert_one(&server).map_err(Errno::from);
    ensure!(
        refused == Err(Errno::Acces),
        "an insertion into a vector to read: {refused:?}"
    );
    let end = ground.endpoint(EndpointConfig {
        av: Some(av as Arc<dyn AddressVector>),
        ..EndpointConfig::default()
    })?;
    say(ground, &end)
}

fn say(ground: &Arc<DomainContext>, end: &DomainEndpoint) -> anyhow::Result<()> {
    let out = ground.buffers(GREETING.len())?;
    out.memory.put(0, GREETING);
    let send = Send::new(FiAddr(0), 1).flags(OpFlags::COMPLETION | OpFlags::TRANSMIT_COMPLETE);
    end.push("send", |end| end.send(&[out.whole()], &send))?;
    super::gather(&[&end.tx], [1])
}
