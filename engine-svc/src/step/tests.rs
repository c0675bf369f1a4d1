//! The loop with both ends of its streams in hand: moments that no socket can time.

use firstlight_proto::{inject::loss::Share, v1::engine_message::Message};
use firstlight_sim::cost::CostModel;
use tonic::Code;

use super::{
    outgoing::{CAPACITY, Incoming},
    *,
};
use crate::{
    backend::{
        KvGeometry,
        sim::{SimBackend, SimConfig},
    },
    service::validate::{self, Bounds},
};

const KV: KvGeometry = KvGeometry { block_tokens: 16, blocks: 256, block_bytes: 0 };
const BOUNDS: Bounds =
    Bounds { vocab_size: 1000, context_length: 4096, kv_blocks: 256, block_tokens: 16, mixed: false };

struct Engine {
    clock: Clock,
    step: StepHandle,
}

impl Engine {
    async fn start() -> Self {
        let clock = Clock::new();
        let limits = Limits { max_batch_size: 8, step_prefill_tokens: 64, decode_first: false };
        let config = StepConfig {
            clock,
            hello: v1::Hello::default(),
            shape: Shape { max_sequences: 64, ..Shape::default() },
            limits,
            stall_limit: std::time::Duration::from_secs(30),
            injections: Injections::default(),
            tells: true,
            spans: Arc::new(SpanHub::losing(Share::default())),
            counts: LiveCounts::default(),
            blocked: LiveBlocked::default(),
        };
        let backend = SimBackend::new(SimConfig {
            model_name: "sim".into(),
            vocab_size: BOUNDS.vocab_size,
            context_length: BOUNDS.context_length,
            eos_id: 2,
            eos_one_in: 0,
            kv: KV,
            cost: CostModel::free(),
        });
        let (step, _) = start(config, Box::new(backend)).await.unwrap();
        Self { clock, step }
    }

    /// A stream that the loop has greeted.
    async fn attach(&self, key: u64) -> Incoming {
        let (outgoing, mut incoming) = outgoing::channel();
        self.step.send(Command::Attach { key: AttachmentKey(key), outgoing, limits: None });
        assert!(matches!(incoming.messages.recv().await, Some((_, Message::Hello(_)))));
        incoming
    }

    fn admit(&self, key: u64, seq: u64, sequences: impl IntoIterator<Item = v1::Sequence>) {
        let checked = sequences.into_iter().map(|sequence| validate::sequence(sequence, &BOUNDS));
        let (key, received) = (AttachmentKey(key), self.clock.now());
        self.step.send(Command::Admit { key, seq, received, sequences: checked.collect() });
    }

    /// Whoever is attached gets all its tokens, and nothing of anyone else is left.
    async fn serves(&self, key: u64, mut incoming: Incoming) {
        self.admit(key, 1, [good(1)]);
        let mut tokens = 0;
        while tokens < 20 {
            let (_, message) = incoming.messages.recv().await.expect("the loop goes on");
            if let Message::Step(step) = message {
                tokens += step.handles.len();
            }
        }
        let rest = self.step.snapshot().await.expect("the loop goes on");
        assert_eq!((rest.active, rest.inbox, rest.attachments), (0, 0, 1));
        assert_eq!((rest.free_blocks, rest.integrity), (rest.total_blocks, None));
    }
}

/// Twenty tokens.
fn good(handle: u32) -> v1::Sequence {
    v1::Sequence { handle, token_ids: vec![5; 10], max_new_tokens: 20, ..v1::Sequence::default() }
}

/// It has no prompt.
fn bad(handle: u32) -> v1::Sequence {
    v1::Sequence { token_ids: vec![], ..good(handle) }
}

#[tokio::test]
async fn a_stream_that_is_gone_when_its_batch_begins_ends_alone() {
    let engine = Engine::start().await;
    let other = engine.attach(1).await;
    drop(engine.attach(2).await);
    engine.admit(2, 1, [good(1), good(2)]);
    engine.serves(1, other).await;
}

#[tokio::test]
async fn a_stream_that_is_gone_when_part_of_its_batch_is_rejected_ends_alone() {
    let engine = Engine::start().await;
    let other = engine.attach(1).await;
    drop(engine.attach(2).await);
    engine.admit(2, 1, [good(1), bad(2), good(3)]);
    engine.serves(1, other).await;
}

#[tokio::test]
async fn more_rejections_than_a_stream_can_buffer_end_that_stream_alone() {
    let engine = Engine::start().await;
    let other = engine.attach(1).await;
    let mut deaf = engine.attach(2).await;
    let handles = 2..2 * CAPACITY as u32;
    engine.admit(2, 1, [good(1)].into_iter().chain(handles.map(bad)));
    engine.serves(1, other).await;
    let mut read = 0;
    while let Some((_, message)) = deaf.messages.recv().await {
        assert!(matches!(message, Message::Rejected(_)), "{message:?} behind a message that was lost");
        read += 1;
    }
    assert_eq!(read, CAPACITY);
    assert_eq!(deaf.status.get().map(tonic::Status::code), Some(Code::ResourceExhausted));
}

#[tokio::test]
async fn what_arrives_while_the_loop_looks_for_work_is_not_slept_on() {
    let engine = Engine::start().await;
    let mut incoming = engine.attach(1).await;
    let limits = Limits { max_batch_size: 8, step_prefill_tokens: 64, decode_first: false };
    for seq in 1..=5_000_u32 {
        // The loop wakes for limits, which are no work, and finds the batch at any moment after that.
        engine.step.send(Command::SetLimits(limits));
        (0..seq % 512 * 8).for_each(|_| std::hint::spin_loop());
        engine.admit(1, seq.into(), [v1::Sequence { max_new_tokens: 1, ..good(seq) }]);
        let token = async {
            loop {
                let (_, message) = incoming.messages.recv().await.expect("the loop goes on");
                if matches!(message, Message::Step(step) if !step.handles.is_empty()) {
                    break;
                }
            }
        };
        let within = std::time::Duration::from_secs(10);
        tokio::time::timeout(within, token).await.expect("a batch in the inbox of a loop that sleeps");
    }
}
