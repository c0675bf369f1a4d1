//! Which sequences can run on this engine. Checked when they arrive, so that nothing past this point can be wrong.

use firstlight_proto::{error::Failure, v1};
use firstlight_sim::planner::{Limits, NewSequence};

use crate::{
    backend::{KvGeometry, ModelInfo},
    sample::Sampling,
    step::Admission,
};

/// What a sequence has to fit into.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Token ids are below this.
    pub vocab_size: usize,
    /// Longest prompt plus output, in tokens.
    pub context_length: usize,
    /// KV blocks in the pool.
    pub kv_blocks: usize,
    /// Positions per block.
    pub block_tokens: usize,
    /// Prompt and decode rows share forwards.
    pub mixed: bool,
}

impl Bounds {
    /// The bounds of a loaded model.
    pub fn new(model: &ModelInfo, kv: KvGeometry, mixed: bool) -> Self {
        Self {
            vocab_size: model.vocab_size,
            context_length: model.context_length,
            kv_blocks: kv.blocks,
            block_tokens: kv.block_tokens,
            mixed,
        }
    }
}

/// Turns a sequence from the wire into what the step loop takes.
///
/// # Errors
/// The handle, and the first thing that is wrong.
pub fn sequence(sequence: v1::Sequence, bounds: &Bounds) -> Result<(Admission, NewSequence), (u32, Failure)> {
    let handle = sequence.handle;
    check(&sequence, bounds).and_then(|()| convert(sequence)).map_err(|failure| (handle, failure))
}

/// Turns limits from the wire into the planner's. Mixed forwards have no decode to put first: `decode_first` is off
/// with them, whoever asks for it.
///
/// # Errors
/// The first limit out of range.
pub fn limits(limits: v1::SetLimits, bounds: &Bounds) -> Result<Limits, Failure> {
    at_least_one("max_batch_size", limits.max_batch_size)?;
    at_least_one("step_prefill_tokens", limits.step_prefill_tokens)?;
    Ok(Limits {
        max_batch_size: limits.max_batch_size as usize,
        step_prefill_tokens: limits.step_prefill_tokens as usize,
        decode_first: limits.decode_first && !bounds.mixed,
    })
}

fn check(sequence: &v1::Sequence, bounds: &Bounds) -> Result<(), Failure> {
    let prompt = sequence.token_ids.len();
    if prompt == 0 {
        return Err(Failure::Invalid { field: "token_ids", reason: "the prompt is empty".to_owned() });
    }
    if sequence.resumed_tokens as usize >= prompt {
        let reason = format!("{} of {prompt} tokens; at least one is prompt", sequence.resumed_tokens);
        return Err(Failure::Invalid { field: "resumed_tokens", reason });
    }
    at_least_one("max_new_tokens", sequence.max_new_tokens)?;
    let total = prompt as u64 + u64::from(sequence.max_new_tokens);
    fits("context_length", bounds.context_length as u64, total)?;
    // The last token is returned without computing its keys and values.
    let blocks = (total - 1).div_ceil(bounds.block_tokens as u64);
    fits("kv_blocks", bounds.kv_blocks as u64, blocks)?;
    match sequence.token_ids.iter().find(|&&id| id as usize >= bounds.vocab_size) {
        Some(id) => {
            let reason = format!("{id} is outside the vocabulary of {}", bounds.vocab_size);
            Err(Failure::Invalid { field: "token_ids", reason })
        }
        None => Ok(()),
    }
}

fn convert(sequence: v1::Sequence) -> Result<(Admission, NewSequence), Failure> {
    let wire = sequence.sampling.unwrap_or_default();
    // On the wire 0 means "all", as an unset field does.
    let top_p = if wire.top_p == 0.0 { 1.0 } else { wire.top_p };
    let seed = wire.seed.unwrap_or_default();
    let sampling = Sampling::new(wire.temperature, wire.top_k, top_p, wire.min_p, seed)
        .map_err(|e| Failure::Invalid { field: e.field, reason: format!("must be {}", e.range) })?;
    let new = NewSequence {
        tokens: sequence.token_ids,
        max_new_tokens: sequence.max_new_tokens as usize,
        stop_token_ids: sequence.stop_token_ids,
        ignore_eos: sequence.ignore_eos,
        prefix_cache: !sequence.no_prefix_cache,
    };
    let admission = Admission {
        handle: sequence.handle,
        request_id: sequence.request_id,
        run_label: sequence.run_label,
        resumed_tokens: sequence.resumed_tokens,
        sampling,
    };
    Ok((admission, new))
}

