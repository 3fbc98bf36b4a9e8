//! Connected endpoints, fi_cm(3).

use std::sync::Arc;

use anyhow::anyhow;
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{
    Address, Bindings, Caps, ConnectionManagement, Domain, Endpoint, EpOption, EpOptionName, Errno,
    EventQueue, Fabric, Info, PassiveEndpoint, cq,
};

use crate::suite::cx::check::{bytes as bytes_are, holds, same};
use crate::suite::cx::timeout::until;
use crate::suite::cx::{Cx, RAW, Result, Rx, Test, Tx};
use crate::suite::flaw::Flaw;

const MSG: &[EpType] = &[EpType::Msg];

tests! {
    data_both_ways(Caps::MSG) catches [LosesCmData, NeverShutsDown] .faces(RAW).ep_types(MSG);
    rejections(Caps::MSG) catches [RejectsNobody] .faces(RAW).ep_types(MSG);
    nobody_listens(Caps::MSG) catches [LosesEvents] .faces(RAW).ep_types(MSG);
    names_of_both_ends(Caps::MSG) catches [FlipsBit] .faces(RAW).ep_types(MSG);
}

/// What a connection is made with.
struct Ground {
    info: Info,
    fabric: Arc<dyn Fabric>,
    domain: Arc<dyn Domain>,
    eq: Arc<dyn EventQueue>,
}

