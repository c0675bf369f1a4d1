//! Opening connections to a gRPC service, in the clear or over TLS.

use std::io;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use tonic::transport::Uri;

use super::tls::Dialer;

/// One opened connection, as hyper wants it.
pub type Opened = TokioIo<Either<TcpStream, TlsStream<TcpStream>>>;

/// What opens the connections of an `Endpoint` with scheme `http`: for
/// `Endpoint::connect_with_connector` and its lazy twin. With `tls`, every (re)connect takes the TLS
/// files as they are then.
pub fn connector(
    tls: Option<Dialer>,
) -> impl tower::Service<
    Uri,
    Response = Opened,
    Error = io::Error,
    Future = impl Future<Output = io::Result<Opened>> + Send,
> + Clone
+ Send
+ 'static {
    tower::service_fn(move |uri: Uri| open(uri, tls.clone()))
}

async fn open(uri: Uri, tls: Option<Dialer>) -> io::Result<Opened> {
    let (Some(host), Some(port)) = (uri.host(), uri.port_u16()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{uri}: needs host:port")));
    };
    let tcp = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    tcp.set_nodelay(true)?;
    Ok(TokioIo::new(match tls {
        Some(dialer) => Either::Right(dialer.connect(host, tcp).await?),
        None => Either::Left(tcp),
    }))
}
