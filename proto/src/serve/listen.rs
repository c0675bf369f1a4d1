//! What a gRPC listener accepts: plain TCP, or TLS, behind one type.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use clap::Args;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo, TcpIncoming};

use super::tls::{Acceptor, Identity, TlsError};

/// Flags of a listener that can serve TLS.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerTls {
    /// Serve TLS with this certificate chain (PEM, leaf first); read again when the file changes.
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "FIRSTLIGHT_TLS_CERT")]
    pub tls_cert: Option<std::path::PathBuf>,
    /// Private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "FIRSTLIGHT_TLS_KEY")]
    pub tls_key: Option<std::path::PathBuf>,
    /// Mutual TLS: admit only callers whose certificate this authority signed (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "FIRSTLIGHT_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<std::path::PathBuf>,
}

impl ServerTls {
    /// What takes TLS on accepted connections; `None` without the flags.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn acceptor(&self) -> Result<Option<Acceptor>, TlsError> {
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let identity = Identity { cert: cert.clone(), key: key.clone() };
        Acceptor::new(identity, self.tls_client_ca.clone()).map(Some)
    }
}

/// A peer has this long for its TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes done whose connection the server has not taken yet.
const READY: usize = 64;

/// Accepted connections, ready for requests: without Nagle's delay, probed when idle.
///
/// Handshakes run side by side: a peer that dawdles holds up nobody else, and is dropped in the end.
pub fn incoming(
    listener: TcpListener,
    tls: Option<Acceptor>,
) -> impl Stream<Item = io::Result<Connection>> + Send + 'static {
    let mut tcp =
        TcpIncoming::from(listener).with_nodelay(Some(true)).with_keepalive(Some(Duration::from_secs(30)));
    let Some(acceptor) = tls else {
        return Either::Left(tcp.map(|accepted| accepted.map(|tcp| Connection(Either::Left(tcp)))));
    };
    let (ready, connections) = mpsc::channel(READY);
    tokio::spawn(async move {
        while let Some(accepted) = tokio::select! { next = tcp.next() => next, () = ready.closed() => None } {
            let (acceptor, ready) = (acceptor.clone(), ready.clone());
            match accepted {
                Ok(tcp) => drop(tokio::spawn(shake_hands(acceptor, tcp, ready))),
                Err(error) => drop(ready.send(Err(error)).await),
            }
        }
    });
    Either::Right(ReceiverStream::new(connections))
}

async fn shake_hands(acceptor: Acceptor, tcp: TcpStream, ready: mpsc::Sender<io::Result<Connection>>) {
    let peer = tcp.peer_addr().ok();
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await {
        // The server may have stopped meanwhile: then the connection closes here.
        Ok(Ok(tls)) => drop(ready.send(Ok(Connection(Either::Right(Box::new(tls))))).await),
        Ok(Err(error)) => tracing::debug!(?peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(?peer, limit_s = HANDSHAKE.as_secs(), "TLS handshake took too long"),
    }
}

type Tls = Box<tokio_rustls::server::TlsStream<TcpStream>>;

/// One accepted connection. It has no vectored writes: with them, h2 writes every message of 256 bytes or more (a last
/// one with its timeline) by itself; without, messages of all streams below 1 KiB leave in one write.
#[derive(Debug)]
pub struct Connection(Either<TcpStream, Tls>);

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        match &self.0 {
            Either::Left(tcp) => tcp.connect_info(),
            Either::Right(tls) => tls.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