fn at_least_one(field: &'static str, value: u32) -> Result<(), Failure> {
    if value == 0 {
        return Err(Failure::Invalid { field, reason: "0 is too few; at least 1".to_owned() });
    }
    Ok(())
}

fn fits(limit: &'static str, have: u64, need: u64) -> Result<(), Failure> {
    if need > have {
        let remedy = format!("shorten the prompt or max_new_tokens, or start the engine with more {limit}");
        return Err(Failure::NeverFits { limit, have, need, remedy });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use firstlight_proto::error::Kind;

    use super::*;

    const BOUNDS: Bounds =
        Bounds { vocab_size: 100, context_length: 64, kv_blocks: 3, block_tokens: 16, mixed: false };

    fn good() -> v1::Sequence {
        v1::Sequence { handle: 7, token_ids: vec![1, 2, 99], max_new_tokens: 4, ..Default::default() }
    }

    fn refused(change: impl FnOnce(&mut v1::Sequence)) -> (Kind, String) {
        let mut wire = good();
        change(&mut wire);
        let (handle, failure) = sequence(wire, &BOUNDS).unwrap_err();
        assert_eq!(handle, 7);
        (failure.kind(), failure.to_string())
    }

    #[test]
    fn a_good_sequence_passes_whole() {
        let (admission, new) = sequence(good(), &BOUNDS).unwrap();
        assert_eq!((admission.handle, new.tokens, new.max_new_tokens), (7, vec![1, 2, 99], 4));
        assert!(admission.sampling.is_greedy() && new.prefix_cache);
    }

    #[test]
    fn each_wrong_field_is_named() {
        type Change = fn(&mut v1::Sequence);
        let cases: [(&str, Change); 6] = [
            ("token_ids", |s| s.token_ids.clear()),
            ("token_ids", |s| s.token_ids.push(100)),
            ("resumed_tokens", |s| s.resumed_tokens = 3),
            ("max_new_tokens", |s| s.max_new_tokens = 0),
            ("temperature", |s| {
                s.sampling = Some(v1::Sampling { temperature: f32::NAN, ..Default::default() });
            }),
            ("top_p", |s| s.sampling = Some(v1::Sampling { top_p: 1.5, ..Default::default() })),
        ];
        for (field, change) in cases {
            let (kind, text) = refused(change);
            assert_eq!(kind, Kind::Invalid, "{text}");
            assert!(text.starts_with(field), "{text}");
        }
    }

    #[test]
    fn what_exceeds_the_context_or_the_pool_never_fits() {
        let (kind, text) = refused(|s| s.max_new_tokens = u32::MAX);
        assert!(kind == Kind::NeverFits && text.contains("context_length"), "{text}");
        let (kind, text) = refused(|s| s.max_new_tokens = 47);
        assert!(kind == Kind::NeverFits && text.contains("kv_blocks"), "{text}");
        let mut just = good();
        just.max_new_tokens = 46;
        assert!(sequence(just, &BOUNDS).is_ok(), "48 positions fill 3 blocks exactly");
    }

    #[test]
    fn limits_of_zero_are_refused_and_decode_first_is_off_with_mixed_forwards() {
        let good = v1::SetLimits { max_batch_size: 8, step_prefill_tokens: 64, decode_first: true };
        assert!(limits(good, &BOUNDS).unwrap().decode_first);
        assert!(limits(v1::SetLimits { max_batch_size: 0, ..good }, &BOUNDS).is_err());
        assert!(!limits(good, &Bounds { mixed: true, ..BOUNDS }).unwrap().decode_first);
    }
}
