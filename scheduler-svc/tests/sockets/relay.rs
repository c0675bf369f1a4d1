//! A TCP relay between scheduler and engine, whose connections a test can cut.

use std::net::SocketAddr;

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

pub struct Relay {
    pub addr: SocketAddr,
    cuts: watch::Sender<u32>,
}

impl Relay {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let mut to = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut from, &mut to) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { addr, cuts }
    }

    /// Cuts every connection there is; new ones are let through.
    pub fn cut(&self) {
        self.cuts.send_modify(|n| *n += 1);
    }
}
