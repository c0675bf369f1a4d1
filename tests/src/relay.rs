//! A way between two processes that a test can cut, and that can be long.

use std::time::Duration;

use firstlight_proto::clock::{Clock, Stamp};
use tokio::{
    io::{self, AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{broadcast, mpsc},
    task::JoinHandle,
};

use crate::service::free_address;

/// A TCP relay on loopback. New connections pass until it is dropped; [`Relay::cut`] ends those that are open.
pub struct Relay {
    /// Where it listens.
    pub address: String,
    cuts: broadcast::Sender<()>,
    accepting: JoinHandle<()>,
}

/// How long each direction takes.
#[derive(Clone, Copy, Default)]
pub struct Ways {
    /// Towards the target.
    pub there: Way,
    /// Back.
    pub back: Way,
}

/// How long one direction takes: at least `delay`, at most `delay + jitter`. Bytes stay in order.
#[derive(Clone, Copy, Default)]
pub struct Way {
    /// What every byte takes.
    pub delay: Duration,
    /// What it may take on top, evenly spread.
    pub jitter: Duration,
}

impl Way {
    /// A way in milliseconds.
    pub const fn ms(delay: u64, jitter: u64) -> Self {
        Self { delay: Duration::from_millis(delay), jitter: Duration::from_millis(jitter) }
    }
}

impl Relay {
    /// Relays to `target`, which need not be there yet.
    ///
    /// # Panics
    /// When it cannot listen.
    pub async fn to(target: &str) -> Self {
        Self::along(target, Ways::default()).await
    }

    /// Relays to `target` along `ways`.
    ///
    /// # Panics
    /// When it cannot listen.
    pub async fn along(target: &str, ways: Ways) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(&address).await.expect("listener of a relay");
        let (cuts, _) = broadcast::channel(1);
        let accepting = tokio::spawn(accept(listener, target.to_owned(), ways, cuts.clone()));
        Self { address, cuts, accepting }
    }

    /// Ends every open connection, both ways, and returns how many there were.
    pub fn cut(&self) -> usize {
        self.cuts.send(()).unwrap_or(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: String, ways: Ways, cuts: broadcast::Sender<()>) {
    while let Ok((near, _)) = listener.accept().await {
        let (target, mut cut) = (target.clone(), cuts.subscribe());
        tokio::spawn(async move {
            // An end of either side, or a cut, ends both.
            tokio::select! { _ = relay(near, &target, ways) => {} _ = cut.recv() => {} }
        });
    }
}

async fn relay(near: TcpStream, target: &str, ways: Ways) -> io::Result<()> {
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::try_join!(carry(near_in, far_out, ways.there), carry(far_in, near_out, ways.back))?;
    Ok(())
}

/// Carries bytes one way: each piece is held for its time while later ones are already read.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way) -> io::Result<()> {
    let clock = Clock::new();
    let (held, mut due) = mpsc::unbounded_channel::<(Stamp, Vec<u8>)>();
    let read = async move {
        let mut last = clock.now();
        loop {
            let mut piece = vec![0; 64 * 1024];
            let length = from.read(&mut piece).await?;
            piece.truncate(length);
            last = last.max(clock.now() + way.delay + way.jitter.mul_f64(noise()));
            if length == 0 || held.send((last, piece)).is_err() {
                return Ok::<_, io::Error>(());
            }
        }
    };
    let write = async move {
        while let Some((at, piece)) = due.recv().await {
            let left = clock.until(at);
            if !left.is_zero() {
                tokio::time::sleep(left).await;
            }
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write)?;
    Ok(())
}

/// In [0, 1).
fn noise() -> f64 {
    f64::from(uuid::Uuid::now_v7().as_u64_pair().1 as u32) / f64::from(u32::MAX)
}
