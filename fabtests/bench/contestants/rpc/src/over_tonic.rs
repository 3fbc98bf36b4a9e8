//! A unary call of tonic over a Unix socket, with messages that are the bytes themselves.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{self, Poll};

use bytes::{Buf as _, BufMut as _, Bytes};
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tower::Service;

use crate::server::{Address, Requests};

const PATH: &str = "/selvedge.Echo/Echo";

pub(crate) type Client = tonic::client::Grpc<Channel>;

/// The bytes of a message as they are.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The service, as tonic's generated code would have it.
#[derive(Clone, Debug)]
struct Echo(Requests);

impl NamedService for Echo {
    const NAME: &'static str = "selvedge.Echo";
}

impl UnaryService<Bytes> for Echo {
    type Response = Bytes;
    type Future = Ready<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0.count();
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<http::Request<tonic::body::Body>> for Echo {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut task::Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            let mut grpc = tonic::server::Grpc::new(Raw)
                .max_decoding_message_size(usize::MAX)
                .max_encoding_message_size(usize::MAX);
            Ok(grpc.unary(method, request).await)
        })
    }
}

/// Serves the procedure. `listening` is called when clients can connect.
pub(crate) async fn serve(
    address: Address,
    requests: Requests,
    listening: impl FnOnce(),
) -> anyhow::Result<()> {
    let incoming = UnixListenerStream::new(UnixListener::bind(address.path())?);
    listening();
    let server = Server::builder().add_service(Echo(requests));
    Ok(server.serve_with_incoming(incoming).await?)
}

/// Connects to the server of a peer.
pub(crate) async fn connect(peer: &Address) -> anyhow::Result<Client> {
    let path = peer.path();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(tonic::client::Grpc::new(channel)
        .max_decoding_message_size(usize::MAX)
        .max_encoding_message_size(usize::MAX))
}

pub(crate) async fn call(client: &mut Client, bytes: &[u8]) -> anyhow::Result<Bytes> {
    client.ready().await?;
    let request = Request::new(Bytes::copy_from_slice(bytes));
    let response = client.unary(request, PathAndQuery::from_static(PATH), Raw);
    Ok(response.await?.into_inner())
}
