//! `fi_rdm_shared_av`: the client creates a named address vector, and a second client process, the
//! reader, opens the vector and sends to the server by an index of the vector.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use selvedge::av::SharedName;
use selvedge::info::EpType;
use selvedge::{Address, AddressVector, Caps, Errno, FiAddr, OpFlags};
use selvedge_testkit::domain::{DomainContext, DomainEndpoint, EndpointConfig, Recv, Send};
use selvedge_testkit::failure::wrong;

use crate::suite::control::RUNNER;
use crate::upstream::functional::messages::greeting::GREETING;
use crate::upstream::options::{OptionSet, Options};
use crate::upstream::setup::discover::{discover, hints};
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The options of the program; `--reader` selects the role of the reader.
pub(in crate::upstream) const SHARED_AV: OptionSet = OptionSet {
    long: &["reader="],
    ..crate::upstream::functional::option_set("")
};

/// Runs the program.
pub(in crate::upstream) fn rdm_shared_av(options: &Options) -> anyhow::Result<()> {
    let mut hints = hints(options, Caps::MSG | Caps::SHARED_AV, EpType::Rdm)?;
    if options.has("reader") {
        // The reader has no address that is known in advance.
        hints = hints.edit(|info| info.src_addr = None);
    }
    let domain = domain::open(options, discover(options, &hints)?)?;
    if let Some(name) = options.text("reader") {
        return run_reader(&domain, name);
    }
    let options = crate::upstream::functional::with_out_of_band(options, false);
    let mut oob = OutOfBandChannel::establish(&options)?;
    if options.is_client() {
        run_client(&options, &domain, &mut oob)?
    } else {
        run_server(&domain, &mut oob)?
    }
    oob.barrier()
}

/// Runs the server.
fn run_server(domain: &Arc<DomainContext>, oob: &mut OutOfBandChannel) -> anyhow::Result<()> {
    let endpoint = domain.endpoint(EndpointConfig::default())?;
    let received = domain.buffers(GREETING.len())?;
    let recv = Recv::new(1).flags(OpFlags::COMPLETION);
    endpoint
        .recv(&[received.whole()], &recv)
        .context("cannot post a receive")?;
    oob.exchange(&endpoint.name()?)?;
    crate::upstream::functional::wait_for_all(&[&endpoint.rx], [1])?;
    let greeting = received.memory.get(0, GREETING.len());
    if greeting == GREETING {
        Ok(())
    } else {
        Err(wrong(format!(
            "received the greeting {greeting:?}, expected {GREETING:?}"
        )))
    }
}

/// Runs the client: creates the address vector before the reader opens it, and closes it
/// afterwards.
fn run_client(
    options: &Options,
    domain: &Arc<DomainContext>,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let name = format!("fi_rdm_shared_av {}", std::process::id());
    let created = domain.av_with(|attr| attr.name = Some(SharedName::Create(name.clone())))?;
    let server = oob.exchange(&Address::Str("client".into()).to_bytes())?;
    let server = Address::from_bytes(&server).context("the server's address is invalid")?;
    let index = created.insert_one(&server)?;
    ensure!(
        index == FiAddr(0),
        "the first inserted address has index {index:?}, expected 0"
    );
    let program = std::env::current_exe().context("cannot find this program's path")?;
    let status = Command::new(program)
        .args([options.program, "--reader", &name])
        .args(&options.command_line[1..])
        .env(RUNNER, std::process::id().to_string())
        .stdin(Stdio::null())
        .status()
        .context("cannot start the reader process")?;
    ensure!(status.success(), "the reader process ended with {status}");
    drop(created);
    let reopened = domain.av_with(|attr| attr.name = Some(SharedName::Open(name)));
    ensure!(
        reopened.is_err(),
        "the named address vector can be opened after its creator has closed it"
    );
    Ok(())
}

/// Runs the reader.
fn run_reader(domain: &Arc<DomainContext>, name: &str) -> anyhow::Result<()> {
    let av = domain.av_with(|attr| attr.name = Some(SharedName::Open(name.to_owned())))?;
    let server = av
        .lookup(FiAddr(0))
        .context("cannot look up the address at index 0")?;
    let refused = av.insert_one(&server).map_err(Errno::from);
    ensure!(
        refused == Err(Errno::Acces),
        "inserting into a read-only address vector returns {refused:?}, expected FI_EACCES"
    );
    let endpoint = domain.endpoint(EndpointConfig {
        av: Some(av as Arc<dyn AddressVector>),
        ..EndpointConfig::default()
    })?;
    send_greeting(domain, &endpoint)
}

fn send_greeting(domain: &Arc<DomainContext>, endpoint: &DomainEndpoint) -> anyhow::Result<()> {
    let sent = domain.buffers(GREETING.len())?;
    sent.memory.put(0, GREETING);
    let send = Send::new(FiAddr(0), 1).flags(OpFlags::COMPLETION | OpFlags::TRANSMIT_COMPLETE);
    endpoint.push("send", |endpoint| endpoint.send(&[sent.whole()], &send))?;
    crate::upstream::functional::wait_for_all(&[&endpoint.tx], [1])
}
