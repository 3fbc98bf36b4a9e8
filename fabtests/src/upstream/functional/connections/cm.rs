//! `fi_cm_data`: private data in connection requests, rejections and acceptances.

use anyhow::{Context as _, bail, ensure};
use selvedge::eq::Event;
use selvedge::{Caps, EpOption, EpOptionName, Errno};
use selvedge_testkit::domain::DomainEndpoint;
use selvedge_testkit::failure::{failure, wrong};

use crate::upstream::data::payload::Stamp;
use crate::upstream::options::Options;
use crate::upstream::setup::connector::Connector;
use crate::upstream::setup::domain;
use crate::upstream::setup::oob::OutOfBandChannel;

/// The default TCP port of the out-of-band connection (`-q`).
const OUT_OF_BAND_PORT: u16 = 2710;
/// The largest private data that is tested, even if the provider supports more.
const MAX_SIZE: usize = 64 << 10;

/// Runs the program: for each size of private data, the server rejects the client's first request
/// and accepts the second one.
pub(in crate::upstream) fn cm_data(options: &Options) -> anyhow::Result<()> {
    let connector = Connector::open(options, Caps::MSG)?;
    let mut oob = OutOfBandChannel::establish_at(options, options.number("q", OUT_OF_BAND_PORT)?)?;
    if options.is_client() {
        client(options, &connector, &mut oob)
    } else {
        serve(options, &connector, &mut oob)
    }
}

/// The tested sizes: the powers of two below the maximum, and the maximum.
fn sizes(max_size: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |size| size.checked_mul(2));
    let mut sizes: Vec<_> = powers.take_while(|&size| size < max_size).collect();
    sizes.push(max_size);
    sizes
}

/// The largest private data of an endpoint, limited to [`MAX_SIZE`].
fn max_size(endpoint: &DomainEndpoint) -> anyhow::Result<usize> {
    match endpoint.ep.option(EpOptionName::CmDataSize) {
        Ok(EpOption::CmDataSize(max_size)) if max_size > 0 => Ok(max_size.min(MAX_SIZE)),
        other => bail!("FI_OPT_CM_DATA_SIZE is {other:?}"),
    }
}

/// The private data of `size` bytes that the client or the server sends.
fn private_data(is_client: bool, size: usize) -> Vec<u8> {
    Stamp::of_pair(is_client, size as u64).message(size)
}

/// Checks private data that the client (`is_client`) or the server has sent. A provider may add
/// zeros behind it.
fn check(data: &[u8], is_client: bool, size: usize, name: &str) -> anyhow::Result<()> {
    let stamp = Stamp::of_pair(is_client, size as u64);
    let has_size = data.len() >= size && data[size..].iter().all(|&byte| byte == 0);
    if !has_size {
        return Err(wrong(format!(
            "{name} has {} bytes instead of {size}",
            data.len()
        )));
    }
    stamp.check_bytes(&data[..size]).context(name.to_owned())
}

fn client(
    options: &Options,
    connector: &Connector,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let domain = domain::open_on(options, &*connector.info.fabric()?, connector.info.clone())?;
    let open = || domain.endpoint(connector.endpoint_config(connector.info.clone()));
    let max_size = max_size(&open()?)?;
    for size in sizes(max_size) {
        println!("trying with data size: {size}");
        connector.retry_until_listening(|| {
            let rejected = open()?;
            connector.connect(&rejected, &private_data(true, size))?;
            expect_rejection(connector, size)
        })?;
        let endpoint = open()?;
        connector.connect(&endpoint, &private_data(true, size))?;
        check(
            &connector.wait_for_connection(&endpoint)?,
            false,
            size,
            "the data of the acceptance",
        )?;
        shut_down(connector, &endpoint)?;
        oob.barrier()?;
    }
    if max_size < MAX_SIZE {
        let endpoint = open()?;
        let cm = endpoint
            .ep
            .cm()
            .context("the endpoint cannot be connected")?;
        let server = connector
            .info
            .dest_addr
            .as_ref()
            .context("the server's address is unknown")?;
        let result = cm.connect(server, &vec![0; max_size + 1]);
        ensure!(
            result == Err(Errno::Inval),
            "fi_connect with {} bytes of data returned {result:?} instead of FI_EINVAL",
            max_size + 1
        );
    }
    Ok(())
}

/// Waits for the server's rejection and checks its private data.
///
/// # Errors
/// `FI_ECONNREFUSED` if no server listens yet, so that the caller connects again.
fn expect_rejection(connector: &Connector, size: usize) -> anyhow::Result<()> {
    // The error entry is read here, because `Connector::event` would drop its data.
    let event = connector.eq.wait(Some(std::time::Duration::from_secs(60)));
    ensure!(
        matches!(event, Err(Errno::Avail)),
        "{event:?} instead of the rejection of the request"
    );
    let error = connector.eq.read_err()?;
    ensure!(
        error.errno == Errno::ConnRefused,
        "{error:?} instead of the rejection of the request"
    );
    if error.data.is_empty() {
        return Err(failure(Errno::ConnRefused, "no server listens"));
    }
    check(&error.data, false, size, "the data of the rejection")
}

fn serve(
    options: &Options,
    connector: &Connector,
    oob: &mut OutOfBandChannel,
) -> anyhow::Result<()> {
    let mut domain = None;
    let mut round = 0;
    loop {
        let (info, data) = connector.wait_for_request()?;
        let domain = match &domain {
            Some(domain) => domain,
            None => domain.insert(domain::open_on(options, &*info.fabric()?, info.clone())?),
        };
        // The request will be rejected, so the maximum is read from another endpoint: one without
        // the request's handle and without the address at which the server listens.
        let mut unconnected = info.clone();
        (unconnected.handle, unconnected.src_addr) = (0, None);
        let max_size = max_size(&domain.endpoint(connector.endpoint_config(unconnected))?)?;
        let sizes = sizes(max_size);
        let size = sizes[round];
        check(&data, true, size, "the data of the first request")?;
        let pep = connector.pep.as_ref().context("no passive endpoint")?;
        pep.reject(info.handle, &private_data(false, size))
            .context("fi_reject")?;

        let (info, data) = connector.wait_for_request()?;
        check(&data, true, size, "the data of the second request")?;
        let endpoint = domain.endpoint(connector.endpoint_config(info))?;
        connector.connect(&endpoint, &private_data(false, size))?;
        connector.wait_for_connection(&endpoint)?;
        shut_down(connector, &endpoint)?;
        // The client must not send the next request before this connection has ended at both sides.
        oob.barrier()?;
        round += 1;
        if round == sizes.len() {
            return Ok(());
        }
    }
}

/// Shuts the connection down, as the peer does, and waits for the event that reports it.
fn shut_down(connector: &Connector, endpoint: &DomainEndpoint) -> anyhow::Result<()> {
    let cm = endpoint.ep.cm().context("the endpoint is not connected")?;
    match cm.shutdown() {
        // `NotConn`: the peer has shut the connection down already.
        Ok(()) | Err(Errno::NotConn) => {}
        Err(errno) => return Err(errno).context("fi_shutdown"),
    }
    match connector.next_event() {
        Ok(Event::Shutdown { ep }) if std::sync::Arc::ptr_eq(&ep, &endpoint.ep) => Ok(()),
        Ok(other) => bail!("{other:?} instead of the end of the connection"),
        Err(error) => Err(error).context("waiting for the end of the connection"),
    }
}
