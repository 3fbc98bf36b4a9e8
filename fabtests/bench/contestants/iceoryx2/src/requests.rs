//! Requests and responses of one run: the passive side's server, and the active side's client.

use anyhow::ensure;
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::{PortFactory as _, ipc};
use selvedge_bench::fabric::{BenchOrder, ends};
use selvedge_bench::pair::Side;

use crate::ports::{Participant, wait_for, wait_until};

/// The side of one run.
#[derive(Debug)]
pub(crate) enum Requests {
    Client(Client<ipc::Service, [u8], (), [u8], ()>),
    Server(Server<ipc::Service, [u8], (), [u8], ()>),
}

impl Requests {
    /// Opens the side for a run, and waits until the peer has opened its own.
    pub(crate) fn open(
        participant: &Participant,
        peer: &str,
        (side, run): (Side, u64),
        order: BenchOrder,
    ) -> anyhow::Result<Self> {
        let len = order.size.max(1);
        if side == Side::Passive {
            let service = participant.requests(participant.name(), run)?.create()?;
            let server = service
                .server_builder()
                .initial_max_slice_len(len)
                .create()?;
            wait_for("the peer's client", || {
                let clients = service.dynamic_config().number_of_clients();
                Ok((clients == 1).then_some(()))
            })?;
            return Ok(Self::Server(server));
        }
        let service = wait_for("the peer's service", || {
            Ok(participant.requests(peer, run)?.open().ok())
        })?;
        let client = service
            .client_builder()
            .initial_max_slice_len(len)
            .create()?;
        wait_for("the peer's server", || {
            let servers = service.dynamic_config().number_of_servers();
            Ok((servers == 1).then_some(()))
        })?;
        Ok(Self::Client(client))
    }

    /// One request and its response.
    #[inline]
    pub(crate) fn exchange(&self, len: usize, number: u64) -> anyhow::Result<()> {
        match self {
            Self::Client(client) => request(client, len, number),
            Self::Server(server) => {
                let request = wait_until(|| Ok(server.receive()?))?;
                let received = request.payload().len();
                ensure!(
                    received == len,
                    "a request of {received} bytes, not of {len}"
                );
                ends::check(request.payload(), number)?;
                respond(&request, len, number)
            }
        }
    }
}

#[inline]
#[expect(
    unsafe_code,
    reason = "a request that is filled completely would be a copy"
)]
fn request(
    client: &Client<ipc::Service, [u8], (), [u8], ()>,
    len: usize,
    number: u64,
) -> anyhow::Result<()> {
    let request = client.loan_slice_uninit(len)?;
    // SAFETY: a request is a `u8` slice in memory that the client has mapped: the kernel has filled
    // its pages with zeros, and bytes of earlier requests are bytes as well.
    let mut request = unsafe { request.assume_init() };
    ends::write(request.payload_mut(), number);
    let pending = request.send()?;
    let response = wait_until(|| Ok(pending.receive()?))?;
    let received = response.payload().len();
    ensure!(
        received == len,
        "a response of {received} bytes, not of {len}"
    );
    ends::check(response.payload(), number)
}

#[inline]
#[expect(
    unsafe_code,
    reason = "a response that is filled completely would be a copy"
)]
fn respond(
    request: &ActiveRequest<ipc::Service, [u8], (), [u8], ()>,
    len: usize,
    number: u64,
) -> anyhow::Result<()> {
    let response = request.loan_slice_uninit(len)?;
    // SAFETY: as in `request`, for memory that the server has mapped.
    let mut response = unsafe { response.assume_init() };
    ends::write(response.payload_mut(), number);
    Ok(response.send()?)
}
