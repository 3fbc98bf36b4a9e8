//! Connected endpoints, fi_cm(3).

use std::sync::Arc;

use anyhow::anyhow;
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Caps, ConnectionManagement, Domain, Endpoint, EpOption, EpOptionName, Errno,
    EventQueue, Fabric, Info, PassiveEndpoint, cq,
};

use crate::suite::context::check::{bytes as bytes_are, holds, same};
use crate::suite::context::timeout::until;
use crate::suite::context::{RAW, Result, Rx, Test, TestContext, Tx};
use crate::suite::defect::Defect;

const MSG: &[EpType] = &[EpType::Msg];

tests! {
    data_in_both_directions(Caps::MSG) catches [LosesCmData, NeverShutsDown] .apis(RAW).ep_types(MSG);
    rejections(Caps::MSG) catches [NeverRejects] .apis(RAW).ep_types(MSG);
    no_listener(Caps::MSG) catches [LosesEvents] .apis(RAW).ep_types(MSG);
    addresses_of_both_sides(Caps::MSG) catches [FlipsBit] .apis(RAW).ep_types(MSG);
}

/// The objects of a connection.
struct Setup {
    info: Info,
    fabric: Arc<dyn Fabric>,
    domain: Arc<dyn Domain>,
    eq: Arc<dyn EventQueue>,
}

impl Setup {
    fn open(ctx: &TestContext) -> Result<Self> {
        let info = ctx.info_for(&ctx.hints())?;
        let fabric = info.fabric()?;
        Ok(Self {
            domain: fabric.domain(&info)?,
            eq: fabric.eq(&eq::Attr::default())?,
            info,
            fabric,
        })
    }

    fn listen(&self) -> Result<Arc<dyn PassiveEndpoint>> {
        let pep = self
            .fabric
            .passive_endpoint(&self.info, Arc::clone(&self.eq))?;
        pep.listen()?;
        Ok(pep)
    }

    fn endpoint(&self, info: &Info) -> Result<Arc<dyn Endpoint>> {
        let cq = self.domain.cq(&cq::Attr::default())?;
        let av = self.domain.av(&selvedge::av::Attr::default())?;
        let mut bind = Bindings::new(cq, av);
        bind.av = None;
        bind.eq = Some(Arc::clone(&self.eq));
        Ok(self.domain.endpoint(info, bind)?)
    }

    fn wait_for_event(&self, expected: &str) -> Result<Event> {
        until(expected, || match self.eq.read() {
            Ok(event) => Ok(Some(event)),
            Err(Errno::Again) => Ok(None),
            Err(Errno::Avail) => Err(anyhow!("{expected}: {:?}", self.eq.read_err()?)),
            Err(errno) => Err(anyhow!("{expected}: {errno}")),
        })
    }

    fn wait_for_error(&self, expected: &str) -> Result<eq::ErrEntry> {
        until(expected, || match self.eq.read() {
            Ok(event) => Err(anyhow!("{event:?} instead of {expected}")),
            Err(Errno::Again) => Ok(None),
            Err(Errno::Avail) => Ok(Some(self.eq.read_err()?)),
            Err(errno) => Err(anyhow!("{expected}: {errno}")),
        })
    }

    fn wait_for_request(&self) -> Result<(Box<Info>, Vec<u8>)> {
        match self.wait_for_event("a request to connect")? {
            Event::ConnReq { info, data, .. } => Ok((info, data)),
            other => Err(anyhow!("{other:?} instead of a request to connect")),
        }
    }

    fn wait_for_connection(&self) -> Result<Vec<u8>> {
        match self.wait_for_event("the connection")? {
            Event::Connected { data, .. } => Ok(data),
            other => Err(anyhow!("{other:?} instead of the connection")),
        }
    }
}

fn cm(ep: &Arc<dyn Endpoint>) -> Result<&dyn ConnectionManagement> {
    ep.cm()
        .ok_or_else(|| anyhow!("a connected endpoint without connection management"))
}

/// Bytes of private data that a connection carries.
fn data_size(ep: &Arc<dyn Endpoint>) -> usize {
    match ep.option(EpOptionName::CmDataSize) {
        Ok(EpOption::CmDataSize(size)) => size,
        _ => 0,
    }
}

fn private_data(from: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|index| (index * 7 + from * 100) as u8)
        .collect()
}

/// Returns the lengths of private data in the test.
fn lengths(max_len: usize) -> Vec<usize> {
    let mut lengths = vec![0, 1, max_len / 2, max_len];
    lengths.dedup();
    lengths
}