impl Ground {
    fn open(cx: &Cx) -> Result<Self> {
        let info = cx.info_for(&cx.hints())?;
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

    fn event(&self, what: &str) -> Result<Event> {
        until(what, || match self.eq.read() {
            Ok(event) => Ok(Some(event)),
            Err(Errno::Again) => Ok(None),
            Err(Errno::Avail) => Err(anyhow!("{what}: {:?}", self.eq.read_err()?)),
            Err(errno) => Err(anyhow!("{what}: {errno}")),
        })
    }

    fn error(&self, what: &str) -> Result<eq::ErrEntry> {
        until(what, || match self.eq.read() {
            Ok(event) => Err(anyhow!("{event:?} instead of {what}")),
            Err(Errno::Again) => Ok(None),
            Err(Errno::Avail) => Ok(Some(self.eq.read_err()?)),
            Err(errno) => Err(anyhow!("{what}: {errno}")),
        })
    }

    fn request(&self) -> Result<(Box<Info>, Vec<u8>)> {
        match self.event("a request to connect")? {
            Event::ConnReq { info, data, .. } => Ok((info, data)),
            other => Err(anyhow!("{other:?} instead of a request to connect")),
        }
    }

    fn connected(&self) -> Result<Vec<u8>> {
        match self.event("the connection")? {
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

fn private(from: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + from * 100) as u8).collect()
}

/// The lengths of private data that are tried.
fn lengths(most: usize) -> Vec<usize> {
    let mut lengths = vec![0, 1, most / 2, most];
    lengths.dedup();
    lengths
}

/// Data goes with the request and with the answer, and both ends learn of a shutdown.
fn data_both_ways(cx: &mut Cx) -> Result {
    let ground = Ground::open(cx)?;
    if cx.me() == 0 {
        let pep = ground.listen()?;
        cx.tell(&pep.address()?.to_string())?;
        let count: Vec<usize> = cx.tell(&0)?;
        for _ in 0..count[1] {
            let (info, data) = ground.request()?;
            bytes_are("data of the request", &data, &private(1, data.len()))?;
            let ep = ground.endpoint(&info)?;
            cm(&ep)?.accept(&private(0, data.len()))?;
            ground.connected()?;
            let lens: Vec<usize> = cx.tell(&data.len())?;
            same("length of the data of the request", lens[0], lens[1])?;
            shut_down(cx, &ground, &ep)?;
        }
        return Ok(());
    }
    let names: Vec<String> = cx.tell(&String::new())?;
    let address: Address = names[0].parse()?;
    let most = data_size(&ground.endpoint(&ground.info)?);
    let lengths = lengths(most);
    cx.tell(&lengths.len())?;
    for &len in &lengths {
        let ep = ground.endpoint(&ground.info)?;
        let too_much = cm(&ep)?.connect(&address, &vec![0; most + 1]);
        same("a request with too much data", too_much, Err(Errno::Inval))?;
        cm(&ep)?.connect(&address, &private(1, len))?;
        let data = ground.connected()?;
        bytes_are("data of the answer", &data, &private(0, len))?;
        cx.tell(&len)?;
        shut_down(cx, &ground, &ep)?;
    }
    Ok(())
}

/// The first one ends the connection, and the second one is told.
fn shut_down(cx: &mut Cx, ground: &Ground, ep: &Arc<dyn Endpoint>) -> Result {
    if cx.me() == 0 {
        cm(ep)?.shutdown()?;
    } else {
        match ground.event("the end of the connection")? {
            Event::Shutdown { .. } => holds("the end of the connection is told", true)?,
            other => return Err(anyhow!("{other:?} instead of the end of the connection")),
        }
    }
    cx.barrier()?;
    // Whoever has ended it may be told so, too. Requests come later.
    while ground.eq.read().is_ok() {}
    cx.barrier()
}

/// A request that is rejected ends with an error that has the data of the rejection, and the next
/// one can be accepted.
fn rejections(cx: &mut Cx) -> Result {
    let ground = Ground::open(cx)?;
    if cx.me() == 0 {
        let pep = ground.listen()?;
        cx.tell(&pep.address()?.to_string())?;
        for round in 0..3 {
            let (info, _) = ground.request()?;
            pep.reject(info.handle, &private(0, round))?;
            cx.barrier()?;
        }
        let (info, _) = ground.request()?;
        let ep = ground.endpoint(&info)?;
        cm(&ep)?.accept(&[])?;
        ground.connected()?;
        return cx.barrier();
    }
    let names: Vec<String> = cx.tell(&String::new())?;
    let address: Address = names[0].parse()?;
    for round in 0..3 {
        let ep = ground.endpoint(&ground.info)?;
        let has_data = data_size(&ep) >= round;
        cm(&ep)?.connect(&address, &[])?;
        let error = ground.error("a rejection")?;
        same("the error of a rejection", error.errno, Errno::ConnRefused)?;
        if has_data {
            bytes_are("data of the rejection", &error.data, &private(0, round))?;
        }
        cx.barrier()?;
    }
    let ep = ground.endpoint(&ground.info)?;
    cm(&ep)?.connect(&address, &[])?;
    ground.connected()?;
    cx.barrier()
}

/// A request to somebody who does not listen any more ends with an error.
fn nobody_listens(cx: &mut Cx) -> Result {
    let ground = Ground::open(cx)?;
    let address = match cx.me() {
        0 => {
            let pep = ground.listen()?;
            pep.address()?.to_string()
        }
        _ => String::new(),
    };
    let names: Vec<String> = cx.tell(&address)?;
    if cx.me() == 1 {
        let ep = ground.endpoint(&ground.info)?;
        same(
            "the peer of no connection",
            cm(&ep)?.peer().err(),
            Some(Errno::NotConn),
        )?;
        let refused = cm(&ep)?.connect(&names[0].parse()?, &[]);
        match refused {
            Ok(()) => {
                let error = ground.error("a refusal")?;
                same("the error", error.errno, Errno::ConnRefused)?;
            }
            Err(errno) => same("the error", errno, Errno::ConnRefused)?,
        }
    } else {
        crate::suite::cx::check::count(0);
    }
    cx.barrier()
}

/// Both ends know each other's names, and messages go both ways.
fn names_of_both_ends(cx: &mut Cx) -> Result {
    let port = cx.port()?;
    let ep = port.ep();
    let own = ep.address()?.to_string();
    let peer = cm(&ep)?.peer()?.to_string();
    let all: Vec<(String, String)> = cx.tell(&(own, peer))?;
    same(
        "the connecting end, as the other one knows it",
        &all[0].1,
        &all[1].0,
    )?;
    let other = 1 - cx.me();
    let receive = port.post(Rx::msg(3000))?;
    port.run(Tx::msg(port.peer(), cx.payload(other, 0, 3000)))?;
    cx.verify(other, 0, &port.wait_for(receive)?.expect_success()?.bytes)
}
