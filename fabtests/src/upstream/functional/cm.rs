//! `fi_cm_data`: the bytes that travel with requests for connections, refusals and acceptances.

use anyhow::{Context as _, bail, ensure};
use selvedge::eq::Event;
use selvedge::{Caps, EpOption, EpOptionName, Errno};
use selvedge_testkit::domain::DomainEndpoint;
use selvedge_testkit::failure::{failure, wrong};

use crate::upstream::connect::Door;
use crate::upstream::ground;
use crate::upstream::oob::OutOfBandChannel;
use crate::upstream::options::Options;
use crate::upstream::payload::Stamp;

/// The TCP port beside the fabric, if `-q` does not say which.
const BESIDE: u16 = 2710;
/// The most that is tried, however much the provider carries.
const MOST: usize = 64 << 10;

/// The program.
pub(in crate::upstream) fn cm_data(options: &Options) -> anyhow::Result<()> {
    let door = Door::open(options, Caps::MSG)?;
    let mut line = OutOfBandChannel::meet_at(options, options.number("q", BESIDE)?)?;
    match options.is_client() {
        true => client(options, &door, &mut line),
        false => serve(options, &door, &mut line),
    }
}

/// 1, 2, 4 and so on bytes, and last the most that there may be.
fn sizes(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |size| size.checked_mul(2));
    let mut sizes: Vec<_> = powers.take_while(|&size| size < most).collect();
    sizes.push(most);
    sizes
}

fn most(end: &DomainEndpoint) -> anyhow::Result<usize> {
    match end.ep.option(EpOptionName::CmDataSize) {
        Ok(EpOption::CmDataSize(most)) if most > 0 => Ok(most.min(MOST)),
        other => bail!("FI_OPT_CM_DATA_SIZE is {other:?}"),
    }
}

/// What a side says with a number of bytes.
fn words(is_client: bool, size: usize) -> Vec<u8> {
    Stamp::of_pair(is_client, size as u64).message(size)
}

fn check(data: &[u8], is_client: bool, size: usize, what: &str) -> anyhow::Result<()> {
    let stamp = Stamp::of_pair(is_client, size as u64);
    let is_right = data.len() >= size && data[size..].iter().all(|&byte| byte == 0);
    if !is_right {
        return Err(wrong(format!(
            "{what} has {} bytes, not {size}",
            data.len()
        )));
    }
    stamp.check_bytes(&data[..size]).context(what.to_owned())
}

fn client(options: &Options, door: &Door, line: &mut OutOfBandChannel) -> anyhow::Result<()> {
    let ground = ground::on(options, &*door.info.fabric()?, door.info.clone())?;
    let open = || ground.endpoint(door.plan(door.info.clone()));
    let most = most(&open()?)?;
    for size in sizes(most) {
        println!("trying with data size: {size}");
        door.patiently(|| {
            let refused = open()?;
            door.connect(&refused, &words(true, size))?;
            refusal(door, size)
        })?;
        let end = open()?;
        door.connect(&end, &words(true, size))?;
        check(&door.connected(&end)?, false, size, "the acceptance")?;
        shut_down(door, &end)?;
        line.barrier()?;
    }
    if most < MOST {
        let end = open()?;
        let cm = end.ep.cm().context("the endpoint cannot be connected")?;
        let server = door.info.dest_addr.as_ref().context("no server")?;
        let answer = cm.connect(server, &vec![0; most + 1]);
        ensure!(
            answer == Err(Errno::Inval),
            "{} bytes with a request are {answer:?}",
            most + 1
        );
    }
    Ok(())
}

fn refusal(door: &Door, size: usize) -> anyhow::Result<()> {
    // The error is read by hand, because its data counts.
    let event = door.eq.wait(Some(std::time::Duration::from_secs(60)));
    ensure!(
        matches!(event, Err(Errno::Avail)),
        "a request that is refused says {event:?}"
    );
    let error = door.eq.read_err()?;
    ensure!(
        error.errno == Errno::ConnRefused,
        "a request that is refused fails with {error:?}"
    );
    if error.data.is_empty() {
        return Err(failure(Errno::ConnRefused, "nobody listens"));
    }
    check(&error.data, false, size, "the refusal")
}

fn serve(options: &Options, door: &Door, line: &mut OutOfBandChannel) -> anyhow::Result<()> {
    let mut ground = None;
    let mut round = 0;
    loop {
        let (info, data) = door.request()?;
        let ground = match &ground {
            Some(ground) => ground,
            None => ground.insert(ground::on(options, &*info.fabric()?, info.clone())?),
        };
        // Not the endpoint of the request, which is refused, nor at the address where requests come.
        let mut other = info.clone();
        (other.handle, other.src_addr) = (0, None);
        let most = most(&ground.endpoint(door.plan(other))?)?;
        let sizes = sizes(most);
        let size = sizes[round];
        check(&data, true, size, "the first request")?;
        let pep = door.pep.as_ref().context("no passive endpoint")?;
        pep.reject(info.handle, &words(false, size))
            .context("fi_reject")?;

        let (info, data) = door.request()?;
        check(&data, true, size, "the second request")?;
        let end = ground.endpoint(door.plan(info))?;
        door.connect(&end, &words(false, size))?;
        door.connected(&end)?;
        shut_down(door, &end)?;
        // The next request may not overtake the end of this connection.
        line.barrier()?;
        round += 1;
        if round == sizes.len() {
            return Ok(());
        }
    }
}

/// Both end the connection, and both are told of the end.
fn shut_down(door: &Door, end: &DomainEndpoint) -> anyhow::Result<()> {
    let cm = end.ep.cm().context("the endpoint is not connected")?;
    match cm.shutdown() {
        // The peer may have been faster.
        Ok(()) | Err(Errno::NotConn) => {}
        Err(errno) => return Err(errno).context("fi_shutdown"),
    }
    match door.event() {
        Ok(Event::Shutdown { ep }) if std::sync::Arc::ptr_eq(&ep, &end.ep) => Ok(()),
        Ok(other) => bail!("no end of the connection, but {other:?}"),
        Err(error) => Err(error).context("waiting for the end of the connection"),
    }
}