/// Data is sent with the request and with the acceptance, and both sides receive a shutdown event.
fn data_in_both_directions(ctx: &mut TestContext) -> Result {
    let setup = Setup::open(ctx)?;
    if ctx.me() == 0 {
        let pep = setup.listen()?;
        ctx.exchange(&pep.address()?.to_string())?;
        let count: Vec<usize> = ctx.exchange(&0)?;
        for _ in 0..count[1] {
            let (info, data) = setup.wait_for_request()?;
            bytes_are("data of the request", &data, &private_data(1, data.len()))?;
            let ep = setup.endpoint(&info)?;
            cm(&ep)?.accept(&private_data(0, data.len()))?;
            setup.wait_for_connection()?;
            let lens: Vec<usize> = ctx.exchange(&data.len())?;
            same("length of the data of the request", lens[0], lens[1])?;
            shut_down(ctx, &setup, &ep)?;
        }
        return Ok(());
    }
    let names: Vec<String> = ctx.exchange(&String::new())?;
    let address: Address = names[0].parse()?;
    let max_len = data_size(&setup.endpoint(&setup.info)?);
    let lengths = lengths(max_len);
    ctx.exchange(&lengths.len())?;
    for &len in &lengths {
        let ep = setup.endpoint(&setup.info)?;
        let result = cm(&ep)?.connect(&address, &vec![0; max_len + 1]);
        same("a request with too much data", result, Err(Errno::Inval))?;
        cm(&ep)?.connect(&address, &private_data(1, len))?;
        let data = setup.wait_for_connection()?;
        bytes_are("data of the acceptance", &data, &private_data(0, len))?;
        ctx.exchange(&len)?;
        shut_down(ctx, &setup, &ep)?;
    }
    Ok(())
}

/// Process 0 shuts the connection down, and process 1 waits for the shutdown event.
fn shut_down(ctx: &mut TestContext, setup: &Setup, ep: &Arc<dyn Endpoint>) -> Result {
    if ctx.me() == 0 {
        cm(ep)?.shutdown()?;
    } else {
        match setup.wait_for_event("the end of the connection")? {
            Event::Shutdown { .. } => holds("the end of the connection is reported", true)?,
            other => return Err(anyhow!("{other:?} instead of the end of the connection")),
        }
    }
    ctx.barrier()?;
    // Process 0 may also have a shutdown event, which is removed. The next request follows the
    // barrier.
    while setup.eq.read().is_ok() {}
    ctx.barrier()
}

/// A rejected request ends with an error that has the data of the rejection, and the next request
/// can be accepted.
fn rejections(ctx: &mut TestContext) -> Result {
    let setup = Setup::open(ctx)?;
    if ctx.me() == 0 {
        let pep = setup.listen()?;
        ctx.exchange(&pep.address()?.to_string())?;
        for round in 0..3 {
            let (info, _) = setup.wait_for_request()?;
            pep.reject(info.handle, &private_data(0, round))?;
            ctx.barrier()?;
        }
        let (info, _) = setup.wait_for_request()?;
        let ep = setup.endpoint(&info)?;
        cm(&ep)?.accept(&[])?;
        setup.wait_for_connection()?;
        return ctx.barrier();
    }
    let names: Vec<String> = ctx.exchange(&String::new())?;
    let address: Address = names[0].parse()?;
    for round in 0..3 {
        let ep = setup.endpoint(&setup.info)?;
        let has_data = data_size(&ep) >= round;
        cm(&ep)?.connect(&address, &[])?;
        let error = setup.wait_for_error("a rejection")?;
        same("the error of a rejection", error.errno, Errno::ConnRefused)?;
        if has_data {
            bytes_are(
                "data of the rejection",
                &error.data,
                &private_data(0, round),
            )?;
        }
        ctx.barrier()?;
    }
    let ep = setup.endpoint(&setup.info)?;
    cm(&ep)?.connect(&address, &[])?;
    setup.wait_for_connection()?;
    ctx.barrier()
}

/// A request to an endpoint that no longer listens ends with an error.
fn no_listener(ctx: &mut TestContext) -> Result {
    let setup = Setup::open(ctx)?;
    let address = match ctx.me() {
        0 => {
            let pep = setup.listen()?;
            pep.address()?.to_string()
        }
        _ => String::new(),
    };
    let names: Vec<String> = ctx.exchange(&address)?;
    if ctx.me() == 1 {
        let ep = setup.endpoint(&setup.info)?;
        same(
            "the peer of an unconnected endpoint",
            cm(&ep)?.peer().err(),
            Some(Errno::NotConn),
        )?;
        let refused = cm(&ep)?.connect(&names[0].parse()?, &[]);
        match refused {
            Ok(()) => {
                let error = setup.wait_for_error("a refusal")?;
                same("the error", error.errno, Errno::ConnRefused)?;
            }
            Err(errno) => same("the error", errno, Errno::ConnRefused)?,
        }
    } else {
        crate::suite::context::check::count(0);
    }
    ctx.barrier()
}

/// Each side reports the other side's address, and messages are sent in both directions.
fn addresses_of_both_sides(ctx: &mut TestContext) -> Result {
    let endpoint = ctx.open_endpoint()?;
    let ep = endpoint.ep();
    let address = ep.address()?.to_string();
    let peer = cm(&ep)?.peer()?.to_string();
    let all: Vec<(String, String)> = ctx.exchange(&(address, peer))?;
    same(
        "the address of the connecting side at the other side",
        &all[0].1,
        &all[1].0,
    )?;
    let other = 1 - ctx.me();
    let receive = endpoint.post(Rx::msg(3000))?;
    endpoint.run(Tx::msg(endpoint.peer(), ctx.payload(other, 0, 3000)))?;
    ctx.verify(
        other,
        0,
        &endpoint.wait_for(receive)?.expect_success()?.bytes,
    )
}
