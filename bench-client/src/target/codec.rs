//! A gRPC codec that stamps messages where they enter and leave the transport: no task switch, no
//! channel and no other stream's work lies between the bytes and the stamp.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use firstlight_proto::clock::{Clock, Stamp};
use prost::Message;
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// A message and when it was decoded.
#[derive(Clone, Debug)]
pub struct Stamped<T> {
    /// When its bytes were decoded.
    pub at: Stamp,
    /// The message.
    pub message: T,
}

/// Prost's codec with a stamp on each decoded message and one on the encoded request.
#[derive(Clone, Debug)]
pub struct StampedCodec<E, D> {
    clock: Clock,
    encoded: Encoded,
    inner: ProstCodec<E, D>,
}

/// When the transport asked for the request's bytes.
#[derive(Clone, Debug, Default)]
pub struct Encoded(Arc<AtomicI64>);

impl Encoded {
    /// The stamp, once there is one.
    pub fn stamp(&self) -> Option<Stamp> {
        Stamp::from_wire(self.0.load(Ordering::Relaxed))
    }
}

impl<E, D> StampedCodec<E, D> {
    /// A codec for one call, which reads `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, encoded: Encoded::default(), inner: ProstCodec::default() }
    }

    /// Tells when the request was encoded.
    pub fn encoded(&self) -> Encoded {
        self.encoded.clone()
    }
}

impl<E, D> Codec for StampedCodec<E, D>
where
    E: Message + Send + 'static,
    D: Message + Default + Send + 'static,
{
    type Encode = E;
    type Decode = Stamped<D>;
    type Encoder = StampingEncoder<E>;
    type Decoder = StampingDecoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        StampingEncoder { clock: self.clock, encoded: self.encoded.clone(), inner: self.inner.encoder() }
    }

    fn decoder(&mut self) -> Self::Decoder {
        StampingDecoder { clock: self.clock, inner: self.inner.decoder() }
    }
}

/// Encodes requests; see [`StampedCodec`].
#[derive(Debug)]
pub struct StampingEncoder<T> {
    clock: Clock,
    encoded: Encoded,
    inner: ProstEncoder<T>,
}

impl<T: Message> Encoder for StampingEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        self.encoded.0.store(self.clock.now().ns(), Ordering::Relaxed);
        self.inner.encode(item, buf)
    }
}

/// Decodes responses; see [`StampedCodec`].
#[derive(Debug)]
pub struct StampingDecoder<T> {
    clock: Clock,
    inner: ProstDecoder<T>,
}

impl<T: Message + Default> Decoder for StampingDecoder<T> {
    type Item = Stamped<T>;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<Stamped<T>>, Status> {
        let at = self.clock.now();
        Ok(self.inner.decode(buf)?.map(|message| Stamped { at, message }))
    }
}
