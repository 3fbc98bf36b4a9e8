//! A procedure of tarpc over a Unix socket, in the format of bincode.

use futures::StreamExt as _;
use serde_bytes::ByteBuf;
use tarpc::context::{self, Context};
use tarpc::serde_transport::unix;
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_serde::formats::Bincode;

use crate::server::{Address, Requests};

#[tarpc::service]
pub(crate) trait Echo {
    async fn echo(bytes: ByteBuf) -> ByteBuf;
}

pub(crate) type Client = EchoClient;

#[derive(Clone)]
struct EchoServer(Requests);

impl Echo for EchoServer {
    async fn echo(self, _: Context, bytes: ByteBuf) -> ByteBuf {
        self.0.count();
        bytes
    }
}

/// Serves the procedure. `listening` is called when clients can connect.
pub(crate) async fn serve(
    address: Address,
    requests: Requests,
    listening: impl FnOnce(),
) -> anyhow::Result<()> {
    let mut incoming = unix::listen(address.path(), Bincode::default).await?;
    incoming.config_mut().max_frame_length(usize::MAX);
    listening();
    while let Some(transport) = incoming.next().await {
        let channel = BaseChannel::with_defaults(transport?);
        let responses = channel.execute(EchoServer(requests.clone()).serve());
        tokio::spawn(responses.for_each(|response| async {
            tokio::spawn(response);
        }));
    }
    Ok(())
}

/// Connects to the server of a peer.
pub(crate) async fn connect(peer: &Address) -> anyhow::Result<Client> {
    let mut connecting = unix::connect(peer.path(), Bincode::default);
    connecting.config_mut().max_frame_length(usize::MAX);
    let transport = connecting.await?;
    Ok(EchoClient::new(tarpc::client::Config::default(), transport).spawn())
}

pub(crate) async fn call(client: &Client, bytes: &[u8]) -> anyhow::Result<ByteBuf> {
    Ok(client
        .echo(context::current(), ByteBuf::from(bytes))
        .await?)
}
