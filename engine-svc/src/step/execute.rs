//! A planned forward on the backend.

use std::slice;

use firstlight_sim::planner::{ForwardPlan, Planner, SeqId};
use slab::Slab;

use super::{StepError, running::Running};
use crate::backend::{Backend, BackendError, Chunk};

/// What a forward brought.
pub(super) struct Executed {
    /// One entry per row that is left in the plan.
    pub(super) sampled: Vec<Option<u32>>,
    /// Sequences on which the backend failed; their rows were taken out of the plan.
    pub(super) failed: Vec<SeqId>,
}

/// Runs `plan`. A sequence that the backend refuses is taken out of it and the others run.
///
/// # Errors
/// When the backend cannot be used further.
pub(super) fn execute(
    backend: &mut dyn Backend,
    planner: &Planner,
    running: &Slab<Running>,
    plan: &mut ForwardPlan,
) -> Result<Executed, StepError> {
    for copy in &plan.copies {
        backend.copy_block(copy.from, copy.to);
    }
    let mut failed = Vec::new();
    while !plan.rows.is_empty() {
        let chunks: Vec<Chunk<'_>> = plan
            .rows
            .iter()
            .map(|row| {
                let seq = planner.sequence(row.id).expect("a planned row is in the engine");
                Chunk {
                    tokens: match &row.draft {
                        Some(draft) => slice::from_ref(draft),
                        None => &seq.tokens()[row.start..row.end()],
                    },
                    start: row.start,
                    blocks: seq.blocks(),
                    sample: row.samples.then(|| &running[row.id.0 as usize].sampling),
                }
            })
            .collect();
        match backend.forward(&chunks) {
            Ok(sampled) => return Ok(Executed { sampled, failed }),
            Err(BackendError::Chunk { index, source }) => {
                let id = plan.rows[index].id;
                plan.rows.retain(|row| row.id != id);
                let request_id = &running[id.0 as usize].request_id;
                tracing::error!(request_id, error = %source, "the backend refuses this sequence");
                failed.push(id);
            }
            Err(error @ BackendError::Device(_)) => return Err(StepError::Backend(error.to_string())),
        }
    }
    Ok(Executed { sampled: Vec::new(), failed })
}
