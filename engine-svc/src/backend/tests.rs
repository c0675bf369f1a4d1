use super::*;

fn model() -> ModelInfo {
    ModelInfo {
        name: "m".into(),
        architecture: "sim".into(),
        dtype: "bf16".into(),
        backend: "sim",
        tokenizer_hash: String::new(),
        device: "sim".into(),
        vocab_size: 100,
        context_length: 64,
        eos_ids: vec![2],
        weight_bytes: 0,
        threads: 1,
    }
}

const KV: KvGeometry = KvGeometry { block_tokens: 16, blocks: 8, block_bytes: 0 };

fn check(tokens: &[u32], start: usize, blocks: &[u32]) -> Result<(), ChunkError> {
    Chunk { tokens, start, blocks, sample: None }.check(&model(), KV)
}

#[test]
fn a_chunk_within_its_table_and_the_context_passes() {
    assert_eq!(check(&[1, 99], 30, &[7, 0]), Ok(()));
    assert_eq!(check(&[1], 63, &[1, 2, 3, 4]), Ok(()));
}

#[test]
fn each_broken_rule_is_named() {
    assert_eq!(check(&[], 0, &[0]), Err(ChunkError::Empty));
    assert_eq!(check(&[100], 0, &[0]), Err(ChunkError::UnknownToken { token: 100, vocab_size: 100 }));
    assert_eq!(check(&[1, 2], 31, &[0, 1]), Err(ChunkError::TableTooShort { have: 2, need: 3 }));
    assert_eq!(check(&[1], 16, &[0, 8]), Err(ChunkError::BlockOutsidePool { block: 8, blocks: 8 }));
    let beyond = ChunkError::BeyondContext { start: 64, tokens: 1, context: 64 };
    assert_eq!(check(&[1], 64, &[0; 8]), Err(beyond));
    assert!(matches!(check(&[1], usize::MAX, &[0]), Err(ChunkError::BeyondContext { .. })));
}

#[test]
fn blocks_beyond_the_chunk_are_not_looked_at() {
    assert_eq!(check(&[1], 0, &[0, 1_000_000]), Ok(()));
}
